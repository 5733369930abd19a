"""attncli check: the verdict, its exit code, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import SAMPLES, Call

THREE = ("--q", str(SAMPLES / "three-tokens.json"))
RIGHT = "[[5,5],[6.016681,3.983319],[6.276174,3.723826]]"
PRINTED = ("--observed", "[0.42,0.42,0.16]", "--stage", "weights", "--rows", "1", "--decimals", "2")


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 7), (5, 7), (5, 11)))
    np.savez(tmp_path / "qkv.npz", q=q, k=k, v=v)
    scores = q @ k.T
    np.savez(tmp_path / "unscaled.npz", weights=softmax(scores), output=softmax(scores) @ v)
    seen = np.tril(np.ones((3, 5), dtype=bool))
    masked = np.where(seen, scores / np.sqrt(np.float32(7)), -np.inf)
    np.save(tmp_path / "causal.npy", softmax(masked) @ v)
    np.save(tmp_path / "noise.npy", rng.normal(size=(3, 11)).astype(np.float32))
    return tmp_path


def test_a_match_ends_with_0(call: Call) -> None:
    result = call("check", *THREE, "--observed", RIGHT, "--decimals", "6")
    assert result.code == 0
    assert result.out.startswith("it matches\n")


def test_printed_weights_without_the_scale(call: Call) -> None:
    result = call("check", *THREE, *PRINTED)
    assert result.code == 1
    assert result.out.startswith("it differs; the cause:\n  scale left out\n")
    assert "attncli compute: --scale none" in result.out


# ---- numbers as they were printed

OF_ROW_3 = ("--stage", "weights", "--rows", "3")  # 0.50349, 0.24826, 0.24826
WIDER = ("--scale", "1/√8", *OF_ROW_3)  # 0.41591, 0.29205, 0.29205
UNSCALED = "[[5,5],[6.33,3.67],[6.82,3.18]]"


@pytest.mark.parametrize(
    ("flags", "printed", "code"),
    [
        (WIDER, "0.4 0.3 0.3", 0),
        (WIDER, "0.42 0.29 0.29", 0),
        (WIDER, "0.40 0.30 0.30", 1),
        (WIDER, "0.4 0.30 0.3", 1),
        (WIDER, "0.4000 0.3000 0.3000", 1),
        (OF_ROW_3, "0.50 0.25 0.25", 0),
        (OF_ROW_3, "0.500 0.250 0.250", 1),
        (OF_ROW_3, "0.5 0.25 0.25", 1),  # as 1/2 and 1/4 are written too
        (OF_ROW_3, "0.50348984 0.24825508 0.24825508", 0),
        (OF_ROW_3, "0.50348985 0.24825508 0.24825508", 0),  # as float32 numbers may be
        (OF_ROW_3, "0.50349035 0.24825508 0.24825508", 1),
        (OF_ROW_3, "0.503489840000 0.248255080000 0.248255080000", 1),
        (OF_ROW_3, "5.0e-1 0.248 2.48e-01", 1),
        (OF_ROW_3, "5.03e-1 0.248 2.48e-01", 0),
    ],
)
def test_half_a_unit_of_the_last_decimal_that_was_printed_is_allowed(
    call: Call, tmp_path: Path, flags: tuple[str, ...], printed: str, code: int
) -> None:
    cells = printed.split()
    lists = f"[{', '.join(cells)}]"
    forms = [lists, f"[{printed}]", f"np.array([{lists}])", f"tensor({lists})", printed]
    for name, text in {
        "a.json": lists,
        "b.json": f'{{"weights": [{lists}], "output": [[1, 2]]}}',
        "c.csv": ",".join(cells),
        "d.csv": f"weights,k1,k2,1.0000\nq3,{','.join(cells)}",
        "e.tsv": "\t".join(cells),
        "f.txt": printed,
    }.items():
        (tmp_path / name).write_text(text)
        forms.append(name)
    for form in forms:
        assert call("check", *THREE, *flags, "--observed", form).code == code, form


@pytest.mark.parametrize(("value", "code"), [(0.404, 0), (0.44, 1)])
def test_a_large_table_has_the_decimals_that_were_printed(
    call: Call, tmp_path: Path, value: float, code: int
) -> None:
    np.savez(tmp_path / "one.npz", q=np.zeros((20_000, 1)), k=[[1.0]], v=[[value, 0.1]])
    (tmp_path / "large.csv").write_text("0.40,0.10\n" * 20_000)  # of one key: each row is v
    assert call("check", "--q", "one.npz", "--observed", "large.csv").code == code


def test_each_stage_has_its_own_decimals(call: Call, tmp_path: Path) -> None:
    stages: dict[str, Any] = {
        "scaled": [[0.707, 0.707, 0], [0.707, 0, 0.707], [1.414, 0.707, 0.707]],
        "weights": [[0.401, 0.401, 0.198], [0.401, 0.198, 0.401], [0.503, 0.248, 0.248]],
        "output": [[5, 5], [6.02, 3.98], [6.28, 3.72]],
    }
    (tmp_path / "right.json").write_text(json.dumps(stages))
    assert call("check", *THREE, "--observed", "right.json").code == 0
    stages["weights"][2][0] = 0.502
    (tmp_path / "wrong.json").write_text(json.dumps(stages))
    result = call("check", *THREE, "--observed", "wrong.json", "--format", "json")
    assert [stage["matches"] for stage in result.json["stages"]] == [True, False, True]


@pytest.mark.parametrize("decimals", [2, 4, 6, 8])
def test_a_bug_is_named_of_numbers_as_they_are_printed(call: Call, decimals: int) -> None:
    q, k = np.array([[1, 0], [0, 1], [1, 1]]), np.array([[1, 1], [1, 0], [0, 1]])
    with np.printoptions(precision=decimals):
        printed = str(softmax(q @ k.T))
    result = call("check", *THREE, "--observed", printed, "--stage", "weights")
    assert result.out.startswith("it differs; the cause:\n  scale left out\n")
    exact = {"weights": softmax(q @ k.T).tolist(), "output": json.loads(UNSCALED)}
    result = call("check", *THREE, "--observed", json.dumps(exact))
    assert result.out.startswith("it differs; the cause:\n  scale left out\n")


def as_printed(x: Any, form: str) -> str:
    """Numbers as NumPy writes them by itself, or as PyTorch does by this format."""
    if form == "numpy":
        return np.array2string(x, separator=", ", precision=8)
    if form == "shortest":
        return np.array2string(x, separator=", ", precision=17, floatmode="unique")
    text = np.array2string(x, separator=", ", formatter={"float_kind": form.__mod__})
    return f"tensor({text})"


SIZES = [(1, 1), (1e5, 1), (1e9, 1), (1, 1e4), (1e-5, 1), (1e5, 1e4)]
FORMS = ["numpy", "shortest", "%.4e"]


@pytest.mark.parametrize(
    ("size", "spread", "form"),
    [(*size, form) for size in SIZES for form in FORMS]
    + [(*size, "%.4f") for size in SIZES[:3]],  # the others leave zeros in it
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_of_either_type_are_judged_as_they_are_printed(
    call: Call, dtype: Any, size: float, spread: float, form: str
) -> None:
    """Those further apart than 1000 are printed in scientific notation, or smaller than 1e-4."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(5, 7)).astype(dtype) for _ in range(3))
    v *= dtype(size) * np.logspace(0, -np.log10(spread), 7, dtype=dtype)
    np.savez("qkv.npz", q=q, k=k, v=v)
    scores = q @ k.T
    right = softmax(scores / np.sqrt(dtype(7))) @ v
    printed = as_printed(right, form)
    assert call("check", "--q", "qkv.npz", "--observed", printed).code == 0
    result = call("check", "--q", "qkv.npz", "--observed", as_printed(softmax(scores) @ v, form))
    assert result.out.startswith("it differs; the cause:\n  scale left out\n")
    right[2, 3] += dtype(1e-2) * right[2, 3]
    result = call("check", "--q", "qkv.npz", "--single", "--observed", as_printed(right, form))
    assert result.code == 1
    assert "q3, d_v 4" in result.out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_stage_has_its_own_print(call: Call, tmp_path: Path, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(5, 7)).astype(dtype) for _ in range(3))
    np.savez("qkv.npz", q=q, k=k, v=v)
    for scale, code in ((np.sqrt(dtype(7)), 0), (dtype(1), 1)):
        scaled = q @ k.T / scale
        weights = softmax(scaled)
        stages = {
            "scaled": np.array2string(scaled, separator=",", precision=3),
            "weights": np.array2string(weights, separator=",", formatter={"float_kind": "%.4e".__mod__}),
            "output": np.array2string(weights @ v, separator=",", precision=8),
        }  # fmt: skip
        text = ",".join(f'"{name}": {rows}' for name, rows in stages.items())
        text = re.sub(r"\.(?=[],])", ".0", f"{{{text}}}".replace("\n", ""))
        (tmp_path / "stages.json").write_text(text)
        result = call("check", "--q", "qkv.npz", "--observed", "stages.json")
        assert result.code == code
        assert ("\n  scale left out\n" in result.out) == bool(code)
        assert "weights: the numbers have 5 digits" in result.out


