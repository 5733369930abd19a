"""attncli semantics, and --semantics on other commands: what is shown, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attncli.presets import PRESETS

from .conftest import SAMPLES, Call

MASK = "[[true, false, true], [false, false, false], [true, true, true]]"


def test_the_table_names_every_library(call: Call) -> None:
    found = call("semantics")
    assert (found.code, found.err) == (0, "")
    assert all(f"\n  {name} " in found.out for name in PRESETS)


@pytest.mark.parametrize("form", ["json", "csv", "tsv", "markdown", "html", "latex", "npz"])
def test_every_format_holds_it(call: Call, form: str) -> None:
    for words in ([], ["jax"], ["torch-mha", "torch-sdpa"]):
        found = call("semantics", *words, "--format", form, "--output", f"out.{form}")
        assert (found.code, found.err) == (0, ""), found.err
        assert Path(f"out.{form}").stat().st_size > 100
        Path(f"out.{form}").unlink()


def test_csv_is_a_table_of_words(call: Call) -> None:
    lines = call("semantics", "--format", "csv").out.splitlines()
    assert lines[0].split(",")[1] == "true"
    assert len(lines) == len(PRESETS) + 1
    assert next(line for line in lines if line.startswith("torch-mha,")).split(",")[1] == "hides"


def test_json_holds_the_words_and_their_labels(call: Call) -> None:
    (step,) = json.loads(call("semantics", "jax", "--format", "json").out)["steps"]
    cells = dict(zip(step["labels"]["case"], step["value"], strict=True))
    assert (step["name"], step["dtype"]) == ("library", "str")
    assert cells["no key by −∞"] == ["NaN", "zeros"]


def test_a_figure_of_an_input_draws_how_far_they_are_apart(call: Call, three: Path) -> None:
    found = call("semantics", "--q", three, "--mask", MASK, "--format", "svg")
    assert (found.code, found.err) == (0, "")
    assert "apart" in found.out


def test_one_library_says_how_it_is_known(call: Call) -> None:
    found = call("semantics", "torch-mha").out
    assert "torch.nn.MultiheadAttention" in found
    assert "run: torch 2.13.0" in found
    assert "--mask-means ignore" in found
    assert "not run" in call("semantics", "flash-attn").out


def test_two_libraries_end_with_what_to_write(call: Call) -> None:
    found = call("semantics", "torch-mha", "torch-sdpa").out
    assert "hides" in found
    assert "scaled_dot_product_attention" in found


def test_an_input_in_groups(call: Call, three: Path) -> None:
    found = call("semantics", "--q", three, "--mask", MASK)
    assert (found.code, found.err) == (0, "")
    assert "no key: mean of V\n  jax" in found.out
    assert "differs from the first group in q2" in found.out
    assert "Not shown by this input" in found.out
    assert found.out.splitlines()[0].endswith("3 queries · 3 keys")
    data = json.loads(call("semantics", "--q", three, "--mask", MASK, "--format", "json").out)
    assert [step["name"] for step in data["steps"]] == ["outcomes", "apart"]


def test_an_input_of_x_and_weights(call: Call) -> None:
    found = call("semantics", "--x", SAMPLES / "homework.json", "--causal")
    assert (found.code, found.err) == (0, "")
    assert "scale: 1/√d_k" in found.out


def test_a_mask_of_0_and_1_needs_no_word_on_its_meaning(call: Call, three: Path) -> None:
    found = call("semantics", "--q", three, "--mask", "[[0, 1, 1]]")
    assert "numbers 0, 1: 1 may attend" in found.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["jaxx"], "there are no semantics 'jaxx'; did you mean jax?"),
        (["a", "b", "c"], "3 libraries are named"),
        (["jax", "--q", "[[1]]"], "both jax and an input are given"),
        (["--causal"], "--causal has no effect without --q"),
        (["jax", "--mask", "[[true]]"], "--mask has no effect without --q"),
        (["--format", "svg"], "a figure shows numbers, not words"),
        (["--format", "mermaid"], "a flowchart shows steps"),
        (["jax", "jax"], "jax is named twice"),
        (["--stage", "weights"], "there is no stage"),
        (["--q", "nosuch.json"], "nosuch.json"),
    ],
)
def test_what_is_refused(call: Call, words: list[str], says: str) -> None:
    found = call("semantics", *words)
    assert found.code == 2
    assert says in found.err
    assert found.out == ""
    assert found.err.count("\n") == 1


# ---- --semantics on other commands


def test_a_flag_beside_it_wins_and_the_headline_says_so(call: Call, three: Path) -> None:
    found = call("compute", three, "--mask", MASK, "--semantics", "jax", "--empty-rows", "zero").out
    assert "as jax has it but for --empty-rows zero" in found
    assert "q2: every key is masked; each weight is 0 (--empty-rows zero)" in found


def test_a_trace_records_the_values_not_the_name(call: Call, three: Path) -> None:
    out = call("compute", three, "--mask", MASK, "--semantics", "torch-mha", "--format", "json").out
    how = json.loads(out)["convention"]
    assert (how["mask_means"], how["empty_rows"], how["mask_and_causal"]) == (
        "ignore",
        "NaN",
        "mask",
    ) or (how["mask_means"], how["empty_rows"], how["mask_and_causal"]) == ("ignore", "nan", "mask")
    assert "semantics" not in how


def test_what_a_file_says_is_kept(call: Call) -> None:
    file = '{"q": [[1, 0], [0, 1]], "scale": 0.5, "mask": [[true, false], [false, false]]}'
    Path("f.json").write_text(file)
    out = call("compute", "f.json", "--semantics", "keras-attention", "--format", "json")
    assert "refuses this call" in out.err
    out = call("compute", "f.json", "--semantics", "jax", "--format", "json")
    how = json.loads(out.out)["convention"]
    assert (how["scale"], how["empty_rows"]) == (0.5, "uniform")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--semantics", "flash-attn", "--mask", MASK], "flash-attn refuses this call: "),
        (["--semantics", "flax", "--causal"], "flax refuses this call: "),
        (["--semantics", "tinygrad", "--causal", "--mask", MASK], "tinygrad refuses this call: "),
        (["--semantics", "torch-mha", "--causal"], "torch-mha refuses this call: "),
    ],
)
def test_a_call_that_the_library_refuses(
    call: Call, three: Path, flags: list[str], says: str
) -> None:
    found = call("compute", three, *flags)
    assert found.code == 2
    assert says in found.err


def test_explain_takes_it_too(call: Call) -> None:
    mask = "[[true, false], [false, false]]"
    found = call("explain", "a b", "--mask", mask, "--semantics", "mlx", "--stage", "weights")
    assert "as mlx has it" in found.out
    assert "50.0 % each" in found.out
    nothing = call(
        "explain", "a b", "--mask", mask, "--semantics", "torch-sdpa", "--stage", "weights"
    )
    assert "every key is masked; each weight is 0" in nothing.out
    refused = call("explain", "a b", "--semantics", "flax", "--causal")
    assert (refused.code, refused.out) == (2, "")
    assert "flax refuses this call: " in refused.err
