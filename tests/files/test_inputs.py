"""load: what an attention is computed from, read as the command line reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.cli.calls import trace_of
from attncli.errors import ConventionError, InputError, ShapeError
from tests.calls import SAMPLES

RNG = np.random.default_rng(11)
Q, K, V = (RNG.normal(size=shape) for shape in ((5, 6), (7, 6), (7, 9)))


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "qkv.npz"
    np.savez(path, Query=Q, key_states=K, value_states=V, epoch=np.array(3.0))
    return path


def test_arrays_are_found_under_any_name(archive: Path) -> None:
    inputs = attncli.load(archive, scale="none")
    output = attncli.attend(inputs)["output"].value
    np.testing.assert_allclose(output, softmax(Q @ K.T) @ V, rtol=1e-12)
    assert inputs.notes == (f"{archive}: not used: epoch",)


def test_sources_are_paths_text_and_arrays(tmp_path: Path) -> None:
    path = tmp_path / "k.npy"
    np.save(path, K)
    text = json.dumps(Q.tolist())
    mask = RNG.random((5, 7)) < 0.7
    mask[:, 0] = True
    inputs = attncli.load(text, k=path, v=V, mask=mask, tokens=None)
    logits = np.where(mask, Q @ K.T / np.sqrt(6), -np.inf)
    np.testing.assert_allclose(inputs.trace()["output"].value, softmax(logits) @ V, rtol=1e-12)


def test_heads_are_split_and_keys_shared() -> None:
    q, k = RNG.normal(size=(3, 5, 12)), RNG.normal(size=(3, 7, 6))
    inputs = attncli.load(q=q, k=k, v=k, layout="bsd", heads=4, kv_heads=2)
    queries = q.reshape(3, 5, 4, 3).transpose(0, 2, 1, 3)
    keys = np.repeat(k.reshape(3, 7, 2, 3).transpose(0, 2, 1, 3), 2, axis=1)
    weights = softmax(queries @ keys.swapaxes(-1, -2) / np.sqrt(3))
    np.testing.assert_allclose(inputs.trace()["weights"].value, weights, rtol=1e-12)


def test_what_the_call_says_counts_before_what_the_file_says() -> None:
    text = json.dumps({"q": Q.tolist(), "causal": True, "scale": 0.5})
    inputs = attncli.load(text, scale="none")
    assert (inputs.convention.causal, inputs.convention.scale) == (True, "none")
    assert inputs.notes[:2] == (
        "what you typed sets --causal",
        "--scale is used, not --scale 0.5 of what you typed",
    )
    # a field that is given as its default is a choice, too
    assert not attncli.load(text, causal=False).convention.causal
    other = attncli.load(text, convention=attncli.Convention(softcap=2.0)).convention
    assert (other.causal, other.scale, other.softcap) == (True, 0.5, 2.0)


def test_the_library_of_semantics_gives_the_defaults() -> None:
    q, k = RNG.normal(size=(1, 2, 3, 5)), RNG.normal(size=(1, 2, 7, 5))
    inputs = attncli.load(q=q, k=k, v=k, causal=True, semantics="flash-attn")
    assert inputs.convention.causal_align == "bottom-right"
    with pytest.raises(ConventionError, match="there are no semantics 'flush-attn'"):
        attncli.load(q=q, semantics="flush-attn")


THREE, HEADS, WEIGHTS = (SAMPLES / f"{name}.json" for name in ("three-tokens", "heads", "weights"))
CALLS: dict[str, dict[str, Any]] = {
    f"compute {THREE}": {"source": THREE},
    f"compute --q {HEADS} --causal --softcap 3": {"q": HEADS, "causal": True, "softcap": 3.0},
    f"compute --q {THREE} --d-output random --seed 7": {
        "q": THREE,
        "d_output": "random",
        "seed": 7,
    },
    f"compute --x '[[1, 2, 3, 5], [0, 1, 0, 2]]' --weights {WEIGHTS} --heads 2": {
        "x": [[1, 2, 3, 5], [0, 1, 0, 2]],
        "weights": WEIGHTS,
        "heads": 2,
    },
}


@pytest.mark.parametrize(("call", "keywords"), CALLS.items(), ids=["", "heads", "gradients", "x"])
def test_it_is_what_compute_reads(call: str, keywords: dict[str, Any]) -> None:
    trace, loaded = trace_of(call), attncli.attend(attncli.load(**keywords))
    assert [*loaded] == [*trace]
    for stage in trace:
        np.testing.assert_array_equal(loaded[stage].value, trace[stage].value)


def test_keywords_are_those_of_attend_and_check() -> None:
    inputs = attncli.load(SAMPLES / "three-tokens.json", causal=True, d_output="ones")
    trace, other = attncli.attend(inputs), attncli.attend(**inputs.keywords)
    assert [*trace] == [*other]
    assert attncli.check(trace["output"].value, **inputs.keywords).matches
    assert not attncli.check(trace["output"].value[::-1], **inputs.keywords).matches


def test_what_is_wrong_is_an_error(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(ConventionError, match="there is nothing to compute"):
        attncli.load()
    with pytest.raises(ConventionError, match="both source and q"):
        attncli.load(archive, q=archive)
    with pytest.raises(InputError, match=r"absent\.npz"):
        attncli.load(tmp_path / "absent.npz")
    with pytest.raises(ShapeError):
        attncli.load(q=Q, k=K[:, :5], v=V)
    with pytest.raises(TypeError, match="there is no keyword 'causl'; did you mean causal"):
        attncli.load(archive, causl=True)  # type: ignore[call-arg]
    with pytest.raises(ConventionError, match="mask is given beside inputs"):
        attncli.attend(attncli.load(q=Q), mask=np.ones((5, 5)))  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        attncli.attend(Q)  # type: ignore[call-overload]