@pytest.mark.parametrize("size", [1, 1e-5, 1e9])
def test_full_numbers_are_not_rounded(call: Call, size: float) -> None:
    """Nor is one of few digits among them, nor 0 that sums leave as 1e-17."""
    rng = np.random.default_rng(4)
    q, k, v = rng.normal(size=(5, 7)), rng.normal(size=(5, 7)), size * rng.normal(size=(5, 7))
    np.savez("qkv.npz", q=q, k=k, v=v)
    right = softmax(q @ k.T / np.sqrt(7)) @ v
    for wrong in (right * (1 + 1e-9), np.where(np.eye(5, 7), float(f"{size:g}"), right)):
        observed = json.dumps(wrong.tolist())
        result = call("check", "--q", "qkv.npz", "--single", "--observed", observed)
        assert (result.code, "judged as rounded" in result.out) == (1, False)


def test_zero_is_what_sums_leave_of_it(call: Call) -> None:
    np.savez("qkv.npz", q=[[0.0]] * 3, k=[[1.0]] * 3, v=[[0.1, 1.0], [0.2, 1.5], [-0.3, 1.5]])
    printed = "[[9.25185854e-18, 1.33333333e+00]]"
    assert call("check", "--q", "qkv.npz", "--rows", "1", "--observed", printed).code == 0


