"""Calls of attention and what each must give: the one table that every path through attncli reads.

BY_HAND       numbers worked on paper
of_libraries()    what libraries gave, in tests/fixtures
random_row(n)      the n-th of any number of random calls with every knob, by tests/plain.py
placed_row(n)      the same call with rotary positions or the bias of ALiBi
of_onnx()     the Attention cases of the ONNX standard
"""

import json
import math
import warnings
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from attncli.arrays import Array
from tests import plain
from tests.fuzz.reading import RefusalError

FIXTURES = Path(__file__).parents[1] / "fixtures"
INPUTS = ("q", "k", "v", "mask", "past_k", "past_v", "sinks", "kv_len")
INF, NAN, E, LN2, LN3, LN5 = math.inf, math.nan, math.e, *map(math.log, (2, 3, 5))


class Row(NamedTuple):
    """A call, and what it gives.

    how        fields of Convention
    expected   by stage; of "a|b" the last that a trace has. None: the call is refused
    heads      of queries and of keys, where the last axis of the inputs holds them all
    semantics  the library whose defaults hold
    positions  "alibi", or the layout of rotary ones, which the inputs do not have yet
    """

    name: str
    inputs: dict[str, Array]
    convention: dict[str, Any]
    expected: dict[str, Any] | None
    rtol: float = 1e-12
    atol: float = 1e-12
    heads: tuple[int, int] | None = None
    semantics: str = ""
    positions: str = ""

    @property
    def n_past(self) -> int:
        return self.inputs["past_k"].shape[-2] if "past_k" in self.inputs else 0


def even(text: str) -> list[list[float]]:
    """Equal weights on the keys of the ones: a row for each word."""
    return [[int(key) / word.count("1") for key in word] for word in text.split()]


def bits(text: str) -> Array:
    return np.array([[key == "1" for key in word] for word in text.split()])


def hand(name: str, output: Any, scores: Any = None, past: int = 0, **more: Any) -> Row:
    """A call whose keys and values are the identity: its scores are q, and its weights the output.

    past  how many keys are in the cache
    """
    lse, wanted = more.pop("lse", None), np.array([[0.0]] if output is None else output, float)
    *lead, n_q, n_k = wanted.shape
    n_k = n_k if scores is None else len(scores[0])
    eye = np.broadcast_to(np.eye(n_k), (*lead, n_k, n_k))
    inputs = {"q": np.zeros((*lead, n_q, n_k)) if scores is None else np.array(scores, float)}
    inputs |= {"k": eye[..., past:, :], "v": eye[..., past:, :]}
    inputs |= {"past_k": eye[..., :past, :], "past_v": eye[..., :past, :]} if past else {}
    inputs |= {own: np.asarray(more.pop(own)) for own in INPUTS if own in more}
    expected = {"output": wanted} | ({} if lse is None else {"lse": np.array(lse)})
    return Row(name, inputs, {"scale": "none", **more}, None if output is None else expected)


ANY, LAST, CAUSAL = bits("111 111 011"), bits("01"), {"causal": True}
RIGHT: dict[str, Any] = {"causal": True, "causal_align": "bottom-right"}
OPEN: dict[str, Any] = {"causal": True, "causal_align": "open-last"}
NONE: dict[str, Any] = {"mask": bits("00 11")}
NO_NUMBER: dict[str, Any] = {"mask": np.full((1, 3), -INF)}
FOUR: dict[str, Any] = {"q": np.zeros((4, 1, 1)), "k": np.zeros((2, 1, 1)), "v": [[[1.0]], [[2.0]]]}
LOW: dict[str, Any] = {"k": [[-1e308], [0.0]], "v": [[1.0], [2.0]], "scores": [[100.0]]}
LOWER: dict[str, Any] = LOW | {"k": [[-1e308], [-1e308]]}
HALF: dict[str, Any] = {"k": [[1], [1]], "v": [[1.0], [2]], "mask_value": -1e9, "dtype": "float16"}
KEEP = np.random.default_rng(5).random((2, 3)) >= 0.25
TRUTH: dict[str, Any] = {"mask_numbers": "truth"}
E_MORE = [[1 / (2 + E), E / (2 + E), 1 / (2 + E)]]

