"""Published variants of attention, a file of formulas each, with its source."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from attncli.errors import InputError, nearest
from attncli.programs.text import MOST_TEXT

_FOLDER = files("attncli") / "programs" / "variants"


@cache
def variants() -> dict[str, str]:
    """Their texts by name, in order; the first line of each is a comment that says its source."""
    texts = {x.name: x.read_text("utf-8") for x in _FOLDER.iterdir() if x.name.endswith(".attn")}
    return {name.removesuffix(".attn"): texts[name] for name in sorted(texts)}


def text_of(source: str) -> tuple[str, str]:
    """The program of a file, a variant, or what is typed, and what messages call it.

    Raises InputError where there is none, or it is no text.
    """
    path, name = Path(source), source.lower().replace("_", "-")
    if "=" in source and ("[" in source or not path.is_file()):
        return source, "what you typed"
    if not path.is_file() and name in variants():
        return variants()[name], name
    try:
        with path.open(encoding="utf-8-sig") as file:
            return file.read(MOST_TEXT + 1), source
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is no text in UTF-8", "save it as that") from error
    except OSError as error:
        if path.suffix or path.parent != Path():
            raise InputError(f"{source} cannot be read: {error.strerror}") from error
        message = f"there is no file and no variant {source!r}"
        raise InputError(
            message, f"{nearest(source, variants())}; attncli formulas --list"
        ) from error
