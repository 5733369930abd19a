"""The call of a command as its trace keeps it: the options that say what is computed, as words."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import typer

from attncli.recorded import CallOption, RecordedCall


def recorded_call(command: str, groups: Iterable[Any], order: Sequence[str]) -> RecordedCall | None:
    """The call of a command, without what is only display; None where a word is no text.

    groups  its option groups, filled in
    order   the names of its options, those that are given in the order of the call, which its
            arguments precede, or follow where they begin with a hyphen
    """
    options, arguments = list[CallOption](), list[CallOption]()
    for group in (group for group in groups if not hasattr(group, "form")):  # that of what is shown
        for option in (option for option in group.OPTIONS if option.provides != "display"):
            value, reads, provides = getattr(group, option.name), option.reads, option.provides
            if value is None or value is False or value == []:
                continue
            is_argument = option.make is typer.Argument
            may_be_alone = (option.metavar or "").startswith("[")
            for each in value if isinstance(value, list) and not is_argument else [value]:
                words = tuple(
                    repr(x).removesuffix(".0") if isinstance(x, float) else str(x)
                    for x in (each if isinstance(each, tuple | list) else [each])
                )
                is_file = reads is not None and any(map(reads, words))
                if each is True or (each == "" and may_be_alone):
                    words = ()
                words = words if is_argument else (option.names[0], *words)
                kind = arguments if is_argument else options
                kind.append(CallOption(option.name, words, "file" if is_file else provides))
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


def names_file(others: Collection[str], source: str) -> bool:
    """Whether a SOURCE names a file or standard input: it is no literal, and none of the others."""
    from attncli.files.source import literal

    return source not in others and (os.path.exists(source) or not literal(source)[1])
