"""attncli compute: every input form and flag gives the numbers it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import Convention, attend, attend_heads

from .conftest import Call

RNG = np.random.default_rng(17)
Q, K, V = RNG.normal(size=(3, 2)), RNG.normal(size=(5, 2)), RNG.normal(size=(5, 7))


def stages(document: Any) -> dict[str, Any]:
    def number(x: Any) -> Any:
        return [number(y) for y in x] if isinstance(x, list) else float(x)

    return {step["name"]: np.array(number(step["value"])) for step in document["steps"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, array in (("q", Q), ("k", K), ("v", V)):
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "qkv.npz", Query=Q, KEYS=K, value=V)
    everything = {"q": Q.tolist(), "k": K.tolist(), "v": V.tolist()}
    (tmp_path / "qkv.json").write_text(json.dumps(everything))
    np.savetxt(tmp_path / "q.csv", Q, delimiter=",", fmt="%.17g")
    np.savetxt(tmp_path / "k.tsv", K, delimiter="\t", fmt="%.17g")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("--q", "qkv.json"),
        ("--q", "qkv.npz"),
        ("--q", "q.npy", "--k", "k.npy", "--v", "v.npy"),
        ("--q", "q.csv", "--k", "k.tsv", "--v", "v.npy"),
        ("--q", "qkv.npz::Query", "--k", "qkv.npz::KEYS", "--v", "qkv.npz::value"),
        ("--q", "q.npy", "--k", "qkv.json", "--v", "qkv.npz"),
        ("--q", json.dumps(Q.tolist()), "--k", json.dumps(K.tolist()), "--v", "v.npy"),
    ],
)
def test_every_form_gives_the_same(call: Call, folder: Path, arguments: Any) -> None:
    result = call("compute", *arguments, "--format", "json")
    assert (result.code, result.err) == (0, "")
    expected = attend(Q, K, V)["output"].value
    np.testing.assert_array_equal(stages(result.json)["output"], expected)


@pytest.mark.parametrize("name", ["qkv.json", "qkv.npz", "q.npy", "q.csv"])
def test_standard_input_is_recognised_by_its_bytes(call: Call, folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    result = call("compute", "--q", "-", "--quiet", "--format", "json", stdin=content)
    assert result.code == 0, result.err
    whole = name.startswith("qkv")
    expected = attend(Q, K if whole else Q, V if whole else Q)["output"].value
    np.testing.assert_array_equal(stages(result.json)["output"], expected)


def test_one_matrix_is_q_k_and_v_and_it_says_so(call: Call) -> None:
    result = call("compute", "--q", "[[1,2],[3,4]]", "--format", "json")
    assert "K = Q" in result.err
    assert "V = K" in result.err
    expected = attend([[1, 2], [3, 4]], [[1, 2], [3, 4]], [[1, 2], [3, 4]])["output"].value
    np.testing.assert_array_equal(stages(result.json)["output"], expected)


def test_quiet_leaves_remarks_out(call: Call) -> None:
    assert call("compute", "--q", "[[1,2],[3,4]]", "--quiet").err == ""


CHOICES: list[tuple[list[str], dict[str, Any]]] = [
    (["--causal"], {"causal": True}),
    (["--causal", "--causal-align", "bottom-right"], {"causal": True, "causal_align": "bottom-right"}),
    (["--window", "1,0"], {"window": (1, 0)}),
    (["--window=-1,0"], {"window": (-1, 0)}),
    (["--scale", "none"], {"scale": "none"}),
    (["--scale", "0.3"], {"scale": 0.3}),
    (["--softcap", "2"], {"softcap": 2.0}),
    (["--softcap", "2", "--causal", "--softcap-place", "after-mask"],
     {"softcap": 2.0, "causal": True, "softcap_place": "after-mask"}),
    (["--softmax-over", "queries"], {"softmax_over": "queries"}),
    (["--dropout", "0.5", "--seed", "3"], {"dropout": 0.5, "seed": 3}),
    (["--dtype", "bfloat16"], {"dtype": "bfloat16"}),
    (["--causal", "--mask-value", "-1e4"], {"causal": True, "mask_value": -1e4}),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "convention"), CHOICES)
def test_flags_are_conventions(call: Call, folder: Path, flags: Any, convention: Any) -> None:
    result = call("compute", "--q", "qkv.npz", "--format", "json", *flags)
    assert result.code == 0, result.err
    expected = attend(Q, K, V, convention=Convention(**convention))
    for name, value in stages(result.json).items():
        np.testing.assert_array_equal(value, expected[name].value, err_msg=name)


@pytest.mark.parametrize(
    ("mask", "flags", "kept"),
    [
        ([[True, False, True, True, False]] * 3, [], [1, 0, 1, 1, 0]),
        ([[True, False, True, True, False]] * 3, ["--mask-means", "ignore"], [0, 1, 0, 0, 1]),
        ([[1, 0, 1, 1, 0]] * 3, ["--mask-means", "keep"], [1, 0, 1, 1, 0]),
        ([[1, 0, 1, 1, 0]] * 3, ["--mask-means", "ignore"], [0, 1, 0, 0, 1]),
    ],
)
def test_masks(call: Call, folder: Path, mask: Any, flags: Any, kept: list[int]) -> None:
    (folder / "mask.json").write_text(json.dumps(mask))
    result = call("compute", "--q", "qkv.npz", "--mask", "mask.json", "--format", "json", *flags)
    weights = stages(result.json)["weights"]
    assert (weights > 0).astype(int).tolist() == [kept] * 3


def test_a_numeric_mask_is_added(call: Call, folder: Path) -> None:
    np.save(folder / "bias.npy", RNG.normal(size=(3, 5)))
    result = call("compute", "--q", "qkv.npz", "--mask", "bias.npy", "--format", "json")
    found = stages(result.json)
    np.testing.assert_array_equal(
        found["masked"], found["scaled"] + np.load(folder / "bias.npy"), strict=True
    )


@pytest.mark.parametrize("rule", ["zero", "nan", "uniform"])
def test_empty_rows(call: Call, folder: Path, rule: str) -> None:
    flags = ("--mask", "[false,false,false,false,false]", "--empty-rows", rule)
    (folder / "mask.json").write_text("[[false,false,false,false,false]]")
    result = call(
        "compute", "--q", "qkv.npz", "--mask", "mask.json", *flags[2:], "--format", "json"
    )
    expected = {"zero": 0.0, "nan": np.nan, "uniform": 0.2}[rule]
    np.testing.assert_array_equal(stages(result.json)["weights"], np.full((3, 5), expected))


def test_heads_split_the_last_axis(call: Call, folder: Path) -> None:
    q, k, v = RNG.normal(size=(3, 8)), RNG.normal(size=(5, 4)), RNG.normal(size=(5, 6))
    np.savez(folder / "flat.npz", q=q, k=k, v=v)
    result = call(
        "compute", "--q", "flat.npz", "--heads", "4", "--kv-heads", "2", "--format", "json"
    )
    expected = attend_heads(q, k, v, n_heads=4, n_kv_heads=2)["concat"].value
    np.testing.assert_array_equal(stages(result.json)["concat"], expected)


@pytest.mark.parametrize("order", ["blocks", "tiled"])
def test_head_order(call: Call, folder: Path, order: Any) -> None:
    q, k, v = RNG.normal(size=(4, 3, 2)), RNG.normal(size=(2, 5, 2)), RNG.normal(size=(2, 5, 7))
    np.savez(folder / "heads.npz", q=q, k=k, v=v)
    result = call("compute", "--q", "heads.npz", "--head-order", order, "--format", "json")
    expected = attend(q, k, v, convention=Convention(head_order=order))["output"].value
    np.testing.assert_array_equal(stages(result.json)["output"], expected)


@pytest.mark.parametrize(
    ("layout", "axes"), [("shd", (1, 0, 2)), ("bshd", (0, 2, 1, 3)), ("bhsd", (0, 1, 2, 3))]
)
def test_layouts(call: Call, folder: Path, layout: str, axes: Any) -> None:
    lead = (3,) if len(axes) == 3 else (2, 3)
    arrays = {n: RNG.normal(size=(*lead, 5, d)) for n, d in (("q", 7), ("k", 7), ("v", 11))}
    turned: dict[str, Any] = {name: np.transpose(x, np.argsort(axes)) for name, x in arrays.items()}
    np.savez(folder / "turned.npz", **turned)
    result = call("compute", "--q", "turned.npz", "--layout", layout, "--format", "json")
    expected = attend(arrays["q"], arrays["k"], arrays["v"])["output"].value
    np.testing.assert_array_equal(stages(result.json)["output"], expected)


def test_a_cache_is_put_before_the_keys(call: Call, folder: Path) -> None:
    past_k, past_v = RNG.normal(size=(2, 2)), RNG.normal(size=(2, 7))
    np.save(folder / "pk.npy", past_k)
    np.save(folder / "pv.npy", past_v)
    result = call(
        *("compute", "--q", "qkv.npz", "--past-k", "pk.npy", "--past-v", "pv.npy"),
        *("--causal", "--format", "json"),
    )
    how = Convention(causal=True)
    expected = attend(Q, K, V, past_k=past_k, past_v=past_v, convention=how)["output"].value
    np.testing.assert_array_equal(stages(result.json)["output"], expected)


@pytest.mark.parametrize(
    ("lead", "flags"),
    [((), ()), ((2,), ("--layout", "bsd"))],
)
def test_a_cache_that_is_split_into_heads_already(
    call: Call, tmp_path: Path, lead: tuple[int, ...], flags: Any
) -> None:
    q, k, v = (RNG.normal(size=(*lead, n, 2 * d)) for n, d in ((3, 5), (3, 5), (3, 7)))
    past_k, past_v = RNG.normal(size=(*lead, 2, 11, 5)), RNG.normal(size=(*lead, 2, 11, 7))
    arrays: dict[str, Any] = {"q": q, "k": k, "v": v, "past_k": past_k, "past_v": past_v}
    np.savez(tmp_path / "cache.npz", **arrays)
    flags = ("--heads", "2", *flags)
    result = call("compute", "--q", "cache.npz", *flags, "--format", "json")
    assert result.code == 0, result.err

    def heads(x: Any) -> Any:  # [..., n, 2·d] -> [..., 2, n, d]
        return np.stack(np.split(x, 2, axis=-1), axis=-3)

    whole_k, whole_v = (
        np.concatenate([past_k, heads(k)], -2),
        np.concatenate([past_v, heads(v)], -2),
    )
    z = heads(q) @ np.swapaxes(whole_k, -1, -2) / np.sqrt(5)
    weights = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
    expected = np.concatenate(list(np.moveaxis(weights @ whole_v, -3, 0)), -1)
    np.testing.assert_allclose(stages(result.json)["concat"], expected, rtol=1e-9)
    np.savez(tmp_path / "wide.npz", **arrays | {
        name: np.concatenate(list(np.moveaxis(x, -3, 0)), -1)
        for name, x in (("past_k", past_k), ("past_v", past_v))
    })  # fmt: skip
    same = call("compute", "--q", "wide.npz", *flags, "--format", "json")
    np.testing.assert_array_equal(stages(same.json)["concat"], stages(result.json)["concat"])
    np.savez(tmp_path / "dump.npz", **arrays, output=expected)
    checked = call("check", "dump.npz", *flags)
    assert checked.code == 0, checked.out + checked.err
    np.save(tmp_path / "o.npy", expected)
    assert call("check", "--q", "cache.npz", "--observed", "o.npy", *flags).code == 0


def test_a_split_cache_of_one_head_in_the_layout_bsd(call: Call, tmp_path: Path) -> None:
    q, past = RNG.normal(size=(2, 3, 5)), RNG.normal(size=(2, 1, 7, 5))
    np.savez(tmp_path / "a.npz", q=q, past_k=past, past_v=past)
    np.savez(tmp_path / "b.npz", q=q, past_k=past[:, 0], past_v=past[:, 0])
    found, same = (
        call("compute", "--q", name, "--layout", "bsd", "--quiet", "--format", "json")
        for name in ("a.npz", "b.npz")
    )
    assert found.code == same.code == 0
    assert found.json == same.json


def test_key_lengths(call: Call, folder: Path) -> None:
    result = call("compute", "--q", "qkv.npz", "--kv-len", "2", "--format", "json")
    expected = attend(Q, K, V, kv_len=2)["output"].value
    np.testing.assert_array_equal(stages(result.json)["output"], expected)


@pytest.mark.parametrize("form", ["json", "npz"])
@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--causal"],
        ["--causal", "--mask-value", "-1e4"],
        ["--window", "1,1", "--softcap", "3"],
        ["--scale", "0.5", "--softmax-over", "queries", "--dropout", "0.3", "--seed", "7"],
        ["--dtype", "float16", "--kv-len", "3"],
    ],
)
def test_a_saved_trace_gives_the_same_again(
    call: Call, folder: Path, form: str, flags: Any
) -> None:
    saved = call("compute", "--q", "qkv.npz", "--output", f"first.{form}", *flags)
    assert (saved.code, saved.out) == (0, "")
    again = call("compute", "--q", f"first.{form}", "--output", "second.json")
    assert again.code == 0, again.err
    once = call("compute", "--q", "qkv.npz", "--format", "json", *flags)
    twice = json.loads((folder / "second.json").read_text())
    for name, value in stages(once.json).items():
        np.testing.assert_array_equal(stages(twice)[name], value, err_msg=name)


def test_traces_go_through_pipes(call: Call, three: Path) -> None:
    first = call("compute", "--q", three, "--format", "json")
    second = call("compute", "--q", "-", "--format", "json", stdin=first.out.encode())
    assert second.json["steps"] == first.json["steps"]


def test_labels_come_from_tokens(call: Call, folder: Path) -> None:
    document = {"tokens": {"queries": ["a", "b", "c"], "keys": list("vwxyz")}}
    document |= {"q": Q.tolist(), "k": K.tolist(), "v": V.tolist()}
    (folder / "named.json").write_text(json.dumps(document))
    steps = call("compute", "--q", "named.json", "--format", "json").json["steps"]
    weights = next(step for step in steps if step["name"] == "weights")
    assert weights["labels"] == {"query": ["a", "b", "c"], "key": ["v", "w", "x", "y", "z"]}


def test_tokens_name_the_new_keys_of_a_cache(call: Call, folder: Path) -> None:
    (folder / "x.json").write_text('{"tokens": ["a", "b"], "q": [[1], [2]]}')
    arguments = ("--past-k", "[[3]]", "--past-v", "[[4]]", "--quiet", "--format", "json")
    steps = call("compute", "--q", "x.json", *arguments).json["steps"]
    assert steps[3]["labels"]["key"] == ["past 1", "a", "b"]


def test_a_scale_in_the_file_is_used_and_a_flag_wins(call: Call, folder: Path) -> None:
    (folder / "x.json").write_text('{"scale": 0.5, "q": [[2.0]]}')
    own = stages(call("compute", "--q", "x.json", "--quiet", "--format", "json").json)
    assert own["scaled"].tolist() == [[2.0]]
    flags = ("--scale", "3", "--quiet", "--format", "json")
    assert stages(call("compute", "--q", "x.json", *flags).json)["scaled"].tolist() == [[12.0]]


def test_a_signalling_nan_is_shown_without_a_warning(call: Call, folder: Path) -> None:
    signalling = np.array([[0x7F800001, 0x3F800000]], np.uint32).view(np.float32)
    np.save(folder / "nan.npy", signalling)
    for command in (["compute", "--q"], ["posenc", "--add"]):  # a warning is an error here
        result = call(*command, "nan.npy", "--quiet")
        assert (result.code, result.err) == (0, "")
        assert "NaN" in result.out