def test_the_sample_that_left_the_scale_out(call: Call) -> None:
    result = call("check", *THREE, "--observed", SAMPLES / "observed.json")
    assert result.out.startswith("it differs; the cause:\n  scale left out\n")


@pytest.mark.parametrize(
    "printed", ["4.0111,4.0111", "4.01,4.01", "4.0112345678901,4.0112345678901"]
)
def test_equal_numbers_name_no_number_that_was_fitted_to_them(call: Call, printed: str) -> None:
    result = call("check", *THREE, "--rows", "1", "--observed", f"[{printed}]", "--format", "json")
    assert (result.code, result.json["explanations"]) == (1, [])


def test_several_stages_of_a_file_are_checked_in_order(call: Call, folder: Path) -> None:
    result = call("check", "--q", "qkv.npz", "--observed", "unscaled.npz", "--format", "json")
    assert result.code == 1
    assert [stage["name"] for stage in result.json["stages"]] == ["weights", "output"]
    assert result.json["explanations"][0]["name"] == "scale left out"


def test_conventions_are_those_of_compute(call: Call, folder: Path) -> None:
    observed = ("--q", "qkv.npz", "--observed", "causal.npy")
    assert call("check", *observed, "--causal").code == 0
    assert "causal mask where none is wanted" in call("check", *observed).out
    other = call("check", *observed, "--causal", "--causal-align", "bottom-right")
    assert "causal mask aligned top-left, not bottom-right" in other.out


def test_what_nothing_explains_is_said_to_be_so(call: Call, folder: Path) -> None:
    result = call("check", "--q", "qkv.npz", "--observed", "noise.npy")
    assert result.code == 1
    assert result.out.startswith("it differs from stage output on; no known bug explains it")
    assert "worst entries" in result.out


def test_positions_are_put_in_first(call: Call, folder: Path) -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(5, 6))
    at = np.arange(5)[:, None] / 10000 ** (np.arange(0, 6, 2) / 6)
    table = np.stack([np.sin(at), np.cos(at)], axis=-1).reshape(5, 6)
    np.save(folder / "x.npy", x)
    y = x + table
    np.save(folder / "placed.npy", softmax(y @ y.T / np.sqrt(6)) @ y)
    arguments = ("check", "--q", "x.npy", "--observed", "placed.npy", "--positions")
    assert call(*arguments, "paper").code == 0
    other = call(*arguments, "article")
    assert other.code == 1
    assert "sinusoid exponent 2i/d, not 2·2i/d" in other.out
    assert "attncli check: --positions paper" in other.out
    split = call(*arguments, "paper", "--heads", "2")
    assert split.code == 2
    assert "would be added to each head" in split.err


def test_quiet_says_nothing(call: Call) -> None:
    result = call("check", *THREE, *PRINTED, "--quiet")
    assert (result.code, result.out, result.err) == (1, "", "")


def test_the_verdict_goes_to_a_file(call: Call, tmp_path: Path) -> None:
    assert call("check", *THREE, *PRINTED, "--output", "verdict.json").out == ""
    assert '"status": "found"' in (tmp_path / "verdict.json").read_text()


