"""--blank: a worksheet instead of its key, and a value that may be left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncli.cli.parsing import with_blank_values
from attncli.errors import ConventionError

from .conftest import Call


@pytest.mark.parametrize(
    "flags", [("--blank",), ("--blank="), ("--blank", "--work"), ("--blank", "-o", "x.txt")]
)
def test_alone_it_leaves_out_all_that_is_computed(
    call: Call, three: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    result = call("compute", three, *([flags] if isinstance(flags, str) else flags))
    assert (result.code, result.err) == (0, "")
    text = result.out or (tmp_path / "x.txt").read_text(encoding="utf-8")
    assert text.count("  q1    ____") == 4  # scores, scaled, weights, output
    assert "  k2       1       0" in text
    assert "0.7071" not in text
    assert "attends to" not in text


def test_with_a_name_it_leaves_out_one_stage(call: Call, three: Path) -> None:
    text = call("compute", three, "--blank", "weights").out
    assert call("compute", three, "--blank=WEIGHTS").out == text
    assert text.count("  q1    ____") == 1
    assert "0.7071" in text
    assert "6.2762" in text
    assert "0.4011" not in text


def test_it_is_repeatable(call: Call, three: Path) -> None:
    text = call("compute", three, "--blank", "weights", "--blank", "output").out
    assert text.count("  q1    ____") == 2
    every = call("compute", three, "--blank", "weights", "--blank").out
    assert every == call("compute", three, "--blank").out


def test_a_stage_of_a_block_and_a_block(call: Call) -> None:
    one = call(
        "explain", "The bank", "--block", "encoder", "--blank", "encoder.1.attention.weights"
    )
    assert one.out.count("____  ") == 2
    block = call("explain", "The bank", "--block", "encoder", "--blank", "feed_forward")
    assert "hidden" in block.out
    assert "attends to" in block.out


def test_it_does_not_swallow_a_sentence_or_a_file(call: Call, three: Path) -> None:
    for arguments in (("explain", "--blank", "She visited"), ("compute", "--blank", str(three))):
        result = call(*arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            f"attncli: --blank takes {arguments[2]!r} for a stage, and no stage is called so; "
            "put --blank last, or write --blank=STAGE\n"
        )
    assert call("explain", "--blank", "--dim", "4", "She visited").code == 0
    assert call("compute", "--blank", "-", stdin=three.read_bytes()).code == 0


def test_a_sentence_without_quotes_is_told_as_ever(call: Call) -> None:
    result = call("explain", "The", "bank", "--blank")
    assert result.code == 2
    assert 'put the sentence in quotes: attncli explain "The bank"' in result.err


def test_a_name_written_with_a_sign_is_any(call: Call, three: Path) -> None:
    result = call("compute", three, "--blank=other")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("attncli: there is no stage 'other'; there are ")


@pytest.mark.parametrize("form", ["json", "csv", "tsv", "mermaid", "npz", "npy"])
def test_what_holds_numbers_alone_has_no_blanks(call: Call, three: Path, form: str) -> None:
    result = call("compute", three, "--blank", "--output", f"x.{form}", "--format", form)
    assert (result.code, result.out) == (2, "")
    assert f"--blank has no effect on {form}" in result.err


def test_an_outline_has_nothing_to_leave_out(call: Call) -> None:
    result = call("explain", "The bank", "--outline", "--blank")
    assert (result.code, result.out) == (2, "")
    assert "--outline cannot be used with --blank" in result.err


@pytest.mark.parametrize(
    "line",
    [
        "posenc --len 3 --dim 4 --blank --work",
        "posenc --len 3 --dim 4 --cell 2,3 --blank",
        "similarity mom=0.2,0.7,0.9 dad=0.9,0.7,0.9 --pca --blank",
        "examples 004-first-example --blank --format latex",
    ],
)
def test_every_command_that_shows_stages_has_it(call: Call, line: str) -> None:
    result = call(*line.split())
    assert (result.code, result.err) == (0, "")
    assert "____" in result.out or r"\rule{3em}" in result.out


def test_what_follows_the_flag() -> None:
    assert with_blank_values(["--blank"]) == ["--blank="]
    assert with_blank_values(["--blank", "--blank", "k"]) == ["--blank=", "--blank", "k"]
    assert with_blank_values(["--blank=x", "a"]) == ["--blank=x", "a"]
    assert with_blank_values(["--", "--blank"]) == ["--", "--blank"]
    assert with_blank_values(["--blank", "encoder.1"]) == ["--blank", "encoder.1"]
    for other in ("1", "bank", "a.json", ""):
        with pytest.raises(ConventionError):
            with_blank_values(["--blank", other])
