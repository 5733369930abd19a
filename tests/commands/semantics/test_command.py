"""attncli semantics, and --semantics: what they show, their data and their notes."""

from pathlib import Path

import pytest

from attncli.presets import PRESETS
from tests.calls import SAMPLES, Call, arguments_of

THREE = f"--q {SAMPLES / 'three-tokens.json'}"
MINE, WORDS = SAMPLES / "my-examples.json", SAMPLES / "words.txt"
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("semantics", [f"\n  {name} " for name in PRESETS]),
        ("semantics torch-mha", ["torch.nn.MultiheadAttention", "run: torch 2.13.0", "--mask-means ignore"]),
        (f"semantics {THREE} --mask MASK", ["no key: mean of V\n  jax", "in q2", "Not shown", "3 queries"]),
        (f"semantics {THREE} --mask MASK --format svg", ["apart"]),
        (f"semantics {THREE} --mask [[0,1,1]]", ["numbers 0, 1: 1 may attend"]),
        (f"semantics --x {SAMPLES / 'homework.json'} --causal", ["scale: 1/√d_k"]),
        (f"compute {THREE} --mask MASK --semantics jax --empty-rows zero",
         ["as jax has it but for --empty-rows zero", "q2: every key is masked; each weight is 0"]),
        ("explain 'a b' --mask '[[true,false],[false,false]]' --semantics mlx --stage weights",
         ["as mlx has it", "50.0 % each"]),
    ],
)  # fmt: skip
def test_what_is_shown(call: Call, line: str, texts: list[str]) -> None:
    done = call(*arguments_of(line))
    assert (done.code, done.err) == (0, "")
    assert [text for text in texts if text not in done.out] == []


def test_every_format_holds_what_libraries_mean(call: Call) -> None:
    for form in ("json", "csv", "tsv", "markdown", "html", "latex", "npz"):
        for words in ([], ["jax"], ["torch-mha", "torch-sdpa"]):
            flags = ("--format", form, "--output", f"out.{form}", "--force")
            done = call("semantics", *words, *flags)
            assert (done.code, done.err) == (0, "")
            assert Path(f"out.{form}").stat().st_size > 100


def test_data_of_libraries(call: Call) -> None:
    lines = [line.split(",") for line in call("semantics", "--format", "csv").out.splitlines()]
    assert (lines[0][1], len(lines)) == ("true", len(PRESETS) + 1)
    (step,) = call("semantics", "jax", "--format", "json").json["steps"]
    cells = dict(zip(step["labels"]["case"], step["value"], strict=True))
    assert (step["name"], step["dtype"]) == ("library", "str")
    assert cells["no key by −∞"] == ["NaN", "zeros"]
    groups = call(*arguments_of(f"semantics {THREE} --mask MASK --format json")).json
    assert [step["name"] for step in groups["steps"]] == ["outcomes", "apart"]


def test_a_trace_records_the_values_not_the_name(call: Call) -> None:
    line = f"compute {THREE} --mask MASK --semantics torch-mha --format json"
    convention = call(*arguments_of(line)).json["convention"]
    names = ("mask_means", "empty_rows", "mask_and_causal")
    assert [str(convention[name]).lower() for name in names] == ["ignore", "nan", "mask"]
    assert "semantics" not in convention
    file = '{"q": [[1,0],[0,1]], "scale": 0.5, "mask": [[true,false],[false,false]]}'
    convention = call("compute", file, "--semantics", "jax", "--format", "json").json["convention"]
    assert (convention["scale"], convention["empty_rows"]) == (
        0.5,
        "uniform",
    )  # what a file says is kept
