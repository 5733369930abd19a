"""A stage that only one command makes carries its row, and is saved and read with it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from attncli import AttncliError, Trace, explain, render, similarity
from attncli.attention.sweep import sweep, sweep_widths
from attncli.cli.registry import COMMANDS
from attncli.commands.model import heads
from attncli.convention import Convention
from attncli.files.load import read_source
from attncli.files.trace import trace_from
from attncli.files.write import document_of, write_npz
from attncli.stages import DISPLAY, SPECS, StageSpec
from attncli.trace import Stage
from attncli.words import measures

WORDS = {"mom": [0.2, 0.7, 0.9], "dad": [0.9, 0.7, 0.8], "none": [0.0, 0.0, 0.0]}


def traces() -> Iterator[Trace]:
    """Of words, of a sentence and of sweeps; and one of every field."""
    x = np.random.default_rng(5).normal(size=(3, 3, 2))
    arguments = dict(zip("qkv", x, strict=True)) | {"convention": Convention(causal=True)}
    yield similarity(WORDS)
    yield measures.pca([*WORDS], [*WORDS.values()])
    yield measures.analogy([*WORDS], [*WORDS.values()])
    yield explain("the bank and the river", dim=4)
    yield sweep("scale", [0.1, 1.0], arguments, 2)
    yield sweep_widths([2, 8])
    spec = StageSpec("Y", "a b", sums=True, masks=True, shade="share", plotted=True, undefined="-")
    axes, rows = ("a", "b"), (spec, spec._replace(role="aside"))
    steps = (Stage(f"n{n}", "Y", "", x[n], axes, spec=row) for n, row in enumerate(rows))
    yield Trace("Of every field", tuple(steps))


@pytest.mark.parametrize("trace", [*traces()], ids=lambda trace: trace.title)
def test_it_is_shown_as_it_was(trace: Trace, tmp_path: Any) -> None:
    buffer = io.BytesIO()
    write_npz(trace, buffer)
    (tmp_path / "t.npz").write_bytes(buffer.getvalue())
    for again in (
        trace_from(json.loads(json.dumps(document_of(trace))), "t.json"),
        read_source(str(tmp_path / "t.npz")).trace,
    ):
        assert again is not None
        for form in ("table", "latex", "markdown", "csv"):
            assert render(again, form) == render(trace, form)
        for name, stage in trace.stages():
            assert again[name].kind.display == stage.kind.display
            assert (again[name].spec is None) == (stage.spec is None)


def test_stages_of_an_attention_are_saved_without() -> None:
    document = document_of(explain("the bank", dim=4))
    steps = [step for step in document["steps"] if step["kind"] == "stage"]
    assert steps
    assert not any("display" in step for step in steps)


@pytest.mark.parametrize("shape", [(), (3,), (3, 1), (1, 3), (2, 2, 3), (2, 1, 1), (2, 2, 2, 2)])
def test_what_a_file_says_of_any_array_is_no_traceback(shape: tuple[int, ...]) -> None:
    values: dict[str, Any] = dict.fromkeys(DISPLAY, True)
    values |= {"beside": "z", "undefined": "none", "shade": "signed"}
    roles = ("step", "operand", "input", "parameter", "inner", "aside")
    for name, value in [*values.items(), *(("role", role) for role in roles)]:
        value = "step" if (name, value) == ("role", True) else value  # noqa: PLW2901
        step = {
            "kind": "stage", "name": "y", "symbol": "Y", "formula": "", "labels": {},
            "axes": [f"axis {n}" for n in range(len(shape))], "shape": [*shape],
            "dtype": "float64", "value": np.ones(shape).tolist(), "display": {name: value},
        }  # fmt: skip
        document = {"attncli": "trace", "version": 2, "title": "t", "steps": [step]}
        is_wrong = name == "plotted" and (len(shape) < 2 or shape[-1] < 2)
        if is_wrong:
            with pytest.raises(AttncliError, match="plotted needs two columns"):
                trace_from(document, "t.json")
            continue
        trace = trace_from(document, "t.json")
        for form in ("table", "html", "latex", "markdown", "csv", "mermaid"):
            assert render(trace, form) is not None


def test_a_command_names_the_stages_that_it_alone_makes() -> None:
    for command, rows in (("similarity", measures.SPECS), ("model", heads.SPECS)):
        names = {name for name, spec in rows.items() if spec.role == "step"}
        assert {*COMMANDS[command].stages} == names - SPECS.keys()
    names = {name.rpartition(".")[2] for name, x in explain("a cat", dim=4).stages() if x.spec}
    assert names <= {*COMMANDS["explain"].stages}
    others = {*COMMANDS["similarity"].stages, *COMMANDS["explain"].stages}
    assert others <= {*COMMANDS["examples"].stages}
