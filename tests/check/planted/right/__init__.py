from tests.check.planted.rows import Row

RIGHT: dict[str, tuple[Row, ...]] = {}
INSIDE: dict[str, tuple[Row, ...]] = {}
LIBRARIES: dict[str, tuple[Row, ...]] = {}


def skipped() -> dict[str, str]:
    return {}
