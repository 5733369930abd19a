"""A trace in Python and in a notebook: its stages, printed, as a page, in every other form."""

import cProfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli import Stage, StageError, Trace
from attncli.cli.calls import trace_of
from attncli.cli.main import run

FILE = Path(__file__).parents[1] / "samples" / "three-tokens.json"
Q, K, V = [[1, 0], [0, 1], [1, 1]], [[1, 1], [1, 0], [0, 1]], [[10, 0], [0, 10], [5, 5]]
TRACE = attncli.attend(Q, K, V, causal=True)


def test_dotted_names_reach_into_blocks() -> None:
    layer = Trace("Layer 1", (Trace("Attention", TRACE.steps, name="attention"),), name="1")
    trace = Trace("Encoder", (Trace("Stack", (layer,), name="encoder"),))
    assert trace["encoder.1.attention.weights"].name == "weights"
    assert "encoder.1.attention.weights" in trace
    assert "weights" not in trace
    assert list(trace.keep({"encoder.1.attention.q"})) == ["encoder.1.attention.q"]
    assert trace.keep({"q"}).steps == ()
    assert trace.part("encoder.1.attention").title == "Attention"
    assert trace.part("") is trace
    with pytest.raises(StageError, match="no part 'attention'"):
        trace.part("attention")
    with pytest.raises(StageError, match=r"no stage 'wieghts'; did you mean weights"):
        TRACE["wieghts"]


def test_labels_and_axes_of_a_stage() -> None:
    stage = Stage("scores", "S", "", np.zeros((2, 3)), ("query", "key"), {"key": ("a", "b", "c")})
    assert (stage.names("key"), stage.names("query")) == (("a", "b", "c"), ("q1", "q2"))


@pytest.mark.parametrize("form", ["table", "markdown", "html", "mermaid", "svg", "tsv", "json"])
def test_a_form_is_what_the_command_prints(form: Any, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["compute", "--q", str(FILE), "--causal"]
    assert run([*words, "--format", form]) == 0
    trace = trace_of(words) if form in ("json", "html") else TRACE  # which have the call
    assert capfd.readouterr().out == attncli.render(trace, form)


def test_it_is_printed_as_tables_and_shown_in_a_frame() -> None:
    assert str(TRACE) == attncli.render(TRACE)
    assert repr(TRACE).count("\n") == 0
    assert "mask scores scaled masked weights output" in repr(TRACE)
    assert "3 query × 3 key" in repr(TRACE["weights"])
    frame = TRACE._repr_html_()
    assert (frame[:8], frame[-10:]) == ("<iframe ", "</iframe>\n")
    assert frame.count("<") == 2  # what is within is escaped


def test_options_are_those_of_the_flags() -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("table", {"stages": ["weights"], "precision": 2}, "0.67  0.33"),
        ("table", {"stages": "weights", "work": True}, "A[q1,k1] = "),
        ("table", {"cell": (2, 1)}, "A[q2,k1] = "),
        ("svg", {}, ">0.67<"), ("svg", {"precision": 3}, ">0.670<"), ("svg", {"arcs": True}, "the widest line is 1;"),
        ("csv", {"precision": 3}, "0.670,0.330"),
    ]  # fmt: skip
    for form, options, part in cases:
        assert part in attncli.render(TRACE, form, **options), options


def test_an_option_that_cannot_be_is_named() -> None:
    heads = attncli.attend([Q, Q], [K, K], [V, V])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cell": "x"}, "cell is 'x'"), ({"cell": "q1"}, "cell is 'q1'"), ({"cell": (1,)}, "cell is"),
        ({"cell": 3}, "cell is 3"), ({"precision": -1}, "precision is -1"), ({"head": -1}, "no head 0"),
        ({"head": 2}, "no head 3"), ({"batch": 0}, "no batch entry"), ({"form": "pdf"}, "form is 'pdf'"),
        ({"stages": "weihgts"}, "no stage 'weihgts'"),
    ]  # fmt: skip
    for option, message in cases:
        with pytest.raises(attncli.AttncliError, match=message):
            attncli.render(heads, **option)


def test_a_part_is_kept_in_time_that_grows_with_its_stages() -> None:
    """As many calls more as there are blocks more: each name is looked at where it belongs."""
    counts = []
    for n in (150, 300):
        block = (Stage("m", "m", "", np.zeros(1), ("query",)),)
        trace = Trace("All", tuple(Trace("One", block, name=f"part{at}") for at in range(n)))
        names = {*trace} - {"part7.m"}
        profile = cProfile.Profile()
        kept = profile.runcall(trace.keep, names)
        assert {*kept} == names
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    assert counts[1] < 2.5 * counts[0]