# fmt: off
BY_HAND = [
    # softmax and scale
    hand("softmax", [[1 / 8, 2 / 8, 5 / 8]], [[0, LN2, LN5]], lse=[3 * LN2]),
    hand("lse in base 2", [[1 / 8, 2 / 8, 5 / 8]], [[0, LN2, LN5]], lse=[3], lse_base="2"),
    hand("scale of d_k", [[0.4, 0.2, 0.2, 0.2]], [[2 * LN2, 0, 0, 0]], scale="1/sqrt(d_k)"),
    hand("a temperature", [[0.75, 0.25]], [[2 * LN3, 0]], temperature=2.0),
    hand("a scale", [[0.75, 0.25]], [[2 * LN3, 0]], scale=0.5),
    hand("scores of any size", even("110"), [[1.7e308, 1.7e308, -1.7e308]]),
    hand("low scores", even("11"), [[-1e5, -1e5]], lse=[LN2 - 1e5]),
    hand("over queries", [[0.25], [0.75]], [[0], [LN3]], softmax_over="queries"),
    hand("dropout", np.where(KEEP, 4 / 9, 0), dropout=0.25, seed=5),
    # who sees whom
    hand("causal", even("10000 11000"), causal=True),
    hand("causal after a cache", even("11110 11111"), past=3, causal=True),
    hand("bottom-right", even("11110 11111"), **RIGHT),
    hand("bottom-right of valid keys", even("11000 11100"), kv_len=3, **RIGHT),
    hand("open-last", even("10000 11000 11111"), **OPEN),
    hand("open-last of a square", even("100 110 111"), **OPEN),
    hand("valid keys", even("11100 11100"), kv_len=3),
    hand("valid keys of each item", [[even("110 110")], [even("111 111")]], kv_len=[2, 3]),
    hand("window", even("11000 01100"), window=(0, 1)),
    hand("window of the left", even("01111 00111"), past=2, window=(1, -1)),
    hand("window and causal", even("01100 00110"), past=2, window=(1, -1), causal=True),
    hand("window of others", even("1000 1100 1110 0111"), causal=True, window=(2, 0)),
    hand("window with its own key", even("100 110 011"), window=(2, 0), window_counts="own"),
    # what a mask means
    hand("mask", even("101 101"), mask=[True, False, True]),
    hand("mask to ignore", even("010 010"), mask=[True, False, True], mask_means="ignore"),
    hand("mask and causal", even("100 110 011"), mask=ANY, **CAUSAL),
    hand("mask, not causal", even("111 111 011"), mask=ANY, mask_and_causal="mask", **CAUSAL),
    hand("causal, not mask", even("100 110 111"), mask=ANY, mask_and_causal="causal", **CAUSAL),
    hand("neither together", None, mask=[[True]], mask_and_causal="refused", **CAUSAL),
    hand("causal alone", even("100 110"), mask_and_causal="refused", **CAUSAL),
    hand("numbers", [[5 / 8, 3 / 8]], [[0, LN3]], mask=[[LN5, 0]], lse=[3 * LN2]),
    hand("minus infinity", even("101"), mask=[[0, -INF, 0]]),
    hand("0 and 1 added", E_MORE, mask=[[0.0, 1, 0]], mask_numbers="add"),
    hand("0 and 1 as truth", even("011"), mask=[[0.0, 1, 1]], **TRUTH),
    hand("infinity as truth", even("010"), mask=[[0.0, -INF, 0]], **TRUTH),
    hand("truth to ignore", even("101"), mask=[[0.0, -INF, 0]], mask_means="ignore", **TRUTH),
    hand("true is added", E_MORE, mask=bits("010"), mask_means="add"),
    hand("2 as truth is added", E_MORE, mask=[[0.0, 2, 0]], mask_means="add", **TRUTH),
    # what a masked score becomes
    hand("mask value", [[2 / 3, 1 / 3]], [[7, 0]], mask=LAST, mask_value=LN2),
    hand("mask value added", [[2 / 3, 1 / 3]], [[LN2, 0]], mask=bits("00"), mask_value=-1e4,
         mask_value_rule="add"),
    hand("mask value instead", even("11"), [[LN2, 0]], mask=bits("00"), mask_value=-1e4),
    hand("mask value that leaks", even("10"), [[1, -200]], mask=LAST, mask_value=-100.0),
    # rows with nothing to attend to
    hand("empty: zero", [[0, 0], [0.5, 0.5]], lse=[-INF, LN2], **NONE),
    hand("empty: nan", [[NAN, NAN], [0.5, 0.5]], lse=[-INF, LN2], empty_rows="nan", **NONE),
    hand("empty: uniform", even("11 11"), lse=[-INF, LN2], empty_rows="uniform", **NONE),
    hand("empty: unmasked", even("11 11"), empty_rows="unmasked", **NONE),
    hand("empty: unmasked but causal", even("10 11"), empty_rows="unmasked", causal=True, **NONE),
    hand("empty by truth", [[0, 0], [0.5, 0.5]], empty_rows_inf="uniform", **NONE),
    hand("empty by infinity", even("111"), empty_rows_inf="uniform", **NO_NUMBER),
    hand("empty by both", even("111"), empty_rows="uniform", **NO_NUMBER),
    # softcap
    hand("softcap", [[0.75, 0.25]], [[1000, 0]], softcap=LN3),
    hand("softcap, then mask", even("110"), mask=bits("110"), softcap=0.5),
    hand("mask, then softcap", [[0.4, 0.4, 0.2]], mask=bits("110"), softcap=LN2,
         softcap_place="after-mask"),
    hand("bias outside of softcap", [[5 / 6, 1 / 6, 0]], mask=[[LN5, 0, -INF]], softcap=LN3),
    hand("bias inside of softcap", [[0.75, 0.25, 0]], mask=[[1000, 0, -INF]], softcap=LN3,
         softcap_place="after-bias"),
    # heads and sinks
    hand("neighbours share a key head", [[[1]], [[1]], [[2]], [[2]]], **FOUR),
    hand("key heads in turn", [[[1]], [[2]], [[1]], [[2]]], head_order="tiled", **FOUR),
    hand("a sink", [[0.25, 0.25]], sinks=[LN2], lse=[2 * LN2]),
    hand("a sink for each head", [[[1 / 4, 1 / 4]], [[1 / 8, 1 / 8]]], sinks=np.log([2, 6]),
         lse=np.log([[4], [8]])),
    hand("a sink of minus infinity", even("11"), sinks=[-INF]),
    hand("a sink above all", [[0, 0]], [[1, 2]], sinks=[1e4]),
    hand("a sink below all", even("10"), [[1e4, 0]], sinks=[-1e4]),
    hand("a sink and an empty row", [[0, 0]], sinks=[0.0], mask=bits("00"), empty_rows="uniform"),
    # infinite numbers and NaN
    hand("weight 0 of infinity", [[NAN], [INF]], [[0, 1000], [1000, 0]], v=[[INF], [3]]),
    hand("weight 0 of infinity, allowed", [[NAN], [INF]], [[0, 1000], [1000, 0]], v=[[INF], [3]],
         mask=bits("11 11")),
    hand("infinities of both signs", [[NAN]], scores=[[0, 0]], v=[[INF], [-INF]]),
    hand("values that not all see", [[1, 2], [NAN, 2.5], [NAN, INF]], np.zeros((3, 3)),
         v=[[1, 2], [NAN, 3], [5, INF]], **CAUSAL),
    hand("masked NaN", [[7]], [[1]], k=[[2], [NAN], [INF]], v=[[7], [NAN], [INF]], mask=bits("100"),
         lse=[2.0]),
    hand("an overflow beside others", [[2]], **LOW),
    hand("and a sink", [[2]], sinks=[-INF], **LOW),
    hand("an allowed overflow", [[2]], mask=bits("11"), **LOW),
    hand("overflows alone", [[NAN]], **LOWER),
    hand("an overflow is not hidden", [[NAN]], mask=bits("10"), empty_rows="uniform", **LOWER),
    hand("mask value of float16", [[2]], [[100]], mask=LAST, **HALF),
    hand("float16 with nothing left", [[NAN]], [[100]], mask=bits("00"), **HALF),
]
# fmt: on


