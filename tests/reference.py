"""The flags as the README's tables list them: read off what the commands declare."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

from attncli.cli import commands
from attncli.cli.groups import parameters_of
from attncli.cli.options import Choices, DisplayFlags, Inputs

GROUPS: dict[str, Any] = {
    "Inputs": Inputs,
    "Masking and scores": Choices,
    "Showing": DisplayFlags,
    "Sentence": commands.Text,
    "Vectors": commands.Vectors,
    "Block": commands.Block,
    "Model": commands.Checkpoint,
    "Positions": commands.Positions,
    "Word vectors": commands.Words,
    "Examples": commands.Which,
    "Checking": commands.Observed,
    "Comparing": commands.Against,
    "Compared": commands.Compared,
}
"""The headings of the README's reference, and the option group of each."""


def rows_of(group: str) -> list[tuple[str, str]]:
    """The flags of a group as the README writes them, and their help."""
    found = []
    for parameter in parameters_of(GROUPS[group]):
        if get_origin(parameter.annotation) is not Annotated:
            continue
        kind, option = get_args(parameter.annotation)
        decls = (option.default, *(option.param_decls or ()))
        names = [name for name in decls if isinstance(name, str) and name.startswith("-")]
        if names:
            flags = ", ".join(f"`{part}`" for name in names for part in name.split("/"))
            takes = option.metavar or _values(kind)
            found.append((f"{flags} {takes}".strip().replace("|", "\\|"), option.help))
    return found


def _values(kind: Any) -> str:
    """What a flag takes: its choices, N for a whole number, nothing for a switch."""
    kinds = [part for part in get_args(kind) if part is not type(None)] or [kind]
    kind = kinds[0] if get_origin(kind) is not Literal else kind
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    return {int: "N", float: "FLOAT", bool: "", str: "TEXT"}.get(kind, "")
