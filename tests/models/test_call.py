"""Calls of a model as numbers: traced, checked, saved and read again; without PyTorch."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.convention import Convention
from attncli.errors import OutputError, ShapeError
from attncli.models.asked import asked_by_flags, asked_by_mask
from attncli.models.call import Call, Calls, layer_of
from tests import plain
from tests.cli import conftest as cli

run = cli.call  # the command line in a folder of its own
N_HEADS, N_KV, N_Q, N_K, D_K, D_V = 6, 3, 5, 7, 11, 13
BOTTOM = {"causal_align": "bottom-right"}
HOW: dict[str, Any] = {"causal": True, **BOTTOM, "scale": 0.25}


def a_call(name: str = "model.layers.3.self_attn", seed: int = 0, **more: Any) -> Call:
    """A right call, or one as scaled by `scale`; its convention says what is meant."""
    rng = np.random.default_rng(seed)
    sizes = {"q": (N_HEADS, N_Q, D_K), "k": (N_KV, N_K, D_K), "v": (N_KV, N_K, D_V)}
    arrays = {n: rng.normal(size=size).astype(np.float32) for n, size in sizes.items()}
    stages = plain.attention(arrays, HOW | {"scale": more.pop("scale", 0.25)})
    arrays |= {name: stages[name].astype(np.float32) for name in ("weights", "output")}
    return Call(name, {n: x[None] for n, x in arrays.items()}, Convention(**HOW), **more)


def test_a_call_gives_a_trace_and_a_verdict() -> None:
    call = a_call()
    trace = call.trace(tokens=[*"abcdefg"])
    assert trace["weights"].axes == ("head", "query", "key")
    assert trace["weights"].names("query") == ("c", "d", "e", "f", "g")
    np.testing.assert_allclose(trace["output"].value, call.arrays["output"][0], atol=1e-6)
    assert "model.layers.3.self_attn" in trace.title
    assert (call.check().matches, a_call(scale=2.0).check().matches) == (True, False)
    for tokens in ("ab", "abcdefgh"):
        with pytest.raises(ShapeError, match=f"{len(tokens)} tokens for 7 keys"):
            call.trace(tokens=[*tokens])
    arrays = {name: np.concatenate([x, x]) for name, x in call.arrays.items()}
    two = Call("x", arrays, call.convention)
    assert two.trace()["weights"].axes == ("batch", "head", "query", "key")
    assert two.check().matches
    assert (call.layer, a_call(step=2).key) == (3, "steps.2.model.layers.3.self_attn")
    assert layer_of("encoder.block.11.layer.0.SelfAttention") == 11
    assert Call("", arrays).key == "attention"
    assert "6 × 5 × 7" in repr(a_call(seen="softmax"))


@pytest.mark.parametrize("dump", ["dump.npz", "dump.safetensors"])
def test_what_is_saved_is_checked(dump: str, run: cli.Call) -> None:
    calls = Calls([a_call(f"model.layers.{n}.self_attn", seed=n) for n in (2, 11)])
    calls.append(a_call("model.layers.13.self_attn", seed=13, scale=1.0))
    calls.save(dump)
    one = run("check", "--q", f"{dump}::layers.2")
    assert (one.code, one.out[:10]) == (0, "it matches")
    assert "--causal, --causal-align bottom-right, --scale 0.25" in one.err
    codes = {n: run("check", f"{dump}::model.layers.{n}.self_attn").code for n in (11, 13)}
    assert codes == {11: 0, 13: 1}
    steps = run("compute", f"{dump}::layers.2", "--format", "json").json["steps"]
    (weights,) = (step["value"] for step in steps if step["name"] == "weights")
    np.testing.assert_allclose(weights, calls[0].arrays["weights"][0], atol=1e-7)
    assert run("diff", f"{dump}::layers.2", f"{dump}::layers.11").code == 1
    assert run("diff", dump, dump).code == 0
    for source, words in (("", "3 attentions"), ("::layers", "3 attentions"), ("::layers.7", "no")):
        several = run("compute", dump + source)
        assert (several.code, words in several.err, dump in several.err) == (2, True, True)
    every = run("check", dump, "--format", "json", "--quiet", "-o", "x.json")
    verdict = json.loads(Path("x.json").read_text())
    matches = {name: one["matches"] for name, one in verdict["attentions"].items()}
    keys = [call.key for call in calls]
    assert (every.code, verdict["matches"]) == (1, False)
    assert matches == dict(zip(keys, (True, True, False), strict=True))
    first, *lines = run("check", dump).out.splitlines()
    assert (first, sorted(line.split()[0] for line in lines[:3])) == ("2 of 3 match", sorted(keys))
    (wrong,) = (line for line in lines[:3] if "differs" in line)
    assert ("layers.13" in wrong, "scale left out" in wrong) == (True, True)
    with pytest.raises(OutputError, match="force"):
        calls.save(dump)
    calls.save(dump, force=True)
    assert run("check", dump, "--suggest", "x.npz").code == 2


def test_every_attention_of_a_part_is_checked(run: cli.Call) -> None:
    Calls([a_call(f"h.{n}.attn", seed=n) for n in (2, 3)]).save("dump.npz")
    assert run("check", "dump.npz").err.count("used") == 1  # what all of them say is said once
    with zipfile.ZipFile("both.zip", "w") as archive:
        for name in ("dump.npz", "other.npz"):
            archive.write("dump.npz", name)
    run("explain", "the bank", "--block", "encoder", "--layers", "2", "-o", "e.json")
    for source in (
        "dump.npz::h",
        "both.zip::other.npz",
        "both.zip::dump.npz::h",
        "e.json::encoder",
    ):
        both = run("check", source)
        assert (both.code, both.out.splitlines()[0]) == (0, "2 of 2 match"), source
    several = run("compute", "e.json::encoder")
    assert (several.code, "encoder.1.attention, encoder.2.attention" in several.err) == (2, True)
    literal = '{"one": {"q": [[1]], "output": [[1]]}, "two": {"q": [[1]], "output": [[1]]}}'
    assert "one, two" in run("check", literal).err
    with np.load("dump.npz") as file:
        np.savez("odd.npz", **{**file, "h.3.attn.convention": np.array("{causal")})
    odd = run("check", "odd.npz")
    assert (odd.code, "h.3.attn" in odd.err.splitlines()[-1]) == (2, True)


def test_parts_of_json_say_what_their_attention_was(run: cli.Call) -> None:
    qkv = {"q": [[1, 0], [0, 1]], "k": [[1, 1], [0, 1]], "v": [[10, 0], [0, 10]]}
    document = {"layers": [{**qkv, "causal": True}, {**qkv, "scale": 1.0, "tokens": ["a", "b"]}]}
    Path("x.json").write_text(json.dumps(document))
    assert "causal" in run("compute", "x.json::layers.0", "--stage", "output").out
    out = run("compute", "x.json::layers.1", "--stage", "output", "--precision", "4").out
    assert "  a  7.3106  2.6894" in out  # q1·k1 = 1, q1·k2 = 0: e / (e + 1) = 0.73106
    assert "  b  5.0000  5.0000" in out  # q2·k1 = q2·k2


def test_a_folder_takes_calls_as_they_come(tmp_path: Path, run: cli.Call) -> None:
    calls, first = Calls(folder=str(tmp_path)), a_call()
    calls.append(first)
    calls.append(a_call(step=1, seed=3))
    keys = ["model.layers.3.self_attn", "steps.1.model.layers.3.self_attn"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{key}.npz" for key in keys]
    assert (len(calls), calls[0].arrays.keys()) == (2, first.arrays.keys())
    np.testing.assert_array_equal(calls[0].arrays["output"][0], first.arrays["output"][0])
    assert [(call.step, call.check().status) for call in calls[:]] == [(0, "match"), (1, "match")]
    calls.save("all.npz")
    for source in (f"{keys[0]}.npz", f"all.npz::{keys[1]}"):
        assert run("check", source, "--quiet").code == 0
    for none, name, words in ((Calls(), "no.npz", "no calls"), (Calls([first]), "x.txt", "npz")):
        with pytest.raises(OutputError, match=words):
            none.save(name)
        assert not Path(name).exists()


LEAST = float(np.finfo(np.float32).min)


def keep(n_q: int, n_k: int, left: int | None = None) -> Array:
    """By hand: the last query is at the last key."""
    after = np.arange(n_k) - np.arange(n_q)[:, None] - (n_k - n_q)
    return (after <= 0) & (after >= -(n_k if left is None else left))


def test_what_masks_ask_for() -> None:
    patterns: list[tuple[int, int, int | None, dict[str, Any]]] = [
        (5, 5, None, {}),
        (3, 7, None, BOTTOM),
        (5, 5, 2, {"window": (2, -1)}),
        (3, 7, 2, {**BOTTOM, "window": (2, -1)}),
    ]
    for n_q, n_k, left, fields in patterns:
        allowed = keep(n_q, n_k, left)
        for mask in (allowed, np.where(allowed, 0, LEAST), np.where(allowed, 0, -np.inf)):
            asked = asked_by_mask(mask[None, None], (2, 3, n_q, n_k), left, "zero")
            assert (asked.mask, asked.fields) == (None, {"causal": True, **fields})
    padded = keep(5, 5) & (np.arange(5) > 0)
    biased = np.where(padded, 0.5, -np.inf)
    others: list[tuple[Array, str, Array | None, dict[str, str]]] = [
        (padded, "zero", padded, {}),
        (np.where(padded, 0, LEAST), "nan", padded, {"empty_rows": "uniform"}),
        (np.where(padded, 0, -np.inf), "nan", padded, {"empty_rows": "nan"}),
        (biased, "zero", biased, {"mask_means": "add"}),
        (np.zeros((5, 5)), "nan", None, {}),
        (np.ones((5, 5), bool), "nan", None, {}),
    ]
    for mask, empty, wanted, changes in others:
        asked = asked_by_mask(mask, (1, 3, 5, 5), None, empty)
        assert asked.fields == changes
        assert np.array_equal(np.asarray(asked.mask), np.asarray(wanted))  # None is equal to None


def test_flags_put_the_last_query_at_the_last_key() -> None:
    assert asked_by_flags(False, 3, 5, 5) == asked_by_flags(True, None, 1, 7) == {}
    assert asked_by_flags(True, 3, 1, 7) == {"causal": True, **BOTTOM, "window": (3, -1)}
    assert asked_by_flags(True, None, 5, 5) == {"causal": True}
