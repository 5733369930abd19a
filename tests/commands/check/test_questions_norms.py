"""check on the norm of queries and keys with gains, before rotary positions: loops over tokens."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from attncli.convention import Convention
from attncli.errors import AttncliError
from attncli.tolerance.run import all_of, stages
from attncli.tolerance.setup import setup_of
from tests import plain
from tests.commands.check.test_questions_positions import powers, turned
from tests.turns import in_turn

RNG = np.random.default_rng(61)
D = 10
Q, K, V = (RNG.normal(size=(2, 3, 11, d)) * 2 for d in (D, D, 7))
GAINS = {"q": RNG.uniform(0.3, 3, size=D), "k": RNG.uniform(0.3, 3, size=D)}
FLAGS: dict[str, Any] = {"qk_norm": True, "q_gain": GAINS["q"], "k_gain": GAINS["k"]}


def norm(x: Any, gain: Any) -> Any:
    result = np.zeros_like(x)
    for at in np.ndindex(x.shape[:-1]):
        result[at] = gain * x[at] / np.sqrt((x[at] ** 2).sum() / D + 1e-6)
    return result


def output(
    gains: Any = GAINS, after: str = "", kind: str = "rope-halves", theta: Any = None, q: Any = Q
) -> Any:
    placed = {}
    for name, x in (("q", q), ("k", K)):
        first = x if name in after else norm(x, gains[name])
        rotated = turned(first, powers(D) if theta is None else theta, kind=kind) if kind else first
        placed[name] = norm(rotated, gains[name]) if name in after else rotated
    return plain.attention({**placed, "v": V}, {})["output"]


def cause(observed: Any, positions: str | None = "rope-halves") -> str:
    return check(observed, Q, K, V, positions=positions, **FLAGS).explanations[0].name


@pytest.mark.parametrize(
    ("kind", "dtype"), in_turn(["rope-halves", "rope-interleaved", ""], ["float64", "float32"])
)
def test_a_norm_with_gains_before_the_positions_matches(kind: str, dtype: Any) -> None:
    verdict = check(output(kind=kind).astype(dtype), Q, K, V, positions=kind or None, **FLAGS)
    assert verdict.matches
    assert not check(output(kind=kind), Q, K, V, positions=kind or None, qk_norm=True).matches


def test_gains_of_one_of_the_two() -> None:
    gains = {"q": GAINS["q"], "k": np.ones(D)}
    more: Any = {"qk_norm": True, "q_gain": GAINS["q"], "positions": "rope-halves"}
    assert check(output(gains), Q, K, V, **more).matches


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_right_one_in_its_own_type_matches(dtype: Any) -> None:
    """Every step is rounded: the norm, the gains, the rotation."""
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    placed = {}
    for name, x in (("q", q), ("k", k)):
        wide = x.astype(np.float32)
        n = (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6)).astype(dtype)
        scaled = (n * GAINS[name].astype(dtype)).astype(dtype)
        placed[name] = turned(scaled.astype(float), powers(D)).astype(dtype).astype(float)
    observed = plain.attention({**placed, "v": v.astype(float)}, {})["output"].astype(dtype)
    gains: Any = {f"{name}_gain": x.astype(dtype) for name, x in GAINS.items()}
    assert check(observed, q, k, v, positions="rope-halves", qk_norm=True, **gains).matches


@pytest.mark.parametrize(
    ("kind", "after", "words"),
    [
        ("rope-halves", "qk", "queries and keys"),
        ("rope-interleaved", "qk", "queries and keys"),
        ("rope-halves", "q", "queries"),
        ("rope-interleaved", "k", "keys"),
    ],
)
def test_a_norm_after_the_positions(kind: str, after: str, words: str) -> None:
    assert cause(output(after=after, kind=kind), kind) == (
        f"{words} are normalised after the positions, not before"
    )


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ({"q": np.ones(D), "k": np.ones(D)}, "queries and keys: the gains of the norm are left out"),
        ({"q": GAINS["q"], "k": np.ones(D)}, "keys: the gains of the norm are left out"),
        ({"q": GAINS["k"], "k": GAINS["q"]}, "queries and keys: the gains of the norm are those of the other"),
        ({"q": 1 + GAINS["q"], "k": 1 + GAINS["k"]}, "larger by 1"),
    ],
)  # fmt: skip
def test_other_gains(gains: Any, words: str) -> None:
    assert words in cause(output(gains))


def test_positions_of_another_rule_beside_the_norm() -> None:
    assert "all frequencies are 1" in cause(output(theta=[1.0] * 5))


@pytest.mark.parametrize("after", ["", "q"])
def test_gradients_go_back_through_the_norm(after: str) -> None:
    """By finite differences of the entries of two queries."""
    g = np.random.default_rng(3).normal(size=V.shape)
    gains: Any = {"q_gain": GAINS["q"], "k_gain": GAINS["k"], "d_output": g}
    convention = Convention(qk_norm=True)
    setup = setup_of(Q, K, V, convention=convention, positions="rope-halves", **gains)
    setup = replace(setup, norms_after=frozenset(after))
    computed = stages(setup, all_of(setup.shape), ["d_q"])["d_q"]
    for at in np.ndindex(1, 1, 2, D):
        step = np.zeros_like(Q)
        step[at] = 1e-5
        high, low = (float((output(after=after, q=Q + s) * g).sum()) for s in (step, -step))
        assert np.isclose(computed[at], (high - low) / 2e-5, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("after", "kind"), in_turn(["", "q", "qk"], ["rope-halves", "rope-interleaved"])
)
def test_gradients_of_gains_beside_positions(after: str, kind: str) -> None:
    """By finite differences of every gain, through a norm before the positions or after them."""
    g = np.random.default_rng(3).normal(size=V.shape)
    gains: Any = {"q_gain": GAINS["q"], "k_gain": GAINS["k"], "d_output": g}
    setup = setup_of(Q, K, V, convention=Convention(qk_norm=True), positions=kind, **gains)
    setup = replace(setup, norms_after=frozenset(after))
    computed = stages(setup, all_of(setup.shape), ["d_q_gain", "d_k_gain"])
    for name, at in ((name, at) for name in "qk" for at in range(D)):
        step = 1e-5 * (np.arange(D) == at)
        high, low = (
            float((output({**GAINS, name: GAINS[name] + s}, after, kind) * g).sum())
            for s in (step, -step)
        )
        expected = (high - low) / 2e-5
        assert np.isclose(computed[f"d_{name}_gain"].ravel()[at], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_observed_gradient_of_gains_beside_positions(dtype: str) -> None:
    """dγ = Σ over tokens and heads of what comes back through the rotation, times x / rms(x)."""
    g = np.random.default_rng(3).normal(size=V.shape)
    placed = {name: turned(norm(x, GAINS[name]), powers(D)) for name, x in (("q", Q), ("k", K))}
    weights = plain.attention({**placed, "v": V}, {})["weights"]
    d_weights = g @ V.swapaxes(2, 3)
    d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True)) / np.sqrt(D)
    back = turned(d_scores @ placed["k"], [-x for x in powers(D)])
    d_q_gain = (back * norm(Q, np.ones(D))).sum(axis=(0, 1, 2))
    arrays = [x.astype(dtype) for x in (Q, K, V)]
    more: Any = {"d_output": g.astype(dtype), "positions": "rope-halves", **FLAGS}
    assert check({"d_q_gain": d_q_gain.astype(dtype)}, *arrays, **more).matches
    without_positions = (d_scores @ placed["k"] * norm(Q, np.ones(D))).sum(axis=(0, 1, 2))
    assert not check({"d_q_gain": without_positions.astype(dtype)}, *arrays, **more).matches


def test_a_gradient_of_gains_that_there_are_not() -> None:
    more: Any = {"d_output": V, "positions": "rope-halves", "qk_norm": True, "k_gain": GAINS["k"]}
    with pytest.raises(AttncliError, match="no norm with q_gain"):
        check({"d_q_gain": GAINS["q"]}, Q, K, V, **more)


def test_gains_that_do_not_fit() -> None:
    for more in ({"q_gain": np.ones(3), "qk_norm": True}, {"k_gain": np.ones(D)}):
        with pytest.raises(AttncliError, match="gain"):
            check(V, Q, K, V, **more)


def test_gains_are_flags(tmp_path: Any, call: Any) -> None:
    file = str(tmp_path / "dump.npz")
    np.savez(file, q=Q, k=K, v=V, output=output(), q_gain=GAINS["q"], k_gain=GAINS["k"])
    flags = ("--qk-norm", "--q-gain", f"{file}::q_gain", "--k-gain", f"{file}::k_gain")
    assert call("check", file, "--positions", "rope-halves", *flags).code == 0
    of_file = call("check", file, "--positions", "rope-halves", "--qk-norm")
    assert (of_file.code, of_file.err) == (0, "")
    bare = str(tmp_path / "bare.npz")
    np.savez(bare, q=Q, k=K, v=V, output=output())
    for wrong, words in ((flags[1:], "qk"), (("--qk-norm", "--q-gain", "[1, 2]"), "d_k is 10")):
        result = call("check", bare, "--positions", "rope-halves", *wrong)
        assert (result.code, result.err.count("\n"), words in result.err) == (2, 1, True)


@pytest.mark.parametrize("names", [["d_q_gain"], ["d_k_gain"], ["d_q_gain", "d_k_gain"]])
@pytest.mark.parametrize("positions", [None, "rope-halves"])
def test_gradients_of_gains_that_were_not_written(names: list[str], positions: str | None) -> None:
    """A scale of 0 would give them too, or a gradient of q that is 0: neither is said."""
    zeros = {name: np.zeros(D) for name in names}
    d_output = RNG.normal(size=V.shape)
    verdict = check(zeros, Q, K, V, d_output=d_output, positions=positions, **FLAGS)
    assert verdict.status == "found"
    expected = " and ".join(f"{name} is 0: not written" for name in names)
    assert verdict.explanations[0].name == expected
