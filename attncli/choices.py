"""What a call says of its convention: some fields, and a library for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attncli.convention import Convention, flag_text
from attncli.errors import ConventionError
from attncli.presets import PRESETS


class Choices:
    """Fields of a Convention that were chosen, before an input brings some of its own.

    fields     those that were chosen, by name
    semantics  the library whose conventions are the defaults of the others, a name in PRESETS
    """

    fields: Mapping[str, Any]
    semantics: str | None

    def over(self, base: Convention, *without: str) -> Convention:
        """The base, which an input brings, with every field that was chosen put in its place.

        What neither says is as `semantics` has it; the fields `without` are as the base has them.
        """
        fields = {name: value for name, value in self.fields.items() if name not in without}
        fixed = base.changes().keys() | {*without}
        meant = self.meant_for(2) if self.semantics else {}
        defaults = {name: x for name, x in meant.items() if name not in fixed}
        return replace(base, **defaults | fields)

    def meant_for(self, n_queries: int) -> dict[str, Any]:
        """The fields of the convention as `semantics` has them for so many queries."""
        return PRESETS[self.semantics].fields_for(n_queries) if self.semantics else {}

    def check_call(self, convention: Convention, mask: Any, **sizes: tuple[int, int]) -> None:
        """ConventionError where the library of `semantics` takes no call of these sizes."""
        row = None if self.semantics is None else PRESETS[self.semantics]
        if row and (why := row.refuses_call(convention, mask, **sizes)) is not None:
            hint = f"attncli semantics {row.name} says what it takes"
            raise ConventionError(f"{row.name} refuses this call: {why}", hint)

    def named(self, title: str) -> str:
        """The title of a trace with the library of `semantics`, and the fields beside it."""
        if self.semantics is None:
            return title
        beside = " ".join(flag_text(name, value) for name, value in self.fields.items())
        return f"{title}, as {self.semantics} has it" + f" but for {beside}" * bool(beside)


@dataclass(frozen=True)
class Chosen(Choices):
    """Choices that no flags made."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    semantics: str | None = None
