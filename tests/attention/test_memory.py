"""Whether the bytes that are counted before a call are those that NumPy then takes."""

import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncli import Convention, attend_by, budget
from attncli.attention import memory
from attncli.attention.inputs import Inputs, inputs_of
from attncli.attention.stream_gradients import streamed_gradients
from attncli.attention.streaming import streamed
from attncli.attention.tiles import split_steps, tile_steps, trace_in_splits, trace_in_tiles

BETWEEN = 0.8, 1.3
"""What is counted over what is measured, which has the steps and texts of a trace beside it."""


def measured(call: Callable[[], Any]) -> int:
    """The most bytes that are there while a call runs for the second time."""
    call()
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del result
    return peak


def assert_counted(need: int, peak: int) -> None:
    assert BETWEEN[0] <= need / peak <= BETWEEN[1], (need, peak)


def drawn(seed: int) -> Inputs:
    """Inputs of any convention, with what may go with it, and sizes of which none is another."""
    r, rng = random.Random(seed), np.random.default_rng(seed)  # noqa: S311 - no secrets
    g = r.choice((1, 2, 3))
    h, n_q, n_k, d_k, d_v = g * r.choice((1, 2)), 211, r.choice((127, 293)), r.choice((7, 61)), 13
    lead = r.choice(((), (2,)))
    fields: dict[str, Any] = {"dtype": r.choice(("float64", "float32", "float16", "bfloat16"))}
    choices = {
        "causal": True, "window": (19, -1), "softcap": 5.0, "dropout": 0.1, "scale": "none",
        "mask_value": -1e9, "qk_norm": True, "head_order": "tiled", "empty_rows": "unmasked",
        "softmax_over": "queries", "softcap_place": "after-mask",
    }  # fmt: skip
    fields |= {name: x for name, x in choices.items() if r.random() < 0.2}
    if r.random() < 0.3:
        arrays = {"x": rng.normal(size=(*lead, n_q, 31)), "w_o": rng.normal(size=(h * d_v, 31))}
        widths, n_k = {"q": h * d_k, "k": g * d_k, "v": g * d_v}, n_q
        arrays |= {f"w_{name}": rng.normal(size=(31, width)) for name, width in widths.items()}
        more: dict[str, Any] = {"n_heads": h, "n_kv_heads": g}
    else:
        shapes = {"q": (h, n_q, d_k), "k": (g, n_k, d_k), "v": (g, n_k, d_v)}
        arrays, more = {name: rng.normal(size=(*lead, *x)) for name, x in shapes.items()}, {}
    given: dict[str, Any] = {}
    if r.random() < 0.3 and ("x" not in arrays or h > 1 or lead):
        n_k += 37
        given |= {"past_k": rng.normal(size=(*lead, g, 37, d_k))}
        given |= {"past_v": rng.normal(size=(*lead, g, 37, d_v))}
    if r.random() < 0.4:
        mask = rng.normal(size=r.choice([(n_q, n_k), *[(h, n_q, n_k)] * (h > 1)]))
        given["mask"] = mask if r.random() < 0.5 else mask > -1
    if r.random() < 0.4:
        given["d_output"] = "ones"
    elif not {"dropout", "softmax_over"} & {*fields}:
        given |= {"rows": range(0, n_q, 2)} if r.random() < 0.3 else {}
    return inputs_of({**arrays, **given}, Convention(**fields), **more)


@pytest.mark.parametrize("seed", range(40))
def test_the_stages_of_one_attention(seed: int) -> None:
    inputs = drawn(seed)
    peak = measured(lambda: replace(inputs).trace())  # one that has nothing computed yet
    assert_counted(memory.of_attention(inputs), peak)


def test_rows_and_output_alone_are_counted_as_such() -> None:
    q, k, v = (np.ones((3, n, 7)) for n in (307, 401, 401))
    whole = inputs_of({"q": q, "k": k, "v": v}, Convention())
    some = whole.of_rows([5, 7])
    assert memory.of_attention(some) < memory.of_attention(whole) / 20
    peak = measured(lambda: replace(whole).run(["output"]))
    assert_counted(memory.of_attention(whole, ["output"]), peak)


@pytest.mark.parametrize("n_parts", [2, 40])
def test_tiles_and_splits(n_parts: int) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(2, n, 17)) for n in (311, 440, 440))
    inputs, size = inputs_of({"q": q, "k": k, "v": v}, Convention(causal=True)), 440 // n_parts
    peak = measured(lambda: trace_in_tiles(replace(inputs), size))
    assert_counted(memory.of_parts(inputs, tile_steps, n_parts), peak)
    places = [*range(size, 440, size)]
    peak = measured(lambda: trace_in_splits(replace(inputs), places))
    assert_counted(memory.of_parts(inputs, split_steps, n_parts), peak)


@pytest.mark.parametrize("fields", [{}, {"qk_norm": True}, {"dtype": "float32"}])
def test_what_is_streamed_is_counted_without_the_scores(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    rng = np.random.default_rng(4)
    arrays = {
        name: rng.normal(size=(4, 3001, d)) for name, d in zip("qkv", (61, 61, 53), strict=True)
    }
    inputs = inputs_of({**arrays, "d_output": "ones"}, Convention(**fields))
    scores = 4 * 3001**2 * memory.width_of(inputs.convention)
    peak = measured(lambda: streamed(replace(inputs), n_threads=1))
    assert peak <= memory.of_streaming(inputs) * 1.1 < scores / 4
    peak = measured(lambda: streamed_gradients(replace(inputs), inputs.d_output, n_threads=1))
    assert peak <= memory.of_stream_gradients(inputs) * 1.1 < scores / 2


PROGRAMS = {
    "scores": "S[h,i,j] = sum[d](q[h,i,d] * k[h,j,d])\nA[h,i,j] = softmax[j](S[h,i,j] where j <= i)",
    "slopes": "S[h,i,j] = sum[d](q[h,i,d] * k[h,j,d]) - (i - j) * 2 ** (-h - 1)",
    "distances": "D[h,i,j] = sqrt(sum[d]((q[h,i,d] - k[h,j,d]) ** 2))\nE[h,i,j] = exp(-D[h,i,j])",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_formulas_of_the_users_own(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    needs, rng = list[int](), np.random.default_rng(5)
    arrays = {x: rng.normal(size=(3, 307, 11)) for x in "qk"}
    monkeypatch.setattr(budget, "held", lambda: 0)
    monkeypatch.setattr(budget, "check_bytes", lambda need, *_, **__: needs.append(need))
    peak = measured(lambda: attend_by(PROGRAMS[name], arrays))
    assert_counted(max(needs), peak)
