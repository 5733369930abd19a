"""check where x and its weights are known: weights not applied, another x, attention over the batch.

The wrong numbers are those of loops over heads and tokens.
"""

from typing import Any

import numpy as np
import pytest

from attncli.attention.inputs import Inputs, inputs_of
from attncli.commands.check.diagnose import check
from attncli.convention import Convention

N_BATCH, N, N_HEADS, WIDTH = 3, 7, 5, 10
RNG = np.random.default_rng(43)
X, X_KV = (RNG.normal(size=(N_BATCH, N, WIDTH)) for _ in range(2))
MATRICES = {f"w_{name}": RNG.normal(size=(WIDTH, WIDTH)) / 2 for name in "qkvo"}
BIASES = {f"b_{name}": RNG.normal(size=WIDTH) for name in "qkvo"}
LAYER = MATRICES | BIASES


def layer(
    of_q: Any,
    of_k: Any,
    of_v: Any,
    n_heads: int = N_HEADS,
    without: str = "",
    turned: str = "",
    *,
    causal: bool = False,
) -> tuple[Any, Any, Any]:
    """Weights, the outputs of the heads and what W_o makes of them: head by head, row by row."""
    made = dict[str, Any]()
    for name, x in zip("qkv", (of_q, of_k, of_v), strict=True):
        w = LAYER[f"w_{name}"].T if name in turned else LAYER[f"w_{name}"]
        made[name] = x if name in without else x @ w + LAYER[f"b_{name}"]
    d, (n_batch, n_q, _), n_k = WIDTH // n_heads, of_q.shape, of_k.shape[1]
    weights, heads = np.zeros((n_batch, n_heads, n_q, n_k)), np.zeros((n_batch, n_heads, n_q, d))
    for b, h, i in np.ndindex(n_batch, n_heads, n_q):
        at, keys = slice(h * d, h * d + d), i + 1 if causal else n_k
        powers = np.exp(made["k"][b, :keys, at] @ made["q"][b, i, at] / d**0.5)
        weights[b, h, i, :keys] = powers / powers.sum()
        heads[b, h, i] = weights[b, h, i] @ made["v"][b, :, at]
    side_by_side = heads.swapaxes(1, 2).reshape(n_batch, n_q, WIDTH)
    result = side_by_side if "o" in without else side_by_side @ LAYER["w_o"] + LAYER["b_o"]
    return weights, heads, result


def inputs(n_heads: int = N_HEADS, **arrays: Any) -> Inputs:
    return inputs_of({"x": X, **LAYER, **arrays}, Convention(), n_heads=n_heads)


def first_cause(observed: Any, made: Inputs, **more: Any) -> Any:
    verdict = check(observed, **made.keywords, projected=made, **more)
    assert verdict.status in ("found", "ambiguous"), verdict
    return verdict.explanations[0]


@pytest.mark.parametrize("without", ["q", "k", "v", "qkv", "qkvo"])
def test_weights_that_are_not_applied(without: str, dtype: str) -> None:
    *_, result = layer(X, X, X, without=without)
    cause = first_cause(result.astype(dtype), inputs(), stage="projected")
    assert cause.name == "weights of a projection not applied"
    assert all(f"w_{name}" in cause.details[0] for name in without)


def test_weights_that_are_not_applied_by_the_weights_and_heads_alone() -> None:
    weights, heads, _ = layer(X, X, X, without="qkv")
    for stage, observed in (("weights", weights), ("output", heads)):
        assert (
            first_cause(observed, inputs(), stage=stage).name
            == "weights of a projection not applied"
        )


@pytest.mark.parametrize("without", ["qkv", "qkvo"])
def test_attention_of_x_itself_in_one_head(without: str) -> None:
    *_, result = layer(X, X, X, n_heads=1, without=without)
    cause = first_cause(result, inputs(), stage="projected")
    assert cause.name == "weights of a projection not applied"
    assert "in one head" in cause.details[0]


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ((X, X, X), "keys and values of x"),
        ((X, X, X_KV), "keys of x"),
        ((X, X_KV, X), "values of x"),
        ((X_KV, X_KV, X_KV), "queries of x_kv"),
    ],
)
def test_another_x_in_cross_attention(sources: Any, words: str) -> None:
    *_, result = layer(*sources)
    cause = first_cause(result, inputs(x_kv=X_KV), stage="projected")
    assert cause.name == "x in place of x_kv"
    assert words in cause.details[0]


def test_x_in_place_of_a_context_of_another_length() -> None:
    _, heads, _ = layer(X, X, X)
    made = inputs(x_kv=RNG.normal(size=(N_BATCH, 11, WIDTH)))
    assert first_cause(heads, made).name == "x in place of x_kv"


@pytest.mark.parametrize("stage", ["projected", "mean_weights"])
def test_weights_the_other_way_round_and_one_head(stage: str) -> None:
    weights, _, result = layer(X, X, X, n_heads=1, turned="qkv")
    observed = weights[:, 0] if stage == "mean_weights" else result
    cause = first_cause(observed, inputs(), stage=stage)
    assert cause.name == "heads not split"
    assert "w_q and w_k and w_v are applied the other way round" in cause.details[0]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_the_batch(causal: bool) -> None:
    q, k, v = (RNG.normal(size=(5, 3, 7, d)) for d in (4, 4, 11))
    output = np.zeros((5, 3, 7, 11))
    for b, h, i in np.ndindex(5, 3, 7):
        items = b + 1 if causal else 5
        powers = np.exp(k[:items, h, i] @ q[b, h, i] / 2)
        output[b, h, i] = powers / powers.sum() @ v[:items, h, i]
    (cause,) = check(output, q, k, v, causal=causal).explanations
    assert cause.name == "batch and tokens exchanged in the inputs"


def test_right_layers_match() -> None:
    for sources, made in (((X, X, X), inputs()), ((X, X_KV, X_KV), inputs(x_kv=X_KV))):
        weights, heads, result = layer(*sources)
        for stage, observed in (("weights", weights), ("output", heads), ("projected", result)):
            assert check(observed, **made.keywords, projected=made, stage=stage).matches
