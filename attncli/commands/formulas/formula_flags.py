"""What --formulas and --set take, on the commands that compute: formulas in place of attncli's."""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from pathlib import Path
from typing import Any

from attncli.cli.groups import flag, group
from attncli.convention import KNOBS, flag_of

_PROGRAM = "--tiles, --split, --kv-len, --semantics, "
_PROGRAM += ", ".join(flag_of(name) for name in KNOBS if name not in ("dtype", "seed"))


def _names_program(text: str) -> bool:
    """Whether it is the name of a file, not of a variant, nor formulas themselves."""
    return Path(text).is_file() and not ("=" in text and "[" in text)


@group("Formulas", before=("Masking", "Showing"))
class FormulaFlags:
    """Formulas of the user's own, instead of ours."""

    formulas: str | None = flag(
        "Compute by your own formulas: a file, or the name of a variant (attncli formulas --list).",
        "FILE",
        panel="Formulas",
        excludes=_PROGRAM,
        reads=_names_program,
    )
    lines: list[str] | None = flag(
        "Compute one stage by another formula (repeatable), such as --set 'scores[i,j] = …'.",
        "LINE",
        names=("--set",),
        panel="Formulas",
        excludes="--tiles, --split",
    )

    @property
    def is_whole(self) -> bool:
        """Whether they are a program, which may read any array; else lines for some stages."""
        return self.formulas is not None

    def applied(self, call: Any) -> Any:
        """The call, computed by these formulas."""
        return call.with_keyword("program", self)

    def trace(self, *groups: Any, **options: Any) -> Any:
        """The trace by these formulas, and whether standard input was read for it."""
        from attncli.commands.formulas.traced import program_trace

        return program_trace(self.formulas, self.lines or (), *groups, **options)

    def alter(self, choices: Any) -> Any:
        """What puts these formulas in the place of those of an attention in a layer."""
        from attncli.commands.formulas.traced import replacing_by

        return replacing_by(self.formulas, self.lines or (), choices)
