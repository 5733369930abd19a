"""The page's script computes the formulas of every variant as NumPy does, and lights what counts."""

from __future__ import annotations

import json
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import attncli
from attncli.formats.html.data import PageData, packed
from attncli.programs.variants import variants
from tests.formats.test_script import NODE, RUN
from tests.programs.random_programs import random_program
from tests.programs.references import inputs_of
from tests.programs.test_names import ROTARY

PROGRAMS = (0, 3)
LIT = """
const stage = byName.get("weights");
prepare(stage);
console.log(JSON.stringify([...readsAt(cellOf(stage, 1)).keys()].map(read => `${read.s.id} ${read.at}`)));
"""


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_it_computes_every_stage_of_every_variant(tmp_path: Path) -> None:
    traces, lines = [], []
    roots = "A[i,j] = q[i,j] / sqrt(size[i]) - q[i,j] / sqrt(size[j])"  # neither is the scale
    given = {name: inputs_of(name, n=3) for name in variants()} | {roots: {"q": np.eye(2, 5)}}
    given |= {ROTARY: {"P": np.random.default_rng(5).normal(size=(2, 5, 6))}}
    given |= {of.text: of.inputs for of in (random_program(seed) for seed in PROGRAMS)}
    for name, x in given.items():
        trace = attncli.attend_by(name, x, d_output="random")
        data = PageData()
        data.add(trace)
        traces.append(trace)
        lines.append(packed({}, data))
    (tmp_path / "traces").write_text("\n".join(lines), "utf-8")
    formula = files("attncli.formats.html").joinpath("formula.js").read_text("utf-8")
    (tmp_path / "run.js").write_text(formula + RUN, "utf-8")
    words = [str(NODE), str(tmp_path / "run.js"), str(tmp_path / "traces")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for trace, line in zip(traces, done.stdout.splitlines(), strict=True):
        numbers, dark = json.loads(line)
        assert numbers.keys() == {name for name, stage in trace.stages() if stage.expression}
        for name, texts in numbers.items():
            expected = trace[name].value.astype(float).ravel()
            ours = np.array([float({"true": "1", "false": "0"}.get(x, x)) for x in texts])
            np.testing.assert_allclose(ours, expected, 1e-9, 1e-11, err_msg=f"{trace.title} {name}")
        assert [x for x in dark if not x[0].startswith("d_")] == [], trace.title


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_what_where_leaves_out_is_not_lit(tmp_path: Path) -> None:
    text = "weights: A[i,j] = softmax[j](q[i,j] where j < i)"
    trace = attncli.attend_by(text, {"q": np.arange(9.0).reshape(3, 3)})
    data = PageData()
    data.add(trace)
    (tmp_path / "traces").write_text(packed({}, data), "utf-8")
    formula = files("attncli.formats.html").joinpath("formula.js").read_text("utf-8")
    load = RUN.partition("  const dark = []")[0] + "}\n"
    for at, lit in ((3, ["q 3"]), (6, ["q 6", "q 7"]), (0, [])):
        (tmp_path / "run.js").write_text(formula + load + LIT.replace(", 1)", f", {at})"), "utf-8")
        words = [str(NODE), str(tmp_path / "run.js"), str(tmp_path / "traces")]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert sorted(json.loads(done.stdout)) == lit
