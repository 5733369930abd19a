"""What other packages add, by entry points in these groups: commands and formats.

They are looked up only where a name is none of ours, and for lists, so that no call of ours waits
for them. Our names come first: none of them can be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from attncli.errors import AttncliError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS, FORMATS = "attncli.commands", "attncli.formats"
T = TypeVar("T")


@cache
def entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Name → entry point, sorted; of two packages with the same name the first counts."""
    from importlib import metadata

    points = {point.name: point for point in reversed(metadata.entry_points(group=group))}
    return dict(sorted(points.items()))


def load(group: str, name: str, kind: type[T]) -> T:
    """The object that an entry point names; AttncliError where it cannot be imported.

    A module that ends the process, as a script without a guard does, cannot be imported either.
    """
    try:
        thing = entry_points(group)[name].load()
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise broken(group, name, f"cannot be imported: {reason}") from error
    if not isinstance(thing, kind):
        raise broken(group, name, f"is no {kind.__name__} but {type(thing).__name__}")
    return thing


def broken(group: str, name: str, problem: str) -> AttncliError:
    """The error of an entry point, which names its package."""
    point = entry_points(group)[name]
    package = f" of {point.dist.name}" if point.dist else ""
    hint = "mend the package, or uninstall it"
    return AttncliError(f"the plug-in {name} ({point.value}{package}) {problem}", hint)
