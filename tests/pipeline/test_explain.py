"""explain and posenc in Python, beside what the commands give."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import attncli

RNG = np.random.default_rng(3)


def command(*arguments: str) -> dict[str, Any]:
    """The stages that the command gives, by name."""
    call = [sys.executable, "-m", "attncli", *arguments, "--format", "json"]
    data = json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout)
    found: dict[str, Any] = {}

    def walk(steps: list[dict[str, Any]], prefix: str) -> None:
        for step in steps:
            if "steps" in step:
                walk(step["steps"], f"{prefix}{step['name']}.")
            else:
                found[prefix + step["name"]] = np.array(step["value"])

    walk(data["steps"], "")
    return found


def assert_same(trace: attncli.Trace, *arguments: str) -> None:
    """Both have the same stages and numbers; one head has an axis of its own in neither."""
    shown = command(*arguments)
    assert list(trace) == list(shown)
    for name, stage in trace.stages():
        if stage.value.dtype.kind in "fi" and shown[name].dtype.kind in "fi":
            np.testing.assert_allclose(stage.value, shown[name], atol=1e-12, err_msg=name)


def test_explain_is_the_command() -> None:
    words = "She visited the money bank"
    assert_same(
        attncli.explain(words, heads=2, causal=True), "explain", words, "--heads", "2", "--causal"
    )


def test_explain_a_decoder() -> None:
    trace = attncli.explain(
        ("a", "b", "c"), target="d e", block="decoder", layers=2, dim=6, d_ff=5, norm="pre", seed=7
    )
    flags = "--target d|e --block decoder --layers 2 --dim 6 --d-ff 5 --norm pre --seed 7"
    split = [part.replace("|", " ") for part in flags.split()]
    assert_same(trace, "explain", "--tokens", "a,b,c", *split)


def test_explain_of_given_numbers() -> None:
    x, w = RNG.normal(size=(3, 5)), {f"w_{name}": RNG.normal(size=(5, 5)) for name in "qkvo"}
    mask = np.array([True, False, True])
    trace = attncli.explain(
        ["a", "b", "c"], vectors=x, weights=w, positions="none", mask=mask, scale="none"
    )
    q, k, v = (x @ w[f"w_{name}"] for name in "qkv")
    scores = np.where(mask, q @ k.T, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    output = weights / weights.sum(-1, keepdims=True) @ v @ w["w_o"]
    np.testing.assert_allclose(trace["attention.projected"].value, output)


def test_explain_of_words_with_vectors() -> None:
    vectors = {"king": [1.0, 0.0], "queen": [0.0, 1.0]}
    trace = attncli.explain("king queen", vectors=vectors, positions=[[1, 2], [3, 4]])
    np.testing.assert_array_equal(trace["input"].value, [[2, 2], [3, 5]])
    zeros = attncli.explain("king rook", vectors=vectors, unknown="zero")
    np.testing.assert_array_equal(zeros["embeddings"].value, [[1, 0], [0, 0]])
    with pytest.raises(attncli.ConventionError, match="there is no vector for 'rook'"):
        attncli.explain("king rook", vectors=vectors, unknown="error")


def test_what_does_not_fit_is_refused() -> None:
    for wrong in ({"block": "encoders"}, {"positions": "learned"}, {"mask": [0, 1]}, {"heads": 3}):
        with pytest.raises(attncli.AttncliError):
            attncli.explain("a b", **wrong)


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, ""),
        (
            {"exponent": "article", "start": 3, "base": 100.0},
            "--exponent article --start 3 --base 100",
        ),
        ({"kind": "rope"}, "--kind rope"),
    ],
)
def test_posenc_is_the_command(given: dict[str, Any], flags: str) -> None:
    assert_same(attncli.posenc(5, 4, **given), "posenc", "--len", "5", "--dim", "4", *flags.split())


def test_posenc_adds_and_biases() -> None:
    added = attncli.posenc(add=[0.5, 0.2, 0.3, 0.1])
    np.testing.assert_allclose(added["input"].value, [[0.5, 1.2, 0.3, 1.1]])
    assert_same(
        attncli.posenc(5, kind="alibi", heads=2),
        *["posenc", "--kind", "alibi", "--len", "5", "--heads", "2"],
    )
    for wrong in ({}, {"n": 5}, {"n": 5, "kind": "alibi"}, {"n": 5, "dim": 4, "kind": "learned"}):
        with pytest.raises(attncli.ConventionError):
            attncli.posenc(**wrong)


def test_similarity_is_the_command() -> None:
    trace = attncli.similarity({"mom": [0.2, 0.7, 0.9], "dad": [0.9, 0.7, 0.9]})
    assert_same(trace, "similarity", "mom=0.2,0.7,0.9", "dad=0.9,0.7,0.9")
    assert trace["cosines"].value[0, 1] == pytest.approx(0.8801730942)  # 1.48 / √(1.34 · 2.11)
