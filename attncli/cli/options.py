"""The options that commands share, declared once: one frozen dataclass a group.

None means "not given" throughout, so that a command can tell a choice from a default.
"""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import typer

from attncli.cli.groups import flag, group
from attncli.cli.parsing import unclear
from attncli.cli.recording import names_file
from attncli.convention import CHOICES, KNOBS, Convention, Layout, flag_of, flag_text
from attncli.errors import ConventionError
from attncli.files.roles import ROLES
from attncli.formats import EXACT, FIGURE, FORMATS, PAGE, names_where, of_ending
from attncli.formats import Format as Form
from attncli.formats import names as names_of_formats
from attncli.presets import PRESETS

if TYPE_CHECKING:
    Format = str
    Semantics = str
else:
    Format = Literal[tuple(FORMATS)]
    Semantics = Literal[tuple(PRESETS)]


def forms(has_use: Callable[[Form], bool]) -> str:
    """What a flag needs that some forms of the result have a use for."""
    return f"--format {names_where(has_use)}"


def ending_of(path: str) -> str | None:
    """What follows the last dot of a file's name, in lowercase; None where there is no dot."""
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot else None


learning = partial(flag, panel="Learning")
PAGES = forms(lambda form: form.holds == PAGE)
MAX_SIZE = flag(
    "The most memory that a call may take (default: 1GB). It also limits how many numbers are read "
    "or written as text: one for every 50 bytes, 20 million by default.",
    "SIZE",
)
SOURCE = names_file("ones", "random")
"""Of a flag: whether its text names what is read."""
MASK = flag(ROLES["mask"].help, "SOURCE", panel=ROLES["mask"].panel, provides="input", reads=SOURCE)
ONES_SHOW = (
    "--d-output ones is the gradient of output.sum(): mix-ups of queries, heads or dimensions stay "
    "hidden; --d-output random shows them"
)
"""What is said of `--d-output ones`."""
_ROLES = [
    (role, str | None, flag(row.help, "SOURCE", panel=row.panel, provides="input", reads=SOURCE))
    for role, row in ROLES.items()
]
_Sources: Any = make_dataclass(
    "_Sources", _ROLES, kw_only=True, eq=False, repr=False, match_args=False
)


@group("Inputs")
class InputFlags(_Sources):  # type: ignore[misc]
    """Where each array of ROLES and the weights come from, and the order of their axes."""

    source: str | None = flag(
        "The same as --q SOURCE.", "SOURCE", make=typer.Argument, provides="input", reads=SOURCE
    )
    tokens: str | None = flag(
        "Names of the queries and keys, separated by commas or as a JSON list.",
        "A,B,C",
        excludes="--format mermaid",
        provides="input",
    )
    weights: str | None = flag(
        "Weights of x: w_q, w_k, w_v, w_o, b_q …, under any names they are published with.",
        "SOURCE",
        provides="input",
        reads=SOURCE,
    )
    weights_axes: Literal["auto", "in-out", "out-in"] | None = flag(
        "in-out: X W. out-in: X Wᵀ, as in PyTorch's Linear. auto (the default): by the names of "
        "the weights, or else by the shapes that fit.",
        needs="the weights of x",
        provides="input",
    )
    layout: Layout | None = flag(
        "Order of the axes: batch, head, s (tokens), d. Default: hsd for 3-D, bhsd for 4-D.",
        provides="input",
    )
    heads: int | None = flag(
        "Split the last axis of (tokens, d) or bsd into heads.", min=1, provides="input"
    )
    kv_heads: int | None = flag(
        "Heads of K and V, if fewer (grouped-query attention).", min=1, provides="input"
    )
    kv_len: str | None = flag(
        "Number of valid keys, one per batch item; the other keys are padding.",
        "N[,N…]",
        provides="input",
    )
    tiles: int | None = flag(
        "Process the keys in tiles of N, with a running maximum, sum and output (online softmax, "
        "as in FlashAttention).",
        min=1,
        panel="Scores",
        excludes="--split",
    )
    split: str | None = flag(
        "Split the keys after the A-th, the B-th, …, and merge the parts by log-sum-exp.",
        "A,B,…",
        panel="Scores",
    )


