"""A command as a function: from a call to its trace, in this process."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from attncli.cli.calls import trace_of
from attncli.errors import AttncliError, ConventionError
from attncli.files.load import read_source
from tests.calls import SAMPLES, Call

X = '{"x": [[1, 2], [3, 5]], "w_q": [[1, 0], [0, 1]], "w_k": [[2, 0], [0, 1]], "w_v": [[1, 0], [0, 3]]}'
CALLS = {
    "compute": ["compute", "--q", str(SAMPLES / "heads.json"), "--softcap", "2", "--causal"],
    "compute of x": ["compute", "--x", X, "--heads", "2", "--d-output", "ones"],
    "a program": ["compute", "--random", "3x2", "--formulas", "sparsemax"],
    "a sweep": ["compute", "--random", "--sweep", "scale", "0.1,0.7"],
    "explain": ["explain", "I love AI", "--heads", "2", "--qk-norm"],
    "posenc": ["posenc", "--kind", "alibi", "--len", "5", "--heads", "3"],
    "similarity": ["similarity", "a=1,0", "b=0,1", "c=1,1", "--pca"],
    "diff": ["diff", "[[1, 2]]", "[[1, 3]]"],
    "against": ["compute", "--random", "--against", "--scale none"],
    "an example": ["examples", "000-dot-products", "--stage", "dots"],
}


@pytest.mark.parametrize("words", CALLS.values(), ids=[*CALLS])
def test_the_trace_of_a_call_is_the_one_that_it_shows(words: list[str], call: Call) -> None:
    assert call(*words, "--output", "trace.json", "--quiet").code in (0, 1)
    shown, trace = read_source("trace.json").trace, trace_of([*words, "--format", "json"])
    assert shown is not None
    names = [name for name, _ in shown.stages()]
    assert names
    for name in names:
        np.testing.assert_array_equal(trace[name].value, shown[name].value, strict=True)


def test_standard_input_is_given_as_text_and_comes_back() -> None:
    before = sys.stdin
    trace = trace_of("compute --q - --scale none", '{"q": [[2, 0]], "k": [[1, 0], [3, 0]]}')
    assert trace["scores"].value.tolist() == [[2, 6]]
    assert sys.stdin is before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("compute --q [[1,2]] --sise 3", "No such option: --sise"),
        ("compare --q [[1,2]]", "there is no command 'compare'"),
        ("examples", "gives no trace here"),
        ("compute --q [[1,2]] --kv-heads 2", "--kv-heads is given without --heads"),
    ],
)
def test_what_is_wrong_with_a_call_is_an_exception(words: str, text: str) -> None:
    with pytest.raises(AttncliError, match=text):
        trace_of(words)


def test_further_options_that_are_wrong_are_named(call: Call) -> None:
    result = call("explain", "I love AI", "--against", "--heads 3")
    assert (result.code, result.out) == (2, "")
    with pytest.raises(ConventionError):
        trace_of(["compute", "--random", "--against", "--scale none --scale 2"])
