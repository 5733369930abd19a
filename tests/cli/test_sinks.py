"""--sinks: a learned score per head that joins the softmax and has no value."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import SAMPLES, Call

THREE = str(SAMPLES / "three-tokens.json")
LN_2 = str([math.log(2)])
ONE = ("--q", "[[0]]", "--k", "[[1], [3]]", "--v", "[[8], [4]]")  # both scores are 0


def test_the_arithmetic_and_what_no_key_has(call: Call) -> None:
    # exp(0) + exp(0) + exp(ln 2) = 4: each key has 1/4, and 1/2 is on no key.
    done = call("compute", *ONE, "--sinks", LN_2, "--work")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert "3  weights   A = exp(Z) / (Σ exp(Z) + exp(s)): a row sums to less than 1" in done.out
    assert "  q1    0.25    0.25  0.5" in lines
    assert "  A[q1,k1] = exp(0) / (exp(0) + exp(0) + exp(0.6931)) = 1 / 4 = 0.25" in lines
    assert lines[-1] == "q1 attends to k1 and k2 (25.0 % each); 50.0 % on no key"


def test_a_derivation_names_the_sink(call: Call) -> None:
    done = call("compute", *ONE, "--sinks", LN_2, "--cell", "1,2")
    assert "exp(0) / (exp(0) + exp(0) + exp(0.6931))" in done.out


@pytest.mark.parametrize("name", ["sinks", "attn_sinks", "s_aux"])
def test_a_file_may_hold_them(call: Call, tmp_path: Path, name: str) -> None:
    numbers = {"q": [[0]], "k": [[1], [3]], "v": [[8], [4]], name: [math.log(2)]}
    (tmp_path / "x.json").write_text(json.dumps(numbers))
    done = call("compute", "--q", "x.json", "--format", "json", "--stage", "output")
    assert done.json["steps"][0]["value"] == [[pytest.approx(3.0)]]


def test_a_saved_trace_holds_them(call: Call, tmp_path: Path) -> None:
    saved = call("compute", *ONE, "--sinks", LN_2, "--output", "trace.json")
    assert saved.code == 0, saved.err
    again = call("compute", "--q", "trace.json", "--output", "weights.npy", "--stage", "weights")
    assert again.code == 0, again.err
    assert np.allclose(np.load(tmp_path / "weights.npy"), [[0.25, 0.25]])


def test_check_takes_them(call: Call) -> None:
    observed = ("--observed", "[[3]]")
    assert call("check", *ONE, *observed, "--sinks", LN_2).code == 0
    assert call("check", *ONE, *observed).code == 1


def test_check_takes_those_of_a_head(call: Call) -> None:
    two = ("--q", "[[[0]], [[0]]]", "--k", "[[[1], [3]], [[1], [3]]]")
    sinks = ("--sinks", str([math.log(2), math.log(6)]))
    # In the second head exp(0) + exp(0) + exp(ln 6) = 8: v = k: (1 + 3) / 8.
    assert call("check", *two, *sinks, "--observed", "[[[0.5]]]", "--head", "2").code == 0


def test_the_output_alone_of_many_tokens_has_them_too(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    q, k = rng.normal(size=(2, 2053, 3))
    np.savez(tmp_path / "x.npz", q=q, k=k)
    done = call("compute", "--q", "x.npz", "--sinks", "[3.5]", "--output", "out.npy")
    assert done.code == 0, done.err
    wide = np.append(q @ k.T / math.sqrt(3), np.full((2053, 1), 3.5), axis=1)
    weights = np.exp(wide - wide.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    assert np.allclose(np.load(tmp_path / "out.npy"), weights[:, :-1] @ k, rtol=1e-9)


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        (
            "[[1]]",
            "the inline literal has 2 dimensions, sinks needs 1; give one number for each head",
        ),
        ("[1, 2]", "sinks (2) need one score per head: 1"),
        ("[true]", "the inline literal holds true and false, sinks needs numbers; write 1 and 0"),
        ("[]", "the inline literal is empty"),
    ],
)
def test_what_does_not_fit_is_one_line(call: Call, sinks: str, message: str) -> None:
    done = call("compute", "--q", THREE, "--sinks", sinks)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"attncli: {message}")
    assert done.err.count("\n") == 1
