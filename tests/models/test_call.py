"""Calls of a model as numbers: traced, checked, saved and read again; without PyTorch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.cli.main import run as run_cli
from attncli.convention import Convention
from attncli.errors import OutputError, ShapeError
from attncli.files.load import load
from attncli.models.asked import asked_by_flags, asked_by_mask
from attncli.models.call import Call, Calls, layer_of
from tests import plain

N_HEADS, N_KV, N_Q, N_K, D_K, D_V = 6, 3, 5, 7, 11, 13
HOW: dict[str, Any] = {"causal": True, "causal_align": "bottom-right", "scale": 0.25}


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: Ended(run_cli([*arguments]), *capsys.readouterr())


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
    with pytest.raises(ShapeError, match="2 tokens for 7 keys"):
        call.trace(tokens=["a", "b"])
    arrays = {name: np.concatenate([x, x]) for name, x in call.arrays.items()}
    two = Call("x", arrays, call.convention)
    assert two.trace()["weights"].axes == ("batch", "head", "query", "key")
    assert two.check().matches


def test_calls_know_their_layer_and_step() -> None:
    assert (a_call().layer, a_call(step=2).key) == (3, "steps.2.model.layers.3.self_attn")
    assert layer_of("encoder.block.11.layer.0.SelfAttention") == 11
    assert Call("", a_call().arrays).key == "attention"
    assert "6 × 5 × 7" in repr(a_call(seen="softmax"))


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_what_is_saved_is_checked(ending: str, run: Run) -> None:
    calls = Calls([a_call(f"model.layers.{n}.self_attn", seed=n) for n in (2, 11)])
    calls.append(a_call("model.layers.13.self_attn", scale=2.0))
    dump = f"dump.{ending}"
    calls.save(dump)
    one = run("check", "--q", f"{dump}::layers.2")
    assert (one.code, one.out.startswith("it matches")) == (0, True)
    assert "--causal, --causal-align bottom-right, --scale 0.25" in one.err
    assert run("check", f"{dump}::model.layers.11.self_attn").code == 0
    assert run("check", f"{dump}::layers.13").code == 1
    steps = json.loads(run("compute", f"{dump}::layers.2", "--format", "json").out)["steps"]
    (weights,) = (step["value"] for step in steps if step["name"] == "weights")
    np.testing.assert_allclose(weights, calls[0].arrays["weights"][0], atol=1e-7)
    assert run("diff", f"{dump}::layers.2", f"{dump}::layers.11").code == 1
    assert run("diff", dump, dump).code == 0
    for source, words in (("", "3 attentions"), ("::layers", "3 attentions"), ("::layers.7", "no")):
        several = run("compute", dump + source)
        assert (several.code, words in several.err, dump in several.err) == (2, True, True)
    with pytest.raises(OutputError, match="force"):
        calls.save(dump)
    calls.save(dump, force=True)


def test_every_attention_of_a_file_is_checked(run: Run) -> None:
    calls = Calls([a_call(f"h.{n}.attn", seed=n) for n in (2, 3, 5)])
    calls.save("right.npz")
    right = run("check", "right.npz")
    assert (right.code, right.out.splitlines()[0]) == (0, "3 of 3 match")
    assert [line.split()[0] for line in right.out.splitlines()[1:]] == [c.name for c in calls]
    assert right.err.count("used") == 1  # what all of them say is said once
    calls.append(a_call("h.7.attn", seed=7, scale=1.0))
    calls.save("wrong.npz")
    wrong = run("check", "wrong.npz")
    assert (wrong.code, wrong.out.splitlines()[0]) == (1, "3 of 4 match")
    assert "h.7.attn  it differs; the cause: scale left out" in wrong.out
    assert run("check", "wrong.npz", "--format", "json", "--quiet", "-o", "x.json").code == 1
    verdict = json.loads(Path("x.json").read_text())
    assert (verdict["matches"], [*verdict["attentions"]][3]) == (False, "h.7.attn")
    assert [x["matches"] for x in verdict["attentions"].values()] == [True, True, True, False]
    with np.load("right.npz") as file:
        np.savez("odd.npz", **{**file, "h.3.attn.convention": np.array("{causal")})
    odd = run("check", "odd.npz")
    assert (odd.code, "h.3.attn" in odd.err.splitlines()[-1]) == (2, True)
    assert run("check", "wrong.npz", "--suggest", "x.npz").code == 2


def test_every_attention_of_a_part_is_checked(run: Run) -> None:
    Calls([a_call(f"h.{n}.attn", seed=n) for n in (2, 3)]).save("dump.npz")
    with zipfile.ZipFile("both.zip", "w") as archive:
        for name in ("dump.npz", "other.npz"):
            archive.write("dump.npz", name)
    run("explain", "the bank", "--block", "encoder", "--layers", "2", "-o", "e.json")
    sources = ("dump.npz::h", "both.zip::other.npz", "both.zip::dump.npz::h", "e.json::encoder")
    for source in sources:
        both = run("check", source)
        assert (both.code, both.out.splitlines()[0]) == (0, "2 of 2 match"), source
    several = run("compute", "e.json::encoder")
    assert (several.code, "encoder.1.attention, encoder.2.attention" in several.err) == (2, True)
    literal = '{"one": {"q": [[1]], "output": [[1]]}, "two": {"q": [[1]], "output": [[1]]}}'
    assert "one, two" in run("check", literal).err


def test_weights_of_a_saved_call_are_those_of_its_numbers(tmp_path: Path) -> None:
    call = a_call()
    Calls([call]).save(str(tmp_path / "dump.npz"))
    wanted = lambda name: name not in ("title", "convention")  # noqa: E731 - one argument
    part = load(f"{tmp_path}/dump.npz::layers.3", wanted=wanted)
    assert {*part.arrays} == {"q", "k", "v", "weights", "output"}
    for name, x in part.arrays.items():
        np.testing.assert_array_equal(x, call.arrays[name][0])


def test_parts_of_json_say_what_their_attention_was(run: Run) -> None:
    qkv = {"q": [[1, 0], [0, 1]], "k": [[1, 1], [0, 1]], "v": [[10, 0], [0, 10]]}
    document = {"layers": [{**qkv, "causal": True}, {**qkv, "scale": 1.0, "tokens": ["a", "b"]}]}
    Path("x.json").write_text(json.dumps(document))
    assert "causal" in run("compute", "x.json::layers.0", "--stage", "output").out
    out = run("compute", "x.json::layers.1", "--stage", "output", "--precision", "4").out
    assert "  a  7.3106  2.6894" in out  # q1·k1 = 1, q1·k2 = 0: e / (e + 1) = 0.73106
    assert "  b  5.0000  5.0000" in out  # q2·k1 = q2·k2
    several = run("compute", "x.json")
    assert (several.code, "layers.0, layers.1" in several.err) == (2, True)


def test_a_folder_takes_calls_as_they_come(tmp_path: Path) -> None:
    calls, first = Calls(folder=str(tmp_path)), a_call()
    calls.append(first)
    calls.append(a_call(step=1, seed=3))
    keys = ["model.layers.3.self_attn", "steps.1.model.layers.3.self_attn"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{key}.npz" for key in keys]
    assert (len(calls), calls[0].arrays.keys()) == (2, first.arrays.keys())
    np.testing.assert_array_equal(calls[0].arrays["output"][0], first.arrays["output"][0])
    assert [call.check().status for call in calls] == ["match", "match"]
    assert [call.step for call in calls[:]] == [0, 1]
    assert run_cli(["check", f"{tmp_path}/{keys[0]}.npz", "--quiet"]) == 0
    calls.save(f"{tmp_path}/all.npz")
    assert run_cli(["check", f"{tmp_path}/all.npz::{keys[1]}", "--quiet"]) == 0


def test_nothing_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no calls"):
        Calls().save(str(tmp_path / "dump.npz"))
    with pytest.raises(OutputError, match="npz"):
        Calls([a_call()]).save(str(tmp_path / "dump.txt"))
    assert [*tmp_path.iterdir()] == []


# ---- what a mask asks for


LEAST = float(np.finfo(np.float32).min)
BOTTOM = {"causal_align": "bottom-right"}


def keep(n_q: int, n_k: int, left: int | None = None) -> Array:
    """By hand: the last query is at the last key."""
    after = np.arange(n_k) - np.arange(n_q)[:, None] - (n_k - n_q)
    return (after <= 0) & (after >= -(n_k if left is None else left))


@pytest.mark.parametrize(
    ("n_q", "n_k", "left", "fields"),
    [
        (5, 5, None, {}),
        (3, 7, None, BOTTOM),
        (5, 5, 2, {"window": (2, -1)}),
        (3, 7, 2, {**BOTTOM, "window": (2, -1)}),
    ],
)
def test_patterns_are_recognised(
    n_q: int, n_k: int, left: int | None, fields: dict[str, Any]
) -> None:
    allowed = keep(n_q, n_k, left)
    for mask in (allowed, np.where(allowed, 0, LEAST), np.where(allowed, 0, -np.inf)):
        asked = asked_by_mask(mask[None, None], (2, 3, n_q, n_k), left, "zero")
        assert asked.mask is None
        assert asked.fields == {"causal": True, **fields}


def test_other_masks_stay() -> None:
    padded = keep(5, 5) & (np.arange(5) > 0)
    least, infinite = np.where(padded, 0, LEAST), np.where(padded, 0, -np.inf)
    biased = np.where(padded, 0.5, -np.inf)
    cases: list[tuple[Array, Any, Array | None, dict[str, str]]] = [
        (padded, "zero", padded, {}),
        (least, "nan", padded, {"empty_rows": "uniform"}),
        (infinite, "nan", padded, {"empty_rows": "nan"}),
        (biased, "zero", biased, {"mask_means": "add"}),
        (np.zeros((5, 5)), "nan", None, {}),
        (np.ones((5, 5), bool), "nan", None, {}),
    ]
    for mask, empty, wanted, fields in cases:
        asked = asked_by_mask(mask, (1, 3, 5, 5), None, empty)
        assert asked.fields == fields
        assert np.array_equal(np.asarray(asked.mask), np.asarray(wanted))  # None is equal to None


def test_flags_put_the_last_query_at_the_last_key() -> None:
    assert asked_by_flags(False, 3, 5, 5) == asked_by_flags(True, None, 1, 7) == {}
    assert asked_by_flags(True, 3, 1, 7) == {"causal": True, **BOTTOM, "window": (3, -1)}
    assert asked_by_flags(True, None, 5, 5) == {"causal": True}
