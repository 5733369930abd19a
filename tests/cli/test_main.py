"""The command line as a whole: version, help, and --blank, whose value may be left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import attncli
from attncli.cli.commands import COMMANDS
from attncli.cli.main import LazyGroup

from .conftest import Call


def test_version(call: Call) -> None:
    assert call("--version").out == f"attncli {attncli.__version__}\n"


def joined(text: str) -> str:
    """Without blanks and borders, as a long word is broken at any place."""
    return re.sub(r"[\s│]", "", text)


def test_help_names_every_command(call: Call) -> None:
    for arguments in ((), ("--help",), ("-h",)):
        result = call(*arguments)
        assert (result.code, result.err) == (0, "")
        assert [name for name in COMMANDS if f" {name} " not in result.out] == []
        shown = joined(result.out)
        for name, command in COMMANDS.items():
            assert joined(command.help.partition("\n\n")[0]) in shown, name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_shown_whole(call: Call, name: str) -> None:
    shown = joined(call(name, "--help").out)
    assert joined(COMMANDS[name].help) in shown
    for param in LazyGroup().get_command(None, name).params:
        assert getattr(param, "help", None), param.name
        # by a library to which [models] is markup
        for word in re.findall(r"\S*\[\S*", f"{param.help} {param.metavar}"):
            assert word in shown, param.name


# ---- --blank: a worksheet instead of its key


def test_it_leaves_out_what_is_computed_or_the_stages_that_are_named(
    call: Call, three: Path
) -> None:
    everything = call("compute", three, "--blank")
    assert (everything.code, everything.err) == (0, "")
    assert everything.out.count("  q1    ____") == 4  # scores, scaled, weights, output
    assert "  k2       1       0" in everything.out
    assert not re.search("0.7071|attends to", everything.out)
    assert call("compute", three, "--blank", "-o", "x.txt").code == 0
    assert Path("x.txt").read_text(encoding="utf-8") == everything.out
    sheets = {flags: call("compute", three, *flags.split()).out for flags in
              ("--blank=", "--blank weights --blank", "--blank weights", "--blank=WEIGHTS",
               "--blank weights --blank output")}  # fmt: skip
    everything_again, too, one, same, two = sheets.values()
    assert everything_again == too == everything.out
    assert one == same
    assert [x.count("  q1    ____") for x in (one, two)] == [1, 2]
    assert ["0.7071" in one, "6.2762" in one, "0.4011" in one] == [True, True, False]
    line = ("explain", "The bank", "--block", "encoder", "--blank")
    named, block = call(*line, "encoder.1.attention.weights"), call(*line, "feed_forward")
    assert named.out.count("____  ") == 2
    assert ["hidden" in block.out, "attends to" in block.out] == [True, True]


def test_it_does_not_swallow_a_sentence_or_a_file(call: Call, three: Path) -> None:
    for line in (("explain", "--blank", "She visited"), ("compute", "--blank", str(three))):
        result = call(*line)
        assert (result.code, result.out) == (2, "")
        assert repr(line[2]) in result.err
        assert "--blank last" in result.err
    assert call("explain", "--blank", "--dim", "4", "She visited").code == 0
    assert call("compute", "--blank", "-", stdin=three.read_bytes()).code == 0
    unquoted = call("explain", "The", "bank", "--blank")
    assert (unquoted.code, 'attncli explain "The bank"' in unquoted.err) == (2, True)


def test_every_command_that_shows_stages_has_it(call: Call) -> None:
    for line in (
        "posenc --len 3 --dim 4 --blank --work",
        "posenc --len 3 --dim 4 --cell 2,3 --blank",
        "similarity mom=0.2,0.7,0.9 dad=0.9,0.7,0.9 --pca --blank",
        "examples 004-first-example --blank",
    ):
        result = call(*line.split())
        assert (result.code, result.err, "____" in result.out) == (0, "", True), line
