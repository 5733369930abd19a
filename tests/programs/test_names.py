"""Names of a program's stages and inputs, and places on an axis of several letters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import attncli
from attncli.cli.main import app, run
from attncli.errors import ConventionError
from attncli.programs.text import ProgramError
from attncli.stages import GIVEN_GRADIENT, SPECS, gradient_of, spec_of

Q = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]])
NAMES = [name for name in SPECS if name.isidentifier()]


def test_a_stage_may_have_any_name() -> None:
    for name in NAMES:
        if name in ("q", "d_q", GIVEN_GRADIENT):
            continue
        is_usual = spec_of(name).role == "step" and name not in ("lse", "vectors")
        text = f"{name}: X[i,d] = 2 * q[i,d]\nlast_one: Y[i] = sum[d](X[i,d] * X[i,d])"
        trace = attncli.attend_by(text, {"q": Q}, d_output="ones")
        assert trace[name].value.tolist() == (2 * Q).tolist()
        assert trace["d_q"].value.tolist() == (8 * Q).tolist()
        for form in () if is_usual else ("table", "html", "latex"):
            assert name in attncli.render(trace, form).replace("\\_", "_")


def test_an_input_may_have_any_name() -> None:
    for name in NAMES:
        if name == GIVEN_GRADIENT:
            continue
        trace = attncli.attend_by(f"X[i,d] = {name}[i,d] ** 2", {name: Q}, d_output="ones")
        assert trace["X"].value.tolist() == (Q**2).tolist()
        assert trace[gradient_of(name)].value.tolist() == (2 * Q).tolist()


@pytest.mark.parametrize("name", ["d_q", GIVEN_GRADIENT])
def test_a_stage_is_not_called_as_a_gradient_is(name: str) -> None:
    text = f"{name}: X[i,d] = 2 * q[i,d]\nY[i] = sum[d](X[i,d])"
    assert attncli.attend_by(text, {"q": Q})[name].value.tolist() == (2 * Q).tolist()
    with pytest.raises(ConventionError, match="a gradient would be called so"):
        attncli.attend_by(text, {"q": Q}, d_output="ones")


def test_a_file_may_hold_the_gradient_of_the_output(tmp_path: Path) -> None:
    """As the file that a page copies does: it is read as such, and is no stage of the program."""
    x, d = np.random.default_rng(3).normal(size=(2, 3, 2))
    (tmp_path / "x.json").write_text(
        json.dumps(dict.fromkeys("qkv", x.tolist()) | {"d_output": d.tolist()})
    )
    flags = ["--formulas", "sigmoid", "--output", str(tmp_path / "d.npz"), "--stage", "d_v"]
    assert run(["compute", "--q", str(tmp_path / "x.json"), *flags]) == 0
    weights = 1 / (1 + np.exp(-x @ x.T / np.sqrt(2) + np.log(3)))
    np.testing.assert_allclose(np.load(tmp_path / "d.npz")["d_v"], weights.T @ d, rtol=1e-12)


def test_a_stage_is_shown_by_its_name_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "mine.attn").write_text("Big[i,d] = 2 * q[i,d]\nO[i] = sum[d](Big[i,d])", "utf-8")
    words = ["compute", "--q", "[[1, 2]]", "--formulas", str(tmp_path / "mine.attn")]
    done = CliRunner().invoke(app, [*words, "--stage", "Big", "--format", "csv"])
    assert done.exit_code == 0, done.stderr
    assert "2.0,4.0" in done.stdout.replace("2,4", "2.0,4.0")


def test_what_is_read_at_a_place_has_no_number_as_the_name_of_its_axis() -> None:
    arrays = {"q": Q, "other": Q}
    text = "A[i] = sum[j](q[i,0] - other[j,1]) ** 2"
    trace = attncli.attend_by(text, arrays, d_output="ones")
    assert trace["q"].axes == trace["d_q"].axes == ("query", "d_k")
    assert trace["other"].axes == trace["d_other"].axes == ("key", "entry")
    page = attncli.render(trace, "table")
    assert "columns are dimensions" in page
    assert "columns are entries" in page


ROTARY = """size[p] = 3
cosine: c[i,p] = cos((i + 1) / 2 ** p)
sine: s[i,p] = sin((i + 1) / 2 ** p)
size[r] = 2
turned: R[h,i,p·r] = P[h,i,p·0] * c[i,p] - P[h,i,p·1] * s[i,p] if r == 0 else\
 P[h,i,p·0] * s[i,p] + P[h,i,p·1] * c[i,p]
last: Y[h,i,p] = R[h,i,p·0] ** 2 * R[h,i,p·1] + P[h,i,1·p]
""".replace("\\\n", "")


def rotated(x: Any) -> Any:
    """The same by complex numbers, before the last line."""
    angles = (np.arange(5)[:, None] + 1) / 2.0 ** np.arange(3)
    return (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)


def test_a_packed_axis_takes_a_place() -> None:
    x = np.random.default_rng(5).normal(size=(2, 5, 6))
    trace = attncli.attend_by(ROTARY, {"P": x}, d_output="ones")
    np.testing.assert_allclose(trace["turned"].value[..., 0::2], rotated(x).real, atol=1e-12)
    np.testing.assert_allclose(trace["turned"].value[..., 1::2], rotated(x).imag, atol=1e-12)

    def loss(x: Any) -> float:
        return float((rotated(x).real ** 2 * rotated(x).imag + x[..., 3:]).sum())

    for at in np.ndindex(2, 5, 6):
        way = np.zeros(x.shape)
        way[at] = 1e-6
        slope = (loss(x + way) - loss(x - way)) / 2e-6
        assert trace["d_P"].value[at] == pytest.approx(slope, abs=1e-7)


def test_its_arithmetic_and_its_latex_name_the_cells() -> None:
    x = np.arange(1.0, 13.0).reshape(1, 2, 6)
    text = "size[p] = 3\nR[h,i,p] = P[h,i,p·0] * P[h,i,p·1]"
    trace = attncli.attend_by(text, {"P": x}, d_output="ones")
    work = attncli.render(trace, "table", work=True, full=True)
    assert "R[q2,3] = P[q2,5] · P[q2,6] = 11 · 12 = 132" in work
    assert "dP[q2,6] = P[q2,5]·dR[q2,3] + 0 = 11·1 + 0 = 11" in work
    latex = attncli.render(trace, "latex")
    assert r"P[h,i,p \cdot 0] \cdot P[h,i,p \cdot 1]" in latex
    again = attncli.attend_by(trace.program, {"P": x, "d_R": np.ones((1, 2, 3))})
    np.testing.assert_array_equal(again["d_P"].value, trace["d_P"].value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("size[p] = 3\nA[p] = P[p·2]", "there is no entry 2 among 2"),
        ("size[p] = 4\nA[p] = P[p·0]", "an axis of 6 is not 4"),
        ("A[p] = P[p·0]", "say how long one of them is, such as size[p]"),
        ("size[p] = 3\nA[p] = P[p·0·0]", "one of them may be at a place"),
    ],
)
def test_a_place_that_is_not_there_is_said(text: str, said: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(said)):
        attncli.attend_by(text, {"P": np.arange(6.0)})
