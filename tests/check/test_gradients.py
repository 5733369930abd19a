"""check of gradients: right ones match, each wrong way back is named, messages, exit codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import attend
from attncli.attention.functional import draw_kept, round_to
from attncli.check import check
from attncli.check.run import all_of, stages
from attncli.check.setup import setup_of
from attncli.convention import DType
from attncli.errors import AttncliError, ConventionError, ShapeError, StageError
from attncli.testing import assert_attention
from tests.check.plain_gradients import WRONG, Stages, backward, forward
from tests.cli.conftest import SAMPLES, Call, call

__all__ = ["call"]

QKV = ("d_q", "d_k", "d_v")
HOW: dict[str, Any] = {"softcap": 2.0, "dropout": 0.3, "seed": 5}
"""The convention of everything at once."""


def inputs(seed: int = 0) -> tuple[Stages, dict[str, Any]]:
    """Everything at once, sizes that are different primes: for the plain forward, and for check."""
    rng = np.random.default_rng(seed)
    keep = np.tri(7, 11, 4, dtype=bool) & (rng.random((7, 11)) < 0.8)
    keep[2] = False  # a query with nothing to attend to
    shapes = {"q": (2, 6, 7, 5), "k": (2, 3, 11, 5), "v": (2, 3, 11, 13), "d_output": (2, 6, 7, 13)}
    arrays: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    arrays["q"] *= 2
    arrays["sinks"] = rng.normal(size=6)
    bias = np.where(keep, rng.normal(size=(6, 7, 11)), 0)
    kept = draw_kept((2, 6, 7, 11), HOW["dropout"], HOW["seed"])
    plain = arrays | {"bias": bias, "keep": keep, "softcap": 2.0, "kept": kept, "p": 0.3}
    return plain, arrays | {"mask": np.where(keep, bias, -np.inf)} | HOW


PLAIN, GIVEN = inputs()
FORWARD = forward(**PLAIN)
RIGHT = backward(FORWARD)


def verdict_on(found: Stages, names: tuple[str, ...], **more: Any) -> Any:
    return check({name: found[name] for name in names}, **GIVEN, **more)


def names(verdict: Any) -> list[str]:
    return [explanation.name for explanation in verdict.explanations]


@pytest.mark.parametrize("observed", [("d_q",), ("d_k",), ("output", "d_q", "d_k", "d_v")])
def test_gradients_that_are_swapped_where_a_sample_of_rows_is_compared(
    observed: tuple[str, ...],
) -> None:
    rng = np.random.default_rng(4)
    shapes = dict.fromkeys(("q", "k", "v", "d_output"), (1, 2, 80, 8))
    arrays: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    bias, keep = np.zeros((80, 80)), np.tri(80, dtype=bool)
    right = backward(forward(**arrays, bias=bias, keep=keep, sinks=np.full(2, -np.inf)))
    swapped = right | {"d_q": right["d_k"], "d_k": right["d_q"]}
    verdict = check({name: swapped[name] for name in observed}, **arrays, causal=True)
    assert names(verdict) == ["dQ and dK swapped"]


@pytest.mark.parametrize(
    "observed",
    [QKV, ("d_q",), ("d_k",), ("d_v",), ("d_sinks",), ("d_scores", "d_weights", "delta")],
    ids="-".join,
)
def test_right_gradients_match(observed: tuple[str, ...]) -> None:
    assert verdict_on(RIGHT, observed).status == "match"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_way_back_is_named(name: str) -> None:
    verdict = verdict_on(backward(FORWARD, WRONG[name]), QKV, pairs=False)
    assert (verdict.status, names(verdict)) == ("found", [name])


ONE: list[tuple[str, str, set[str]]] = [
    # what is observed, what is wrong, what is named; nothing where it does not show
    ("d_q", "softcap's derivative left out", {"softcap's derivative left out"}),
    ("d_q", "scale left out of dK", set()),
    ("d_q", "scale left out of dQ", {"scale left out of dQ", "scale left out of dS (dQ and dK)"}),
    ("d_k", "grouped heads averaged in dK, dV", {"grouped heads averaged in dK, dV"}),
    ("d_k", "last block of keys lost in dQ", set()),
    ("d_v", "dropout mask not applied again in dV", {"dropout mask not applied again in dV"}),
    ("d_v", "δ left out (dS = A ∘ dA)", set()),
]


@pytest.mark.parametrize(("observed", "wrong", "named"), ONE)
def test_what_one_gradient_tells(observed: str, wrong: str, named: set[str]) -> None:
    verdict = verdict_on(backward(FORWARD, WRONG[wrong]), (observed,), pairs=False)
    assert {*names(verdict)} == named
    assert verdict.matches == (not named)
    assert (wrong in verdict.hidden) == (not named)


def test_another_gradient_would_tell() -> None:
    found = backward(FORWARD, WRONG["scale left out of dQ"])
    verdict = verdict_on(found, ("d_q",), pairs=False)
    assert verdict.status == "ambiguous"
    both = "scale left out of dQ | scale left out of dS (dQ and dK)"
    assert verdict.tell_apart == f"d_k would tell: {both}"


def test_a_sink_has_its_own_bugs() -> None:
    observed = {"d_sinks": -RIGHT["d_sinks"], **{name: RIGHT[name] for name in QKV}}
    assert names(check(observed, **GIVEN)) == ["sink's gradient with the wrong sign"]


@pytest.mark.parametrize(
    "how",
    [
        {"softmax_over": "queries", "softcap": 2.0},
        {"softmax_over": "queries", "dropout": 0.3, "causal": True},
        {"sinks": np.array([1.0, -1.0, 0.0, 2.0]), "dropout": 0.3, "softcap": 2.0},
        {
            "mask": np.linspace(-1, 1, 35).reshape(5, 7),
            "softcap": 2.0,
            "softcap_place": "after-bias",
        },
    ],
    ids=" ".join,
)
def test_what_no_bug_explains_is_a_verdict(how: dict[str, Any]) -> None:
    rng = np.random.default_rng(7)
    shapes = {"q": (2, 4, 5, 6), "k": (2, 2, 7, 6), "v": (2, 2, 7, 3), "d_output": (2, 4, 5, 3)}
    given = {name: rng.normal(size=shape) for name, shape in shapes.items()} | how
    found = {f"d_{name}": rng.normal(size=shapes[name]) for name in "qkv"}
    found["d_scores"] = rng.normal(size=(2, 4, 5, 7))
    verdict = check(found, **given)
    assert (verdict.status, verdict.explanations) == ("no match", ())


def test_a_value_added_to_the_output_is_named_beside_its_gradients() -> None:
    """Each value of a key head that two query heads share is added to the outputs of both."""
    rng = np.random.default_rng(3)
    q, k, v, d = (rng.normal(size=(2, heads, 5, 3)) for heads in (4, 2, 2, 4))
    trace = attend(q, k, v, d_output=d)
    found = {name: trace[name].value for name in ("d_q", "d_k", "d_v")}
    found["output"] = trace["output"].value + np.repeat(v, 2, axis=1)
    verdict = check(found, q=q, k=k, v=v, d_output=d, pairs=False)
    assert names(verdict) == ["residual already in the output"]


@pytest.mark.parametrize("n_kv", [6, 3])
def test_numbers_of_query_heads_are_fitted_where_key_heads_are_shared(n_kv: int) -> None:
    """The gradient of a key is a sum over query heads, each with a sink of its own, one of them 0."""
    rng = np.random.default_rng(2)
    shapes = (2, 6, 17, 5), (2, n_kv, 19, 5), (2, n_kv, 19, 7), (2, 6, 17, 7)
    q, k, v, d = (rng.normal(size=shape) for shape in shapes)
    sinks = np.array([1.0, 2.0, 0.5, 3.0, 0.0, -1.0])
    wide_k, wide_v = (np.repeat(x, 6 // n_kv, axis=1) for x in (k, v))
    powers = np.exp(q @ np.swapaxes(wide_k, -1, -2) / np.sqrt(5))
    a = powers / (powers.sum(axis=-1, keepdims=True) + np.exp(sinks)[:, None, None])
    of_a = d @ np.swapaxes(wide_v, -1, -2)
    of_s = a * (of_a - (a * of_a).sum(axis=-1, keepdims=True)) / np.sqrt(5)
    of_k = (np.swapaxes(of_s, -1, -2) @ q).reshape(2, n_kv, -1, 19, 5).sum(axis=2)
    of_v = (np.swapaxes(a, -1, -2) @ d).reshape(2, n_kv, -1, 19, 7).sum(axis=2)
    found = {"d_q": of_s @ wide_k, "d_k": of_k, "d_v": of_v}
    verdict = check(found, q, k, v, d_output=d, pairs=False)
    assert names(verdict) == ["sinks where none are wanted"]


@pytest.mark.parametrize("of", ["d_k", "d_q"])
def test_gradients_of_rotated_inputs_are_rotated_back(of: str) -> None:
    rng = np.random.default_rng(11)
    q, k, v, d = (rng.normal(size=shape) for shape in ((3, 6), (5, 6), (5, 7), (3, 7)))
    step = 1e-6
    how: dict[str, Any] = {"d_output": d, "positions": "rope-halves"}

    def loss(x: Any) -> float:
        at = {"q": q, "k": k} | {of.removeprefix("d_"): x}
        angles = 10000.0 ** (-np.arange(3) / 3)

        def turned(y: Any) -> Any:
            c, s = (f(np.arange(len(y))[:, None] * angles) for f in (np.cos, np.sin))
            a, b = y[:, :3], y[:, 3:]
            return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)

        scores = turned(at["q"]) @ turned(at["k"]).T / np.sqrt(6)
        powers = np.exp(scores)
        return float((powers / powers.sum(axis=-1, keepdims=True) @ v * d).sum())

    x = {"d_q": q, "d_k": k}[of]
    found = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[at] = step
        found[at] = (loss(x + moved) - loss(x - moved)) / (2 * step)
    assert check({of: found}, q, k, v, atol=1e-7, **how).status == "match"
    setup = setup_of(q, k, v, **how)
    left = stages(setup.with_positions(back_on=frozenset()), all_of(setup.shape), [of])[of][0, 0]
    assert names(check({of: left}, q, k, v, **how)) == ["gradient left in the rotated frame"]


# ---- right implementations in a number type: no alarm


def flash_like(arrays: dict[str, Any], dtype: DType, block: int) -> Stages:
    """float32 inside, block by block: P and dS rounded, δ of the rounded O, exp(score − lse)."""

    def rounded(x: Any) -> Any:
        return round_to(x, dtype).astype(np.float32)

    q, k, v, d = (arrays[name].astype(np.float32) for name in ("q", "k", "v", "d_output"))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scale = np.float32(q.shape[-1] ** -0.5)
    x = q @ np.swapaxes(k, -1, -2) * scale
    top = x.max(axis=-1, keepdims=True)
    powers = np.exp(x - top)
    total = powers.sum(axis=-1, keepdims=True)
    output = rounded(rounded(powers) @ v / total)
    p = np.exp(x - (top + np.log(total)))
    delta = (output * d).sum(axis=-1, keepdims=True)
    ds, p = rounded(p * (d @ np.swapaxes(v, -1, -2) - delta)), rounded(p)
    dk, dv, dq = np.zeros_like(k), np.zeros_like(v), np.zeros_like(q)
    for i in range(0, q.shape[-2], block):
        rows = slice(i, i + block)
        dv += np.swapaxes(p[..., rows, :], -1, -2) @ d[..., rows, :]
        dk += np.swapaxes(ds[..., rows, :], -1, -2) @ q[..., rows, :] * scale
    for j in range(0, k.shape[-2], block):
        dq += ds[..., j : j + block] @ k[..., j : j + block, :] * scale
    shared = [x.reshape(len(x), -1, group, *x.shape[2:]).sum(axis=2) for x in (dk, dv)]
    return dict(zip(QKV, (rounded(x) for x in (dq, *shared)), strict=True))


WORLDS = {
    "tiny": ((1, 1, 3, 2), (1, 1, 3, 2), (1, 1, 3, 2)),
    "small": ((1, 2, 7, 5), (1, 2, 11, 5), (1, 2, 11, 13)),
    "grouped": ((2, 4, 33, 16), (2, 2, 37, 16), (2, 2, 37, 16)),
    "one query": ((1, 2, 1, 64), (1, 2, 257, 64), (1, 2, 257, 64)),
    "wide": ((1, 2, 64, 32), (1, 2, 64, 32), (1, 2, 64, 32)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("size", "shift"), [(1.0, 0.0), (4.0, 0.0), (1.0, 10.0)])
@pytest.mark.parametrize("world", WORLDS)
def test_a_kernel_that_rounds_where_kernels_do_matches(
    world: str, size: float, shift: float, dtype: DType
) -> None:
    for seed in (2,):
        rng = np.random.default_rng(seed)
        of_q, of_k, of_v = WORLDS[world]
        shapes = {"q": of_q, "k": of_k, "v": of_v, "d_output": (*of_q[:-1], of_v[-1])}
        arrays: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        arrays["q"], arrays["v"] = arrays["q"] * size, arrays["v"] + shift
        arrays = {name: round_to(x, dtype).astype(np.float64) for name, x in arrays.items()}
        observed = flash_like(arrays, dtype, 16)
        typed = {name: x.astype(np.float32) for name, x in observed.items()}
        assert check(typed, **arrays, dtype=dtype).status == "match"


# ---- the call


def small() -> tuple[dict[str, Any], Stages]:
    rng = np.random.default_rng(2)
    shapes = {"q": (4, 3, 2), "k": (2, 5, 2), "v": (2, 5, 7), "d_output": (4, 3, 7)}
    arrays: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    wrong = WRONG["grouped heads not summed in dK, dV (the last one wins)"]
    found = backward(forward(**{name: x[None] for name, x in arrays.items()}), wrong)
    right = backward(forward(**{name: x[None] for name, x in arrays.items()}))
    return arrays, {name: found[name][0] for name in QKV} | {
        f"right {name}": right[name][0] for name in (*QKV, "output")
    }


def test_gradients_may_be_keywords() -> None:
    arrays, found = small()
    right = {name: found[f"right {name}"] for name in QKV}
    assert check(**arrays, **right).matches
    output = found["right output"]
    assert check(output, **arrays, d_k=right["d_k"]).matches
    assert_attention(None, **arrays, **right)
    with pytest.raises(AssertionError, match="the last one wins"):
        assert_attention(None, **arrays, d_q=found["d_q"], d_k=found["d_k"])


def test_what_is_wrong_with_a_call_is_said() -> None:
    arrays, found = small()
    without = {name: x for name, x in arrays.items() if name != "d_output"}
    errors: list[tuple[type[AttncliError], str, dict[str, Any]]] = [
        (ConventionError, "follows from the gradient of the output", {"d_q": found["d_q"]}),
        (StageError, "nothing was observed", {}),
    ]
    for error, words, more in errors:
        with pytest.raises(error, match=words):
            check(**without, **more)
    with pytest.raises(ConventionError, match="d_k is a sum over all queries"):
        check(**arrays, d_k=found["d_k"], rows=[0])
    with pytest.raises(StageError, match="this attention has no d_sinks"):
        check(**arrays, d_sinks=np.zeros(4))
    with pytest.raises(ShapeError, match="there is no q"):
        check(np.zeros((3, 7)))
    shape = check(**arrays, d_k=np.swapaxes(found["right d_k"], -1, -2))
    assert (shape.status, shape.shape) == (
        "wrong shape",
        "d_k is 2 × 2 × 5, expected 2 × 5 × 2. Its last two axes are exchanged: swap them; "
        "then it matches",
    )


def test_the_verdict_in_words() -> None:
    arrays, found = small()
    lines = str(check(**arrays, **{name: found[name] for name in QKV})).splitlines()
    assert lines[:4] == [
        "it differs; the cause:",
        "  grouped heads not summed in dK, dV (the last one wins)",
        "     dK and dV hold one query head's share; every head of the group adds to them",
        "     seen in levanter#449",
    ]
    summed_up = next(line for line in lines if " · " in line)
    assert summed_up.startswith("d_v differs: largest error 1.")
    assert summed_up.endswith(" · d_q matches")


def test_a_gradient_that_another_meaning_of_the_mask_does_not_have() -> None:
    rng = np.random.default_rng(41)
    shapes = {"q": (6, 7, 5), "k": (6, 11, 5), "v": (6, 11, 13), "d_output": (6, 7, 13)}
    arrays: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    arrays["mask"] = rng.normal(size=(6, 7, 11))
    trace = attend(**arrays)
    observed = {"d_q": trace["d_q"].value, "d_bias": 2.1 * trace["d_bias"].value}
    verdict = check(observed, **arrays, pairs=False)
    assert not verdict.matches
    assert [(stage.name, stage.matches) for stage in verdict.stages] == [
        ("d_bias", False),
        ("d_q", True),
    ]


@pytest.mark.parametrize("scale", ["0", "-0.0", "1e-320", "1e-300", "1e200", "-0.5", "none"])
def test_any_scale_ends_in_a_verdict(scale: str, call: Call) -> None:
    three = SAMPLES / "three-tokens.json"
    flags = ("--scale", scale, "--d-output", "random")
    call("compute", three, *flags, "--output", "t.npz")
    assert call("check", "--q", three, *flags, "--observed", "t.npz").code == 0
    wide, narrow = "[[7, 5, 1], [3, 0, 8], [2, 9, 4]]", "[[7, -5], [1, 3], [0, 8]]"
    for stage, numbers in {"scores": wide, "output": narrow, "d_q": narrow}.items():
        wrong = ("--observed", numbers, "--stage", stage)
        # beyond the precision of exp any weights are right
        allowed = (0, 1) if scale == "1e200" and stage != "scores" else (1,)
        assert call("check", "--q", three, *flags, *wrong).code in allowed


def test_two_bugs_of_a_gradient_with_dropout_are_named() -> None:
    """One changes what dV is made of: each second bug of the same products joins it."""
    rng = np.random.default_rng(5)
    q, k, v, d = (rng.normal(size=(19, n)) for n in (5, 5, 7, 7))
    kept = np.random.default_rng(1).random((19, 19)) >= 0.4
    powers = np.exp(q @ k.T / np.sqrt(5))
    a = powers / powers.sum(axis=-1, keepdims=True)
    of_a = d @ v.T * kept / 0.6
    of_z = a * (of_a - (a * of_a).sum(axis=-1, keepdims=True))
    found = {"d_q": of_z @ k, "d_k": of_z.T @ q / np.sqrt(5), "d_v": a.T @ d}
    verdict = check(found, q, k, v, d_output=d, dropout=0.4, seed=1)
    pair = {"dropout mask not applied again in dV", "scale left out of dQ"}
    assert {bug.name for bug in verdict.explanations[0].bugs} == pair
    assert len(verdict.explanations) == 1
