"""Options that one room adds to the command of another: a group of flags that acts on a call.

    @group("Comparing")
    class AgainstFlags:
        against: str | None = flag("Compute once more with these options …", "OPTIONS")

        def applied(self, call: Any) -> Any:
            return call if self.against is None else compared(call, self.against)

`applied` takes a call and gives the call back, changed, or the exit code where it has answered it.
`registry.EXTENSIONS` says which commands have which extensions. A command reads as

    load → extensions → compute → present

and knows none of them. An extension imports its engine where its option is given, not before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
    from attncli.trace import Trace
    from attncli.transformer.layers import Alter


class Program(Protocol):
    """Formulas that compute in place of attncli's."""

    @property
    def is_whole(self) -> bool:
        """Whether they are a program, which may read any array; else lines for some stages."""

    def trace(
        self,
        inputs: InputFlags,
        choices: ConventionFlags,
        *,
        quiet: bool = False,
        show: DisplayFlags | None = None,
    ) -> tuple[Trace, bool]:
        """The trace by these formulas, and whether standard input was read for it."""

    def alter(self, choices: ConventionFlags) -> Alter:
        """What puts these formulas in the place of those of an attention in a layer."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a command, as its extensions see it; a command adds its groups of flags."""

    extensions: tuple[Any, ...] = ()  # those that have not acted yet
    program: Program | None = None


C = TypeVar("C", bound=Call)


def extended(call: C) -> C | int:
    """The call as its extensions leave it, or the exit code where one of them has answered it."""
    while call.extensions:
        first, *others = call.extensions
        result: C | int = first.applied(replace(call, extensions=tuple(others)))
        if isinstance(result, int):
            return result
        call = result
    return call
