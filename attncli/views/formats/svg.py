"""SVG: a figure of one stage or several, for an article or a slide, without scripts or other files.

Without --stage it is the weights of an attention, else the last stage that is shaded by itself
(positions, cosines), else the last one and those of the same axes (the angles, cos and sin of
rotary positions). All heads are beside each other, stages below each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape

import numpy as np

from attncli.errors import ConventionError
from attncli.stages import kind_of
from attncli.trace import Trace
from attncli.views.formats.arcs import arcs
from attncli.views.formats.drawing import FONTS, QUIET, SIZE, Drawing, below, paragraph, px
from attncli.views.formats.heatmap import heatmap
from attncli.views.formats.points import scatter
from attncli.views.matrix import Matrix
from attncli.views.outline import is_first_layer
from attncli.views.page import Page, own_names, parts
from attncli.views.parts import Closing, Plot, Remark
from attncli.views.select import DisplayOptions, is_computed
from attncli.views.text import clean, sentence

_MARGIN = 14.0
_GAP = 26.0  # between stages
_DECIMALS = 2  # in the cells, where none are asked for


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The figure as a document of SVG; every page of a trace gives the same."""
    yield from document(sentence(trace.title), *figure(trace, options))


def document(title: str, drawing: Drawing, description: str) -> Iterator[str]:
    """A drawing with a margin on white, and with its title and description as an element each."""
    width, height = drawing.width + 2 * _MARGIN, drawing.height + 2 * _MARGIN
    size = f'width="{px(width)}" height="{px(height)}" viewBox="0 0 {px(width)} {px(height)}"'
    yield '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    yield f'{size} role="img" font-family="{FONTS}" font-size="{px(SIZE)}">\n'
    yield f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n"
    yield '<rect width="100%" height="100%" fill="#fff"/>\n'
    yield f'<g transform="translate({px(_MARGIN)} {px(_MARGIN)})">\n'
    yield from (f"{line}\n" for line in drawing.lines)
    yield "</g>\n</svg>\n"


@np.errstate(all="ignore")  # numbers too large or none are drawn, not warned about
def figure(trace: Trace, options: DisplayOptions) -> tuple[Drawing, str]:
    """The drawing of the stages, and the same in words for those who cannot see it."""
    options = replace(
        options,
        stages=options.stages or _pictured(trace, options),
        precision=options.precision if options.rounded else _DECIMALS,
    )
    found = list(parts(trace, options))
    stages: dict[str, list[Matrix]] = {}
    plots: dict[str, Plot] = {}
    for before, part in zip([None, *found], found, strict=False):
        if isinstance(part, Matrix):
            stages.setdefault(part.block.prefix + part.stage.name, []).append(part)
        elif isinstance(part, Plot) and isinstance(before, Matrix):
            plots[before.block.prefix + before.stage.name] = part
    several = len({matrices[0].block.prefix for matrices in stages.values()}) > 1
    drawn, said = [], []
    for name, matrices in stages.items():
        title, facts = clean(name) if several else matrices[0].name, " · ".join(matrices[0].facts)
        above = paragraph(matrices[0].formula, bold=title, size=SIZE)
        quiet = paragraph(facts, f'fill="{QUIET}"')
        drawn.append(below([above, quiet, Drawing(0, 6), _drawn(matrices, plots.get(name))], 2))
        said.append(f"{title}: {facts}")
    drawn += [paragraph(part.text, f'fill="{QUIET}"') for part in found if isinstance(part, Remark)]
    heads = [head for part in found if isinstance(part, Closing) for head in part.heads]
    said += [f"{head}: {line}" if head else line for head, lines in heads for line in lines]
    return below(drawn, _GAP), ". ".join(said)


def _drawn(matrices: Sequence[Matrix], plot: Plot | None) -> Drawing:
    """One stage: lines where they are asked for, points where it holds such, else shades."""
    first = matrices[0]
    titles = [" · ".join(own_names(matrix.block, matrix.where)) for matrix in matrices]
    if first.options.arcs:
        return arcs(matrices, titles)
    if plot is not None and first.options.heatmap is None and plot.names:
        return scatter(plot.names, plot.points, first.stage.names(first.stage.axes[-1]))
    return heatmap(matrices, titles)


def _pictured(trace: Trace, options: DisplayOptions) -> tuple[str, ...]:
    """The stages of a figure where none are named, by what is known of each kind."""
    stages = {name: stage for name, stage in trace.stages() if is_computed(stage)}
    names = [name for name in stages if options.full or is_first_layer(name)] or [*stages]
    weights = tuple(name for name in names if kind_of(name).summarized)
    if weights:
        return weights
    if options.arcs:
        raise ConventionError("--arcs draws weights, and there are none", "leave it out")
    shown = [name for name in names if kind_of(name).plotted or kind_of(name).shade]
    if shown:
        return (shown[-1],)
    return tuple(name for name in names if stages[name].axes == stages[names[-1]].axes)
