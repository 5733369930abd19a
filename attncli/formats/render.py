"""A trace as text or as a figure, for Python and notebooks: as --format and the display flags.

trace ──┬── render ──> table, markdown, html, latex, mermaid, python, svg, csv, tsv or json
        └── plot ────> the Axes of a figure by Matplotlib
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from attncli.errors import ConventionError
from attncli.formats import FORMATS, PAGE
from attncli.page.options import DisplayOptions, PlotKeywords, RenderKeywords
from attncli.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Form = Literal[
    "table", "markdown", "html", "notebook", "latex", "mermaid", "python", "svg", "csv", "tsv",
    "json",
]  # fmt: skip
"""As --format has them; "notebook" is the element of an HTML page, for a page of one's own."""


def render(trace: Trace, form: Form = "table", **options: Unpack[RenderKeywords]) -> str:
    """The trace as `attncli --format FORM` would print it, in a pipe.

    stages       dotted names, or their ends, such as "weights"; () is all
    head, batch  one of them, counted from 0; None is all
    precision    decimals; None is 4, of svg 2, of csv and tsv all
    work         the arithmetic of the first cell under each matrix; with `full` of every cell
    cell         (query, key), by label or counted from 1: the stages that lead to that weight
                 instead, each with its row and its arithmetic; with one stage, to its cell
    heatmap      shade every matrix; False: none; None: the weights, where the form has colours
    full         leave nothing out
    arcs         svg: the weights as lines from queries to keys
    title        svg: that of the figure; None is the name of the stage and its formula
    blank        a worksheet: without the numbers of these stages, True: of all that are computed

    Raises ConventionError for an unknown form, or no cell, StageError or ShapeError for what is not
    there.

    >>> import attncli
    >>> trace = attncli.attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
    >>> print(render(trace, stages=["output"], precision=2).splitlines()[4])
      q1  6.70  3.30
    """
    if form not in get_args(Form):
        raise ConventionError(f"form is {form!r}", f"use {', '.join(get_args(Form))}")
    display = _display("render", RenderKeywords, options)
    trace = trace.computing(display.stages)
    if display.blank is not None:
        from attncli.page.worksheet import without_numbers

        if form != "notebook" and not FORMATS[form].blanks:
            raise ConventionError(f"no numbers can be left out of {form}", "leave blank out")
        trace = without_numbers(trace, display.blank)
    row = FORMATS["html" if form == "notebook" else form]
    written = row.module().fragment if form == "notebook" else row.load()
    is_of_sentence = any(name.endswith("tokens") for name in trace)
    if row.holds == PAGE and is_of_sentence:
        from attncli.page.explain import explain_page

        return "".join(written(trace, display, explain_page))
    return "".join(written(trace, display))


def plot(trace: Trace, ax: Axes | None = None, **options: Unpack[PlotKeywords]) -> Axes:
    """Draws a trace by Matplotlib, in the style that is set there; needs the extra `figures`.

    ax          the Axes to draw one matrix into; None draws every head into a figure of its own
    rows, cols  of each matrix, counted from 0: (start, stop)
    precision   decimals in the cells; None is 2

    The others are those of `render`. Returns the Axes, without `ax` the first of the figure, which
    is its `figure`. The colours of cells are those of its `collections[0]`, of more than 2500 of
    its `images[0]`.

    Raises ConventionError where one Axes would have to hold several matrices, and as `render` does;
    MissingExtraError without Matplotlib.

    >>> import attncli
    >>> trace = attncli.attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
    >>> axes = trace.plot(stages="weights")
    >>> axes.get_xlabel(), [label.get_text() for label in axes.get_xticklabels()]
    ('keys', ['k1', 'k2'])
    """
    display = _display("plot", PlotKeywords, options)
    axes: Axes = FORMATS["svg"].module().plot(trace.computing(display.stages), display, ax)
    return axes


def _display(function: str, kind: Any, keywords: Mapping[str, Any]) -> DisplayOptions:
    """The keywords of a function as options.

    Raises ConventionError for no cell or fewer decimals than none, TypeError for a keyword that the
    function does not have.
    """
    for name in keywords:
        if name not in kind.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    values = dict(keywords)
    stages, cell, blank = (values.pop(name, None) for name in ("stages", "cell", "blank"))
    precision = values.pop("precision", None)
    if cell is not None:
        if not (isinstance(cell, tuple | list) and len(cell) == 2):
            raise ConventionError(f"cell is {cell!r}", "give a query and a key: (2, 1)")
        values["cell"] = (str(cell[0]), str(cell[1]))
    if precision is not None:
        if precision < 0:
            raise ConventionError(f"precision is {precision}", "use a whole number from 0")
        values |= {"precision": precision, "rounded": True}
    if blank is not None and blank is not False:
        values["blank"] = () if blank is True else _names(blank)
    return DisplayOptions(**values, stages=() if stages is None else _names(stages))


def _names(names: Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    return (names,) if isinstance(names, str) else tuple(names)
