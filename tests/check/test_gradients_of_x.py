"""check of the gradients of x, the weights and the biases that q, k and v are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.attention.multi_head import Projections, projected_inputs
from attncli.check import Verdict, check
from attncli.convention import Convention
from attncli.errors import StageError

SCALE = 7**-0.5


def given(n_heads: int = 2) -> dict[str, Array]:
    """x, the weights of so many heads of width 7, and the gradient of the result; sizes primes."""
    rng = np.random.default_rng(47)
    shapes = {"x": (2, 5, 3), "w_o": (7 * n_heads, 13), "d_output": (2, 5, 13)}
    shapes |= {f"w_{name}": (3, 7 * n_heads) for name in "qkv"}
    shapes |= {f"b_{name}": (7 * n_heads,) for name in "qkv"}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def by_hand(g: dict[str, Array], n_heads: int = 2, times_q: float = 1.0) -> dict[str, Array]:
    """The gradients in plain NumPy, of a causal attention; times_q is put to dQ."""

    def split(y: Array) -> Array:
        return y.reshape(2, 5, n_heads, 7).swapaxes(1, 2)

    def merge(y: Array) -> Array:
        return y.swapaxes(1, 2).reshape(2, 5, -1)

    q, k, v = (split(g["x"] @ g[f"w_{n}"] + g[f"b_{n}"]) for n in "qkv")
    s = np.where(np.tri(5, dtype=bool), q @ k.swapaxes(-1, -2) * SCALE, -np.inf)
    a = np.exp(s - s.max(axis=-1, keepdims=True))
    a /= a.sum(axis=-1, keepdims=True)
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
    g, how = given(n_heads), Convention(causal=True)
    weights = Projections(**{n: x for n, x in g.items() if n[:2] in ("w_", "b_")})
    made = projected_inputs({"x": g["x"]}, weights, how, n_heads=n_heads)
    made = made.with_gradient(g["d_output"])
    qkv: Any = {name: made.values[name] for name in ("q", "k", "v")}
    own: Any = {"d_output": made.d_output, "projected": made, "convention": how, "pairs": False}
    return check(observed, **qkv, **own)


@pytest.mark.parametrize("n_heads", [1, 2])
def test_those_by_hand_match(n_heads: int) -> None:
    result = verdict(by_hand(given(n_heads), n_heads), n_heads)
    assert result.matches
    assert {stage.name for stage in result.stages} >= {"d_w_q", "d_b_k", "d_w_o", "d_x"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_those_of_other_number_types_match(dtype: str) -> None:
    rounded = {name: x.astype(dtype) for name, x in by_hand(given()).items()}
    assert verdict({name: rounded[name] for name in ("d_w_q", "d_b_v", "d_x")}).matches


def test_a_bug_of_dq_is_named_by_what_follows_from_it() -> None:
    wrong = by_hand(given(), times_q=1 / SCALE)
    result = verdict({name: wrong[name] for name in ("d_w_q", "d_b_q", "d_w_k")})
    assert [one.name for one in result.explanations] == ["scale left out of dQ"]
    matches = {stage.name: stage.matches for stage in result.stages}
    assert matches == {"d_w_q": False, "d_b_q": False, "d_w_k": True}


def test_what_does_not_fit() -> None:
    """Transposed, of one batch item, without x."""
    right = by_hand(given())
    assert verdict({"d_w_q": right["d_w_q"].T}).status == "wrong shape"
    assert not verdict({"d_w_q": right["d_w_q"] / 2}).matches
    with pytest.raises(StageError, match="w_q"):
        check({"d_w_q": np.eye(3)}, *np.ones((3, 5, 3)), d_output=np.ones((5, 3)))
