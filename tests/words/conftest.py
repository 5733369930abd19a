"""The folder into which the tests write, as those of files/ have it."""

from tests.files.conftest import folder

__all__ = ["folder"]
