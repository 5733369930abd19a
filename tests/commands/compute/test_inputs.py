"""attncli compute: every form of input gives the numbers of plain NumPy; labels, rows and sinks.

Flags of the convention are in the table of tests/conformance.
"""

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.calls import Call, stages
from tests.plain import attention
from tests.turns import in_turn

RNG = np.random.default_rng(17)
Q, K, V = RNG.normal(size=(3, 2)), RNG.normal(size=(5, 2)), RNG.normal(size=(5, 7))
QKV = {"q": Q, "k": K, "v": V}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Q, K and V in files of every form, and what stands beside them."""
    for name, array in QKV.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "qkv.npz", Query=Q, KEYS=K, value=V)
    (tmp_path / "qkv.json").write_text(json.dumps({name: x.tolist() for name, x in QKV.items()}))
    np.savetxt(tmp_path / "q.csv", Q, delimiter=",", fmt="%.17g")
    np.savetxt(tmp_path / "k.tsv", K, delimiter="\t", fmt="%.17g")
    return tmp_path


def check_stages(document: Any, **own: Any) -> None:
    """The stages of a trace beside those of plain NumPy, of QKV but for what is named."""
    names = ("q", "k", "v", "mask", "sinks")
    arrays = QKV | {name: np.asarray(own.pop(name)) for name in names if name in own}
    expected = attention(arrays, own)
    computed = stages(document)
    assert "output" in computed
    for name in {*computed} & {*expected} - {"mask"}:
        np.testing.assert_allclose(computed[name], expected[name], rtol=1e-12, err_msg=name)


KEPT = [True, False, True, True, False]
INLINE = json.dumps(Q.tolist(), separators=(",", ":"))
# fmt: off
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("--q qkv.json", {}),
    ("qkv.npz", {}),
    ("--q - --quiet", {}),
    ("--q q.npy --k k.npy --v v.npy", {}),
    ("--q q.csv --k k.tsv --v v.npy", {}),
    ("--q qkv.npz::Query --k qkv.npz::KEYS --v qkv.npz::value", {}),
    ("--q q.npy --k qkv.json --v qkv.npz", {}),
    (f"--q {INLINE} --k k.npy --v v.npy", {}),
    ("qkv.npz --window -1,0 --scale 1/√8", {"window": (-1, 0), "scale": 8**-0.5}),
    ("qkv.npz --causal --mask-value -inf", {"causal": True}),
    ("qkv.npz --mask [[true,false,true,true,false]]", {"mask": [KEPT]}),
    ("qkv.npz --mask [[1,0,1,1,0]] --mask-means keep", {"mask": [KEPT]}),
    (f"qkv.npz --sinks [{log(2)}]", {"sinks": [log(2)]}),
]
# fmt: on


@pytest.mark.parametrize(("line", "own"), CALLS, ids=[line[:60] for line, _ in CALLS])
def test_forms_and_flags(call: Call, folder: Path, line: str, own: dict[str, Any]) -> None:
    stdin = (folder / "qkv.npz").read_bytes()
    done = call("compute", *line.split(), "--format", "json", stdin=stdin)
    assert (done.code, done.err) == (0, "")
    check_stages(done.json, **own)


def test_one_matrix_is_q_k_and_v_and_it_says_so(call: Call) -> None:
    done = call("compute", "[[1,2],[3,4]]", "--format", "json")
    assert ["K = Q" in done.err, "V = K" in done.err] == [True, True]
    check_stages(done.json, **{name: [[1, 2], [3, 4]] for name in "qkv"})


def heads(x: Any) -> Any:  # [..., n, 2·d] -> [..., 2, n, d]
    return np.stack(np.split(x, 2, axis=-1), axis=-3)


def beside(x: Any) -> Any:  # and back
    return np.concatenate(list(np.moveaxis(x, -3, 0)), -1)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_a_cache_that_is_split_into_heads_already(call: Call, lead: tuple[int, ...]) -> None:
    sizes = (("q", 3, 5), ("k", 3, 5), ("v", 3, 7), ("past_k", 11, 5), ("past_v", 11, 7))
    wide: dict[str, Any] = {name: RNG.normal(size=(*lead, n, 2 * d)) for name, n, d in sizes}
    inner = {name: heads(x) for name, x in wide.items()}
    expected = beside(attention(inner, {})["output"])
    cached = wide | {name: inner[name] for name in ("past_k", "past_v")}
    flags = ("--heads", "2", *(("--layout", "bsd") if lead else ()))
    for arrays in (wide, cached):
        np.savez("cache.npz", **arrays)
        done = call("compute", "cache.npz", *flags, "--format", "json")
        np.testing.assert_allclose(stages(done.json)["concat"], expected, rtol=1e-9)
    np.savez("dump.npz", **cached, output=expected)
    assert call("check", "dump.npz", *flags).code == 0
    if lead:  # of one head, in the layout bsd
        one = {name: x if name in QKV else x[:, None] for name, x in wide.items()}
        np.savez("one.npz", **one)
        done = call("compute", "one.npz", "--layout", "bsd", "--format", "json")
        output = stages(done.json)["output"].reshape(2, 3, 14)
        np.testing.assert_allclose(output, attention(wide, {})["output"], rtol=1e-9)


# ---- traces, labels, names


AGAIN = [
    "--causal --mask-value -1e4 --d-output random",
    "--window 1,1 --softcap 3",
    "--scale 0.5 --softmax-over queries --dropout 0.3 --seed 7",
    "--dtype float16 --kv-len 3",
    "--sinks [0.5]",
]


@pytest.mark.parametrize(("flags", "form"), in_turn(AGAIN, ["json", "npz"]))
@pytest.mark.usefixtures("folder")
def test_a_saved_trace_gives_the_same_again(call: Call, flags: str, form: str) -> None:
    assert call("compute", "qkv.npz", "--output", f"t.{form}", *flags.split()).code == 0
    once = stages(call("compute", "qkv.npz", "--format", "json", *flags.split()).json)
    again = stages(call("compute", f"t.{form}", "--format", "json").json)
    for name, value in once.items():
        np.testing.assert_array_equal(again[name], value, err_msg=name)
    checked = call("check", f"t.{form}")
    assert (checked.code, "softcap 3.0" in checked.err) == (0, "softcap" in flags)


def labels(document: Any, name: str) -> Any:
    return next(step["labels"] for step in document["steps"] if step["name"] == name)


def test_labels_come_from_tokens(call: Call) -> None:
    qkv = {name: x.tolist() for name, x in QKV.items()}
    document = qkv | {"tokens": {"queries": ["a", "b", "c"], "keys": list("vwxyz")}}
    Path("q.csv").write_text("weights,x,y\nx,1,0\ny,0,1\n")
    cached = '{"tokens": ["a", "b"], "q": [[1], [2]]}', "--past-k", "[[3]]", "--past-v", "[[4]]"
    words = {"query": ["I", "love"], "key": ["I", "love"]}
    for arguments, expected in (
        ([json.dumps(document)], {"query": ["a", "b", "c"], "key": list("vwxyz")}),
        (cached, {"query": ["a", "b"], "key": ["past 1", "a", "b"]}),
        (["q.csv", "--tokens", "I, love"], words),
        (["q.csv", "--tokens", '["I", "love"]'], words),
        (["[[1,0]]", "--k", "q.csv", "--tokens", "I,love"], {"key": ["I", "love"]}),
    ):
        assert labels(call("compute", *arguments, "--format", "json").json, "weights") == expected
    cell = [
        call("compute", "q.csv", "--tokens", "I,love", "--cell", at) for at in ("love,I", "2,1")
    ]
    assert cell[0] == cell[1]


def test_a_signalling_nan_is_shown_without_a_warning(call: Call) -> None:
    np.save("nan.npy", np.array([[0x7F800001, 0x3F800000]], np.uint32).view(np.float32))
    for command in (["compute", "--q"], ["posenc", "--add"]):  # a warning is an error here
        done = call(*command, "nan.npy", "--quiet")
        assert (done.code, done.err) == (0, "")
        assert "NaN" in done.out


def test_a_stage_is_named_in_any_case(call: Call, three: Path) -> None:
    done = call("compute", three, "--stage", "WeIGHTS", "--format", "json")
    assert [step["name"] for step in done.json["steps"]] == ["weights"]
    observed = ("--observed", json.dumps(done.json["steps"][0]["value"]), "--stage", "WEIGHTS")
    assert call("check", "--q", three, *observed).code == 0


def test_rows_count_from_one_and_include_both_ends(call: Call) -> None:
    np.save("q.npy", np.arange(7.0)[:, None])
    texts = "2:5=2345 1:1=1 4=4 6:=67 :2=12 -2:=67 :-6=12 -3:-2=56 -1=7 3:99=34567"
    for text, kept in (case.split("=") for case in texts.split()):
        for flag, axis in (("--rows", "query"), ("--cols", "key")):
            shown = ("--stage", "scores", "--format", "json", "--quiet")
            done = call("compute", "q.npy", f"{flag}={text}", *shown)
            assert "".join(name[1:] for name in labels(done.json, "scores")[axis]) == kept


# ---- sinks: a learned score of each head that joins the softmax and has no value

ONE = ("--q", "[[0]]", "--k", "[[1], [3]]", "--v", "[[8], [4]]")  # both scores are 0
LN_2 = ("--sinks", f"[{log(2)}]")


def test_sinks(call: Call) -> None:
    # exp(0) + exp(0) + exp(ln 2) = 4: each key has 1/4, and 1/2 is on no key.
    for flags in (["--work"], ["--cell", "1,2"]):
        derived = call("compute", *ONE, *LN_2, *flags).out
        assert "exp(0) / (exp(0) + exp(0) + exp(0.6931))" in derived
    for name in ("sinks", "attn_sinks", "s_aux"):
        document = {"q": [[0]], "k": [[1], [3]], "v": [[8], [4]], name: [log(2)]}
        done = call("compute", json.dumps(document), "--format", "json")
        assert stages(done.json)["output"] == pytest.approx(3)
    assert call("check", *ONE, "--observed", "[[3]]", *LN_2).code == 0
    assert call("check", *ONE, "--observed", "[[3]]", "--single").code == 1


def test_the_output_alone_of_many_tokens_has_sinks_too(call: Call) -> None:
    q, k = np.random.default_rng(2).normal(size=(2, 2053, 3))
    np.savez("x.npz", q=q, k=k)
    done = call("compute", "--q", "x.npz", "--sinks", "[3.5]", "--output", "out.npy")
    assert done.code == 0, done.err
    expected = attention({"q": q, "k": k, "v": k, "sinks": np.array([3.5])}, {})["output"]
    np.testing.assert_allclose(np.load("out.npy"), expected, rtol=1e-9)
