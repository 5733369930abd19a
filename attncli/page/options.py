"""What to show of a trace: one field a choice, and all that is known of its flag.

The flags of the command line and their help are made from these rows (see cli/options.py), and so
are the keywords of `render` and `plot`. NumPy is not imported, so that --help is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypedDict

Bounds = tuple[int | None, int | None]
Index = Mapping[str, int]

HEADS, KEY_HEADS = "head", "kv_head"


class FlagRow(NamedTuple):
    """What is known of the flag of one field of DisplayOptions.

    name   of the flag, where it is not the field's
    forms  says of a Format whether the flag has an effect on it; None: on every one
    other  a flag with which it has an effect, whatever the form
    more   what else Typer is told
    """

    help: str
    metavar: str | None = None
    panel: str | None = None
    name: str = ""
    forms: Callable[[Any], bool] | None = None
    other: str = ""
    excludes: str = ""
    more: Mapping[str, Any] = {}


def choice(default: Any, help: str, metavar: str | None = None, **more: Any) -> Any:  # noqa: A002 - as Typer has it
    """A field of DisplayOptions with its flag."""
    return field(default=default, metadata={"flag": FlagRow(help, metavar, **more)})


_LEARNING = "Learning"
_PAGE, _EXACT, _FIGURE = "the page", "the exact numbers", "a figure"  # as Format.holds has them


@dataclass(frozen=True)
class DisplayOptions:
    """What to show of a trace; how wide or coloured a screen is, only the table knows.

    stages       dotted names, or the ends or blocks of such; () = all that were computed
    batch, head  the 0-based entry; None = all
    rows, cols   0-based half-open slices of the last two axes of every shown matrix
    precision    decimals
    rounded      whether they were asked for: csv and tsv are exact otherwise
    work         the arithmetic of the first cell under each matrix
    cell         (query, key) by label or 1-based number: the stages that lead to that weight
                 instead, each with its row and its arithmetic
    query        by label or 1-based number: its walk from q·k to its output instead
    blank        the stages without whose numbers it is shown, a worksheet; () = all computed ones
    heatmap      None shades the weights where there is colour, True every stage, False none
    full         leave nothing out
    given        what is given too, such as the queries
    every        all heads, batch entries and layers; of a large matrix still the corners
    arcs         figures draw the weights as lines from queries to keys
    title        that of a figure; None is the name of the stage and its formula
    """

    work: bool = choice(
        False,
        "Write out the arithmetic of each stage's first cell; with --full of all.",
        panel=_LEARNING,
        forms=lambda form: form.holds == _PAGE,
    )
    cell: tuple[str, str] | None = choice(
        None,
        "Derive one weight, by label or number, stage by stage; with --stage, one cell of that "
        "stage.",
        "Q,K",
        panel=_LEARNING,
        forms=lambda form: form.holds == _PAGE,
        excludes="--rows, --cols, --work, --heatmap",
    )
    query: str | None = choice(
        None,
        "Show one query, by label or number, in a table with a row for each key: q·k, exp, the "
        "weight and weight · value. The last row is the sum, which is the output.",
        "Q",
        panel=_LEARNING,
        forms=lambda form: form.holds in (_PAGE, _EXACT),
        other="--sweep",
        excludes="--cell, --stage, --rows, --cols, --work, --heatmap",
    )
    blank: tuple[str, ...] | None = choice(
        None,
        "A worksheet: leave out all computed numbers, or those of a stage (repeatable).",
        "[STAGE]",
        panel=_LEARNING,
        forms=lambda form: form.blanks,
    )
    stages: tuple[str, ...] = choice(
        (),
        "Only this stage (repeatable), such as weights.",
        "NAME",
        name="stage",
    )
    head: int | None = choice(None, "Only this head, from 1.", more={"min": 1})
    batch: int | None = choice(None, "Only this batch item, from 1.", more={"min": 1})
    rows: tuple[int | None, int | None] = choice(
        (None, None), "Only rows A to B, counted from 1; A: and :B are open.", "A:B"
    )
    cols: tuple[int | None, int | None] = choice(
        (None, None), "Only columns A to B, counted from 1.", "A:B"
    )
    precision: int = choice(
        4,
        "Decimals shown (default: 4, explain: 3, figures: 2; csv and tsv: all).",
        forms=lambda form: form.rounds or form.holds == _PAGE,
        more={"min": 0, "max": 17},
    )
    heatmap: bool | None = choice(
        None,
        "Shade every matrix. (Weights are shaded by default where there is colour.)",
        forms=lambda form: form.shades and form.holds in (_PAGE, _FIGURE),
        more={"names": ("--heatmap/--no-heatmap",)},
    )
    full: bool = choice(False, "Show everything, however large.")
    arcs: bool = choice(
        False,
        "svg, png, pdf: draw the weights as lines from queries to keys.",
        forms=lambda form: form.holds == _FIGURE,
        excludes="--heatmap, --no-heatmap",
    )
    title: str | None = choice(
        None,
        "svg, png, pdf: the title of the figure (default: the stage and its formula).",
        "TEXT",
        forms=lambda form: form.holds == "a figure",
    )
    rounded: bool = False
    given: bool = False
    every: bool = False

    @property
    def index(self) -> Index:
        """The chosen batch entry and head."""
        entries = {"batch": self.batch, HEADS: self.head}
        return {axis: entry for axis, entry in entries.items() if entry is not None}


FLAGS: dict[str, FlagRow] = {
    item.name: item.metadata["flag"] for item in fields(DisplayOptions) if item.metadata
}


class Keywords(TypedDict, total=False):
    """The fields of DisplayOptions that `render` and `plot` take as keywords."""

    stages: tuple[str, ...] | list[str] | str
    head: int | None
    batch: int | None
    precision: int | None
    heatmap: bool | None
    full: bool
    arcs: bool
    title: str | None


class RenderKeywords(Keywords, total=False):
    """Those of `render`."""

    work: bool
    cell: tuple[str | int, str | int] | None
    blank: bool | str | tuple[str, ...] | list[str]


class PlotKeywords(Keywords, total=False):
    """Those of `plot`."""

    rows: Bounds
    cols: Bounds
