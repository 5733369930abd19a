"""The norm of queries and keys with gains (RMSNorm with a weight), worked in loops over numbers."""

import math
from typing import Any

import numpy as np
import pytest

import attncli
from tests import plain

RNG = np.random.default_rng(23)
Q, K, V = (RNG.normal(size=shape) for shape in ((2, 6, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13)))
GAINS: Any = {name: RNG.uniform(-2, 2, size=7) for name in ("q_gain", "k_gain")}
SMALL: Any = {"q": Q[:1, :2, :3], "k": K[:1, :1, :5], "v": V[:1, :1, :5]}


def rms_norm(x: Any, gain: Any) -> Any:
    """torch.nn.RMSNorm(7, eps=1e-6) with this weight."""
    result = np.zeros_like(x)
    for at in np.ndindex(x.shape[:-1]):
        mean = sum(number * number for number in x[at]) / len(x[at])
        for d, number in enumerate(x[at]):
            result[*at, d] = number / math.sqrt(mean + 1e-6) * gain[d]
    return result


def output(q: Any, k: Any, v: Any, q_gain: Any = None, k_gain: Any = None, **more: Any) -> Any:
    ones = np.ones(7)
    q = rms_norm(q, ones if q_gain is None else q_gain)
    k = rms_norm(k, ones if k_gain is None else k_gain)
    return plain.attention({"q": q, "k": k, "v": v}, more)["output"]


@pytest.mark.parametrize("names", [("q_gain",), ("k_gain",), ("q_gain", "k_gain")])
@pytest.mark.parametrize("more", [{}, {"causal": True, "softcap": 3.0}])
def test_the_norms_are_stages_with_their_gains(names: Any, more: Any) -> None:
    gains: Any = {name: GAINS[name] for name in names}
    trace = attncli.attend(Q, K, V, qk_norm=True, **gains, **more)
    for name, x in (("q", Q), ("k", K)):
        right = rms_norm(x, gains.get(f"{name}_gain", np.ones(7)))
        np.testing.assert_allclose(trace[f"{name}_norm"].value, right, rtol=1e-13)
    np.testing.assert_allclose(trace["output"].value, output(Q, K, V, **gains, **more), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_other_way_to_the_output_has_the_gains(dtype: Any) -> None:
    given: Any = {"q": Q, "k": K, "v": V, **GAINS, "qk_norm": True, "dtype": dtype}
    right = output(Q, K, V, **GAINS)
    close: Any = {"rtol": 1e-11 if dtype == "float64" else 2e-5, "atol": 1e-5}
    outputs = [
        attncli.stream(**given),
        attncli.attend_tiles(**given, tiles=3)["output"].value,
        attncli.attend_split(**given, split=[2, 9])["output"].value,
        attncli.attend(**given, rows=[1, 3])["output"].value,
    ]
    for computed, rows in zip(outputs, (..., ..., ..., [1, 3]), strict=True):
        expected = right if rows is ... else right[:, :, rows]
        np.testing.assert_allclose(computed, expected, **close)


def test_gradients_go_through_norm_and_gains() -> None:
    """By finite differences of the output in loops."""
    d = np.random.default_rng(5).normal(size=(1, 2, 3, 13))
    arrays: dict[str, Any] = {**SMALL, **GAINS}
    trace = attncli.attend(**arrays, qk_norm=True, d_output=d)
    for name in ("q", "k", "q_gain", "k_gain"):
        computed, slopes = trace[f"d_{name}"].value, np.zeros(np.shape(arrays[name]))
        for at in np.ndindex(slopes.shape):
            step = np.zeros_like(slopes)
            step[at] = 1e-6
            above, below = (
                (output(**{**arrays, name: arrays[name] + move}) * d).sum()
                for move in (step, -step)
            )
            slopes[at] = (above - below) / 2e-6
        np.testing.assert_allclose(computed, slopes, rtol=1e-6, atol=1e-7)
    streamed = attncli.stream_gradients(**SMALL, **GAINS, d_output=d, qk_norm=True)
    for name, x in streamed.items():
        np.testing.assert_allclose(x, trace[name].value, rtol=1e-10, atol=1e-12)


def test_each_attention_of_an_explanation_has_the_gains() -> None:
    """Of an encoder of two layers; the gradients of the gains are of each by itself."""
    gains: Any = {name: GAINS[name][:2] for name in GAINS}
    trace = attncli.explain(
        "the river bank", dim=4, heads=2, block="encoder", layers=2, qk_norm=True, **gains,
        d_output="random",
    )  # fmt: skip
    for layer in ("encoder.1.attention", "encoder.2.attention"):
        for name in "qk":
            before = trace[f"{layer}.{name}"].value
            right = rms_norm(before, gains[f"{name}_gain"])
            np.testing.assert_allclose(trace[f"{layer}.{name}_norm"].value, right, rtol=1e-13)
            assert trace[f"backward.{layer}.d_{name}_gain"].value.shape == (2,)


def test_gains_are_read_from_files(tmp_path: Any, call: Any) -> None:
    file = str(tmp_path / "in.npz")
    np.savez(file, q=Q, k=K, v=V, **GAINS)
    for flags in ([], ["--q-gain", f"{file}::q_gain", "--k-gain", f"{file}::k_gain"]):
        line = ("compute", file, "--qk-norm", *flags, "--stage", "output")
        result = call(*line, "--force", "--output", str(tmp_path / "o.npy"))
        assert (result.code, result.err) == (0, "")
        np.testing.assert_allclose(
            np.load(tmp_path / "o.npy"), output(Q, K, V, **GAINS), rtol=1e-11, atol=1e-12
        )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--q-gain", "[1, 2]"), "not normalised"),
        (("--qk-norm", "--k-gain", "[1, 2, 3]"), "k_gain is 3, and d_k is 2"),
        (("--qk-norm", "--q-gain", "[[1, 2]]"), "q_gain"),
    ],
)
@pytest.mark.parametrize("command", ["compute", "explain"])
def test_gains_that_do_not_fit(command: str, flags: Any, words: str, call: Any) -> None:
    begin = {
        "compute": ("compute", "--q", "[[3, 4]]"),
        "explain": ("explain", "a bank", "--dim", "2"),
    }
    result = call(*begin[command], *flags)
    assert (result.code, result.err.count("\n")) == (2, 1), result.err
    assert words in result.err
