"""Calls of a model as numbers: traced, checked, saved and read again; without PyTorch."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.cli.main import run
from attncli.convention import Convention
from attncli.errors import OutputError, ShapeError
from attncli.files.load import load
from attncli.models.asked import asked_by_flags, asked_by_mask
from attncli.models.call import Call, Calls, layer_of

N_HEADS, N_KV, N_Q, N_K, D_K, D_V = 6, 3, 5, 7, 11, 13


def softmax(x: Array) -> Array:
    """By definition, row by row."""
    return np.array([np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in x])


def reference(q: Array, k: Array, v: Array, scale: float, allowed: Array) -> tuple[Array, Array]:
    """Weights and output of one batch item, head by head: key head h // 2."""
    weights, output = [], []
    for head in range(len(q)):
        own = head // (len(q) // len(k))
        scores = np.where(allowed, q[head] @ k[own].T * scale, -np.inf)
        weights.append(softmax(scores))
        output.append(weights[-1] @ v[own])
    return np.array(weights), np.array(output)


def causal() -> Array:
    """The last query sees all keys."""
    return np.arange(N_K) <= np.arange(N_Q)[:, None] + N_K - N_Q


def a_call(name: str = "model.layers.3.self_attn", seed: int = 0, **more: Any) -> Call:
    rng = np.random.default_rng(seed)
    sizes = {"q": (N_HEADS, N_Q, D_K), "k": (N_KV, N_K, D_K), "v": (N_KV, N_K, D_V)}
    arrays = {n: rng.normal(size=size).astype(np.float32) for n, size in sizes.items()}
    weights, output = reference(arrays["q"], arrays["k"], arrays["v"], 0.25, causal())
    arrays |= {"weights": weights.astype(np.float32), "output": output.astype(np.float32)}
    how = Convention(causal=True, causal_align="bottom-right", scale=0.25)
    return Call(name, {n: x[None] for n, x in arrays.items()}, how, **more)


def wrong(call: Call) -> Call:
    """The same with the output of another scale."""
    rng = np.random.default_rng(5)
    noise = rng.normal(size=call.arrays["output"].shape).astype(np.float32)
    return Call(call.name, {**call.arrays, "output": noise}, call.convention)


def test_a_call_gives_a_trace_and_a_verdict() -> None:
    call = a_call()
    trace = call.trace(tokens=["a", "b", "c", "d", "e", "f", "g"])
    assert trace["weights"].axes == ("head", "query", "key")
    assert trace["weights"].names("query") == ("c", "d", "e", "f", "g")
    np.testing.assert_allclose(trace["output"].value, call.arrays["output"][0], atol=1e-6)
    assert trace.title == "model.layers.3.self_attn: Grouped-query scaled dot-product attention"
    assert call.check().status == "match"
    assert wrong(call).check().status == "no match"
    with pytest.raises(ShapeError, match="there are 2 tokens for 7 keys"):
        call.trace(tokens=["a", "b"])


def test_a_batch_keeps_its_axis() -> None:
    one = a_call()
    two = Call(
        "x", {name: np.concatenate([x, x]) for name, x in one.arrays.items()}, one.convention
    )
    assert two.trace()["weights"].axes == ("batch", "head", "query", "key")
    assert two.check().matches


