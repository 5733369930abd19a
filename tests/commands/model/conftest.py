"""torch and transformers for the modules that need them, imported when their tests run."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _libraries(request: pytest.FixtureRequest) -> None:
    """The names of NEEDS in a module become the libraries; without one its tests are skipped."""
    for name in getattr(request.module, "NEEDS", ()):
        library = pytest.importorskip(name, reason="needs the extra: pip install attncli[models]")
        setattr(request.module, name, library)
