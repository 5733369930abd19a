"""attncli check SOURCE: one file with everything; what it says of its convention; other inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from .conftest import SAMPLES, Call

RNG = np.random.default_rng(47)
H, N, D, D_V = 3, 5, 7, 11
Q, K, V = (RNG.normal(size=shape) for shape in ((2, H, N, D), (2, H, N, D), (2, H, N, D_V)))


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(scale: float = D**-0.5, causal: bool = False) -> dict[str, Any]:
    """Weights and output in plain NumPy."""
    scores = scale * Q @ np.swapaxes(K, -1, -2)
    weights = softmax(
        np.where(np.tril(np.ones((N, N))) == 1, scores, -np.inf) if causal else scores
    )
    return {"weights": weights, "output": weights @ V}


def savez(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


INPUTS = {"q": Q, "k": K, "v": V}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    savez(tmp_path / "plain.npz", **INPUTS, **attention())
    savez(tmp_path / "inputs.npz", **INPUTS)
    savez(tmp_path / "causal.npz", **INPUTS, **attention(0.25, True), causal=True, scale=0.25)
    return tmp_path


def test_a_file_with_everything_needs_no_flag(call: Call, folder: Path) -> None:
    result = call("check", "plain.npz", "--format", "json")
    assert (result.code, result.err) == (0, "")
    assert [stage["name"] for stage in result.json["stages"]] == ["weights", "output"]
    assert call("check", "--q", "plain.npz").code == 0
    assert call("check", "plain.npz", "--stage", "weights").code == 0


def test_what_a_file_says_of_its_convention_is_used_and_noted(call: Call, folder: Path) -> None:
    result = call("check", "causal.npz")
    assert (result.code, result.out[:10]) == (0, "it matches")
    assert result.err == "attncli: note: causal.npz says --causal, --scale 0.25: used\n"
    other = call("check", "causal.npz", "--scale", "none")
    assert other.code == 1
    assert "note: --scale is used, not --scale 0.25 of causal.npz\n" in other.err
    shown = call("compute", "--q", "causal.npz", "--stage", "output", "--format", "json")
    assert shown.json["convention"]["causal"] is True
    assert "note: causal.npz says --causal, --scale 0.25: used\n" in shown.err


CONVENTIONS: dict[str, dict[str, Any]] = {
    "fields": {"causal": True, "scale": 0.25},
    "numbers": {"causal": 1, "scale": 0.25},
    "other letters": {"Causal": True, "Scale": 0.25},
    "object": {"convention": {"causal": True, "scale": 0.25, "window": None, "dropout": 0.0}},
    "text": {"convention": '{"causal": true, "scale": 0.25}'},
    "both": {"convention": {"causal": True}, "scale": 0.25},
    "window": {"window": [-1, 0], "scale": 0.25, "softcap": None, "layout": "bhsd"},
    "all": {"causal": True, "scale": 0.25, "kv_len": [5, 5], "seed": 3, "mask_value": "-Infinity"},
}


@pytest.mark.parametrize("how", CONVENTIONS.values(), ids=CONVENTIONS)
def test_a_convention_in_json(call: Call, tmp_path: Path, how: dict[str, Any]) -> None:
    arrays = {name: x.tolist() for name, x in (INPUTS | attention(0.25, True)).items()}
    (tmp_path / "d.json").write_text(json.dumps(arrays | how))
    assert call("check", "d.json").code == 0


@pytest.mark.parametrize("how", CONVENTIONS.values(), ids=CONVENTIONS)
def test_a_convention_in_npz(call: Call, tmp_path: Path, how: dict[str, Any]) -> None:
    how = {name: json.dumps(x) if isinstance(x, dict) else x for name, x in how.items()}
    how = {name: x for name, x in how.items() if x is not None}
    savez(tmp_path / "d.npz", **INPUTS, **attention(0.25, True), **how)
    assert call("check", "d.npz").code == 0


@pytest.mark.parametrize(
    "how",
    [
        {"causal": "true", "scale": "0.25"},
        {"convention": '{"causal": true, "scale": 0.25}'},
        {"window": "-1,0", "scale": "0.25", "kv_len": "5,5", "format": "pt"},
    ],
)
def test_a_convention_in_safetensors(call: Call, tmp_path: Path, how: dict[str, str]) -> None:
    arrays = {name: x.copy() for name, x in (INPUTS | attention(0.25, True)).items()}
    save_file(arrays, tmp_path / "d.safetensors", metadata=how)
    assert call("check", "d.safetensors").code == 0
    tensors = arrays | {"causal": np.array(True), "scale": np.array(0.25)}
    save_file(tensors, tmp_path / "d.safetensors")
    assert call("check", "d.safetensors").code == 0


def test_masks_lengths_sinks_and_caches_of_one_file(call: Call, tmp_path: Path) -> None:
    length, sinks, mask = np.array([4, 6]), RNG.normal(size=H), RNG.random((N, N + 2)) < 0.7
    past_k, past_v = RNG.normal(size=(2, H, 2, D)), RNG.normal(size=(2, H, 2, D_V))
    mask[:, 0] = True
    k, v = np.concatenate([past_k, K], axis=-2), np.concatenate([past_v, V], axis=-2)
    scores = Q @ np.swapaxes(k, -1, -2) / np.sqrt(D)
    valid = mask & (np.arange(N + 2) < length[:, None, None, None])
    powers = np.exp(np.where(valid, scores, -np.inf))
    output = powers / (powers.sum(-1, keepdims=True) + np.exp(sinks)[:, None, None]) @ v
    dump = INPUTS | {"past_k": past_k, "past_v": past_v, "mask": mask, "kv_len": length}
    savez(tmp_path / "d.npz", **dump, sinks=sinks, output=output)
    result = call("check", "d.npz")
    assert (result.code, result.err) == (0, "attncli: note: d.npz says --kv-len 4,6: used\n")
    other = call("check", "d.npz", "--kv-len", "5,6")
    assert other.code == 1
    assert "note: --kv-len is used, not --kv-len 4,6 of d.npz\n" in other.err


def test_a_mask_of_0_and_1_and_what_it_means(call: Call, tmp_path: Path) -> None:
    mask = np.triu(np.ones((N, N), np.int64), 1)
    savez(tmp_path / "d.npz", **INPUTS, **attention(causal=True), mask=mask)
    assert "say what 1 means: --mask-means keep, ignore or add" in call("check", "d.npz").err
    savez(tmp_path / "d.npz", **INPUTS, **attention(causal=True), mask=mask, mask_means="ignore")
    assert call("check", "d.npz").code == 0
    savez(tmp_path / "d.npz", **INPUTS, **attention(causal=True), mask=1 - mask, mask_means="keep")
    assert call("check", "d.npz").code == 0


@pytest.mark.parametrize("layout", ["flag", "file"])
def test_a_layout(call: Call, tmp_path: Path, layout: str) -> None:
    turned = {name: np.swapaxes(x, 1, 2) for name, x in INPUTS.items()}
    turned["output"] = np.swapaxes(attention()["output"], 1, 2)
    flags = ["--layout", "bshd"] if layout == "flag" else []
    savez(tmp_path / "d.npz", **turned, **({} if flags else {"layout": "bshd"}))
    assert call("check", "d.npz", *flags).code == 0
    np.save(tmp_path / "o.npy", turned["output"][:, 1:3])
    assert call("check", "o.npy", "--q", "d.npz", *flags, "--rows", "2:3").code == 0
    wrong = call("check", "d.npz", *flags, "--scale", "none")
    assert (wrong.code, "output differs" in wrong.out) == (1, True)


def test_heads_side_by_side(call: Call, tmp_path: Path) -> None:
    merged = {name: np.concatenate(list(x[0]), axis=-1) for name, x in INPUTS.items()}
    output = np.concatenate(list(attention()["output"][0]), axis=-1)
    savez(tmp_path / "d.npz", **merged, output=output)
    assert call("check", "d.npz", "--heads", "3").code == 0


# ---- SOURCE beside --q and --observed


def test_source_is_what_is_not_named(call: Call, folder: Path) -> None:
    np.save(folder / "output.npy", attention()["output"])
    assert call("check", "inputs.npz", "--observed", "output.npy").code == 0
    assert call("check", "output.npy", "--q", "inputs.npz").code == 0
    assert call("check", "--observed", "plain.npz").code == 0
    assert call("check", "plain.npz", "--observed", "plain.npz::output").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "there is nothing to check; name a file that holds q, k, v and the output, or add"),
        (("plain.npz", "--q", "plain.npz", "--observed", "plain.npz"), "SOURCE is given beside"),
        (("inputs.npz",), "inputs.npz holds no stage to check; call it output, weights … there"),
        (("inputs.npz", "--stage", "weights"), "inputs.npz holds no weights; call it weights ther"),
        (("output.npz",), "output.npz holds observed numbers, but no q"),
        (("[[1, 2]]",), "the inline literal holds no stage to check"),
        (("--observed", "output.npz"), "output.npz holds observed numbers, but no q"),
        (("odd.npz",), "odd.npz, softcap is -1.0; use a number above 0, or None"),
        (("odd.json",), "odd.json, convention has no field 'sclae'; known are causal, "),
        (("layout.json",), "layout.json, layout is 'sbhd'; use hsd, shd, bsd, bhsd, bshd"),
        (("nan.json",), "nan.json, softcap is 'NaN'; use a number above 0, or None"),
        (("kv.json",), "kv.json, kv_len holds no lengths; give one whole number for each batch"),
        (("twice.json",), "twice.json has causal twice, and they differ; keep one of them"),
        (("list.json",), "list.json, convention is not an object; write {"),
    ],
)
def test_what_is_refused(call: Call, folder: Path, arguments: Any, says: str) -> None:
    savez(folder / "output.npz", output=attention()["output"])
    savez(folder / "odd.npz", **INPUTS, **attention(), softcap=-1.0)
    for name, field in (
        ("odd", {"convention": {"sclae": 1}}),
        ("layout", {"layout": "sbhd"}),
        ("nan", {"softcap": "NaN"}),
        ("kv", {"kv_len": [1.5]}),
        ("twice", {"causal": True, "convention": {"causal": False}}),
        ("list", {"convention": [1, 2]}),
    ):
        (folder / f"{name}.json").write_text(json.dumps({"q": [[1]], "output": [[1]], **field}))
    result = call("check", *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"attncli: {says}")


def test_standard_input_holds_everything(call: Call, folder: Path) -> None:
    assert call("check", "-", stdin=(folder / "plain.npz").read_bytes()).code == 0


# ---- traces


def test_a_saved_trace_is_checked_by_itself(call: Call, folder: Path) -> None:
    for name in ("t.npz", "t.json"):
        flags = ("--causal", "--softcap", "2", "--dtype", "float32")
        assert call("compute", "--q", "inputs.npz", *flags, "--output", name).code == 0
        result = call("check", name)
        assert result.code == 0, result.out
        assert "is a trace with softcap 2.0, dtype float32: kept" in result.err
        beside = call("check", "--q", "inputs.npz", *flags, "--observed", name)
        assert (beside.code, beside.err) == (0, "")
    nested = call("explain", "The river bank", "--output", "e.json")
    assert nested.code == 0
    assert call("check", "e.json").code == 0


# ---- the inputs of the observed file


@pytest.mark.parametrize("form", ["npz", "json", "trace"])
def test_all_observed_inputs_that_differ_are_named(call: Call, folder: Path, form: str) -> None:
    other = {"q": Q, "k": K + 0.5, "v": V * 2, "mask": np.ones((N, N), bool)}
    other["mask"][0, 1:] = False
    if form == "json":
        path = "o.json"
        arrays = {name: x.tolist() for name, x in (other | attention()).items()}
        (folder / path).write_text(json.dumps(arrays))
    else:
        path = "o.npz"
        savez(folder / path, **other, **attention())
    if form == "trace":
        assert call("compute", "--q", path, "--output", "trace.json").code == 0
        path = "trace.json"
    result = call("check", "inputs.npz", "--observed", path)
    assert result.code == 1
    assert result.out.startswith("the inputs differ, k first; ")
    for text in ("k is not the given one: they differ by up to 0.5", "v is not the", "mask is not"):
        assert f"note: the observed {text}" in result.out
    assert "observed q" not in result.out


def test_inputs_of_a_part_of_a_trace_are_compared_too(call: Call, tmp_path: Path) -> None:
    layers = ("--block", "encoder", "--layers", "2", "--heads", "2", "--dim", "8")
    assert call("explain", "The river bank", *layers, "--output", "e.json").code == 0
    one, other = (f"e.json::encoder.{n}.attention" for n in (1, 2))
    assert call("check", one).code == 0
    result = call("check", one, "--observed", other)
    assert result.code == 1
    assert result.out.startswith("the inputs differ, q first; ")
    each = call("check", "e.json")
    assert each.code == 0
    assert each.out.splitlines() == [
        "2 of 2 match",
        "  encoder.1.attention  it matches",
        "  encoder.2.attention  it matches",
    ]


def test_observed_inputs_are_arranged_as_the_given_ones(call: Call, tmp_path: Path) -> None:
    turned = {name: np.swapaxes(x, 1, 2) for name, x in INPUTS.items()}
    savez(tmp_path / "i.npz", **turned)
    savez(tmp_path / "o.npz", **turned, output=np.swapaxes(attention()["output"], 1, 2))
    assert call("check", "i.npz", "--observed", "o.npz", "--layout", "bshd").code == 0


def test_another_convention_of_the_observed_file_is_noted(call: Call, folder: Path) -> None:
    result = call("check", "inputs.npz", "--observed", "causal.npz", "--causal")
    says = "note: causal.npz says --scale 0.25; it is compared with without --scale\n"
    assert (result.code, says in result.err) == (1, True)


def test_another_k_than_that_of_the_file_is_a_choice(call: Call, folder: Path) -> None:
    np.save(folder / "k.npy", K * 2)
    result = call("check", "plain.npz", "--k", "k.npy")
    assert result.code == 1
    assert "observed k" not in result.out


def test_it_is_the_help(call: Call) -> None:
    assert "[SOURCE]" in call("check", "--help").out
    assert call("check", str(SAMPLES / "three-tokens.json")).code == 2


# ---- one array of a file, and one matrix for both


@pytest.mark.parametrize("ending", ["npz", "json", "safetensors"])
def test_an_array_with_dots_in_its_name_is_asked_for(
    call: Call, tmp_path: Path, ending: str
) -> None:
    arrays = {f"layer.0.{name}": x[0, 0] for name, x in INPUTS.items()}
    arrays |= {f"layer.0.attn.{name}": x[0, 0] for name, x in attention().items()}
    arrays |= {"layer.1.attn.weights": V[0, 0], "layer.1.attn.output": Q[0, 0]}
    if ending == "npz":
        savez(tmp_path / "dump.npz", **arrays)
    elif ending == "json":
        lists = {name: x.tolist() for name, x in arrays.items()}
        (tmp_path / "dump.json").write_text(json.dumps(lists))
    else:
        save_file({n: np.ascontiguousarray(x) for n, x in arrays.items()}, "dump.safetensors")
    file = f"dump.{ending}::layer"
    given = [x for name in "qkv" for x in (f"--{name}", f"{file}.0.{name}")]
    assert call("check", *given, "--observed", f"{file}.0.attn.output").code == 0
    weights = ("--observed", f"{file}.0.attn.weights", "--stage", "weights")
    assert call("check", *given, *weights).code == 0
    assert call("check", *given, "--observed", f"{file}.1.attn.weights").code == 1
    assert call("diff", f"{file}.0.attn.output", f"{file}.0.attn.output").code == 0
    assert call("diff", f"{file}.0.attn.output", f"{file}.1.attn.weights").code == 1


@pytest.mark.parametrize("source", ["q.json", "[[20, 0], [0, 20]]", "-"])
def test_a_matrix_may_be_q_and_what_is_observed(call: Call, tmp_path: Path, source: str) -> None:
    """Each token attends to itself alone: the output is V, which is Q."""
    (tmp_path / "q.json").write_text("[[20, 0], [0, 20]]")
    result = call("check", "--q", source, "--observed", source, stdin=b"[[20, 0], [0, 20]]")
    assert (result.code, result.out[:10]) == (0, "it matches")


@pytest.mark.parametrize("flag", ["--q", "--observed"])
def test_a_matrix_alone_is_not_said_to_need_the_flag_it_has(call: Call, flag: str) -> None:
    result = call("check", flag, "[[20, 0], [0, 20]]")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert f"add {flag} " not in result.err


# ---- a file takes what the flag takes


@pytest.mark.parametrize(
    ("field", "flags"),
    [
        ({"scale": "none"}, ("--scale", "none")),
        ({"scale": "None"}, ("--scale", "none")),
        ({"scale": "1/√8"}, ("--scale", "1/√8")),
        ({"scale": "1/sqrt(d_k)"}, ()),
        ({"convention": {"scale": "NONE"}}, ("--scale", "none")),
        ({"empty_rows": "NaN"}, ("--empty-rows", "nan")),
        ({"empty-rows": "Uniform"}, ("--empty-rows", "uniform")),
        ({"convention": {"Empty-Rows": "NaN"}}, ("--empty-rows", "nan")),
        ({"empty_rows_inf": "NaN"}, ("--empty-rows-inf", "nan")),
        ({"empty_rows_inf": "none"}, ()),
        ({"mask_numbers": "None"}, ()),
        ({"causal": "TRUE", "causal_align": "Bottom_Right"}, ("--causal", "--causal-align", "bottom-right")),
        ({"softcap": "None"}, ()),
        ({"softcap": "√4", "softcap-place": "after_mask"}, ("--softcap", "2", "--softcap-place", "after-mask")),
        ({"mask_value": "-Infinity"}, ()),
        ({"mask_value": "-1E9"}, ("--mask-value", "-1e9")),
        ({"dtype": "torch.Float32"}, ("--dtype", "float32")),
        ({"lse_base": 2}, ("--lse-base", "2")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["json", "npz", "safetensors"])
def test_a_field_of_a_file_is_as_its_flag(
    call: Call, tmp_path: Path, field: dict[str, Any], flags: tuple[str, ...], ending: str
) -> None:
    mask = [[0.0, -np.inf], [-np.inf, -np.inf]]
    arrays = {"q": np.array([[1.0, 2.0], [3.0, 4.0]]), "mask": np.array(mask)}
    for name, said in (("plain", {}), ("says", field)):
        text = {n: x if isinstance(x, str) else json.dumps(x) for n, x in said.items()}
        if ending == "json":
            lists = {n: x.tolist() for n, x in arrays.items()}
            (tmp_path / f"{name}.json").write_text(json.dumps(lists | said))
        elif ending == "npz":
            savez(tmp_path / f"{name}.npz", **arrays, **text)
        else:
            save_file(arrays, tmp_path / f"{name}.safetensors", metadata=text)
    shown = ("--stage", "weights", "--stage", "output", "--stage", "lse", "--format", "json")
    expected = call("compute", f"plain.{ending}", *flags, *shown)
    result = call("compute", f"says.{ending}", *shown)
    assert (expected.code, result.code) == (0, 0)
    assert result.json["convention"] == expected.json["convention"]
    assert result.out == expected.out


def test_a_layout_of_a_file_is_as_its_flag(call: Call, tmp_path: Path) -> None:
    inputs = {"q": [[[1.0, 2.0]], [[3.0, 4.0]]]}
    (tmp_path / "plain.json").write_text(json.dumps(inputs))
    (tmp_path / "says.json").write_text(json.dumps(inputs | {"layout": "SHD"}))
    expected = call("compute", "plain.json", "--layout", "shd")
    assert (expected.code, expected.out) == (0, call("compute", "says.json").out)


@pytest.mark.parametrize("text", ["x", "1/0", "inf", "none none"])
def test_a_scale_that_is_no_number_is_refused(call: Call, tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.json").write_text(json.dumps({"q": [[1]], "scale": text}))
    savez(tmp_path / "odd.npz", q=[[1]], scale=text)
    for file in ("odd.json", "odd.npz"):
        result = call("compute", file)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert result.err.startswith(f"attncli: {file}, scale is not a number")
