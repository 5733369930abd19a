"""The small languages of flags: A:B, N,N,N, Q,K and A,B,C."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress

from attncli.budget import DEFAULT
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.stages import CALLED, SPECS

Bounds = tuple[int | None, int | None]
_BLOCKS = "encoder decoder attention cross_attention feed_forward meaning target"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def is_of(name: str, names: Iterable[str]) -> bool:
    """Whether a dotted name is one of those asked for, ends with one, or is within its block.

    >>> is_of("encoder.1.attention.weights", ["weights"]), is_of("lse", ["weights"])
    (True, False)
    """
    return any(f".{part}." in f".{name}." for part in names)


def slice_of(text: str, flag: str) -> Bounds:
    """A:B, counted from 1 and both included, as a 0-based half-open slice; -3: is the last three.

    >>> slice_of("2:5", "--rows"), slice_of("3:", "--rows"), slice_of("-3:", "--rows")
    ((1, 5), (2, None), (-3, None))
    >>> slice_of("4", "--rows")
    (3, 4)
    """
    first, colon, last = text.partition(":")
    try:
        start = int(first) if first.strip() else None
        end = (int(last) if last.strip() else None) if colon else start
    except ValueError:
        raise unclear(flag, text, "A:B, such as 2:5, 3: or :4") from None
    if 0 in {start, end} or (start is None and end is None):
        raise unclear(flag, text, "A:B, counted from 1, such as 2:5, 3: or :4")
    if start is not None and end is not None and (start > 0) == (end > 0) and start > end:
        raise ConventionError(f"{flag} {text} ends before it begins", f"use {flag} {end}:{start}")
    if start is not None and start > 0:
        start -= 1
    if end is not None and end < 0:  # the last entry, -1, is the open end
        end = end + 1 or None
    return start, end


def rows_of(text: str, n_queries: int) -> slice:
    """The rows of --rows; ShapeError where there are none such."""
    rows = slice(*slice_of(text, "--rows"))
    if not range(n_queries)[rows]:
        raise ShapeError(f"there are no rows {text}", f"there are {n_queries} queries")
    return rows


def whole_numbers(text: str, flag: str, form: str) -> list[int]:
    """Whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise unclear(flag, text, form) from None


def bytes_of(text: str | None) -> int:
    """The SIZE of --max-size: bytes, or so many kB, MB or GB; that of a budget where it is None.

    >>> bytes_of("1.5GB"), bytes_of("200 MB"), bytes_of("2e9")
    (1500000000, 200000000, 2000000000)
    """
    if text is None:
        return DEFAULT
    parts = re.fullmatch(r"([0-9.]+(?:e[0-9]{1,2})?)\s*([kmg]?)b?", text.strip().lower())
    with suppress(ValueError, OverflowError):  # of more digits than float64 holds
        size = int(float(parts[1]) * _UNITS[parts[2]]) if parts else 0
        if size > 0:
            return size
    raise unclear("--max-size", text, "SIZE, such as 500MB or 4GB")


def cell_of(text: str) -> tuple[str, str]:
    """Q,K: a query and a key, each a label or a 1-based number.

    >>> cell_of("q2,k3"), cell_of('",",bank(5)')
    (('q2', 'k3'), (',', 'bank(5)'))
    """
    label = r'\s*("[^"]+"(?: ?\(\d+\))?|[^,"]+?)\s*'
    if (names := re.fullmatch(f"{label},{label}", text)) is None:
        form = """QUERY,KEY, such as q2,k3 or 2,3; a comma as a token is '","'"""
        raise unclear("--cell", text, form)
    return names[1].replace('"', ""), names[2].replace('"', "")


def tokens_of(text: str) -> tuple[str, ...]:
    """A,B,C or a JSON list of strings; whitespace around commas is ignored.

    >>> tokens_of("New, York"), tokens_of('["a", ","]')
    (('New', 'York'), ('a', ','))
    """
    if not text.startswith("["):
        tokens = tuple(part.strip() for part in text.split(","))
        if not all(tokens):
            raise InputError("--tokens holds an empty token", "write --tokens a,b,c")
        return tokens
    import json

    names = None
    with suppress(ValueError):
        names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(x, str) and x for x in names) or not names:
        raise InputError("--tokens is no JSON list of strings", """write --tokens '["a", ","]'""")
    return tuple(names)


def with_blank_values(arguments: list[str], stages: Collection[str] = ()) -> list[str]:
    """The arguments with --blank= in the place of a --blank that names no stage; so for --random.

    stages  the names of those that only this command makes

    >>> with_blank_values(["a.json", "--blank", "weights", "--random", "--blank"])
    ['a.json', '--blank', 'weights', '--random=', '--blank=']
    """
    whole: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return whole + arguments[at:]
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        *blocks, stage = following.lower().split(".")
        is_stage = stage in (*SPECS, *CALLED, *stages, *_BLOCKS.split())
        is_stage = is_stage or bool(blocks and stage.isdecimal())
        if argument in ("--blank", "--random") and following.startswith("-"):
            whole.append(f"{argument}=")
        elif argument == "--blank" and not is_stage:
            problem = f"{following!r} after --blank is not the name of a stage"
            raise ConventionError(problem, "put --blank last, or write --blank=STAGE")
        else:
            whole.append(argument)
    return whole


def sizes_of(text: str) -> tuple[int, int, int]:
    """The tokens, d_k and d_v that --random NxD or NxDxM names; 3x2 where it names none."""
    numbers = re.fullmatch(r"(\d{1,2})[xX×](\d{1,2})(?:[xX×](\d{1,2}))?", text or "3x2")
    sizes = [int(size) for size in numbers.groups() if size] if numbers else [0]
    if min(sizes) < 1 or max(sizes) > 64:
        raise unclear("--random", text, "NxD, such as 3x2: N tokens of width D, each from 1 to 64")
    return sizes[0], sizes[1], sizes[-1]


def unclear(flag: str, text: str, form: str) -> ConventionError:
    """What to say of a flag's text that cannot be parsed, and how to write it."""
    return ConventionError(f"{flag} {text!r} is not understood", f"write {flag} {form}")
