"""How the way of a sentence is shown: which layers are held, which page it is put on."""

from __future__ import annotations

from attncli.cli.options import Show
from attncli.cli.present import check_flags, format_of, present
from attncli.cli.remarks import remark
from attncli.errors import ConventionError
from attncli.explain.pipeline import Keep
from attncli.trace import Trace
from attncli.views.outline import is_first_layer, outline_page
from attncli.views.walk import walk

PRECISION = 3  # a long page is read at a glance; --precision says otherwise
_PAGES = {"table", "markdown"}
_DRAWN = {*_PAGES, "mermaid"}


def check_form(show: Show, *, outline: bool) -> None:
    """ConventionError for an outline in a form, or with a flag, that has no outline."""
    check_flags(show)
    form = format_of(show)
    if outline and form not in _PAGES:
        what = "is an outline already" if form == "mermaid" else "holds numbers"
        raise ConventionError(
            f"--outline is for tables and markdown; {form} {what}", "leave it out"
        )
    for flag, given in (("--stage", show.stage), ("--cell", show.cell), ("--work", show.work)):
        if outline and given:
            raise ConventionError(f"{flag} has nothing to act on in an outline", "leave it out")


def kept(show: Show) -> Keep | None:
    """Which stages of a layer will be shown; None for all of them."""
    if show.full or format_of(show) not in _DRAWN:
        return None
    if not show.stage:
        return is_first_layer
    blocks = [wish.rpartition(".")[0] for wish in show.stage]
    if not all(blocks):  # a stage of every layer
        return None
    wishes = (*show.stage, *blocks)
    return lambda name: any(f".{wish}." in f".{name}." for wish in wishes)


def present_way(trace: Trace, show: Show, *, outline: bool) -> None:
    """Writes the trace as `show` says; what a form has no place for goes to standard error."""
    present(trace, show, page=outline_page if outline else walk, precision=PRECISION)
    if show.cell or format_of(show) not in {*_PAGES, "json", "npz"}:
        for note in trace.notes:
            remark(note, quiet=show.quiet)
