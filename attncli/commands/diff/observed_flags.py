"""What --formulas and --set take on check: what was observed beside the stages of formulas."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from typing import Any

from attncli.cli.groups import group
from attncli.commands.formulas.formula_flags import FormulaFlags


@group("Formulas", before=("Masking",))
class ObservedFormulaFlags(FormulaFlags):
    """Formulas of the user's own, whose stages are what is right."""

    def applied(self, call: Any) -> Any:
        """The comparison with the stages of the formulas."""
        from attncli.commands.diff.observed import beside_program

        return beside_program(call, self)