def of_libraries() -> list[Row]:
    """What libraries gave for calls of tests/commands/semantics, in float32."""
    rows = []
    with np.load(FIXTURES / "library_outputs.npz") as file:
        for entry in json.loads(str(file["index"])):
            name = f"{entry['preset']}/{entry['call']}"
            parts = ("q", "k", "v", "mask")
            inputs = {part: file[key] for part in parts if (key := f"{name}/{part}") in file}
            convention = {"dtype": "float32"} | ({"causal": True} if entry["causal"] else {})
            expected = {"output": file[f"{name}/output"]}
            rows.append(Row(name, inputs, convention, expected, 1e-5, 1e-5, None, entry["preset"]))
    return rows


POSITIONS = ("halves", "interleaved", "alibi")
KNOBS: dict[str, list[Any]] = {
    "causal": [True], "causal_align": ["bottom-right", "open-last"],
    "mask_and_causal": ["mask", "causal", "refused"], "window": [(2, 1), (1, -1), (-1, 2), (7, 0)],
    "window_counts": ["own"], "scale": ["none", 0.3, -2.0, 0.0],
    "temperature": [0.5, 3.0], "softcap": [0.7, 2.0],
    "softcap_place": ["after-bias", "after-mask"], "mask_means": ["ignore", "add"],
    "mask_numbers": ["add", "truth"], "mask_value": [-10.0, -2.5, 0.0, -1e4],
    "mask_value_rule": ["add"], "empty_rows": ["nan", "uniform", "unmasked"],
    "empty_rows_inf": ["zero", "nan", "uniform", "unmasked"], "head_order": ["tiled"],
    "lse_base": ["2"], "qk_norm": [True],
}  # fmt: skip
FORMS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()), ((1,), (1,)), ((6,), (3,)), ((2, 1), (2, 1)), ((2, 4), (2, 2)),
]  # fmt: skip
LARGE = 23
"""One call in so many has more queries and keys than a block that is streamed."""


