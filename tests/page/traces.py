"""Traces to show: the three-token example, matrices, one of every kind; and their pages."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len
from rich.console import Console

import attncli
from attncli.attention.positions import position_dots, rotary, sinusoidal
from attncli.formats import FORMATS
from attncli.formats.table import Screen, blocks
from attncli.page.explain import explain_page
from attncli.page.options import DisplayOptions
from attncli.page.page import parts
from attncli.trace import Stage, Trace
from attncli.words.measures import analogy, pca

Array = npt.NDArray[Any]
Labels = Mapping[str, Sequence[str]] | None
NEVER = -np.inf
THREE = [[1, 0], [0, 1], [1, 1]], [[1, 1], [1, 0], [0, 1]], [[10, 0], [0, 10], [5, 5]]
WORDS = {"query": ("The", "cat", "sat"), "key": ("The", "cat", "sat")}
CAUSAL = np.triu(np.full((3, 3), NEVER), 1)


def attention(
    *qkv: Any,
    mask: Any = None,
    labels: Labels = None,
    notes: tuple[str, ...] = (),
    **convention: Any,
) -> Trace:
    """Of q, k and v, those of the three-token example unless they are given; labels by axis."""
    names = {axis: tuple(words) for axis, words in (labels or {}).items()}
    convention |= {f"{axis}_labels": names.pop(axis) for axis in ("query", "key") if axis in names}
    bias = None if mask is None else np.asarray(mask, dtype=float)
    q, k, v = (np.asarray(x, dtype=float) for x in (*qkv, *THREE[len(qkv) :]))
    trace = attncli.attend(q, k, v, mask=bias, **convention)
    if names:
        trace = trace.mapped(lambda stage: replace(stage, labels={**stage.labels, **names}))
    return replace(trace, notes=(*trace.notes, *notes))


def causal(mask_value: float = NEVER) -> Trace:
    return attention(causal=True, mask_value=mask_value, labels=WORDS)


def grouped(**convention: Any) -> Trace:
    """Four heads on two key heads, three queries, five keys, d_k 2, d_v 7, gradients of all."""
    rng = np.random.default_rng(5)
    q, d, k, v = (rng.normal(size=shape) for shape in ((4, 3, 2), (4, 3, 7), (2, 5, 2), (2, 5, 7)))
    return attncli.attend(q, k, v, **{"d_output": d, **convention})


def projected(n_heads: int, **convention: Any) -> Trace:
    wide = 2 * n_heads
    own = {f"w_{name}": numbers(5, wide, seed=at) for at, name in enumerate("qkv")}
    own |= {f"b_{name}": numbers(wide, seed=at) for at, name in enumerate("qkv")}
    own |= {"w_o": numbers(wide, 7)} if n_heads > 1 else {}
    return attncli.multi_head_attention(numbers(3, 5), own, n_heads=n_heads, **convention)


def every_kind() -> dict[str, Callable[[], Trace]]:
    """A trace of every kind of arithmetic."""
    x = numbers(4, 3)
    return {
        "causal": causal,
        "over queries": lambda: attention(numbers(3, 2), softmax_over="queries", d_output="random"),
        "knobs": lambda: attention(softcap=2.0, dropout=0.3, seed=1, causal=True),
        "grouped": lambda: grouped(d_output=None, sinks=[1, 2, 3, 4], causal=True),
        "gradients": lambda: grouped(mask=numbers(4, 1, 5), softcap=3.0),
        "gradients, tiled": lambda: grouped(head_order="tiled", causal=True, dropout=0.3),
        "gradients of a finite mask": lambda: grouped(causal=True, mask_value=-2.0),
        "gradients of sinks": lambda: attention(sinks=[0.5], d_output="random"),
        "gradients of weights": lambda: projected(2, d_output="random", causal=True),
        "gradients of x": lambda: projected(1, d_output="random"),
        "explain": lambda: attncli.explain("The bank near the bank", dim=4),
        "encoder": lambda: attncli.explain("The old bank", dim=4, heads=2, block="encoder"),
        "decoder": lambda: attncli.explain("A bank", target="La rive", dim=4, block="decoder"),
        "posenc": lambda: attncli.posenc(4, 6),
        "article": lambda: attncli.posenc(4, 7, positions="article"),
        "dots": lambda: position_dots(sinusoidal(3, 4)),
        "rope": lambda: attncli.posenc(4, 6, kind="rope"),
        "rotated": lambda: rotary(x[:, [0, 1, 2, 0]], layout="interleaved"),
        "rope of a part": lambda: rotary(numbers(3, 7), rotary_dim=4),
        "alibi": lambda: attncli.posenc(4, kind="alibi", heads=3),
        "similarity": lambda: attncli.similarity(("a", "b", "c", "d"), x / 3),
        "pca": lambda: pca(("a", "b", "c", "d"), x / 3),
        "tiles": lambda: attncli.attend_tiles(*THREE, tiles=2),
        "split": lambda: attncli.attend_split(*THREE, split=[1], sinks=[0.5]),
        "analogy": lambda: analogy(("a", "b", "c"), x[:3] / 3),
    }


def numbers(*shape: int, seed: int = 7) -> Array:
    """Normal numbers of both signs, rounded so that goldens read well."""
    return np.random.default_rng(seed).normal(size=shape).round(2)


def matrix(
    values: Any, name: str = "scaled", axes: Sequence[str] = ("query", "key"), labels: Labels = None
) -> Trace:
    """A trace of one stage."""
    names = {axis: tuple(words) for axis, words in (labels or {}).items()}
    stage = Stage(name, "Z", "", np.asarray(values), tuple(axes), names)
    return Trace("One matrix", (stage,))


def shown(trace: Trace, form: str = "table", page: Any = None, **options: Any) -> str:
    """The text of a form as a command writes it: like `render`, with rows, columns and a screen."""
    text = FORMATS[form].load()
    size = options.pop("width", None), options.pop("height", None)
    screen = (Screen(*size),) if form == "table" else ()
    shown_page = page or (explain_page if any(n.endswith("tokens") for n in trace) else parts)
    trace = trace.computing(options.get("stages", ()))
    return "".join(text(trace, DisplayOptions(**options), shown_page, *screen))


def lines_of(trace: Trace, **options: Any) -> list[str]:
    """The lines of the table."""
    return shown(trace, **options).splitlines()


def table_of(text: str, name: str) -> list[list[str]]:
    """The words of each line below the title of a stage, up to the next blank line."""
    title = rf"(?m)^(?:\d+ +)?{re.escape(name)}(?:  .*)?\n"
    _, below = re.split(title, text, maxsplit=1)
    return [line.split() for line in below.partition("\n\n")[0].splitlines()]


def coloured(trace: Trace, width: int = 80, few: bool = False, **options: Any) -> str:
    """What a terminal with colours is sent, with 16 of them or all."""
    out, system = StringIO(), "standard" if few else "truecolor"
    console = Console(file=out, force_terminal=True, color_system=system, width=width)  # type: ignore[arg-type]
    for block in blocks(trace, DisplayOptions(**options), screen=Screen(width, 60, True, few)):
        console.print(block, soft_wrap=True)
    return out.getvalue()


def widest(text: str) -> int:
    """The cells of the widest line."""
    return max(map(cell_len, text.splitlines()), default=0)
