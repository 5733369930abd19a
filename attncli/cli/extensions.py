"""Options that one room adds to the command of another: a group of flags that acts on a call.

    @group("Comparing")
    class AgainstFlags:
        against: str | None = flag("Compute once more with these options …", "OPTIONS")

        def applied(self, call: Call) -> Call | Result:
            return compared(call, self.against)

Where one of its options is given, `applied` takes the call, and gives it back, changed, or the
result where it has answered it.
`registry.EXTENSIONS` says which commands have which extensions. A call reads as

    load → extensions → the command's function → present

and no command knows its extensions. One imports its engine where its option is given, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
    from attncli.cli.results import Result
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
    """A call of a command, as its extensions see it.

    command     its name
    function    what runs it: it takes the groups, and gives a Result or an exit code
    groups      its option groups, filled in
    extensions  those that have not acted yet
    keywords    what extensions give to the function, such as `program`
    """

    command: str
    function: Callable[..., Result | int | None]
    groups: tuple[Any, ...]
    extensions: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def result(self) -> Result | int | None:
        """What the command gives, or the first extension that answers the call."""
        for number, extension in enumerate(self.extensions, start=1):
            values = (getattr(extension, option.name) for option in extension.OPTIONS)
            if any(not (x is None or x is False or x == []) for x in values):
                others = replace(self, extensions=self.extensions[number:])
                answer: Call | Result = extension.applied(others)
                return answer.result() if isinstance(answer, Call) else answer
        return self.function(*self.groups, **self.keywords)

    def with_keyword(self, name: str, value: Any) -> Call:
        """The call whose function is given one keyword more."""
        return replace(self, keywords={**self.keywords, name: value})
