"""The options that commands share, declared once: one frozen dataclass a group.

None means "not given" throughout, so that a command can tell a choice from a default.
"""

# Annotations are evaluated here on purpose: Typer reads them as objects.

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from typer import Option

Format = Literal["table", "json", "csv", "tsv", "markdown", "mermaid", "npz", "npy"]


def option(panel: str, *names: str, **more: Any) -> Any:
    """An option in a panel of the help."""
    return Option(*names, rich_help_panel=panel, show_default=False, **more)


def _input(*names: str, **more: Any) -> Any:
    return option("Inputs", *names, **more)


def _show(*names: str, **more: Any) -> Any:
    return option("Showing", *names, **more)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Inputs:
    """Where q, k and v come from and how they are laid out."""

    q: Annotated[
        str,
        _input(
            "--q",
            metavar="SOURCE",
            help="Queries: a file that names q, k and v, a saved trace, or one matrix. A SOURCE is "
            "a path, path::name, - (standard input) or JSON that begins with [.",
        ),
    ]
    k: Annotated[
        str | None,
        _input("--k", metavar="SOURCE", help="Keys, where not in the file of --q; else K = Q."),
    ] = None
    v: Annotated[
        str | None,
        _input("--v", metavar="SOURCE", help="Values, where not in the file of --q; else V = K."),
    ] = None
    layout: Annotated[
        Literal["hsd", "shd", "bsd", "bhsd", "bshd"] | None,
        _input(
            "--layout",
            help="Order of the axes: b batch, h head, s tokens, d. "
            "3-D is hsd, 4-D bhsd unless you say otherwise.",
        ),
    ] = None
    heads: Annotated[
        int | None,
        _input("--heads", min=1, help="Split the last axis of (tokens, d) or bsd into heads."),
    ] = None
    kv_heads: Annotated[
        int | None,
        _input("--kv-heads", min=1, help="Heads of K and V, if fewer (grouped queries)."),
    ] = None
    past_k: Annotated[
        str | None,
        _input("--past-k", metavar="SOURCE", help="Cached keys, put before the keys."),
    ] = None
    past_v: Annotated[
        str | None,
        _input("--past-v", metavar="SOURCE", help="Cached values, put before the values."),
    ] = None
    kv_len: Annotated[
        str | None,
        _input(
            "--kv-len",
            metavar="N[,N…]",
            help="Valid keys, one number per batch item; those past it are padding.",
        ),
    ] = None
    mask: Annotated[
        str | None,
        option(
            "Masking",
            "--mask",
            metavar="SOURCE",
            help="True/false, or numbers added to the scores; broadcasts from the right.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Show:
    """What is shown, and how; the same on every command."""

    stage: Annotated[
        list[str] | None,
        _show("--stage", metavar="NAME", help="Only this stage (repeatable), such as weights."),
    ] = None
    head: Annotated[int | None, _show("--head", min=1, help="Only this head, from 1.")] = None
    batch: Annotated[int | None, _show("--batch", min=1, help="Only this batch item, from 1.")] = (
        None
    )
    rows: Annotated[
        str | None, _show("--rows", metavar="A:B", help="Only rows A to B, from 1; 3: and :3 work.")
    ] = None
    cols: Annotated[
        str | None, _show("--cols", metavar="A:B", help="Only columns A to B, from 1.")
    ] = None
    precision: Annotated[
        int | None,
        _show("--precision", min=0, max=17, help="Decimals shown (default: 4, explain: 3)."),
    ] = None
    work: Annotated[
        bool, _show("--work", help="Write out the arithmetic of each stage's first cell.")
    ] = False
    cell: Annotated[
        str | None,
        _show(
            "--cell",
            metavar="Q,K",
            help="Derive one weight, by label or number, from the dot product to the division.",
        ),
    ] = None
    heatmap: Annotated[
        bool | None,
        _show(
            "--heatmap/--no-heatmap",
            help="Shade cells by value; weights are, where the terminal has colour.",
        ),
    ] = None
    step: Annotated[bool, _show("--step", help="Wait for a key between stages.")] = False
    full: Annotated[bool, _show("--full", help="Leave nothing out, however large.")] = False
    width: Annotated[
        int | None, _show("--width", min=40, help="Columns to use (default: the terminal).")
    ] = None
    no_color: Annotated[bool, _show("--no-color", help="No colour; NO_COLOR does the same.")] = (
        False
    )
    quiet: Annotated[bool, _show("--quiet", help="No remarks on standard error.")] = False
    debug: Annotated[bool, _show("--debug", help="Show a traceback where something fails.")] = False
    format: Annotated[
        Format | None,
        _show(
            "--format",
            help="Form of the result (default: table, or what the ending of --output says).",
        ),
    ] = None
    output: Annotated[
        str | None, _show("--output", "-o", metavar="FILE", help="Write the result to a file.")
    ] = None
    force: Annotated[bool, _show("--force", help="Replace the file of --output.")] = False
