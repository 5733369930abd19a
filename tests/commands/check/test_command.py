"""attncli check: the verdict and its exit code, of printed numbers, of one file, of gradients."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.calls import SAMPLES, Call
from tests.plain import attention, sinusoidal
from tests.turns import in_turn

THREE = ("--q", str(SAMPLES / "three-tokens.json"))
RIGHT = "[[5,5],[6.016681,3.983319],[6.276174,3.723826]]"
PRINTED = ("--observed", "[0.42,0.42,0.16]", "--stage", "weights", "--rows", "1", "--decimals", "2")
RNG = np.random.default_rng(47)
H, N, D, D_V = 3, 5, 7, 11
Q, K, V = (RNG.normal(size=(2, H, N, width)) for width in (D, D, D_V))
INPUTS: dict[str, Any] = {"q": Q, "k": K, "v": V}
MASK = np.arange(N)[:, None] >= np.arange(N)
LARGE = 14_000  # pairs of cells


def seen(arrays: dict[str, Any] = INPUTS, kv_len: Any = None, **convention: Any) -> dict[str, Any]:
    """Weights and output in plain NumPy."""
    computed = attention(arrays, convention, kv_len)
    return {name: computed[name] for name in ("weights", "output")}


def write(path: str, arrays: dict[str, Any]) -> str:
    """A file of the format that the ending names; in a binary one, what is no array is text."""
    there = {n: x for n, x in arrays.items() if x is not None}
    if path.endswith(".npz"):
        own: Any = {n: json.dumps(x) if isinstance(x, dict) else x for n, x in there.items()}
        np.savez(path, **own)
    elif path.endswith(".safetensors"):
        numpy = pytest.importorskip("safetensors.numpy")
        tensors = {n: np.array(x, order="C") for n, x in there.items() if isinstance(x, np.ndarray)}
        others = {n: x for n, x in there.items() if n not in tensors}
        words = {n: x if isinstance(x, str) else json.dumps(x) for n, x in others.items()}
        numpy.save_file(tensors, path, metadata={n: x.strip("[]") for n, x in words.items()})
    else:
        Path(path).write_text(json.dumps(arrays, default=np.ndarray.tolist))
    return path


def cause(call: Call, *flags: str | Path) -> str | None:
    """The first cause that check names, or None; "matches" where it ends with 0."""
    done = call("check", *flags, "--format", "json")
    assert done.code in (0, 1), done.err
    explanations = done.json["explanations"]
    return "matches" if done.code == 0 else explanations[0]["name"] if explanations else None


def test_the_verdict_and_its_exit_code(call: Call) -> None:
    right = call("check", *THREE, "--observed", RIGHT, "--decimals", "6")
    assert (right.code, right.out[:10]) == (0, "it matches")
    assert cause(call, *THREE, "--observed", SAMPLES / "observed.json") == "scale left out"
    shape = call("check", *THREE, "--observed", "[5, 5]")
    assert (shape.code, "has 2 numbers" in shape.out, "rows=" in shape.out) == (1, True, False)
    wrong = ("check", *THREE, *PRINTED, "--single")
    quiet = call(*wrong, "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (1, "", "")
    assert call(*wrong, "--output", "verdict.json").out == ""
    assert json.loads(Path("verdict.json").read_text())["status"] == "found"
    call(*wrong, "--output", "json")  # no ending: text
    assert "--scale none" in Path("json").read_text(encoding="utf-8")


# ---- numbers as they were printed

OF_ROW_3 = "--stage weights --rows 3"  # 0.50349, 0.24826, 0.24826
WIDER = f"--scale 1/√8 {OF_ROW_3}"  # 0.41591, 0.29205, 0.29205


@pytest.mark.parametrize(
    ("flags", "printed", "code"),
    [

        (WIDER, "0.4 0.3 0.3", 0), (WIDER, "0.42 0.29 0.29", 0),
        (WIDER, "0.40 0.30 0.30", 1), (WIDER, "0.4 0.30 0.3", 1),
        (OF_ROW_3, "0.50 0.25 0.25", 0), (OF_ROW_3, "0.5 0.25 0.25", 1),  # as 1/2 and 1/4 are written
        (OF_ROW_3, "0.50348985 0.24825508 0.24825508", 0),  # as float32 numbers may be
        (OF_ROW_3, "0.50349035 0.24825508 0.24825508", 1),
        (OF_ROW_3, "0.503489840000 0.248255080000 0.248255080000", 1),
        (OF_ROW_3, "5.0e-1 0.248 2.48e-01", 1), (OF_ROW_3, "5.03e-1 0.248 2.48e-01", 0),
    ],
)  # fmt: skip
def test_half_a_unit_of_the_last_decimal_that_was_printed_is_allowed(
    call: Call, flags: str, printed: str, code: int
) -> None:
    cells = printed.split()
    row, line = f"[{', '.join(cells)}]", ",".join(cells)
    files = {
        "b.json": f'{{"weights": [{row}], "output": [[1, 2]]}}',
        "d.csv": f"weights,k1,k2,1.0000\nq3,{line}",
        "f.txt": printed,
    }
    others = {"a.json": row, "c.csv": line, "e.tsv": "\t".join(cells)}
    for name, text in (files | others).items():
        Path(name).write_text(text)
    forms = [row] if code and flags == OF_ROW_3 else [row, *files]  # every bug is tried, so few
    if not code:
        forms += [f"[{printed}]", f"np.array([{row}])", f"tensor({row})", printed, *others]
    for form in forms:
        done = call("check", *THREE, *flags.split(), "--single", "--observed", form)
        assert done.code == code, form


def test_each_stage_has_its_own_decimals(call: Call) -> None:
    """And a large table those that were printed."""
    stages: dict[str, Any] = {
        "scaled": [[0.707, 0.707, 0], [0.707, 0, 0.707], [1.414, 0.707, 0.707]],
        "weights": [[0.401, 0.401, 0.198], [0.401, 0.198, 0.401], [0.502, 0.248, 0.248]],
        "output": [[5, 5], [6.02, 3.98], [6.28, 3.72]],
    }
    check = ("check", *THREE, "--single", "--format", "json", "--observed")
    result = call(*check, json.dumps(stages))
    assert [stage["matches"] for stage in result.json["stages"]] == [True, False, True]
    stages["weights"][2][0] = 0.503
    assert call(*check, json.dumps(stages)).code == 0
    Path("large.csv").write_text("0.40,0.10," * LARGE + "0.1")  # of one key: the row is v
    for value, code in ((0.404, 0), (0.44, 1)):
        np.savez("one.npz", q=[[0.0]], k=[[1.0]], v=[[value, 0.1] * LARGE + [0.1]])
        assert call("check", "--q", "one.npz", "--observed", "large.csv", "--single").code == code


def as_printed(x: Any, form: str) -> str:
    """Numbers as NumPy writes them by itself, or as PyTorch does by this format."""
    if form == "numpy":
        return np.array2string(x, separator=", ", precision=8)
    text = np.array2string(x, separator=", ", formatter={"float_kind": form.__mod__})
    return f"tensor({text})"


SIZES = [(1, 1), (1e5, 1), (1e9, 1), (1, 1e4), (1e-5, 1), (1e5, 1e4)]
FORMS = [(*size, form) for size in SIZES for form in ("numpy", "%.4e")]
FORMS += [(*size, "%.4f") for size in SIZES[:3]]  # the others leave zeros in it


@pytest.mark.parametrize(("case", "dtype"), in_turn(FORMS, [np.float32, np.float64]))
def test_numbers_of_either_type_are_judged_as_they_are_printed(
    call: Call, case: tuple[float, float, str], dtype: Any
) -> None:
    """Those further apart than 1000 are printed in scientific notation, or smaller than 1e-4."""
    size, spread, form = case
    q, k, v = (np.random.default_rng(1).normal(size=(3, 5, 7))).astype(dtype)
    v *= dtype(size) * np.logspace(0, -np.log10(spread), 7, dtype=dtype)
    arrays = {"q": q, "k": k, "v": v}
    observed = ("--q", write("qkv.npz", arrays), "--observed")
    right = seen(arrays)["output"]
    assert call("check", *observed, as_printed(right.astype(dtype), form)).code == 0
    unscaled = as_printed(seen(arrays, scale="none")["output"].astype(dtype), form)
    assert cause(call, *observed, unscaled, "--single") == "scale left out"
    right[2, 3] *= 1.01
    result = call("check", *observed, as_printed(right.astype(dtype), form), "--single")
    assert result.code == 1
    assert "q3, d_v 4" in result.out or "O[q3,4]" in result.out


@pytest.mark.parametrize("size", [1, 1e-5, 1e9])
def test_full_numbers_are_not_rounded(call: Call, size: float) -> None:
    """Nor is one of few digits among them, nor 0 that sums leave as 1e-17."""
    q, k, v = np.random.default_rng(4).normal(size=(3, 5, 7)) * [[[1]], [[1]], [[size]]]
    arrays = {"q": q, "k": k, "v": v}
    right = seen(arrays)["output"]
    for wrong in (right * (1 + 1e-9), np.where(np.eye(5, 7), float(f"{size:g}"), right)):
        observed = ("--observed", json.dumps(wrong.tolist()), "--single")
        result = call("check", "--q", write("qkv.npz", arrays), *observed)
        assert (result.code, "judged as rounded" in result.out) == (1, False)
    np.savez("zero.npz", q=[[0.0]] * 3, k=[[1.0]] * 3, v=[[0.1, 1.0], [0.2, 1.5], [-0.3, 1.5]])
    printed = "[[9.25185854e-18, 1.33333333e+00]]"
    assert call("check", "--q", "zero.npz", "--rows", "1", "--observed", printed).code == 0


def test_equal_numbers_name_no_number_that_was_fitted_to_them(call: Call) -> None:
    for printed in ("4.0111,4.0111", "4.01,4.01", "4.0112345678901,4.0112345678901"):
        flags = (*THREE, "--rows", "1", "--single", "--observed", f"[{printed}]")
        assert cause(call, *flags) is None


# ---- conventions, heads, layouts, positions


def test_conventions_are_those_of_compute(call: Call) -> None:
    write("i.npz", INPUTS)
    observed = ("i.npz", "--single", "--observed", write("causal.npz", seen(causal=True)))
    assert cause(call, *observed, "--causal") == "matches"
    assert cause(call, *observed) == "causal mask where none is wanted"
    part = write("part.npz", seen(causal=True, kv_len=[4]))
    right = ("--kv-len", "4", "--causal", "--causal-align", "bottom-right")
    assert "top-left" in str(cause(call, "i.npz", "--single", "--observed", part, *right))
    noise = call("check", *THREE, "--observed", "[[1,9],[2,7],[5,3]]")
    assert (noise.code, "no known bug" in noise.out) == (1, True)
    assert "where it differs most" in noise.out


def test_heads_layouts_and_rows(call: Call) -> None:
    whole = INPUTS | {"output": seen()["output"]}
    write("wide.npz", {name: np.concatenate(list(x[0]), axis=-1) for name, x in whole.items()})
    turned = {name: np.swapaxes(x, 1, 2) for name, x in whole.items()}
    write("turned.npz", turned)
    write("inputs.npz", {name: turned[name] for name in "qkv"})
    write("field.npz", turned | {"layout": "BSHD"})
    write("rows.npz", {"output": turned["output"][:, 1:3]})
    for line, code in (
        ("wide.npz --heads 3", 0),
        ("field.npz", 0),
        ("turned.npz --layout bshd", 0),
        ("turned.npz --layout bshd --scale none --single", 1),
        ("turned.npz --layout bshd --observed rows.npz --rows 2:3", 0),
        ("inputs.npz --observed turned.npz --layout bshd", 0),
    ):
        assert call("check", *line.split()).code == code, line


def test_positions_are_put_in_first(call: Call) -> None:
    x = RNG.normal(size=(5, 6))
    y = x + sinusoidal(5, 6, "paper", 10000, 0)
    write("x.npz", {"q": x} | seen({"q": y, "k": y, "v": y}))
    assert cause(call, "x.npz", "--positions", "paper") == "matches"
    other = call("check", "x.npz", "--positions", "article", "--single")
    assert (other.code, "2i/d" in other.out, "--positions paper" in other.out) == (1, True, True)


# ---- one file with everything


def test_source_is_what_is_not_named(call: Call) -> None:
    data = Path(write("plain.npz", INPUTS | seen())).read_bytes()
    write("inputs.npz", INPUTS)
    np.save("output.npy", seen()["output"])
    result = call("check", "plain.npz", "--format", "json")
    assert (result.code, result.err) == (0, "")
    assert [stage["name"] for stage in result.json["stages"]] == ["weights", "output"]
    for flags in ("--q plain.npz", "plain.npz --stage weights", "inputs.npz --observed output.npy",
                  "output.npy --q inputs.npz", "--observed plain.npz", "-",
                  "plain.npz --observed plain.npz::output"):  # fmt: skip
        assert call("check", *flags.split(), stdin=data).code == 0, flags
    for own in ("[[20,0],[0,20]]", "-"):  # each token attends to itself alone: the output is V
        flags = f"--q {own} --observed {own}"
        assert call("check", *flags.split(), stdin=b"[[20, 0], [0, 20]]").code == 0
    np.save("k.npy", K * 2)
    other = call("check", "plain.npz", "--k", "k.npy", "--single")
    assert (other.code, "observed k" in other.out) == (1, False)
    foreign = call("check", *THREE, "--observed", f'{{"foo": [[1]], "output": {RIGHT}}}')
    assert (foreign.code, "no stages: foo" in foreign.err) == (0, True)


CONVENTIONS: list[dict[str, Any]] = [
    {"Causal": 1, "scale": 0.25},
    {"convention": {"causal": True, "scale": 0.25, "window": None, "dropout": 0.0}},
    {"convention": '{"causal": true, "scale": 0.25}'},
    {"convention": {"causal": True}, "scale": 0.25},
    {"window": [-1, 0], "scale": 0.25, "softcap": None, "layout": "bhsd"},
    {"causal": True, "scale": 0.25, "kv_len": [5, 5], "seed": 3, "mask_value": "-Infinity"},
]
ENDINGS = ["json", "npz", "safetensors"]


@pytest.mark.parametrize(("convention", "ending"), in_turn(CONVENTIONS, ENDINGS))
def test_what_a_file_says_of_its_convention_is_used_and_noted(
    call: Call, convention: dict[str, Any], ending: str
) -> None:
    file = write(f"d.{ending}", INPUTS | seen(causal=True, scale=0.25) | convention)
    write("i.npz", INPUTS)
    for flags, code, note in (
        (file, 0, "--scale 0.25"),
        (f"{file} --scale none", 1, f"not --scale 0.25 of {file}"),
        (f"i.npz --observed {file} --causal", 1, "without --scale"),
    ):
        done = call("check", *flags.split(), "--single")
        assert (done.code, note in done.err) == (code, True)


FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"scale": "none", "empty_rows": "NaN"}, "--scale none --empty-rows nan"),
    ({"scale": "1/√8", "empty_rows_inf": "NaN"}, "--scale 1/√8 --empty-rows-inf nan"),
    ({"scale": "1/sqrt(d_k)", "empty_rows_inf": "none", "mask_numbers": "None"}, ""),
    ({"convention": {"scale": "NONE", "Empty-Rows": "NaN"}}, "--scale none --empty-rows nan"),
    ({"softcap": "None", "mask_value": "-Infinity", "dtype": "torch.Float32"}, "--dtype float32"),
    ({"causal": "TRUE", "causal_align": "Bottom_Right"}, "--causal --causal-align bottom-right"),
    ({"softcap": "√4", "softcap-place": "after_mask"}, "--softcap 2 --softcap-place after-mask"),
    ({"mask_value": "-1E9", "lse_base": 2}, "--mask-value -1e9 --lse-base 2"),
    ({"SCALE": "0.5", "empty-rows": "Uniform"}, "--scale 0.5 --empty-rows uniform"),
]


@pytest.mark.parametrize(("row", "ending"), in_turn(FIELDS, ENDINGS))
def test_a_field_of_a_file_is_as_its_flag(
    call: Call, row: tuple[dict[str, Any], str], ending: str
) -> None:
    mask = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    arrays = {"q": np.array([[1.0, 2.0], [3.0, 4.0]]), "mask": mask}
    shown = ("--stage", "weights", "--stage", "output", "--stage", "lse", "--format", "json")
    expected = call("compute", write(f"plain.{ending}", arrays), *row[1].split(), *shown)
    result = call("compute", write(f"says.{ending}", arrays | row[0]), *shown)
    assert (expected.code, result.code) == (0, 0)
    assert result.json["convention"] == expected.json["convention"]
    documents = [{**x.json, "call": None} for x in (result, expected)]  # of another file and flags
    assert documents[0] == documents[1]


def test_a_scale_twice_in_metadata_is_refused(call: Call) -> None:
    write("q.safetensors", {"q": np.array([[2.0]]), "scale": "1", "sCALE": "2"})
    done = call("compute", "q.safetensors")
    assert (done.code, done.out, "scale twice" in done.err) == (2, "", True)


def test_masks_lengths_sinks_and_caches_of_one_file(call: Call) -> None:
    mask = np.random.default_rng(1).random((N, N + 2)) < 0.7
    mask[:, 0] = True
    past = {"past_k": RNG.normal(size=(2, H, 2, D)), "past_v": RNG.normal(size=(2, H, 2, D_V))}
    arrays = INPUTS | past | {"mask": mask, "sinks": RNG.normal(size=H)}
    output = seen(arrays, [4, 6])["output"]
    file = write("d.npz", arrays | {"kv_len": np.array([4, 6]), "output": output})
    result = call("check", file)
    assert (result.code, "--kv-len 4,6" in result.err) == (0, True)
    assert call("check", file, "--kv-len", "5,6", "--single").code == 1
    whole = INPUTS | seen(causal=True)
    for numbers, means, code in ((MASK, "keep", 0), (~MASK, "ignore", 0), (MASK, None, 2)):
        own = whole | {"mask": numbers.astype(int), "mask_means": means}
        assert call("check", write("m.npz", own)).code == code


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_array_with_dots_in_its_name_is_asked_for(call: Call, ending: str) -> None:
    arrays = {f"layer.0.{name}": x[0, 0] for name, x in INPUTS.items()}
    arrays |= {f"layer.0.attn.{name}": x[0, 0] for name, x in seen().items()}
    arrays |= {"layer.1.attn.weights": V[0, 0], "layer.1.attn.output": Q[0, 0]}
    file = write(f"dump.{ending}", arrays) + "::layer"
    line = f"--q {file}.0.q --k {file}.0.k --v {file}.0.v --single --observed {file}"
    for end, code in ((".0.attn.output", 0), (".1.attn.weights", 1),
                      (".0.attn.weights --stage weights", 0)):  # fmt: skip
        assert call("check", *f"{line}{end}".split()).code == code


# ---- what a library means


def test_what_a_library_means_is_said_and_taken(call: Call) -> None:
    with np.load(Path(__file__).parents[2] / "fixtures" / "library_outputs.npz") as file:
        for name, own in (("keras-mha", "0/-inf mask"), ("jax", "boolean mask, empty row")):
            arrays = {part: file[f"{name}/{own}/{part}"] for part in ("q", "k", "v", "mask")}
            write(f"{name}.npz", arrays | {"output": file[f"{name}/{own}/output"]})
    keras = ("check", "keras-mha.npz", "--single")
    result = call(*keras, "--format", "json")
    assert (result.code, result.json["status"]) == (1, "found")
    assert result.json["meanings"][0]["names"] == ["flax", "keras-ops", "keras-mha", "equinox"]
    assert "If that was not meant" in call(*keras).out
    assert [call(*keras, "--semantics", name).code for name in ("flax", "jax")] == [0, 1]
    jax = ("check", "jax.npz", "--single")
    (meaning,) = call(*jax, "--empty-rows", "zero", "--format", "json").json["meanings"]
    assert meaning["flag"] == "--semantics jax, without --empty-rows"
    assert call(*jax, "--semantics", "jax").code == 0


def test_a_single_query_is_masked_as_the_library_masks_it(call: Call, tmp_path: Path) -> None:
    """By hand: of scores 1, 0, 1 over √2 the weights 0.4011, 0.1978, 0.4011 of 1, 2, 3 give 2."""
    one = tmp_path / "one.json"
    one.write_text('{"q": [[1, 0]], "k": [[1, 1], [0, 1], [1, 0]], "v": [[1], [2], [3]]}')
    transformers = ("--q", one, "--causal", "--semantics", "transformers-sdpa")
    assert call("check", "[[2.0]]", *transformers).code == 0
    assert call("check", "[[1.0]]", *transformers, "--causal-align", "top-left").code == 0
    assert call("check", "[[1.0]]", *transformers, "--quiet").code == 1


# ---- gradients


def test_gradients_of_a_file(call: Call) -> None:
    d_output = RNG.normal(size=V.shape)
    right = attention(INPUTS | {"d_output": d_output}, {})
    write("i.npz", INPUTS | {"d_output": d_output})
    beside = ("check", "--q", "i.npz", "--single", "--format", "json", "--observed", "g.npz")
    for names in ("dq dk dv", "dQ dK dV", "q.grad k.grad v.grad", "grad_query grad_key grad_value"):
        own = {name: right[f"d_{part}"] for name, part in zip(names.split(), "qkv", strict=True)}
        write("g.npz", own)
        result = call(*beside)
        assert result.code == 0
        assert [stage["name"] for stage in result.json["stages"]] == ["d_v", "d_q", "d_k"]
    write("g.npz", {name: 1.5 * x for name, x in own.items()})
    assert call(*beside).code == 1
    np.save("d.npy", d_output)
    write("alone.npz", INPUTS)
    flags = ("--q", "alone.npz", "--observed", write("o.npz", {"dq": right["d_q"]}) + "::dq")
    assert call("check", *flags, "--stage", "dQ", "--d-output", "d.npy").code == 0
    done = call("check", write("k.npz", INPUTS | {"d_output": d_output, "dk": right["d_k"]}))
    assert (done.code, "cannot show" in done.out) == (0, True)
    noted = call("check", write("n.npz", INPUTS | seen() | {"dq": right["d_q"]}))
    assert (noted.code, "do not follow" in noted.err) == (0, True)
    for ending in ("json", "npz"):  # widths, not gradients
        widths = INPUTS | seen() | {"d_k": np.array(D), "d_v": np.array(D_V)}
        assert call("check", write(f"w.{ending}", widths)).code == 0
