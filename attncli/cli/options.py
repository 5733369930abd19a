"""The options that commands share, declared once: one frozen dataclass a group.

None means "not given" throughout, so that a command can tell a choice from a default.
"""

# Annotations are evaluated here on purpose: Typer reads them as objects.

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typer import Option

from attncli.cli.parsing import unclear
from attncli.convention import CHOICES, KNOBS, Convention, flag_of
from attncli.errors import ConventionError
from attncli.views.formats import FORMATS

if TYPE_CHECKING:
    Format = str
else:
    Format = Literal[tuple(FORMATS)]

MASK = Option(
    "--mask",
    metavar="SOURCE",
    rich_help_panel="Masking",
    help="True/false, or numbers added to the scores; broadcasts from the right.",
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Inputs:
    """Where q, k and v come from and how they are laid out."""

    PANEL: ClassVar = "Inputs"

    q: Annotated[
        str,
        Option(
            "--q",
            metavar="SOURCE",
            help="Queries: a file that names q, k and v, a saved trace, or one matrix. A SOURCE is "
            "a path, path::name, - (standard input) or JSON that begins with [.",
        ),
    ]
    k: Annotated[
        str | None,
        Option("--k", metavar="SOURCE", help="Keys, where not in the file of --q; else K = Q."),
    ] = None
    v: Annotated[
        str | None,
        Option("--v", metavar="SOURCE", help="Values, where not in the file of --q; else V = K."),
    ] = None
    layout: Annotated[
        Literal["hsd", "shd", "bsd", "bhsd", "bshd"] | None,
        Option(
            "--layout",
            help="Order of the axes: b batch, h head, s tokens, d. Default: hsd for 3-D, bhsd for "
            "4-D.",
        ),
    ] = None
    heads: Annotated[
        int | None,
        Option("--heads", min=1, help="Split the last axis of (tokens, d) or bsd into heads."),
    ] = None
    kv_heads: Annotated[
        int | None,
        Option("--kv-heads", min=1, help="Heads of K and V, if fewer (grouped queries)."),
    ] = None
    past_k: Annotated[
        str | None, Option("--past-k", metavar="SOURCE", help="Cached keys, put before the keys.")
    ] = None
    past_v: Annotated[
        str | None,
        Option("--past-v", metavar="SOURCE", help="Cached values, put before the values."),
    ] = None
    kv_len: Annotated[
        str | None,
        Option(
            "--kv-len",
            metavar="N[,N…]",
            help="Valid keys, one number per batch item; those past it are padding.",
        ),
    ] = None
    mask: Annotated[str | None, MASK] = None


@dataclass(frozen=True)
class Choices:
    """The fields of Convention that flags set, parsed; those not given are not in it."""

    given: Mapping[str, Any]

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """An option for every field of Convention: `--causal`, `--window LEFT,RIGHT` and so on."""
        found = []
        for name, knob in KNOBS.items():
            is_switch = isinstance(getattr(Convention, name), bool)
            kind: Any = bool if is_switch else str if knob.parse else Literal[CHOICES[name]]
            option = Option(
                flag_of(name),
                rich_help_panel=knob.panel,
                show_default=False,
                help=knob.help,
                metavar=knob.metavar or None,
            )
            annotation: Any = Annotated[kind if is_switch else kind | None, option]
            default = False if is_switch else None
            named = {"default": default, "annotation": annotation}
            found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, **named))
        return found

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Choices":
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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Show:
    """What is shown, and how; the same on every command."""

    PANEL: ClassVar = "Showing"

    stage: Annotated[
        list[str] | None,
        Option("--stage", metavar="NAME", help="Only this stage (repeatable), such as weights."),
    ] = None
    head: Annotated[int | None, Option("--head", min=1, help="Only this head, from 1.")] = None
    batch: Annotated[int | None, Option("--batch", min=1, help="Only this batch item, from 1.")] = (
        None
    )
    rows: Annotated[
        str | None,
        Option("--rows", metavar="A:B", help="Only rows A to B, from 1; or A:, :B."),
    ] = None
    cols: Annotated[
        str | None, Option("--cols", metavar="A:B", help="Only columns A to B, from 1.")
    ] = None
    precision: Annotated[
        int | None,
        Option("--precision", min=0, max=17, help="Decimals shown (default: 4, explain: 3)."),
    ] = None
    work: Annotated[
        bool, Option("--work", help="Write out the arithmetic of each stage's first cell.")
    ] = False
    cell: Annotated[
        str | None,
        Option(
            "--cell",
            metavar="Q,K",
            help="Derive one weight, by label or number, from the dot product to the division.",
        ),
    ] = None
    heatmap: Annotated[
        bool | None,
        Option(
            "--heatmap/--no-heatmap",
            help="Shade cells by value; weights are, where the terminal has colour.",
        ),
    ] = None
    step: Annotated[bool, Option("--step", help="Wait for a key between stages.")] = False
    full: Annotated[bool, Option("--full", help="Leave nothing out, however large.")] = False
    width: Annotated[
        int | None, Option("--width", min=40, help="Columns to use (default: the terminal).")
    ] = None
    no_color: Annotated[bool, Option("--no-color", help="No colour; NO_COLOR does the same.")] = (
        False
    )
    quiet: Annotated[bool, Option("--quiet", help="No notes on standard error.")] = False
    debug: Annotated[bool, Option("--debug", help="Show a traceback where something fails.")] = (
        False
    )
    format: Annotated[
        Format | None,
        Option(
            "--format",
            help="Form of the result (default: table, or what the ending of --output says).",
        ),
    ] = None
    output: Annotated[
        str | None, Option("--output", "-o", metavar="FILE", help="Write the result to a file.")
    ] = None
    force: Annotated[bool, Option("--force", help="Replace the file of --output.")] = False