def test_merged_heads_are_recognised(call: Call, tmp_path: Path) -> None:
    x = np.random.default_rng(2).normal(size=(5, 6))
    halves = [softmax(h @ h.T / np.sqrt(3)) @ h for h in (x[:, :3], x[:, 3:])]
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "merged.npy", np.hstack(halves))
    arguments = ("--q", "x.npy", "--heads", "2", "--observed", "merged.npy", "--quiet")
    assert call("check", *arguments).code == 0


def test_an_ambiguous_verdict_suggests_an_input(call: Call, tmp_path: Path) -> None:
    # With one key every weight is 1, so hidden and shown scales, masks and axes look alike.
    result = call(
        *("check", "--q", "[[1,2]]", "--k", "[[1,1],[3,0]]", "--v", "[[1,0],[0,1]]"),
        *("--observed", "[[0.5,0.5]]", "--decimals", "1", "--suggest", "telling.npz"),
    )
    if result.out.startswith("it differs, and the cause is ambiguous"):
        with np.load(tmp_path / "telling.npz") as file:
            assert {"q", "k", "v"} <= set(file.files)
    else:
        assert "is not written" in result.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "three-tokens.json holds no stage to check; call it output, weights … there, or use"),
        (["--observed", "missing.npy"], "missing.npy does not exist"),
        (["--observed", "[[1,2]]", "--stage", "wieghts"], "there is no stage 'wieghts'"),
        (
            ["--observed", RIGHT, "--decimals", "2", "--rtol", "1"],
            "--decimals cannot be used with --rtol",
        ),
        (["--observed", RIGHT, "--suggest", "x.json"], "x.json is no npz file"),
        (["--observed", RIGHT, "--suggest", "no/x.npz"], "make the folder no first"),
        (["--observed", RIGHT, "--force"], "--force has no effect"),
        (["--observed", RIGHT, "--head", "2"], "head"),
        (["--observed", RIGHT, "--rows", "9:"], "row"),
        (["--observed", RIGHT, "--rtol", "-1"], "rtol"),
        (["--observed", RIGHT, "--positions", "rope"], "--positions"),
    ],
)
def test_what_is_refused(call: Call, arguments: Any, says: str) -> None:
    result = call("check", *THREE, *arguments)
    assert (result.code, result.out) == (2, ""), result.out
    assert result.err.count("\n") == 1
    assert says in result.err


def test_rows_that_are_none_are_refused_before_anything_is_read(call: Call) -> None:
    result = call("check", "--q", "[[1,2]]", "--observed", "[[1,2]]", "--rows", "0:1")
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_nothing_is_written_where_the_suggestion_cannot_be(call: Call, tmp_path: Path) -> None:
    (tmp_path / "there.npz").write_bytes(b"")
    result = call("check", *THREE, *PRINTED, "--suggest", "there.npz", "--output", "said.txt")
    assert (result.code, result.out) == (2, "")
    assert "there.npz exists already" in result.err
    assert [file.name for file in tmp_path.iterdir()] == ["there.npz"]


def test_quiet_is_quiet_about_suggestions_too(call: Call) -> None:
    result = call("check", *THREE, *PRINTED, "--suggest", "x.npz", "--quiet")
    assert (result.code, result.out, result.err) == (1, "", "")


def test_a_wrong_shape_is_a_verdict(call: Call) -> None:
    result = call("check", *THREE, "--observed", "[[1,2,3]]")
    assert result.code == 1
    assert result.out.startswith("the shape is wrong")


@pytest.mark.parametrize(
    ("file", "error"),
    [
        ({"weights": [[1, 2], [3]]}, "o.json, weights: row 2 has 1 entry, row 1 has 2; give"),
        ({"weights": "oops"}, "o.json, weights is the text 'oops', not an array; give"),
        ({"wieghts": [[9]]}, "o.json names 'wieghts', which is not a stage; did you mean weights?"),
        ({"Scores": [[9]]}, "o.json names 'Scores', which is not a stage; did you mean scores?"),
    ],
)
def test_what_cannot_be_judged_is_no_part_of_a_match(
    call: Call, tmp_path: Path, file: Any, error: str
) -> None:
    (tmp_path / "o.json").write_text(json.dumps({**file, "output": [[5, 5]]}))
    result = call("check", "--q", "[[1,2]]", "--v", "[[5,5]]", "--observed", "o.json")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"attncli: {error}")


