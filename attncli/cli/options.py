"""The options that commands share, declared once: one frozen dataclass a group.

None means "not given" throughout, so that a command can tell a choice from a default.
"""

# Annotations are evaluated here on purpose: Typer reads them as objects.

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import typer

from attncli.choices import Choices
from attncli.cli.completion import complete_stage
from attncli.cli.groups import flag, group
from attncli.cli.parsing import cell_of, slice_of, tokens_of, unclear, whole_numbers
from attncli.cli.recording import names_file
from attncli.convention import CHOICES, KNOBS, Convention, Layout, flag_of
from attncli.errors import ConventionError
from attncli.files.roles import ROLES, Role
from attncli.formats import FORMATS, PAGE, names_where, of_ending
from attncli.formats import Format as Form
from attncli.formats import names as names_of_formats
from attncli.page.options import FLAGS, DisplayOptions
from attncli.presets import PRESETS

if TYPE_CHECKING:
    from attncli.files.input_sources import Sources

    Format = str
    Semantics = str
else:
    Format = Literal[tuple(FORMATS)]
    Semantics = Literal[tuple(PRESETS)]


def ending_of(path: str) -> str | None:
    """What follows the last dot of a file's name, in lowercase; None where there is no dot."""
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot else None


PAGES = f"--format {names_where(lambda form: form.holds == PAGE)}"
MAX_SIZE = flag(
    "The most memory that a call may take (default: 1GB). It also limits how many numbers are read "
    "or written as text: one for every 50 bytes, 20 million by default.",
    "SIZE",
)
SOURCE = partial(names_file, ("ones", "random"))
"""Of a flag: whether its text names what is read."""


def array_flag(role: Role) -> Any:
    """The flag of the source of an array."""
    row = ROLES[role]
    return flag(row.help, "SOURCE", panel=row.panel, provides="input", reads=SOURCE)


