"""--d-output: gradients on the command line, whole, of x and weights, of a sentence, in blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import attend, budget, multi_head_attention
from attncli.cli import compute
from tests.cli.conftest import SAMPLES, Call

THREE = ("compute", "--q", str(SAMPLES / "three-tokens.json"))
GIVEN = "[[1, 0], [0, 1], [1, 1]]"


def stages_of(done: Any) -> dict[str, Any]:
    assert done.code == 0, done.err
    return {step["name"]: step["value"] for step in done.json["steps"]}


def test_the_gradients_follow_the_stages(call: Call) -> None:
    # dA of q1 is 10, 0, 5, whose mean by its weights is 5: k1 raises the loss as k2 lowers it.
    found = stages_of(call(*THREE, "--d-output", GIVEN, "--format", "json"))
    assert [*found][[*found].index("output") + 1 :] == [
        "d_output", "d_v", "d_weights", "delta", "d_scaled", "d_scores", "d_q", "d_k",
    ]  # fmt: skip
    assert found["d_weights"] == [[10, 0, 5], [0, 10, 5], [10, 10, 10]]
    assert found["d_scores"][0] == pytest.approx([1.4181, -1.4181, 0], abs=5e-5)
    assert found["d_q"][0] == pytest.approx([0, 1.4181], abs=5e-5)
    assert found["d_k"][2] == pytest.approx([0, 0.2884], abs=5e-5)


@pytest.mark.parametrize("name", ["d_output", "dO", "grad_output", "dout"])
def test_a_file_may_hold_the_gradient_of_the_output(call: Call, tmp_path: Path, name: str) -> None:
    numbers = json.loads((SAMPLES / "three-tokens.json").read_text()) | {name: json.loads(GIVEN)}
    (tmp_path / "x.json").write_text(json.dumps(numbers))
    found = stages_of(call("compute", "x.json", "--format", "json"))
    assert found["d_q"][0] == pytest.approx([0, 1.4181], abs=5e-5)
    ones = stages_of(call("compute", "x.json", "--d-output", "ones", "--format", "json"))
    assert ones["d_output"] == [[1, 1]] * 3  # a flag beside a file wins


def test_a_saved_trace_is_computed_again(call: Call, tmp_path: Path) -> None:
    saved = call(*THREE, "--d-output", "random", "--causal", "--output", "trace.json")
    assert saved.code == 0, saved.err
    again = stages_of(call("compute", "trace.json", "--format", "json"))
    first = json.loads((tmp_path / "trace.json").read_text())["steps"]
    assert again["d_k"] == next(step["value"] for step in first if step["name"] == "d_k")


def test_ones_say_what_they_cannot_show(call: Call) -> None:
    done = call(*THREE, "--d-output", "ones", "--stage", "d_q", "--format", "json")
    assert "all its numbers are alike, so it shows no gradient taken of the wrong query" in done.err
    assert "as the values of every key have one sum here, dQ and dK are 0" in done.err
    assert np.allclose(stages_of(done)["d_q"], 0)
    assert call(*THREE, "--d-output", "ones", "--quiet").err == ""
    assert call(*THREE, "--d-output", "random").err == ""


def test_random_numbers_follow_from_the_seed(call: Call) -> None:
    drawn = np.random.default_rng(5).standard_normal((3, 2)).tolist()
    found = call(*THREE, "--d-output", "random", "--seed", "5", "--format", "json")
    assert stages_of(found)["d_output"] == drawn
    assert "--seed has no effect without --dropout" in call(*THREE, "--seed", "5").err


def test_heads_and_layouts_are_those_of_q(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shapes = {"q": (2, 5, 3, 7), "k": (2, 11, 3, 7), "v": (2, 11, 3, 13), "dO": (2, 5, 3, 13)}
    given = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    np.savez(tmp_path / "x.npz", **given)  # type: ignore[arg-type]
    done = call("compute", "x.npz", "--layout", "bshd", "--output", "o.npz")
    assert done.code == 0, done.err
    q, k, v, d = (np.swapaxes(x, 1, 2) for x in given.values())
    expected = attend(q, k, v, d_output=d)
    found = np.load(tmp_path / "o.npz")
    assert np.array_equal(found["d_k"], expected["d_k"].value)
    wide = {name: rng.normal(size=(5, 6)) for name in ("q", "k", "v", "d_output")}
    np.savez(tmp_path / "wide.npz", **wide)  # type: ignore[arg-type]
    done = call("compute", "wide.npz", "--heads", "2", "--output", "h.npz")
    assert done.code == 0, done.err
    q, k, v, d = (x.reshape(5, 2, 3).swapaxes(0, 1) for x in wide.values())
    found = np.load(tmp_path / "h.npz")
    assert [*found].index("concat") < [*found].index("d_output")
    assert np.array_equal(found["d_q"], attend(q, k, v, d_output=d)["d_q"].value)


def test_x_and_weights_have_gradients(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    given = {"x": rng.normal(size=(3, 5)), "d_output": rng.normal(size=(3, 13))}
    given |= {f"w_{n}": rng.normal(size=(5, 14)) for n in "qkv"} | {"b_q": rng.normal(size=14)}
    given["w_o"] = rng.normal(size=(14, 13))
    np.savez(tmp_path / "x.npz", **given)  # type: ignore[arg-type]
    done = call("compute", "x.npz", "--heads", "2", "--causal", "--output", "o.npz")
    assert done.code == 0, done.err
    weights = {name: x for name, x in given.items() if name[:2] in ("w_", "b_")}
    own: Any = {"n_heads": 2, "causal": True, "d_output": given["d_output"]}
    expected, found = multi_head_attention(given["x"], weights, **own), np.load(tmp_path / "o.npz")
    names = [name for name in expected if name.startswith("d_")]
    assert {"d_x", "d_w_q", "d_b_q", "d_w_o", "d_concat"} < {*names}
    for name in names:
        assert np.allclose(found[name], expected[name].value, atol=1e-13), name


def test_a_cache_before_keys_of_x_is_not_of_the_weights(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    given = {"x": rng.normal(size=(3, 5)), **{f"w_{n}": rng.normal(size=(5, 2)) for n in "qkv"}}
    given |= {f"past_{n}": rng.normal(size=(7, 2)) for n in "kv"}
    np.savez(tmp_path / "x.npz", **given)  # type: ignore[arg-type]
    done = call("compute", "x.npz", "--d-output", "random", "--output", "o.npz")
    assert done.code == 0, done.err
    found = np.load(tmp_path / "o.npz")
    assert found["d_k"].shape == (10, 2)
    assert np.allclose(found["d_w_k"], given["x"].T @ found["d_k"][7:])


def test_a_sentence(call: Call) -> None:
    flags = ("explain", "the river bank", "--dim", "4", "--heads", "2", "--d-output", "random")
    blocks = {step["name"]: step for step in call(*flags, "--format", "json").json["steps"]}
    names = [step["name"] for step in blocks["attention"]["steps"]]
    assert names[names.index("projected") + 1] == "d_projected"
    assert names[-1] == "d_x"
    assert call("explain", "a b", "--block", "encoder", "--d-output", "ones").code == 2


def test_gradients_that_cancel_are_the_same_in_another_number_type(call: Call) -> None:
    """Each value sums to 10, so dS is 0 in exact numbers, and rounding in float32."""
    flags = ("--d-output", "ones", "--quiet", "--against")
    assert call(*THREE, *flags, "--dtype float32").code == 0
    assert call(*THREE, *flags, "--softcap 1").code == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("[[1, 2]]", "d_output is 1 × 2, output is 3 × 2; they have one shape"),
        ("nowhere", "nowhere does not exist"),
        ("[[true, false], [true, true], [true, true]]", "d_output needs numbers"),
        ("[1, 2]", "d_output needs 2 to 4"),
        ("[]", "is empty"),
        (str(SAMPLES), "is a directory"),
    ],
)
def test_what_is_no_gradient_is_refused_in_one_line(call: Call, source: str, words: str) -> None:
    done = call(*THREE, "--d-output", source)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Arrays whose stages do not fit, though some of their rows do."""
    rng = np.random.default_rng(13)
    shapes = {"q": (2, 41, 5), "k": (2, 53, 5), "v": (2, 53, 3), "d_output": (2, 41, 3)}
    found = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    np.savez(tmp_path / "x.npz", **found)  # type: ignore[arg-type]
    monkeypatch.setattr(budget, "_LITTLE", 0)
    monkeypatch.setattr(budget, "free_memory", lambda: 2 * 25 * 53 * 8 * 6)
    monkeypatch.setattr(compute, "_SURELY_FITS", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr("attncli.attention.stream_gradients.ROWS", 7)
    return found


def test_gradients_of_q_k_and_v_alone_are_streamed(
    call: Call, little_memory: dict[str, Any], tmp_path: Path
) -> None:
    flags = ("--stage", "d_k", "--stage", "d_q", "--output", "o.npz")
    done = call("compute", "x.npz", "--causal", *flags)
    assert done.code == 0, done.err
    found = np.load(tmp_path / "o.npz")
    expected = attend(**little_memory, causal=True)
    assert sorted(found) == ["__trace__", "d_k", "d_q"]
    for name in ("d_k", "d_q"):
        assert np.allclose(found[name], expected[name].value, atol=1e-13)


def test_other_gradients_of_what_is_too_large_are_refused(
    call: Call, little_memory: dict[str, Any]
) -> None:
    done = call("compute", "x.npz", "--stage", "d_scores")
    assert done.code == 2
    assert "gradients are sums over all queries" in done.err
    rows = call("compute", "x.npz", "--rows", "1:2", "--stage", "output")
    assert rows.code == 0, rows.err
    assert "no gradients: gradients are sums over all queries" in rows.err