_TAKES: dict[str, Any] = {  # a switch, text to be parsed, or one of a few
    name: bool
    if isinstance(getattr(Convention, name), bool)
    else (str if knob.parse else Literal[CHOICES[name]]) | None
    for name, knob in KNOBS.items()
}
_KNOBS = [
    (
        name,
        _TAKES[name],
        flag(
            knob.help,
            knob.metavar or None,
            panel=knob.panel,
            needs=", ".join(filter(None, (" or ".join(knob.needs), knob.input))),
            excludes="--block decoder" * (name == "causal"),  # whose self-attention is causal
        ),
    )
    for name, knob in KNOBS.items()
]
_Knobs: Any = make_dataclass("_Knobs", _KNOBS, kw_only=True, eq=False, repr=False, match_args=False)


@group("Masking")
class ConventionFlags(_Knobs):  # type: ignore[misc]
    """A flag for every field of Convention; `fields` are those that were given, parsed."""

    semantics: Semantics | None = flag(
        "Take the conventions of this library as the defaults of the options below; a flag or "
        "a file takes precedence. attncli semantics lists them.",
        "NAME",
    )
    fields: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConventionError for a text that is not understood."""
        fields = {}
        for name, knob in KNOBS.items():
            value = getattr(self, name)
            if value is None or value is False:
                continue
            try:
                fields[name] = value if knob.parse is None else knob.parse(value)
            except ValueError:
                raise unclear(flag_of(name), value, knob.form) from None
        Convention(**fields)  # which refuses what is out of range
        self.fields = fields

    def over(self, base: Convention, *without: str) -> Convention:
        """The base, which an input brings, with every flag that was given put in its place.

        What neither says is as --semantics has it; the fields `without` are as the base has them.
        """
        fields = {name: value for name, value in self.fields.items() if name not in without}
        fixed = base.changes().keys() | {*without}
        defaults = {name: x for name, x in self.meant_for(2).items() if name not in fixed}
        return replace(base, **defaults | fields)

    def meant_for(self, n_queries: int) -> dict[str, Any]:
        """The fields of the convention as --semantics has them for so many queries."""
        return PRESETS[self.semantics].fields_for(n_queries) if self.semantics else {}

    def check_call(self, convention: Convention, mask: Any, **sizes: tuple[int, int]) -> None:
        """ConventionError where the library of --semantics takes no call of these sizes."""
        row = None if self.semantics is None else PRESETS[self.semantics]
        if row and (why := row.refuses_call(convention, mask, **sizes)) is not None:
            hint = f"attncli semantics {row.name} says what it takes"
            raise ConventionError(f"{row.name} refuses this call: {why}", hint)

    def named(self, title: str) -> str:
        """The title of a trace with the library of --semantics, and the flags beside it."""
        if self.semantics is None:
            return title
        beside = " ".join(flag_text(name, value) for name, value in self.fields.items())
        return f"{title}, as {self.semantics} has it" + f" but for {beside}" * bool(beside)


@group("Showing")
class DisplayFlags:
    """What is shown, and how; the same on every command."""

    work: bool = learning(
        "Write out the arithmetic of each stage's first cell; with --full of all.", needs=PAGES
    )
    cell: str | None = learning(
        "Derive one weight, by label or number; with --stage, one cell of that stage.",
        "Q,K",
        needs=PAGES,
        excludes="--rows, --cols, --work, --heatmap",
    )
    query: str | None = learning(
        "Show one query, by label or number, in a table with a row for each key: q·k, exp, the "
        "share and share · value. The last row is the sum, which is the output.",
        "Q",
        needs=f"{forms(lambda form: form.holds in (PAGE, EXACT))} or --sweep",
        excludes="--cell, --stage, --rows, --cols, --work, --heatmap",
    )
    blank: list[str] | None = learning(
        "A worksheet: leave out all computed numbers, or those of a stage (repeatable).",
        "[STAGE]",
        needs=forms(lambda form: form.blanks),
    )
    step: bool = learning(
        "Wait for a key between stages.", needs="--format table", excludes="--output"
    )
    stage: list[str] | None = flag("Only this stage (repeatable), such as weights.", "NAME")
    head: int | None = flag("Only this head, from 1.", min=1)
    batch: int | None = flag("Only this batch item, from 1.", min=1)
    rows: str | None = flag("Only rows A to B, counted from 1; A: and :B are open.", "A:B")
    cols: str | None = flag("Only columns A to B, counted from 1.", "A:B")
    precision: int | None = flag(
        "Decimals shown (default: 4, explain: 3, figures: 2; csv and tsv: all).",
        min=0,
        max=17,
        needs=forms(lambda form: form.rounds or form.holds == PAGE),
    )
    heatmap: bool | None = flag(
        "Shade every matrix. (Weights are shaded by default where there is colour.)",
        names=("--heatmap/--no-heatmap",),
        needs=forms(lambda form: form.shades and form.holds in (PAGE, FIGURE)),
    )
    full: bool = flag("Show everything, however large.")
    width: int | None = flag("Width in columns (default: the terminal's).", min=40, needs=PAGES)
    no_color: bool = flag("Use no colour; NO_COLOR does the same.", excludes="--color auto|always")
    quiet: bool = flag("Print no notes on standard error.")
    debug: bool = flag("Show a traceback where something fails.")
    max_size: str | None = MAX_SIZE
    arcs: bool = flag(
        "svg, png, pdf: draw the weights as lines from queries to keys.",
        needs=forms(lambda form: form.holds == FIGURE),
        excludes="--heatmap, --no-heatmap",
    )
    color: Literal["auto", "always", "never"] | None = flag(
        "When to use colour: auto (the default: on a terminal, or as NO_COLOR and FORCE_COLOR "
        "say), always (in a pipe or a file, too), or never."
    )
    format: Format | None = flag(
        "Form of the result (default: table, or what the ending of --output says).",
        choices=names_of_formats,
    )
    output: str | None = flag("Write the result to a file.", "FILE", names=("--output", "-o"))
    force: bool = flag("Replace the file of --output.", needs="--output")
    open: bool = flag(
        "Open the result in the browser (default: as html, in a temporary folder, which is kept).",
        needs=forms(lambda form: form.opens),
    )

    form: Form = field(init=False)

    def __post_init__(self) -> None:
        """The form of --format, else of the ending of --output; stages in any case of letters."""
        name = self.format or ("html" if self.open else "table")
        if self.format is None and self.output is not None:
            name = of_ending(ending_of(self.output)) or ""
            if not name:
                problem = f"{self.output} does not end in a format that attncli writes"
                raise ConventionError(problem, f"add --format {'|'.join(names_of_formats())}")
        self.form = FORMATS[name]
        self.stage = [name.lower() for name in self.stage] if self.stage else None
        self.blank = [name.lower() for name in self.blank] if self.blank else None


# ---- shared by some commands

Inside = Literal["float32", "tf32", "bfloat16", "float16"]
DECIMALS = flag(
    "Decimals of the printed numbers.", min=0, max=17, excludes="--rtol, --atol, --inside"
)
RTOL, ATOL = flag("Relative tolerance."), flag("Absolute tolerance.")
INSIDE = flag(
    "Allow lower internal precision than the number type of the arrays.", excludes="--rtol, --atol"
)
DROPOUT = "Probability with which each weight is set to 0 (default: 0)."
PRECISION_HELP = "Decimals shown (default: {})."
STAGE_HELP = "Only this stage (repeatable), such as {}."
