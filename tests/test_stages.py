"""The printed arithmetic of every kind of stage, computed again from its text, gives the cell."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from attncli import (
    Trace,
    attend,
    attend_heads,
    attend_split,
    attend_tiles,
    explain,
    multi_head_attention,
    posenc,
    render,
)  # fmt: skip
from attncli.attention.positions import rotary
from attncli.formula.evaluate import AbsentError
from attncli.page.arithmetic import Work, is_softmax, work_of
from attncli.page.cell import Entry
from attncli.page.options import DisplayOptions
from attncli.page.places import places_of
from attncli.page.select import blocks_of
from attncli.words.measures import similarity
from tests.page.traces import every_kind

HOWS: list[dict[str, Any]] = [
    {},
    {"causal": True, "scale": 0.3, "softcap": 2.0, "dropout": 0.25},
    {"causal": True, "softcap": 2.0, "softcap_place": "after-mask", "mask_value": -1e3},
    {"softmax_over": "queries", "window": (2, 0), "scale": "none", "empty_rows": "uniform"},
    {"causal": True, "mask_value": -2.0, "mask_value_rule": "add"},
    {"causal": True, "softcap": 2.0, "softcap_place": "after-bias"},
    {"window": (0, -1), "softmax_over": "queries"},
]
EMPTY = np.array([[True, False, True], [False, False, False]])


def numbers(*shape: int) -> Any:
    return np.random.default_rng(math.prod(shape)).normal(size=shape).round(3)


def attentions() -> Iterator[Trace]:
    """Sinks, lengths, grouped heads, a cache, many keys."""
    q, k, v = numbers(2, 2, 3, 5), numbers(2, 1, 3, 5), numbers(2, 1, 3, 2)
    yield attend(20 * q, k, v, kv_len=[2, 3], lse_base="2").computing(["lse"])
    q, k, v = numbers(4, 3, 2), numbers(2, 5, 2), numbers(2, 5, 7)
    yield attend(q, k, v, sinks=[0.5, -1.0, 2.0, 0.0], head_order="tiled", causal=True).computing(
        ["lse"]
    )
    yield attend(q, k, v, past_k=k[:, :2], past_v=v[:, :2], mask=numbers(3, 7))
    yield attend(30 * numbers(3, 2), 30 * numbers(17, 2), numbers(17, 2)).computing(["lse"])
    yield attend_heads(numbers(3, 6), numbers(5, 6), numbers(5, 4), n_heads=2)


def gradients() -> Iterator[Trace]:
    """There and back: every convention, empty rows, broadcast biases of a batch."""
    q, k, v, d = numbers(3, 4), numbers(3, 4), numbers(3, 2), numbers(3, 2)
    for convention in HOWS:
        yield attend(q, k, v, d_output=d, **convention)
    for rows in ("zero", "uniform", "nan", "unmasked"):
        own: Any = {"empty_rows": rows, "d_output": numbers(2, 7)}
        yield attend(numbers(2, 5), numbers(3, 5), numbers(3, 7), mask=EMPTY, **own)
    q, k, v, d = numbers(2, 3, 4, 2), numbers(2, 1, 3, 2), numbers(2, 1, 3, 1), numbers(2, 3, 4, 1)
    own = {"sinks": [0.5, -1.0, 2.0], "d_output": d}
    for shape in (3,), (1, 3), (4, 1), (3, 1, 1), (2, 1, 1, 3), (1, 3, 4, 3), ():
        yield attend(q, k, v, mask=numbers(*shape) + 0.25, causal=len(shape) == 2, **own)


def projections() -> Iterator[Trace]:
    """x and the weights, and the backward pass: heads that share, cross-attention, a batch."""
    for heads, shared, context in ((1, 1, 0), (4, 2, 0), (2, 1, 3)):
        batch = (2,) if heads < 4 else ()
        wide = {"q": heads * 2, "k": shared * 2, "v": shared}
        bare = {f"w_{name}": numbers(5, size) for name, size in wide.items()}
        full = bare | {f"b_{name}": numbers(size) for name, size in wide.items()}
        full |= {"w_o": numbers(heads, 3), "b_o": numbers(3)}
        for weights in (bare, full):
            own: dict[str, Any] = {"n_heads": heads, "n_kv_heads": shared}
            own |= {"context": numbers(*batch, context, 5)} if context else {"causal": True}
            own["d_output"] = numbers(*batch, 2, 3 if "w_o" in weights else heads)
            yield multi_head_attention(numbers(*batch, 2, 5), weights, **own)


def parts() -> Iterator[Trace]:
    """Keys in tiles and cut into parts: an empty row, sinks, a batch."""
    mask = np.array([[True, False, False, True, True], [False] * 5, [True] * 5])
    forms: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((), {"mask": mask, "lse_base": "2"}),
        ((2,), {"sinks": [0.5, -1.0], "causal": True}),
        ((2, 2), {"kv_len": [2, 4], "softcap": 2.0}),
    ]
    for lead, convention in forms:
        qkv = [numbers(*lead, *shape) for shape in ((3, 2), (5, 2), (5, 7))]
        yield attend_tiles(*qkv, tiles=2, **convention)
        yield attend_split(*qkv, split=[2, 3], **convention)


def others() -> Iterator[Trace]:
    known = {"article", "gradients of weights", "gradients of x", "gradients of a finite mask"}
    yield from (make() for name, make in every_kind().items() if name not in known)
    yield posenc(3, 4, positions="article", start=7)
    own: Any = {"dropout": 0.3, "eps": 0.5, "pad_to": 4, "norm": "pre", "dim": 4}
    yield explain("a bank", layers=2, block="encoder", **own)
    yield explain("a bank", dim=4, d_ff=3, block="encoder", norm="none", positions="article")
    yield posenc(add=numbers(3, 4))
    yield posenc(3, 4, kind="rope", start=2)
    yield rotary(numbers(3, 4), layout="interleaved", position_ids=[5, 0, 2])
    yield posenc(2, kind="alibi", heads=2, symmetric=True)
    yield similarity(("a", "b"), [[1.0, 2.0, 3.0], [3.0, 6.0, 9.0]])
    yield similarity(("a", "b"), numbers(2, 17))


NAMES: dict[str, Any] = {
    f.__name__: f for f in (math.sin, math.cos, math.tanh, math.exp, math.log2, math.sqrt)
}
NAMES |= {"max": max, "ln": math.log, "abs": abs, "NaN": math.nan, "inf": math.inf}
NAMES["arccos"] = lambda x: math.degrees(math.acos(max(-1.0, min(x, 1.0))))
GIVEN = {"tokens", "embeddings", "x", "vectors", "components", "shares"}  # or not by cells
SIGNS = {"·": "*", "√": "sqrt", "²": "**2", "^": "**", "log₂": "log2"}
SIGNS |= {"ln (": "ln(", "log2 (": "log2("}


def computed(form: str) -> float:
    """The value of a form of an equation."""
    text = re.sub(r"… \d+ more: (\S+) …", r"(\1)", form)
    text = re.sub(r"\|(.*?)\|", r"abs(\1)", text)
    for sign, code in SIGNS.items():
        text = text.replace(sign, code)
    text = re.sub(r"(ln|log2) (\S+)", r"\1(\2)", text)
    return float(eval(text, {"__builtins__": {}}, NAMES))  # noqa: S307 - our own output


EQUATION, REMARK = re.compile(r"  (?!d = )\S(?:[^=]|(?<=\S)=)* = "), re.compile(r"\s*\([a-z]+[ :]")


def equations(text: str) -> list[str]:
    """Those of a printed stage, each on one line: where it goes on, the next is indented."""
    lines: list[str] = []
    is_within = False
    for line in text.splitlines():
        is_start = bool(EQUATION.match(line))
        is_within = is_start or (is_within and line.startswith("    "))
        if is_start:
            lines.append(line.strip())
        elif is_within:
            lines[-1] += ("  " if REMARK.match(line) else " ") + line.strip()
    return lines


def check_line(line: str, value: float) -> None:
    """Every form of numbers in a line gives the number, which is that of the cell."""
    text, _, remark = line.partition("  (")
    _, *forms, result = re.split(" [=≈] ", text)
    assert float(result.rstrip("°")) == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)
    numeric = [form for form in forms if not re.search(r"\[|‖|cos\([a-z]|d_k|c ·", form)]
    for form in numeric:
        assert computed(form) == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), line
    if not numeric:  # a number that is copied, masked, or set to 0 by dropout
        assert forms or remark, line


MAKERS = [attentions, gradients, projections, parts, others]


def cells(make: Any) -> Iterator[Work]:
    """Some cells of every stage that has a formula."""
    rng = np.random.default_rng(7)
    for block in (block for trace in make() for block in blocks_of(trace)):
        for stage in (x for x in block.stages.values() if x.expression):
            for place in places_of(block, [stage], DisplayOptions(full=True))[0]:
                shape = block.matrix(stage, place.where).shape
                for _ in range(12):
                    row, column = map(int, rng.integers(shape))
                    if work := work_of(Entry(block, stage, place.where, row, column, 4, 12)):
                        yield work


@pytest.mark.parametrize("make", MAKERS)
def test_the_formula_of_a_stage_gives_what_numpy_computed(make: Any) -> None:
    """But where a formula says less: rows without a key, what dropout drew, the cache itself."""
    for work in cells(make):
        stage = work.entry.stage
        with np.errstate(all="ignore"), suppress(AbsentError):
            computed = work.number(work.values.formula.body, work.places)
            near = 1e-6 if "arccos" in stage.expression else 1e-12  # near 0 degrees
            expected = pytest.approx(work.entry.value, abs=near, nan_ok=True)
            is_empty = is_softmax(stage) and np.isnan(computed)  # no key at all
            assert computed == expected or is_empty, stage.expression


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        (parts, "m|alpha|p|l|acc|so_far|merge_weights|lse|output"),
        (attentions, "scores|scaled|weights|lse|masked|output"),
        (gradients, "d_v|d_weights|delta|d_sinks|d_q|d_k|d_bias|dropped"),
        (projections, "q|k|v|concat|projected|d_x|d_w_q|d_b_k|d_w_o|d_concat"),
        (others, "hidden|mean|deviation|norm|positions|residual|contextual|rotated|angles|slopes"
         "|bias|analogy|difference|lengths|dots|cosines|coordinates"),
    ],
)  # fmt: skip
def test_the_operands_of_the_printed_arithmetic_give_the_cell(
    make: Any, kinds: str, request: pytest.FixtureRequest
) -> None:
    most = 2 if request.config.getoption("--all") else 1
    shown, done = set[str](), Counter[tuple[str, str, str, bool]]()
    for trace in make():
        for name in trace:
            stage = trace[name]
            is_finite = bool(np.isfinite(stage.value).all())
            key = (stage.name, stage.formula, stage.expression, is_finite)
            if not stage.expression or stage.name in GIVEN or stage.formula.endswith(" given"):
                continue
            if done[key] == most:  # the same arithmetic of other numbers
                continue
            lines = equations(render(trace, stages=[name], work=True, full=True, precision=16))
            for line, value in zip(lines, stage.value.ravel().tolist(), strict=True):
                check_line(line, value)
            shown |= {stage.name}
            done[key] += 1
    assert {*kinds.split("|")} - shown == set()
