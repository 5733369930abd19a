"""No flag is accepted that changes nothing, and nothing is printed before a call is known right."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from attncli.cli.commands import COMMANDS
from attncli.convention import flag_of
from attncli.views.formats import FORMATS
from tests.cli.conftest import SAMPLES, Call

THREE, HEADS, HOMEWORK = (str(SAMPLES / f"{n}.json") for n in ("three-tokens", "heads", "homework"))
TRUTH, NUMBERS = "'[[true, false, true]]'", "'[[0.0, -1.5, 0.25]]'"


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (f"compute {HOMEWORK} --v '[[9, 9, 9], [8, 8, 8]]'", "--v"),
        (f"compute --q {HOMEWORK} --v '[[1, 2], [3, 4], [5, 6]]'", "--v"),
        (f"compute --q {HOMEWORK} --k '[[1, 2], [3, 4], [5, 6]]'", "--k"),
        (f"check {HOMEWORK} --k '[[1, 2], [3, 4], [5, 6]]' --observed '[[1, 2]]'", "--k"),
        (f"semantics --q {HOMEWORK} --v '[[1, 2], [3, 4], [5, 6]]'", "--v"),
        (f"compute {THREE} --weights-axes in-out", "--weights-axes"),
        (f"check {THREE} --weights-axes in-out --observed '[[1, 2]]'", "--weights-axes"),
        (f"compute {THREE} --cell 1,2 --rows 1:2", "--rows"),
        (f"compute {THREE} --cell 1,2 --cols 1:2", "--cols"),
        (f"compute {THREE} --cell 1,2 --work", "--work"),
        ("posenc --len 3 --dim 4 --cell 1,2 --work", "--work"),
        (f"compute {THREE} --tokens a,b,c --format mermaid", "--tokens"),
        (f"compute {THREE} --head-order tiled", "--head-order"),
        (f"compute {THREE} --mask {TRUTH} --mask-numbers truth", "--mask-numbers"),
        (f"compute {THREE} --mask {TRUTH} --empty-rows-inf nan", "--empty-rows-inf"),
        (f"compute {THREE} --causal --empty-rows-inf nan", "--empty-rows-inf"),
        (f"compute {THREE} --mask {NUMBERS} --semantics jax --mask-value -5", "--mask-value"),
        (f"compute {THREE} --mask {NUMBERS} --mask-and-causal mask", "--mask-and-causal"),
        ("explain 'the bank' --outline --head 1", "--head"),
        ("explain 'the bank' --outline --rows 1:2", "--rows"),
        ("explain 'the bank' --outline --cols 1:2", "--cols"),
        ("explain 'the bank' --outline --precision 2", "--precision"),
        ("explain 'the bank' --heads 2 --head-order tiled", "--head-order"),
        ("explain 'the bank' --mask '[[true, true]]' --mask-numbers add", "--mask-numbers"),
        ("semantics --precision 2", "--precision"),
        ("semantics jax --precision 2", "--precision"),
        (f"semantics --q {THREE} --rows 1:2", "--rows"),
        (f"semantics --q {THREE} --cols 1:2", "--cols"),
        (f"semantics --q {THREE} --mask {TRUTH} --mask-numbers truth", "--mask-numbers"),
        (f"semantics --q {THREE} --mask {TRUTH} --empty-rows-inf nan", "--empty-rows-inf"),
        (f"semantics --q {THREE} --head-order tiled", "--head-order"),
        ("examples 004-first-example --verify --stage weights", "--verify"),
        (f"compute {THREE} --against '--weights-axes in-out'", "--weights-axes"),
        (f"compute {THREE} --against '--split 1 --tiles 1'", "--split"),
    ],
)
def test_what_would_change_nothing_is_refused(
    call: Call, tmp_path: Path, line: str, flag: str
) -> None:
    done = call(*shlex.split(line))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert flag in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        f"compute {HOMEWORK} --weights-axes in-out",
        f"compute {THREE} --tokens a,b,c --format csv",
        f"compute {THREE} --mask {NUMBERS} --mask-numbers truth",
        f"compute {THREE} --mask {NUMBERS} --empty-rows-inf nan",
        f"compute {THREE} --mask {TRUTH} --semantics jax --mask-value -5",
        f"compute {THREE} --d-output random --seed 3",
        f"compute {THREE} --tiles 2 --lse-base 2",
        "compute --q '[[1, 2, 3, 4]]' --heads 2 --kv-heads 1 --k '[[1, 2]]' --head-order tiled",
        "explain 'the bank' --outline --heads 2 --causal",
        "explain 'the bank' --seed 3",
        f"semantics --q {THREE} --stage apart --rows 1:2 --precision 2",
        "semantics jax torch-mha --causal",
    ],
)
def test_what_changes_something_is_taken(call: Call, line: str) -> None:
    done = call(*shlex.split(line))
    assert (done.code, done.err.count("no effect")) == (0, 0), done.err


def test_conditions_name_flags_and_values_that_there_are() -> None:
    rows = [own for command in COMMANDS.values() for kind in command.groups for own in fields(kind)]
    rows = [own for own in rows if own.metadata]
    flags = {
        name: str(own.type)
        for own in rows
        for name in "/".join(own.metadata["names"] or (flag_of(own.name),)).split("/")
    }
    needs = [need for command in COMMANDS.values() for need in command.needs.values()]
    needs += [own.metadata[key] for own in rows for key in ("needs", "excludes")]
    conditions = {
        condition.strip()
        for need in needs
        for part in need.split(",")
        for condition in part.split(" or ")
    }
    named = [condition.partition(" ") for condition in conditions if condition[:2] == "--"]
    assert {flag for flag, _, _ in named} <= flags.keys()
    for flag, _, values in named:
        choices = FORMATS if flag == "--format" else flags[flag]
        assert all(value in choices for value in values.split("|"))


@pytest.mark.parametrize("form", [name for name, form in FORMATS.items() if not form.needs])
@pytest.mark.parametrize(
    "line",
    [
        f"compute {HEADS}",
        f"compute {THREE} --against --causal",
        "explain 'the bank' --block encoder --layers 2",
        "posenc --len 5 --dim 3",
        "similarity a=1,2 b=2,3",
        "semantics jax mlx",
        f"diff {THREE} {SAMPLES / 'dump.json'}",
    ],
)
def test_nothing_is_printed_before_a_refusal(call: Call, line: str, form: str) -> None:
    for wrong in ("--stage nope", "--head 9", "--rows 90:", "--cell q9,k9", "--output no/such/f"):
        done = call(*shlex.split(f"{line} --format {form} {wrong}"))
        assert (done.code, done.out) == (2, ""), (wrong, done.err)
