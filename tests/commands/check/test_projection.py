"""check where all heads are one: the output after W_o, and the mean of the weights over heads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import ConventionError, ShapeError, StageError
from attncli.arrays import Array
from attncli.commands.check.diagnose import check
from attncli.commands.check.report import verdict_to_dict
from attncli.commands.check.verdict import Verdict, report_text
from tests.commands.check.planted.rows import names

FOLDER = Path(__file__).parents[2] / "fixtures" / "torch"
N_BATCH, N_HEADS, N_Q, N_K, D_K, D_V, D_OUT = 2, 3, 7, 11, 5, 13, 17
RNG = np.random.default_rng(41)
Q, K, V = (
    RNG.normal(size=(N_BATCH, N_HEADS, *shape)) for shape in ((N_Q, D_K), (N_K, D_K), (N_K, D_V))
)
W_O, B_O = RNG.normal(size=(N_HEADS * D_V, D_OUT)), RNG.normal(size=D_OUT)
SQUARE = RNG.normal(size=(N_HEADS * D_V, N_HEADS * D_V))
BIAS = RNG.normal(size=N_HEADS * D_V)


def weights_of(q: Array, k: Array, factor: float, *, causal: bool = False) -> Array:
    """The weights of every head, row by row."""
    weights = np.zeros((*q.shape[:3], k.shape[2]))
    for b, h, i in np.ndindex(q.shape[:3]):
        keys = k[b, h, : i + 1] if causal else k[b, h]
        powers = np.exp(keys @ q[b, h, i] * factor)
        weights[b, h, i, : len(keys)] = powers / powers.sum()
    return weights


def projected(weights: Array, v: Array = V, w_o: Array = W_O, b_o: Array | float = B_O) -> Array:
    """The outputs of the heads side by side, times W_o, plus b_o."""
    heads = [weights[:, h] @ v[:, h] for h in range(weights.shape[1])]
    return np.asarray(np.concatenate(heads, axis=-1) @ w_o + b_o)


RIGHT = weights_of(Q, K, D_K**-0.5)


def verdict_on(
    observed: Any, stage: str = "output", w_o: Array = W_O, **convention: Any
) -> Verdict:
    return check(observed, Q, K, V, stage=stage, w_o=w_o, **{"b_o": B_O, **convention})


# ---- what is right


@pytest.mark.parametrize("stage", ["projected", "output", "attn_output"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_output_after_the_projection_matches(stage: str, dtype: str) -> None:
    verdict = verdict_on(projected(RIGHT).astype(dtype), stage)
    assert (verdict.status, verdict.stages[0].name) == ("match", "projected")
    assert (verdict.reading != "") == (stage != "projected")


def test_the_output_of_the_heads_matches_where_the_projection_is_known() -> None:
    """In heads, and with the heads side by side; the verdict says that it was before W_o."""
    side_by_side = projected(RIGHT, w_o=np.eye(N_HEADS * D_V), b_o=0.0)
    for observed, stage in ((RIGHT @ V, "output"), (side_by_side, "output")):
        verdict = verdict_on(observed, stage)
        assert (verdict.status, "before" in verdict.reading) == ("match", True), verdict.reading
    assert verdict_on(side_by_side, "output", SQUARE, b_o=None).matches


def test_some_rows_and_a_batch_of_one() -> None:
    """Rows alone, in any order; a batch of one may be left out."""
    every = projected(RIGHT)
    assert verdict_on(every[:, [4, 1]], rows=[4, 1]).matches
    one = (x[:1] for x in (Q, K, V))
    assert check(every[0], *one, w_o=W_O, b_o=B_O).matches
    heads = (x[0] for x in (Q, K, V))
    assert check(every[0], *heads, stage="projected", w_o=W_O, b_o=B_O).matches


@pytest.mark.parametrize("stage", ["weights", "attn_output_weights", "mean_weights"])
def test_weights_without_heads_are_the_mean_over_all(stage: str) -> None:
    verdict = verdict_on(RIGHT.mean(axis=1).astype("float32"), stage)
    assert (verdict.status, verdict.stages[0].name) == ("match", "mean_weights")
    said = f"it matches: {stage} is the mean over the 3 heads"
    assert (said in report_text(verdict)) == (stage != "mean_weights")
    assert verdict_on(RIGHT, stage if stage != "mean_weights" else "weights").reading == ""


def test_a_module_of_pytorch_matches_with_its_own_weights() -> None:
    """Its output and the mean of its weights, of itself and of a memory of another width."""
    for name, keys in (("self_attention", "x"), ("cross_attention", "memory")):
        with np.load(FOLDER / f"{name}.npz") as file:
            arrays = {key.removeprefix("weights/"): file[key] for key in file}
        context = arrays[keys]
        if "in_proj_weight" in arrays:
            matrices = np.split(arrays["in_proj_weight"], 3)
            biases = np.split(arrays["in_proj_bias"], 3)
        else:
            matrices, biases = [arrays[f"{x}_proj_weight"] for x in "qkv"], [np.zeros(10)] * 3
        rows = (arrays["x"], context, context)
        q, k, v = (
            (x @ w.T + b).reshape(len(x), 2, 5).swapaxes(0, 1)
            for x, w, b in zip(rows, matrices, biases, strict=True)
        )
        observed = {
            "attn_output": arrays["output"],
            "attn_output_weights": arrays["attention"].mean(axis=0),
        }
        own = {"w_o": arrays["out_proj.weight"].T, "b_o": arrays.get("out_proj.bias")}
        verdict = check(observed, q, k, v, **own)
        assert verdict.matches, report_text(verdict)
        assert [stage.name for stage in verdict.stages] == ["mean_weights", "projected"]


# ---- what is wrong is named through it


def one_head(factor: float = (N_HEADS * D_K) ** -0.5) -> Array:
    """The weights of one head of the whole width, whose scale is mostly that of this width."""
    q, k = (x.swapaxes(1, 2).reshape(N_BATCH, 1, x.shape[2], -1) for x in (Q, K))
    return weights_of(q, k, factor)


def wide_values() -> Array:
    return V.swapaxes(1, 2).reshape(N_BATCH, 1, N_K, -1)


def planted() -> dict[str, tuple[Array, Array]]:
    """Name of the bug → W_o, and the observed numbers."""
    mixed = (RIGHT @ V).reshape(N_BATCH, N_Q, -1)  # heads and tokens are not exchanged
    causal = weights_of(Q, K, D_K**-0.5, causal=True)
    return {
        "scale left out": (W_O, projected(weights_of(Q, K, 1.0))),
        "another scale": (W_O, projected(weights_of(Q, K, 0.3))),
        "causal mask where none is wanted": (W_O, projected(causal)),
        "scale left out and causal mask where none is wanted": (
            W_O,
            projected(weights_of(Q, K, 1.0, causal=True)),
        ),
        "heads not split": (W_O, projected(one_head(), wide_values())),
        "heads merged by reshape without transpose": (W_O, mixed @ W_O + B_O),
        "bias of a projection left out": (W_O, projected(RIGHT, b_o=0.0)),
        "weights of a projection transposed": (SQUARE, projected(RIGHT, w_o=SQUARE.T, b_o=BIAS)),
        "output projection left out": (SQUARE, projected(RIGHT, w_o=np.eye(len(SQUARE)), b_o=0.0)),
        "output times a factor": (SQUARE, projected(1.7 * RIGHT, w_o=SQUARE, b_o=BIAS)),
    }


SLOW = ("another scale", "scale left out and causal mask where none is wanted")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if name in SLOW else [])
        for name in planted()
    ],
)
def test_bugs_are_named_from_the_projected_output_alone(name: str) -> None:
    w_o, observed = planted()[name]
    verdict = verdict_on(observed, "projected", w_o, b_o=B_O if w_o is W_O else BIAS)
    assert names(verdict) == [name], report_text(verdict)


def test_bugs_are_named_from_the_mean_of_the_weights() -> None:
    for name, weights in (
        ("scale left out", weights_of(Q, K, 1.0).mean(axis=1)),
        ("heads not split", one_head()[:, 0]),
        ("heads not split", one_head(D_K**-0.5)[:, 0]),  # with the scale of a head that is split
    ):
        assert names(verdict_on(weights, "weights")) == [name]


def test_a_linear_map_is_no_cause_where_the_projection_is_known() -> None:
    """40 rows and more of any linear map of the heads are "projected already" without it."""
    q, k, v = (np.random.default_rng(5).normal(size=(2, 43, d)) for d in (3, 3, 2))
    heads = weights_of(q[None], k[None], 3**-0.5)[0] @ v
    w_o, other = np.random.default_rng(6).normal(size=(2, 4, 4))
    merged = np.concatenate([*heads], axis=-1)
    assert check(merged @ w_o, q, k, v, w_o=w_o).matches
    verdict = check(merged @ other, q, k, v, w_o=w_o, pairs=False)
    assert verdict.status == "no match"
    assert "read otherwise it differs as well" in report_text(verdict)
    assert verdict_to_dict(verdict)["reading"] == verdict.reading


# ---- what does not fit


def test_what_does_not_fit_is_refused() -> None:
    every = projected(RIGHT)
    with pytest.raises(StageError, match="w_o"):
        check(every, Q, K, V, stage="projected")
    with pytest.raises(StageError, match="all heads"):
        verdict_on(every, "projected", heads=[1])
    with pytest.raises(ShapeError, match=f"{N_HEADS * D_V}"):
        verdict_on(every, w_o=W_O[1:])
    with pytest.raises(ShapeError, match="w_o"):
        check(every, Q, K, V, b_o=B_O)
    with pytest.raises(StageError, match="each be"):
        verdict_on({"attn_probs": RIGHT, "attn_weights": RIGHT})
    assert verdict_on(every[..., 1:], "projected").status == "wrong shape"
    with pytest.raises(ConventionError):
        verdict_on(every, "projected", scale="never")