def random_row(number: int) -> Row:
    """A random call; each knob has its default in about half of them."""
    draw = np.random.default_rng([29, number])
    odds = draw.choice([0.15, 0.5])
    convention = {
        name: values[draw.integers(len(values))]
        for name, values in KNOBS.items()
        if draw.random() < (0.7 if name in ("causal", "empty_rows") else odds)
    }
    of_q, of_k = FORMS[draw.integers(len(FORMS))]
    n_q, n_new, d_k, d_v = draw.choice([1, 2, 3, 5, 7, 11], size=4)
    if number % LARGE == 0:
        (of_q, of_k), n_q, n_new = FORMS[number % 2], *((263, 521), (7, 1031), (521, 5))[number % 3]
    n_past = draw.choice([0, 4])
    size = draw.choice([1e-3, 1, 1, 20])
    shapes = {"q": (*of_q, n_q, d_k), "k": (*of_k, n_new, d_k), "v": (*of_k, n_new, d_v)}
    if n_past:
        shapes |= {"past_k": (*of_k, n_past, d_k), "past_v": (*of_k, n_past, d_v)}
    sizes = {"q": size, "k": size, "past_k": size}
    inputs = {name: draw.normal(size=shape) * sizes.get(name, 1) for name, shape in shapes.items()}
    n_k = n_new + n_past
    full = tuple(1 if draw.random() < 0.2 else n for n in (*of_q, n_q, n_k))
    keep = draw.random(full[draw.integers(len(full)) :]) < draw.choice([0.3, 0.8])
    bias = np.where(keep, draw.normal(size=keep.shape), -INF)
    kinds = {"truth": keep, "0/1": keep * 1.0, "0/-inf": np.where(keep, 0, -INF), "bias": bias}
    kind = draw.choice([*kinds, "none"])
    if kind != "none":
        inputs["mask"] = kinds[kind]
        if kind == "0/1" or (kind != "truth" and "mask_means" in convention):
            convention.setdefault("mask_numbers", "truth")
    if draw.random() < 0.3:
        inputs["sinks"] = draw.normal(size=of_q[-1] if of_q else 1)
    if draw.random() < 0.3:
        inputs["kv_len"] = draw.integers(0, n_k + 1, size=2 if len(of_q) > 1 else 1)
    is_single = (
        size < 20 and convention.get("mask_value", -INF) in (-INF, -10.0) and draw.random() < 0.3
    )
    convention |= {"dtype": "float32"} if is_single else {}
    tolerance = 1e-4 if is_single else 1e-9
    return Row(
        f"random call {number}",
        inputs,
        convention,
        expected_of(inputs, convention),
        tolerance,
        tolerance,
    )


def placed_row(number: int) -> Row:
    """The n-th random call with positions; for rotary ones queries and keys are twice as wide."""
    row, kind = random_row(number), POSITIONS[number % len(POSITIONS)]
    inputs, convention = dict(row.inputs), dict(row.convention)
    if kind == "alibi":
        convention.pop("mask_means", None)
        inputs.pop("mask", None)
        convention["mask_numbers"] = "add"
        n_heads, n_k = (inputs["q"].shape[:-2] or (1,))[-1], inputs["k"].shape[-2] + row.n_past
        bias = plain.distances(n_heads, inputs["q"].shape[-2], n_k, row.n_past)
        placed = inputs | {"mask": bias if inputs["q"].ndim > 2 else bias[0]}
    else:
        names = [name for name in ("q", "k", "past_k") if name in inputs]
        inputs |= {name: np.concatenate([inputs[name]] * 2, axis=-1) for name in names}
        first = {"q": row.n_past, "k": row.n_past, "past_k": 0}
        placed = inputs | {name: plain.turned(inputs[name], first[name], kind) for name in names}
    name, expected = f"random call {number} with {kind}", expected_of(placed, convention)
    return row._replace(
        name=name, inputs=inputs, convention=convention, expected=expected, positions=kind
    )


