"""check where x and the weights of the projections are known: their bugs, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import Convention, Projections
from attncli.attention.multi_head import projected_inputs
from attncli.check import Verdict, check
from tests import plain
from tests.check.planted.parts import Array
from tests.check.planted.rows import names
from tests.turns import in_turn

HEADS, D, N = 3, 15, 11
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D))
WEIGHTS = {f"w_{name}": RNG.normal(size=(D, D)) / 4 for name in "qkv"}
BIASES = {f"b_{name}": RNG.normal(size=D) for name in "qkv"}
MADE = projected_inputs({"x": X}, Projections(**WEIGHTS, **BIASES), Convention(), n_heads=HEADS)
QKV = [MADE.values[name] for name in "qkv"]


def output(**changed: Array) -> Array:
    """Attention of x, written out; some of the weights are other ones."""
    own = WEIGHTS | BIASES | changed
    wide = {name: X @ own[f"w_{name}"] + own[f"b_{name}"] for name in "qkv"}
    heads = {name: x.reshape(N, HEADS, -1).swapaxes(0, 1) for name, x in wide.items()}
    return plain.attention(heads, {})["output"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    in_turn([*WEIGHTS, "w_q and w_k and w_v", "b_q", "b_v"], ["float64", "float32", "float16"]),
)
def test_the_bug_and_its_weights_are_named(name: str, dtype: str) -> None:
    """Only where x and the weights are given."""
    kind = "weights of a projection transposed" if "w_" in name else "bias of a projection left out"
    changed = {n: WEIGHTS[n].T if n in WEIGHTS else np.zeros(D) for n in name.split(" and ")}
    wrong = output(**changed).astype(dtype)
    (one,) = check(wrong, *QKV, projected=MADE, pairs=False).explanations
    assert (one.name, one.details) == (kind, (name,))
    assert name != "w_q" or kind not in names(check(wrong, *QKV, pairs=False))


def test_right_projections_match_and_a_bias_of_the_keys_changes_no_weight() -> None:
    assert check(output(), *QKV, projected=MADE)
    assert check(output(b_k=np.zeros(D)), *QKV, projected=MADE)


# ---- gradients of x, the weights and the biases

SCALE = 7**-0.5


def given(n_heads: int) -> dict[str, Array]:
    """x, the weights of so many heads of width 7, and the gradient of the result."""
    rng = np.random.default_rng(47)
    shapes = {"x": (2, 5, 3), "w_o": (7 * n_heads, 13), "d_output": (2, 5, 13)}
    shapes |= {f"w_{name}": (3, 7 * n_heads) for name in "qkv"}
    shapes |= {f"b_{name}": (7 * n_heads,) for name in "qkv"}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def by_hand(n_heads: int = 2, times_q: float = 1.0) -> dict[str, Array]:
    """The gradients in plain NumPy, of a causal attention; times_q is put to dQ."""

    def split(y: Array) -> Array:
        return y.reshape(2, 5, n_heads, 7).swapaxes(1, 2)

    def merge(y: Array) -> Array:
        return y.swapaxes(1, 2).reshape(2, 5, -1)

    g = given(n_heads)
    q, k, v = (split(g["x"] @ g[f"w_{n}"] + g[f"b_{n}"]) for n in "qkv")
    a = plain.attention({"q": q, "k": k, "v": v}, {"causal": True})["weights"]
    d = split(g["d_output"] @ g["w_o"].T)
    d_a = d @ v.swapaxes(-1, -2)
    d_s = a * (d_a - (a * d_a).sum(axis=-1, keepdims=True)) * SCALE
    parts = {"q": times_q * merge(d_s @ k), "k": merge(d_s.swapaxes(-1, -2) @ q)}
    parts["v"] = merge(a.swapaxes(-1, -2) @ d)
    gradients = {f"d_w_{n}": np.einsum("bti,btj->ij", g["x"], y) for n, y in parts.items()}
    gradients |= {f"d_b_{n}": y.sum(axis=(0, 1)) for n, y in parts.items()}
    gradients["d_w_o"] = np.einsum("bti,btj->ij", merge(a @ v), g["d_output"])
    gradients["d_x"] = sum((y @ g[f"w_{n}"].T for n, y in parts.items()), np.zeros((2, 5, 3)))
    return gradients


def verdict(observed: dict[str, Array], n_heads: int = 2) -> Verdict:
    arrays = given(n_heads)
    x, d_output, how = arrays.pop("x"), arrays.pop("d_output"), Convention(causal=True)
    made = projected_inputs({"x": x}, Projections(**arrays), how, n_heads=n_heads)
    made = made.with_gradient(d_output)
    own: Any = {"d_output": made.d_output, "projected": made, "convention": how, "pairs": False}
    return check(observed, *(made.values[name] for name in "qkv"), **own)


def test_gradients_by_hand_match_in_every_type() -> None:
    for n_heads, dtype in ((1, "float32"), (2, "float16")):
        rounded = {name: x.astype(dtype) for name, x in by_hand(n_heads).items()}
        result = verdict(rounded, n_heads)
        assert result.matches, dtype
        assert {stage.name for stage in result.stages} == rounded.keys()


def test_a_bug_of_dq_is_named_by_what_follows_from_it() -> None:
    wrong = by_hand(times_q=1 / SCALE)
    result = verdict({name: wrong[name] for name in ("d_w_q", "d_b_q", "d_w_k")})
    assert names(result) == ["scale left out of dQ"]
    matches = {stage.name: stage.matches for stage in result.stages}
    assert matches == {"d_w_q": False, "d_b_q": False, "d_w_k": True}


def test_gradients_that_do_not_fit() -> None:
    right = by_hand()["d_w_q"]
    assert verdict({"d_w_q": right.T}).status == "wrong shape"
    assert not verdict({"d_w_q": right / 2}).matches  # of one batch item