def test_names_that_are_no_stages_are_named(call: Call, tmp_path: Path) -> None:
    (tmp_path / "o.json").write_text('{"foo": [[1]], "output": [[5, 5]], "q": [[1, 2]]}')
    result = call("check", "--q", "[[1,2]]", "--v", "[[5,5]]", "--observed", "o.json")
    assert result.code == 0
    assert "note: o.json: not compared, as they are no stages: foo\n" in result.err


def test_a_file_whose_name_has_no_ending_holds_text(call: Call, tmp_path: Path) -> None:
    call("check", *THREE, "--observed", RIGHT, "--decimals", "6", "--output", "json")
    assert not (tmp_path / "json").read_text(encoding="utf-8").startswith("{")


def test_a_verdict_is_not_written_to_a_file_called_dash(call: Call) -> None:
    result = call("check", *THREE, "--observed", RIGHT, "--decimals", "6", "--output", "-")
    hint = "leave it out to write to standard output"
    assert (result.code, result.err) == (2, f"attncli: --output - names no file; {hint}\n")


@pytest.mark.parametrize("name", ["v.npz", "v.csv", "v.JSN"])
def test_an_ending_that_names_no_format_is_refused(call: Call, tmp_path: Path, name: str) -> None:
    result = call("check", *THREE, "--observed", RIGHT, "--decimals", "6", "--output", name)
    assert result.code == 2
    assert (
        result.err == f"attncli: the ending of {name} names no format; add --format text or json\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("head", ["2", "1" + "0" * 30])
def test_a_head_that_is_not_there_is_refused(call: Call, head: str) -> None:
    result = call("check", *THREE, "--observed", RIGHT, "--head", head)
    assert result.code == 2
    assert result.err.endswith(f"attncli: there is no head {head}; there is only 1 head\n")


@pytest.fixture
def library(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Arguments that check what a library gave, recorded."""
    found: dict[str, tuple[str, ...]] = {}
    with np.load(Path(__file__).parents[1] / "fixtures" / "library_outputs.npz") as file:
        for name, call in (("keras-mha", "0/-inf mask"), ("jax", "boolean mask, empty row")):
            arrays = {part: file[f"{name}/{call}/{part}"] for part in ("q", "k", "v", "mask")}
            np.savez(tmp_path / f"{name}.npz", **arrays)
            np.save(tmp_path / f"{name}.npy", file[f"{name}/{call}/output"])
            found[name] = ("check", "--q", f"{name}.npz", "--observed", f"{name}.npy")
    return found


def test_what_a_library_means_is_said_and_taken(
    call: Call, library: dict[str, tuple[str, ...]]
) -> None:
    result = call(*library["keras-mha"])
    assert result.code == 1
    assert result.out.startswith(
        "it differs from the default conventions, and matches flax's:\n"
        "  the numbers of a mask are read as true or false: −inf is true, so it may attend\n"
        "  attncli check … --semantics flax     → matches\n"
        "  so do keras-ops, keras-mha, equinox\n"
        "If that was not meant, it is a bug: boolean mask read the other way round\n"
    )
    for name in ("flax", "keras-ops", "keras-mha", "equinox"):
        assert call(*library["keras-mha"], "--semantics", name).code == 0
    other = call(*library["keras-mha"], "--semantics", "jax")
    assert (other.code, other.out.splitlines()[0]) == (
        1,
        "it differs from what was asked for, and matches flax's:",
    )
    data = call(*library["keras-mha"], "--format", "json").json
    assert (data["schema"], data["status"]) == (3, "found")
    assert data["meanings"][0]["names"] == ["flax", "keras-ops", "keras-mha", "equinox"]


def test_a_flag_that_contradicts_what_a_library_means_is_named(
    call: Call, library: dict[str, tuple[str, ...]]
) -> None:
    result = call(*library["jax"], "--empty-rows", "zero", "--format", "json")
    (meaning,) = result.json["meanings"]
    assert meaning["flag"] == "--semantics jax, without --empty-rows"
    assert call(*library["jax"], "--semantics", "jax").code == 0


def test_0_and_1_are_true_and_false_beside_what_a_library_means(
    call: Call, library: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    with np.load(tmp_path / "jax.npz") as file:
        arrays = {name: x.astype(np.int64) if name == "mask" else x for name, x in file.items()}
    np.savez(tmp_path / "jax.npz", **arrays)
    assert call(*library["jax"]).code == 2
    assert "nothing but 0 and 1" in call(*library["jax"]).err
    keep = ("--mask-means", "keep")
    result = call(*library["jax"], *keep)
    assert result.out.startswith("it differs from what was asked for, and matches jax's:\n")
    assert call(*library["jax"], *keep, "--semantics", "jax").code == 0
