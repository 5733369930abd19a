"""--d-output: gradients on the command line, whole, and of x and weights."""

import json
from typing import Any

import numpy as np
import pytest

from attncli import attend, multi_head_attention
from tests.calls import SAMPLES, Call, stages

RNG = np.random.default_rng(3)
THREE = ("compute", "--q", str(SAMPLES / "three-tokens.json"))
GIVEN = "[[1, 0], [0, 1], [1, 1]]"


def of(done: Any) -> Any:
    assert done.code == 0, done.err
    return stages(done.json)


def test_the_gradients_follow_the_stages(call: Call) -> None:
    # dA of q1 is 10, 0, 5, whose mean by its weights is 5: k1 raises the loss as k2 lowers it.
    result = of(call(*THREE, "--d-output", GIVEN, "--format", "json"))
    names = "output d_output d_v d_weights delta d_scaled d_scores d_q d_k"
    assert [*result][-9:] == names.split()
    assert result["d_scores"][0] == pytest.approx([1.4181, -1.4181, 0], abs=5e-5)
    document = json.loads((SAMPLES / "three-tokens.json").read_text())
    for name in ("d_output", "dO", "grad_output", "dout"):
        own = ("compute", json.dumps(document | {name: json.loads(GIVEN)}), "--format", "json")
        np.testing.assert_array_equal(of(call(*own))["d_q"], result["d_q"])
        assert (of(call(*own, "--d-output", "ones"))["d_output"] == 1).all()  # a flag wins


def test_ones_say_what_they_cannot_show_and_random_numbers_follow_from_the_seed(call: Call) -> None:
    done = call(*THREE, "--d-output", "ones", "--stage", "d_q", "--format", "json")
    assert "stay hidden" in done.err
    assert "dQ and dK are 0" in done.err  # the values of every key have one sum
    np.testing.assert_allclose(of(done)["d_q"], 0, atol=1e-12)
    assert call(*THREE, "--d-output", "ones", "--quiet").err == ""
    assert call(*THREE, "--d-output", "random").err == ""
    drawn = np.random.default_rng(5).standard_normal((3, 2))
    result = of(call(*THREE, "--d-output", "random", "--seed", "5", "--format", "json"))
    np.testing.assert_array_equal(result["d_output"], drawn)


def test_gradients_that_cancel_are_the_same_in_another_number_type(call: Call) -> None:
    """Each value sums to 10, so dS is 0 in exact numbers, and rounding in float32."""
    flags = ("--d-output", "ones", "--quiet", "--against")
    assert call(*THREE, *flags, "--dtype float32").code == 0
    assert call(*THREE, *flags, "--softcap 1").code == 1


def test_heads_and_layouts_are_those_of_q(call: Call) -> None:
    shapes = {"q": (2, 5, 3, 7), "k": (2, 11, 3, 7), "v": (2, 11, 3, 13), "dO": (2, 5, 3, 13)}
    arrays: dict[str, Any] = {name: RNG.normal(size=shape) for name, shape in shapes.items()}
    heads = [np.swapaxes(x, 1, 2) for x in arrays.values()]
    wide: dict[str, Any] = {name: RNG.normal(size=(5, 6)) for name in ("q", "k", "v", "d_output")}
    halves = [x.reshape(5, 2, 3).swapaxes(0, 1) for x in wide.values()]
    cases = (arrays, ("--layout", "bshd"), heads), (wide, ("--heads", "2"), halves)
    for own, flags, (q, k, v, d) in cases:
        np.savez("x.npz", **own)
        assert call("compute", "x.npz", *flags, "--output", "o.npz", "--force").code == 0
        expected, result = attend(q, k, v, d_output=d), np.load("o.npz")
        for name in ("d_q", "d_k"):
            np.testing.assert_array_equal(result[name], expected[name].value)


def test_x_and_weights_have_gradients_that_are_checked(call: Call) -> None:
    weights: dict[str, Any] = {f"w_{n}": RNG.normal(size=(5, 14)) for n in "qkv"}
    weights |= {"b_q": RNG.normal(size=14), "w_o": RNG.normal(size=(14, 13))}
    x, d_output = RNG.normal(size=(3, 5)), RNG.normal(size=(3, 13))
    np.savez("x.npz", x=x, d_output=d_output, **weights)
    for heads in (2, 1):
        line = ("x.npz", "--heads", str(heads), "--causal")
        assert call("compute", *line, "--output", "o.npz", "--force").code == 0
        expected = multi_head_attention(x, weights, n_heads=heads, causal=True, d_output=d_output)
        for name in ("d_x", "d_w_q", "d_w_k", "d_w_v", "d_b_q", "d_w_o"):
            np.testing.assert_allclose(np.load("o.npz")[name], expected[name].value, atol=1e-13)
        own = {"dW_q": "d_w_q", "db_q": "d_b_q", "dx": "d_x"}
        named: Any = {name: expected[ours].value for name, ours in own.items()}
        np.savez("g.npz", **named)
        done = call("check", "--x", *line, "--observed", "g.npz")
        assert (done.code, "w_o is not used" in done.err) == (0, False)
        again = call("check", "o.npz")
        assert (again.code, "d_w_q" in again.err) == (0, True)
    wrong = call("check", "--x", *line, "--observed", "g.npz", "--scale", "none")  # several causes
    assert (wrong.code, "distinguished by: " in wrong.out) == (1, True)
    past: dict[str, Any] = {f"past_{n}": RNG.normal(size=(7, 14)) for n in "kv"}
    np.savez("past.npz", x=x, **past, **{name: weights[name] for name in ("w_q", "w_k", "w_v")})
    assert call("compute", "past.npz", "--d-output", "random", "--output", "c.npz").code == 0
    d_k = np.load("c.npz")["d_k"]
    assert d_k.shape == (10, 14)  # of which those of the cache are not of the weights
    np.testing.assert_allclose(np.load("c.npz")["d_w_k"], x.T @ d_k[7:])


def test_gradients_of_what_is_too_large(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of q and k are streamed where their stages do not fit; others are refused."""
    arrays: Any = {name: RNG.normal(size=(1001, 2)) for name in ("q", "k", "v", "d_output")}
    np.savez("x.npz", **arrays)
    rows = call("compute", "x.npz", "--max-size", "40MB", "--rows", "1:2", "--stage", "output")
    assert (rows.code, "no gradients" in rows.err) == (0, True)
    monkeypatch.setattr("attncli.budget.free_memory", lambda: 40_000_000)
    whole = call("compute", "x.npz", "--stage", "d_scores")
    assert (whole.code, "are free" in whole.err) == (2, True)
    assert call("compute", "x.npz", "--stage", "d_k", "--output", "o.npz").code == 0
