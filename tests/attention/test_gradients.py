"""Gradients: by hand, against finite differences of plain attention, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attncli
from attncli import Projections, attend, multi_head_attention
from attncli.arrays import Array
from attncli.attention.backward import backward
from attncli.attention.run import Step, run
from attncli.errors import ShapeError
from attncli.stages import gradient_of, spec_of
from tests import plain
from tests.conformance.rows import random_row

Q = [[1, 0], [0, 1], [1, 1]]
K = [[1, 1], [1, 0], [0, 1]]
V = [[10, 0], [0, 10], [5, 5]]
D_OUTPUT: Any = [[1, 0], [0, 1], [1, 1]]
STEP = 1e-5
QK = ("q", "k", "past_k")


def test_every_stage_of_the_example_by_hand() -> None:
    """q1 and its weights 0.4011, 0.4011, 0.1978: dA = 10, 0, 5, so δ = 5 and dS = A (dA − 5) / √2."""
    trace = attend(Q, K, V, d_output=D_OUTPUT)
    e = math.exp(math.sqrt(0.5))
    a = e / (2 * e + 1)  # of k1 and k2; that of k3 is 1 − 2 a
    d = 5 * a / math.sqrt(2)
    names = [*trace][[*trace].index("output") + 1 :]
    assert " ".join(names) == "d_output d_v d_weights delta d_scaled d_scores d_q d_k"
    assert trace["d_weights"].value.tolist() == [[10, 0, 5], [0, 10, 5], [10, 10, 10]]
    np.testing.assert_allclose(trace["d_scores"].value[0], [d, -d, 0], atol=1e-14)
    np.testing.assert_allclose(trace["d_scores"].value[2], 0, atol=1e-14)
    np.testing.assert_allclose(trace["delta"].value, [5, 10 * (1 - 2 * a) + 5 * a, 10])
    np.testing.assert_allclose(trace["d_q"].value[0], [0, d], atol=1e-14)
    np.testing.assert_allclose(trace["d_k"].value[0], [d, trace["d_scores"].value[1, 0]])
    shares = 1 / (math.e**0.5**0.5 + 2)  # of k2 and k3 in the row of q3
    np.testing.assert_allclose(trace["d_v"].value[0], [a + 1 - 2 * shares, a + 1 - 2 * shares])


def test_what_a_mask_lets_back() -> None:
    """One of infinity has no stage on the way, a finite one has; masked NaN goes no further."""
    names = [*attend(Q, K, V, d_output=D_OUTPUT, causal=True)]
    assert names[names.index("delta") + 1 :] == ["d_masked", "d_scores", "d_q", "d_k"]
    assert "d_scaled" in attend(Q, K, V, d_output=D_OUTPUT, causal=True, mask_value=-1.0)
    k, v = np.array(K, float), np.array(V, float)
    k[1] = v[1] = np.nan
    trace = attend(Q, k, v, mask=[[True, False, True]] * 3, d_output=D_OUTPUT)
    two = attend(Q, k[[0, 2]], v[[0, 2]], d_output=D_OUTPUT)
    np.testing.assert_allclose(trace["d_q"].value, two["d_q"].value)
    np.testing.assert_allclose(trace["d_k"].value[[0, 2]], two["d_k"].value)


def assert_slope(
    loss: Callable[[Array], float],
    x: Array,
    gradient: Array,
    draw: np.random.Generator,
    bend: float = 1.0,
) -> None:
    """The gradient says how fast the loss grows along some way from x.

    bend  how far the loss bends in; a step of a thousandth errs by its fourth power
    """
    assert gradient.shape == x.shape
    way = np.where(np.isinf(x), 0, draw.standard_normal(x.shape))
    step = min(STEP, bend / 1000)
    once, twice = (loss(x + h * way) - loss(x - h * way) for h in (step, 2 * step))
    slope = (8 * once - twice) / (12 * step)
    size = float(np.abs(gradient * way).sum())
    assert float((gradient * way).sum()) == pytest.approx(slope, abs=1e-7 + 1e-7 * size)


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(100, 1500, 100))]
)
def test_gradients_agree_with_finite_differences(first: int) -> None:
    n_rows = 0
    for number in range(first, first + 99):
        row, draw = random_row(number), np.random.default_rng(number)
        inputs: dict[str, Any] = dict(row.inputs)
        convention = dict(row.convention)
        output = np.array(np.nan) if row.expected is None else row.expected["output"]
        of_empty = {convention.get("empty_rows"), convention.get("empty_rows_inf")}
        if np.isnan(output).any() or "nan" in of_empty or "dtype" in convention:
            continue
        is_large = convention.get("mask_value") == -1e4 and "mask_value_rule" in convention
        if is_large or np.abs(inputs["q"]).max() > 10:
            continue  # the rounding of scores so large is more than a step moves them
        convention |= {"dropout": 0.3, "seed": 5} if number % 3 == 0 else {}
        convention |= (
            {"softmax_over": "queries"} if number % 5 == 0 and "sinks" not in inputs else {}
        )
        d = draw.standard_normal(output.shape)
        trace = attend(**inputs, **convention, d_output=d)
        lengths = inputs.pop("kv_len", None)
        kv_len = None if lengths is None else lengths.tolist()
        own = [name for name in ("q", "sinks") if name in inputs]
        gradients: dict[str, Array] = {name: trace[f"d_{name}"].value for name in own}
        for name in "kv":  # those of the cache come first
            whole, n_new = trace[f"d_{name}"].value, inputs[name].shape[-2]
            gradients[name] = whole[..., -n_new:, :]
            if f"past_{name}" in inputs:
                gradients[f"past_{name}"] = whole[..., :-n_new, :]
        is_truth = "mask" not in inputs or inputs["mask"].dtype == np.bool_
        is_truth = is_truth or convention.get("mask_numbers") == "truth"
        # A row that is unmasked as it has no key has lost the mask's numbers: d_bias counts it still.
        if "d_bias" in trace and "unmasked" not in of_empty and not is_truth:
            gradients["mask"] = trace["d_bias"].value
        n_rows += 1
        for name, gradient in gradients.items():

            def loss(x: Array, name: str = name) -> float:
                with np.errstate(all="ignore"):
                    stages = plain.attention({**inputs, name: x}, convention, kv_len)  # noqa: B023
                return float((stages["output"] * d).sum())  # noqa: B023

            squares = [np.mean(inputs[x] ** 2, axis=-1).min() for x in QK if x in inputs]
            bend = math.sqrt(min(squares) + 1e-6) if convention.get("qk_norm") else 1.0
            assert_slope(loss, inputs[name], gradient, draw, bend)
    assert n_rows > 20


@pytest.mark.parametrize(
    ("n_kv_heads", "more"), [(1, ""), (2, "context bias w_o"), (3, "bias w_o")]
)
def test_gradients_of_x_and_of_the_weights(n_kv_heads: int, more: str) -> None:
    """They agree with finite differences."""
    has_context, has_bias, projects = (part in more for part in ("context", "bias", "w_o"))
    draw = np.random.default_rng(n_kv_heads)
    n_heads, d_c = n_kv_heads * 2, 3 if has_context else 5
    shapes = {"x": (2, 7, 5), "w_q": (5, n_heads * 2)}
    shapes |= {"w_k": (d_c, n_kv_heads * 2), "w_v": (d_c, n_kv_heads * 3)}
    shapes |= {"x_kv": (2, 11, 3)} if has_context else {}
    shapes |= {"w_o": (n_heads * 3, 13)} if projects else {}
    own = [n for n in "qkvo" if f"w_{n}" in shapes]
    shapes |= {f"b_{n}": shapes[f"w_{n}"][1:] for n in own} if has_bias else {}
    arrays: dict[str, Any] = {name: draw.standard_normal(shape) for name, shape in shapes.items()}
    d = draw.standard_normal((2, 7, 13 if projects else n_heads * 3))

    def trace(**moved: Array) -> attncli.Trace:
        own: dict[str, Any] = {**arrays, **moved}
        weights = Projections(**{n: x for n, x in own.items() if n[:2] in ("w_", "b_")})
        convention: Any = {"context": own.get("x_kv"), "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        return multi_head_attention(own["x"], weights, **convention, causal=True, d_output=d)

    last, whole = "projected" if projects else "concat", trace()
    for name, x in arrays.items():

        def loss(y: Array, name: str = name) -> float:
            return float((trace(**{name: y})[last].value * d).sum())

        assert_slope(loss, x, whole[f"d_{name}"].value, draw)


def test_a_sentence_has_gradients_down_to_its_vectors() -> None:
    convention: dict[str, Any] = {"dim": 4, "heads": 2}
    trace = attncli.explain("the river bank", **convention, d_output="random")
    d, last = trace["attention.d_projected"].value, "attention.projected"

    def loss(positions: Array) -> float:
        moved = attncli.explain("the river bank", **convention, positions=positions)
        return float((moved[last].value * d).sum())

    gradient, draw = trace["attention.d_x"].value, np.random.default_rng(0)
    assert_slope(loss, trace["positions"].value, gradient, draw)


@pytest.mark.parametrize("norm", ["post", "pre", "rms", "none"])
@pytest.mark.parametrize("block", ["encoder", "decoder"])
def test_layers_have_gradients_down_to_their_vectors_and_weights(block: str, norm: str) -> None:
    convention: dict[str, Any] = {
        "dim": 6,
        "heads": 2,
        "kv_heads": 1,
        "d_ff": 5,
        "layers": 2,
        "norm": norm,
    }
    convention |= {
        "block": block,
        "dropout": 0.2,
        "target": "la rive du" if block == "decoder" else None,
    }
    trace = attncli.explain("the river bank", **convention, d_output="random")
    name, d = next((n, x.value) for n, x in trace.stages() if n.startswith("backward."))
    last = name.removeprefix("backward.").replace(".d_", ".")

    def loss(positions: Array, **weights: Array) -> float:
        moved = attncli.explain(
            "the river bank", **convention, positions=positions, weights=weights or None
        )
        return float((moved[last].value * d).sum())

    ends = [f"backward.{end}d_input" for end in ("", "target.") if f"{end}input" in trace]
    gradient = np.sum([trace[end].value for end in ends], axis=0)
    draw = np.random.default_rng(0)
    positions = trace["positions"].value
    assert_slope(loss, positions, gradient, draw)
    weights = {n: x.value for n, x in trace.stages() if spec_of(n).role == "parameter"}
    for one in (
        f"{block}.1.attention.w_k",
        "encoder.2.feed_forward.w_1",
        f"{block}.1.attention.gamma",
    ):
        if one in weights:
            own = trace[f"backward.{gradient_of(one)}"].value
            moved = lambda x, one=one: loss(positions, **{**weights, one: x})  # noqa: E731
            assert_slope(moved, weights[one], own, draw)


def test_a_gradient_of_another_shape_is_called_as_it_was_given() -> None:
    x, wide = np.ones((3, 5)), np.ones((5, 7))
    convention: dict[str, Any] = {"w_q": wide, "w_k": wide, "w_v": wide, "w_o": wide.T}
    with pytest.raises(ShapeError, match=r"^d_output is 2 × 5, projected is 3 × 5"):
        multi_head_attention(x, convention, d_output=x[:2])
    with pytest.raises(ShapeError, match=r"^d_output is 2 × 5, encoder\.1\.feed_forward\.norm is"):
        attncli.explain("the river bank", dim=8, block="encoder", d_output=x[:2])


def test_normalised_queries_and_keys() -> None:
    q, k = (x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + 1e-6) for x in (Q, K))
    np.testing.assert_allclose(
        attend(Q, K, V, qk_norm=True)["output"].value, attend(q, k, V)["output"].value
    )
    np.testing.assert_allclose(
        attncli.stream(Q, K, V, qk_norm=True), attend(q, k, V)["output"].value
    )
    trace, draw = attend(Q, K, V, qk_norm=True, d_output="random"), np.random.default_rng(0)
    d = trace["d_output"].value
    assert [*trace][-4:] == ["d_q_norm", "d_k_norm", "d_q", "d_k"]
    for name, x in (("q", Q), ("k", K)):
        moved = lambda z, name=name: (  # noqa: E731
            attend(**{"q": Q, "k": K, "v": V, name: z}, qk_norm=True)["output"].value * d
        ).sum()
        assert_slope(moved, np.asarray(x, float), trace[f"d_{name}"].value, draw)


@pytest.mark.parametrize(
    "body",
    ["x[i] / y[i]", "x[i] ** 3 - y[i] ** x[i]", "-ln(x[i]) * sqrt(y[i] + 1)", "max(x[i], y[i])",
     "exp(tanh(x[i])) if y[i] > 0.5 else y[i] ** 2", "sum[j](x[j] / (y[i] + x[j]))"],
)  # fmt: skip
def test_what_flows_through_every_operator(body: str) -> None:
    draw = np.random.default_rng(0)
    steps = [Step("z", f"Z[i] = {body}", {"x": "x", "y": "y"}, sizes={"j": 5})]
    inputs = {name: draw.uniform(0.1, 2, 5) for name in ("x", "y", "given_gradient")}
    gradients = run([*steps, *backward(steps)], inputs, ["d_x", "d_y"])
    for own in ("x", "y"):

        def loss(x: Array, own: str = own) -> float:
            return float(run(steps, {**inputs, own: x}, ["z"])["z"] @ inputs["given_gradient"])

        assert_slope(loss, inputs[own], gradients[f"d_{own}"], draw)
