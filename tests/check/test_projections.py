"""Weights transposed and biases left out: only where x and the weights are given."""

from __future__ import annotations

import numpy as np
import pytest

from attncli import Convention, Projections
from attncli.attention.multi_head import projected_inputs
from attncli.check import check
from tests import plain
from tests.check.planted.parts import Array
from tests.turns import in_turn

HEADS, D, N = 3, 15, 11
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D))
WEIGHTS = {f"w_{name}": RNG.normal(size=(D, D)) / 4 for name in "qkv"}
BIASES = {f"b_{name}": RNG.normal(size=D) for name in "qkv"}
MADE = projected_inputs({"x": X}, Projections(**WEIGHTS, **BIASES), Convention(), n_heads=HEADS)
QKV = [MADE.values[name] for name in "qkv"]
TRANSPOSED, LEFT_OUT = "weights of a projection transposed", "bias of a projection left out"


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
    bug = TRANSPOSED if name in WEIGHTS or "and" in name else LEFT_OUT
    changed = {
        one: WEIGHTS[one].T if one in WEIGHTS else np.zeros(D) for one in name.split(" and ")
    }
    wrong = output(**changed).astype(dtype)
    (one,) = check(wrong, *QKV, projected=MADE).explanations
    assert (one.name, one.details) == (bug, (name,))
    without = check(wrong, *QKV, pairs=False).explanations
    assert bug not in {other.name for other in without}


def test_right_projections_match_and_a_bias_of_the_keys_changes_no_weight() -> None:
    assert check(output(), *QKV, projected=MADE)
    assert check(output(b_k=np.zeros(D)), *QKV, projected=MADE)