def expected_of(inputs: dict[str, Array], convention: dict[str, Any]) -> dict[str, Any] | None:
    """What plain attention gives for a call; None where it refuses it."""
    given = dict(inputs)
    lengths = given.pop("kv_len", None)
    try:
        with np.errstate(all="ignore"):
            stages = plain.attention(
                given, convention, None if lengths is None else lengths.tolist()
            )
    except RefusalError:
        return None
    return {name: stages[name] for name in ("output", "lse", "mask") if name in stages}


# ---- the test cases of the ONNX standard, which the onnx package makes in-process


MODES = ("scaled", "capped", "masked", "weights")
"""qk_matmul_output_mode 0 to 3; a stage that does nothing is left out of a trace."""
TYPES = {"float32": "float32", "float16": "float32", "bfloat16": "bfloat16"}
"""What is computed in: 1e-3, the standard's tolerance for float16, is one unit of its last place,
which two roundings in different places already miss."""


@cache
def of_onnx() -> list[Row]:
    """Every case of the operator Attention, opsets 23 to 25; not its expansions into smaller ones."""
    node = pytest.importorskip("onnx.backend.test.case.node", reason="needs the package onnx")
    with warnings.catch_warnings():  # its generators overflow on purpose
        warnings.simplefilter("ignore")
        import_module(f"{node.__name__}.attention")  # which makes them, and no others
    cases = [case for case in node._NodeTestCases if case.name.startswith("test_attention")]
    kinds = [[node.op_type for node in case.model.graph.node] for case in cases]
    return [_row(case) for case, kind in zip(cases, kinds, strict=True) if kind == ["Attention"]]


def _row(case: Any) -> Row:
    from onnx.helper import get_attribute_value

    (node,), ((given, outputs),) = case.model.graph.node, case.data_sets
    own = {x.name: get_attribute_value(x) for x in node.attribute}
    arrays = _named(node.input, given)
    names = {"attn_mask": "mask", "past_key": "past_k", "past_value": "past_v"}
    names |= {"nonpad_kv_seqlen": "kv_len"}
    inputs = {names.get(name, name.lower()): x for name, x in arrays.items()}
    if "mask" in inputs:
        inputs["mask"] = _padded(inputs)
    window = own.get("left_window_size", -1), own.get("right_window_size", -1)
    convention = {
        "scale": own.get("scale", "1/sqrt(d_k)"),
        "softcap": own.get("softcap") or None,
        "causal": bool(own.get("is_causal", 0)),
        "causal_align": "bottom-right" if "kv_len" in inputs else "top-left",
        "window": None if window == (-1, -1) else window,
        "dtype": TYPES[inputs["q"].dtype.name],
    }
    asked = "|".join(MODES[: own.get("qk_matmul_output_mode", 0) + 1])
    stages = {"Y": "output|concat", "present_key": "k", "present_value": "v"}
    expected = {stages.get(name, asked): x for name, x in _named(node.output, outputs).items()}
    # Two units in the last place of bfloat16; else the tolerances are the standard's own.
    rtol = max(case.rtol, 2**-6) if convention["dtype"] == "bfloat16" else case.rtol
    heads = (own["q_num_heads"], own["kv_num_heads"]) if inputs["q"].ndim == 3 else None
    return Row(case.name, inputs, convention, expected, rtol, case.atol, heads)


def _named(names: Iterable[str], arrays: Any) -> dict[str, Array]:
    return dict(zip(filter(None, names), map(np.asarray, arrays), strict=True))


def _padded(inputs: dict[str, Array]) -> Array:
    """The mask; the standard fills one that is too short for the keys with "may not attend"."""
    mask = inputs["mask"]
    past = inputs["past_k"].shape[2] if "past_k" in inputs else 0
    missing = inputs["k"].shape[-2] + past - mask.shape[-1]
    filler: Any = False if mask.dtype == np.bool_ else -np.inf
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=filler)
