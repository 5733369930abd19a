"""The flags of Convention's fields: one option for each, read off `KNOBS`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from typer import Option

from attncli.cli.parsing import unclear
from attncli.convention import CHOICES, KNOBS, Convention, flag_of
from attncli.errors import ConventionError


@dataclass(frozen=True)
class Choices:
    """The fields of Convention that flags set, parsed; those not given are not in it."""

    given: Mapping[str, Any]

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """An option for every field of Convention: `--causal`, `--window LEFT,RIGHT` and so on."""
        return [_parameter(name) for name in KNOBS]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Choices:
        """From the values of those options. Raises ConventionError for a text not understood."""
        given = {}
        for name, value in values.items():
            if name not in KNOBS or value is None or value is False:
                continue
            parse = KNOBS[name].parse
            try:
                given[name] = value if parse is None else parse(value)
            except ValueError:
                raise unclear(flag_of(name), value, KNOBS[name].form) from None
        return cls(given)

    def over(self, base: Convention) -> Convention:
        """The base, which an input brings, with every flag that was given put in its place.

        Raises ConventionError for a value outside its range, and for a flag that has no effect.
        """
        how = replace(base, **self.given)
        changed = how.changes()
        for name in self.given:
            needs = KNOBS[name].needs
            if needs and not any(other in changed for other in needs):
                others = " or ".join(map(flag_of, needs))
                raise ConventionError(
                    f"{flag_of(name)} has no effect without {others}",
                    f"add it, or leave {flag_of(name)} out",
                )
        return how


def _parameter(name: str) -> inspect.Parameter:
    knob, is_switch = KNOBS[name], isinstance(getattr(Convention, name), bool)
    kind: Any = bool if is_switch else str if knob.parse else Literal[CHOICES[name]]
    option = Option(
        flag_of(name),
        rich_help_panel=knob.panel,
        show_default=False,
        help=knob.help,
        metavar=knob.metavar or None,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if is_switch else None,
        annotation=Annotated[kind if is_switch else kind | None, option],
    )
