"""For the tests of check: a number type for each case."""

from zlib import crc32

import pytest

DTYPES = "float64", "float32"


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> str:
    """One of the number types, the same for a case in every run: half of the cases have each."""
    return DTYPES[crc32(request.node.name.encode()) % len(DTYPES)]