_ROLES = [(role, str | None, array_flag(role)) for role in ROLES]
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
        panel="Kernels",
        excludes="--split",
    )
    split: str | None = flag(
        "Split the keys after the A-th, the B-th, …, and merge the parts by log-sum-exp.",
        "A,B,…",
        panel="Kernels",
    )

    def sources(self, choices: Choices, observed: str | None = None) -> "Sources":
        """Where everything comes from; observed: one more source to read, for `check`."""
        from attncli.files.input_sources import Sources

        form = "N[,N…], one per batch item"
        as_given = "weights", "weights_axes", "layout", "heads", "kv_heads"
        return Sources(
            roles={role: x for role in ROLES if (x := getattr(self, role)) is not None},
            observed=observed,
            kv_len=None if self.kv_len is None else whole_numbers(self.kv_len, "--kv-len", form),
            tokens=None if self.tokens is None else tokens_of(self.tokens),
            choices=choices,
            **{name: getattr(self, name) for name in as_given},
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
class ConventionFlags(_Knobs, Choices):  # type: ignore[misc]
    """A flag for every field of Convention; `fields` are those that were given, parsed."""

    semantics: Semantics | None = flag(
        "Take the conventions of this library as the defaults of the options below; a flag or "
        "a file takes precedence. attncli semantics lists them.",
        "NAME",
        panel="Libraries",
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


_READ: dict[str, Callable[[Any], Any]] = {
    "stages": tuple,
    "blank": lambda names: () if "" in names else tuple(names),
    "head": lambda number: number - 1,
    "batch": lambda number: number - 1,
    "rows": lambda text: slice_of(text, "--rows"),
    "cols": lambda text: slice_of(text, "--cols"),
    "cell": cell_of,
}
"""Field of DisplayOptions → its value, from that of its flag."""


_NEEDS = {
    name: " or ".join(filter(None, [row.forms and f"--format {names_where(row.forms)}", row.other]))
    for name, row in FLAGS.items()
}
_COMPLETIONS = {name: {"autocompletion": complete_stage} for name in ("stages", "blank")}
_DISPLAY: dict[str, Any] = {
    name: flag(
        row.help,
        row.metavar,
        panel=row.panel,
        needs=_NEEDS[name],
        excludes=row.excludes,
        **{**row.more, **_COMPLETIONS.get(name, {})},
    )
    for name, row in FLAGS.items()
}
"""The flags of the fields of DisplayOptions."""


@group("Showing")
class DisplayFlags:
    """A flag for every field of DisplayOptions that has one, and what only the command line has.

    The same on every command.
    """

    work: bool = _DISPLAY["work"]
    cell: str | None = _DISPLAY["cell"]
    query: str | None = _DISPLAY["query"]
    blank: list[str] | None = _DISPLAY["blank"]
    step: bool = flag(
        "Pause between stages until a key is pressed.",
        panel="Learning",
        needs="--format table",
        excludes="--output",
    )
    stage: list[str] | None = _DISPLAY["stages"]
    head: int | None = _DISPLAY["head"]
    batch: int | None = _DISPLAY["batch"]
    rows: str | None = _DISPLAY["rows"]
    cols: str | None = _DISPLAY["cols"]
    precision: int | None = _DISPLAY["precision"]
    heatmap: bool | None = _DISPLAY["heatmap"]
    full: bool = _DISPLAY["full"]
    width: int | None = flag("Width in columns (default: the terminal's).", min=40, needs=PAGES)
    no_color: bool = flag("Use no colour; NO_COLOR does the same.", excludes="--color auto|always")
    quiet: bool = flag("Print no notes on standard error.")
    debug: bool = flag("Show a traceback where something fails.")
    max_size: str | None = MAX_SIZE
    arcs: bool = _DISPLAY["arcs"]
    title: str | None = _DISPLAY["title"]
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
        needs=f"--format {names_where(lambda form: form.opens)}",
    )

    form: Form = field(init=False)

    def __post_init__(self) -> None:
        """The form of --format, else of the ending of --output; stages in any case of letters."""
        name = self.format or ("html" if self.open else "table")
        if self.format is None and self.output is not None:
            name = of_ending(ending_of(self.output)) or "html"  # of a folder; see check_ending
        self.form = FORMATS[name]
        self.stage = [name.lower() for name in self.stage] if self.stage else None
        self.blank = [name.lower() for name in self.blank] if self.blank else None

    @cached_property
    def options(self) -> DisplayOptions:
        """The part of the flags that says what of a trace is seen.

        Raises ConventionError for a text that is not understood.
        """
        if self.query == "":
            raise unclear("--query", "", "Q, such as q2 or 2")
        values = {name: getattr(self, row.name or name) for name, row in FLAGS.items()}
        given = {name: value for name, value in values.items() if value is not None}
        read = {
            name: _READ[name](value) if name in _READ else value for name, value in given.items()
        }
        return DisplayOptions(**read, rounded=self.precision is not None)

    def check_ending(self, *, into_folder: bool) -> None:
        """ConventionError where --output is empty, or says no form and is not that of a folder."""
        if self.output == "":
            raise ConventionError("--output is empty", "name a file")
        if self.format is None and self.output is not None:
            is_folder = self.output.endswith(("/", os.sep)) or os.path.isdir(self.output)
            is_folder = is_folder or (into_folder and self.output != "-")
            if not is_folder and of_ending(ending_of(self.output)) is None:
                problem = f"{self.output} does not end in a format that attncli writes"
                raise ConventionError(problem, f"add --format {'|'.join(names_of_formats())}")

    def check_form(self) -> None:
        """ConventionError where the form has no use for a flag or the terminal none for the form.

        Raises MissingExtraError where what writes it is not installed.
        """
        if self.color == "always" and self.form is not FORMATS["table"]:
            problem = f"--color always has no effect on {self.form.name}"
            raise ConventionError(problem, "use --format table, or leave it out")
        if self.form.binary and not (self.output or self.open) and sys.stdout.isatty():
            raise ConventionError(f"{self.form.name} is not for a terminal", "add --output FILE")
        if self.form.needs:
            self.form.check_installed()


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
