"""The call of a command as its trace keeps it: the options that say what is computed, as words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, fields
from typing import Any

import typer

from attncli.convention import flag_of
from attncli.recorded import CallOption, RecordedCall


def recorded_call(command: str, groups: Iterable[Any], order: Sequence[str]) -> RecordedCall | None:
    """The call of a command, without what is only display; None where a word is no text.

    groups  its option groups, filled in
    order   the names of its options, those that are given in the order of the call, which its
            arguments precede, or follow where they begin with a hyphen
    """
    options, arguments = list[CallOption](), list[CallOption]()
    for group in (group for group in groups if not hasattr(group, "form")):  # that of what is shown
        for item in fields(group):
            if item.metadata and item.metadata["provides"] != "display":
                kind = arguments if item.metadata["make"] is typer.Argument else options
                kind += _options(item, getattr(group, item.name))
    options.sort(key=lambda option: order.index(option.name))
    if any(option.words[0][:1] == "-" != option.words[0] for option in arguments):  # no flags
        first, *others = arguments
        whole = [*options, first._replace(words=("--", *first.words)), *others]
    else:
        whole = [*arguments, *options]
    try:
        "".join(word for option in whole for word in option.words).encode()
    except UnicodeEncodeError:  # of a path
        return None
    return RecordedCall(f"attncli {command}", tuple(whole))


def _options(item: Field[Any], value: Any) -> Iterator[CallOption]:
    """The options of a field: none where it is not given, several where it is repeated."""
    if value is None or value is False or value == []:
        return
    is_argument = item.metadata["make"] is typer.Argument
    flag = next(iter(item.metadata["names"]), flag_of(item.name))
    reads, metavar = item.metadata["reads"], item.metadata["more"]["metavar"] or ""
    for each in value if isinstance(value, list) and not is_argument else [value]:
        words = tuple(map(_word, each if isinstance(each, tuple | list) else [each]))
        is_file = reads is not None and any(map(reads, words))
        if each is True or (each == "" and metavar.startswith("[")):  # which may be left out
            words = ()
        words = words if is_argument else (flag, *words)
        yield CallOption(item.name, words, "file" if is_file else item.metadata["provides"])


def names_file(*others: str) -> Callable[[str], bool]:
    """Whether a SOURCE names a file or standard input: it is no literal, and none of these."""

    def reads(source: str) -> bool:
        from attncli.files.source import is_literal

        return source not in others and not is_literal(source)

    return reads


def _word(value: Any) -> str:
    """A value as a shell has it."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
