"""What is known of one choice of a Convention: its help, its flag, and which values it takes."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from attncli.convention import Convention

Write = Callable[[float], str]


class Knob(NamedTuple):
    """What is known of one field of Convention besides its type and default.

    words  (value, convention, how a number is written) → what a headline says of a value that is
           not the default
    """

    panel: str  # the panel of --help, such as "Masking"
    help: str  # what the choice does
    metavar: str = ""  # what the flag takes, where that is text to be parsed
    parse: Callable[[str], Any] | None = None  # text of the flag → value; raises ValueError
    form: str = ""  # how to write the flag, for a text that cannot be parsed
    valid: Callable[[Any], bool] | None = None  # whether a value is, where the type does not say so
    use: str = ""  # which values are, for the error message
    words: Callable[[Any, Convention, Write], str] | None = None
    needs: tuple[str, ...] = ()  # fields of which one must be set for this one to have an effect
    input: str = ""  # what the input must have for it, in words of a message

    def has_effect(self, changed: Container[str]) -> bool:
        """Whether the field has an effect where these fields are not the default."""
        return not self.needs or any(name in changed for name in self.needs)


def knob(panel: str, default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - as Typer has it
    """A field of Convention with its Knob."""
    return field(default=default, metadata={"knob": Knob(panel, help, **more)})