def test_calls_know_their_layer_and_step() -> None:
    assert (a_call().layer, a_call(step=2).key) == (3, "steps.2.model.layers.3.self_attn")
    assert layer_of("encoder.block.11.layer.0.SelfAttention") == 11
    assert Call("", a_call().arrays).key == "attention"
    assert repr(a_call(seen="softmax")) == (
        "<Call model.layers.3.self_attn: 1 × 6 × 5 × 7 scores, float32, by softmax>"
    )


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_what_is_saved_is_checked(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    calls = Calls([a_call(f"model.layers.{n}.self_attn", seed=n) for n in (2, 11)])
    calls.append(wrong(a_call("model.layers.13.self_attn")))
    calls.save(f"dump.{ending}")
    assert run(["check", "--q", f"dump.{ending}::layers.2"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("it matches")
    assert "says --causal, --causal-align bottom-right, --scale 0.25: used" in said.err
    assert run(["check", f"dump.{ending}::model.layers.11.self_attn"]) == 0
    assert run(["check", f"dump.{ending}::layers.13"]) == 1
    capsys.readouterr()
    assert run(["compute", f"dump.{ending}::layers.2", "--format", "json"]) == 0
    (weights,) = (
        step["value"]
        for step in json.loads(capsys.readouterr().out)["steps"]
        if step["name"] == "weights"
    )
    np.testing.assert_allclose(weights, calls[0].arrays["weights"][0], atol=1e-7)
    assert run(["diff", f"dump.{ending}::layers.2", f"dump.{ending}::layers.11"]) == 1
    assert run(["diff", f"dump.{ending}", f"dump.{ending}"]) == 0
    capsys.readouterr()
    assert run(["compute", f"dump.{ending}"]) == 2
    message = capsys.readouterr().err
    assert "holds 3 attentions: " in message
    assert f"say which: dump.{ending}::model.layers." in message
    assert run(["compute", f"dump.{ending}::layers"]) == 2
    assert "layers, holds 3 attentions" in capsys.readouterr().err
    assert run(["check", f"dump.{ending}::layers.7"]) == 2
    assert "holds no 'layers.7'; it holds model.layers." in capsys.readouterr().err
    with pytest.raises(OutputError, match="exists already; replace it with force=True"):
        calls.save(f"dump.{ending}")
    calls.save(f"dump.{ending}", force=True)


def test_every_attention_of_a_file_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    calls = Calls([a_call(f"h.{n}.attn", seed=n) for n in (2, 3, 5)])
    calls.save("right.npz")
    assert run(["check", "right.npz"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "3 of 3 match",
        "  h.2.attn  it matches",
        "  h.3.attn  it matches",
        "  h.5.attn  it matches",
    ]
    assert said.err.count("used") == 1  # what all of them say is said once
    arrays: dict[str, Array] = dict(a_call(seed=7).arrays)
    unscaled = reference(arrays["q"][0], arrays["k"][0], arrays["v"][0], 1.0, causal())
    for name, x in zip(("weights", "output"), unscaled, strict=True):
        arrays[name] = x[None].astype(np.float32)
    calls.append(Call("h.7.attn", arrays, a_call().convention))
    calls.save("wrong.npz")
    assert run(["check", "wrong.npz"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 of 4 match"
    assert lines[4] == "  h.7.attn  it differs; the cause: scale left out"
    assert lines[6:9] == ["h.7.attn", "it differs; the cause:", "  scale left out"]
    assert run(["check", "wrong.npz", "--format", "json", "--quiet", "-o", "verdict.json"]) == 1
    found = json.loads(Path("verdict.json").read_text())
    assert (found["matches"], list(found["attentions"])[3]) == (False, "h.7.attn")
    assert [x["matches"] for x in found["attentions"].values()] == [True, True, True, False]
    with np.load("right.npz") as file:
        np.savez("odd.npz", **{**file, "h.3.attn.convention": np.array("{causal")})
    capsys.readouterr()
    assert run(["check", "odd.npz"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("attncli: h.3.attn: odd.npz, conv")
    assert run(["check", "wrong.npz", "--suggest", "x.npz"]) == 2
    assert "holds 4 attentions" in capsys.readouterr().err


def test_every_attention_of_a_part_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Calls([a_call(f"h.{n}.attn", seed=n) for n in (2, 3)]).save("dump.npz")
    with zipfile.ZipFile("both.zip", "w") as archive:
        for name in ("dump.npz", "other.npz"):
            archive.write("dump.npz", name)
    for source in ("dump.npz::h", "both.zip::other.npz", "both.zip::dump.npz::h"):
        assert run(["check", source]) == 0
        assert capsys.readouterr().out.startswith("2 of 2 match\n  h.2.attn  it matches")
    assert run(["explain", "the bank", "--block", "encoder", "--layers", "2", "-o", "e.json"]) == 0
    assert run(["check", "e.json::encoder"]) == 0
    assert capsys.readouterr().out.startswith("2 of 2 match\n  encoder.1.attention  it matches")
    assert run(["compute", "e.json::encoder"]) == 2
    hint = (
        "e.json, encoder, holds 2 attentions: encoder.1.attention, encoder.2.attention; say which"
    )
    assert hint in capsys.readouterr().err
    assert (
        run(
            [
                "check",
                '{"one": {"q": [[1]], "output": [[1]]}, "two": {"q": [[1]], "output": [[1]]}}',
            ]
        )
        == 2
    )
    assert (
        "literal holds 2 attentions: one, two; give one, or name a file" in capsys.readouterr().err
    )


def test_weights_of_a_saved_call_are_those_of_its_numbers(tmp_path: Path) -> None:
    call = a_call()
    Calls([call]).save(str(tmp_path / "dump.npz"))
    part = load(
        f"{tmp_path}/dump.npz::layers.3", wanted=lambda name: name not in ("title", "convention")
    )
    assert {n: x.shape for n, x in part.arrays.items()} == {
        "q": (N_HEADS, N_Q, D_K),
        "k": (N_KV, N_K, D_K),
        "v": (N_KV, N_K, D_V),
        "weights": (N_HEADS, N_Q, N_K),
        "output": (N_HEADS, N_Q, D_V),
    }
    np.testing.assert_array_equal(part.arrays["weights"], call.arrays["weights"][0])


def test_parts_of_json_say_what_their_attention_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    qkv = {"q": [[1, 0], [0, 1]], "k": [[1, 1], [0, 1]], "v": [[10, 0], [0, 10]]}
    document = {"layers": [{**qkv, "causal": True}, {**qkv, "scale": 1.0, "tokens": ["a", "b"]}]}
    Path("x.json").write_text(json.dumps(document))
    assert run(["compute", "x.json::layers.0", "--stage", "output"]) == 0
    assert "causal" in capsys.readouterr().out
    assert run(["compute", "x.json::layers.1", "--stage", "output", "--precision", "4"]) == 0
    out = capsys.readouterr().out
    assert "scaled by 1" in out
    assert "  a  7.3106  2.6894" in out  # q1·k1 = 1, q1·k2 = 0: e / (e + 1) = 0.73106
    assert "  b  5.0000  5.0000" in out  # q2·k1 = q2·k2
    assert run(["compute", "x.json"]) == 2
    assert "x.json holds 2 attentions: layers.0, layers.1; say which" in capsys.readouterr().err


def test_a_folder_takes_calls_as_they_come(tmp_path: Path) -> None:
    calls = Calls(folder=str(tmp_path))
    first = a_call()
    calls.append(first)
    calls.append(a_call(step=1, seed=3))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.layers.3.self_attn.npz",
        "steps.1.model.layers.3.self_attn.npz",
    ]
    assert len(calls) == 2
    assert calls[0].arrays.keys() == first.arrays.keys()
    np.testing.assert_array_equal(calls[0].arrays["output"][0], first.arrays["output"][0])
    assert [call.check().status for call in calls] == ["match", "match"]
    assert [call.step for call in calls[:]] == [0, 1]
    assert run(["check", f"{tmp_path}/model.layers.3.self_attn.npz", "--quiet"]) == 0
    calls.save(f"{tmp_path}/all.npz")
    assert run(["check", f"{tmp_path}/all.npz::steps.1.model.layers.3.self_attn", "--quiet"]) == 0


def test_nothing_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there are no calls to save; run the model in the block"):
        Calls().save(str(tmp_path / "dump.npz"))
    with pytest.raises(OutputError, match=r"is neither npz nor safetensors; end it in \.npz"):
        Calls([a_call()]).save(str(tmp_path / "dump.txt"))
    assert list(tmp_path.iterdir()) == []


# ---- what a mask asks for


LEAST = float(np.finfo(np.float32).min)


def keep(n_q: int, n_k: int, left: int | None = None) -> Array:
    """By hand: the last query is at the last key."""
    rows = []
    for i in range(n_q):
        at = i + n_k - n_q
        rows.append([j <= at and (left is None or at - j <= left) for j in range(n_k)])
    return np.array(rows)


@pytest.mark.parametrize(
    ("n_q", "n_k", "left", "fields"),
    [
        (5, 5, None, {"causal": True}),
        (3, 7, None, {"causal": True, "causal_align": "bottom-right"}),
        (5, 5, 2, {"causal": True, "window": (2, -1)}),
        (3, 7, 2, {"causal": True, "causal_align": "bottom-right", "window": (2, -1)}),
    ],
)
@pytest.mark.parametrize("form", ["bool", "least", "infinite"])
def test_patterns_are_recognised(
    n_q: int, n_k: int, left: int | None, fields: dict[str, Any], form: str
) -> None:
    allowed = keep(n_q, n_k, left)
    mask = {
        "bool": allowed,
        "least": np.where(allowed, 0, LEAST),
        "infinite": np.where(allowed, 0, -np.inf),
    }[form]
    asked = asked_by_mask(mask[None, None], (2, 3, n_q, n_k), left, "zero")
    assert asked.mask is None
    assert asked.fields == fields


def test_other_masks_stay() -> None:
    padded = keep(5, 5).copy()
    padded[:, 0] = False
    shape = (1, 3, 5, 5)
    boolean = asked_by_mask(padded, shape, None, "zero")
    np.testing.assert_array_equal(boolean.mask, padded)
    assert boolean.fields == {}
    least = asked_by_mask(np.where(padded, 0, LEAST), shape, None, "nan")
    np.testing.assert_array_equal(least.mask, padded)
    assert least.fields == {"empty_rows": "uniform"}
    infinite = asked_by_mask(np.where(padded, 0, -np.inf), shape, None, "nan")
    assert infinite.fields == {"empty_rows": "nan"}
    biased = asked_by_mask(np.where(padded, 0.5, -np.inf), shape, None, "zero")
    assert biased.fields == {"mask_means": "add"}
    np.testing.assert_array_equal(biased.mask, np.where(padded, 0.5, -np.inf))
    for nothing in (np.zeros((5, 5)), np.ones((5, 5), bool)):
        assert asked_by_mask(nothing, shape, None, "nan") == (None, {})


def test_flags_put_the_last_query_at_the_last_key() -> None:
    assert asked_by_flags(False, 3, 5, 5) == {}
    assert asked_by_flags(True, None, 1, 7) == {}
    assert asked_by_flags(True, 3, 1, 7) == {
        "causal": True,
        "causal_align": "bottom-right",
        "window": (3, -1),
    }
    assert asked_by_flags(True, None, 5, 5) == {"causal": True}
