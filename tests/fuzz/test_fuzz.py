"""Five hundred damaged inputs: each is refused in one line, or used as a second reading says."""

from __future__ import annotations

import json

import pytest

from . import cases
from .case import Case
from .cases import KINDS, Option, case_of, options_of
from .expected import misread
from .run import called, outcome

SEED = 0
NUMBER = 504
"""Cases; a multiple of the kinds."""


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs(kind: str) -> None:
    first = list(KINDS).index(kind)
    found = {n: outcome(case_of(SEED, n)) for n in range(first, NUMBER, len(KINDS))}
    assert {n: result for n, result in found.items() if result.is_defect} == {}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flags"])
def test_undamaged_inputs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is valid is accepted, and the second reading has an opinion on it."""
    monkeypatch.setattr(cases, "damaged", lambda data, form, rng: data)
    first = list(KINDS).index(kind)
    found = [outcome(case_of(SEED, first + n * len(KINDS))) for n in range(12)]
    assert not [result for result in found if result.is_defect]
    assert sum(result.is_held for result in found) >= 3


def test_a_case_follows_from_its_number() -> None:
    assert [case_of(1, n) for n in range(28)] == [case_of(1, n) for n in range(28)]
    assert case_of(1, 0).arguments != case_of(2, 0).arguments


def test_every_option_is_known() -> None:
    assert Option("--causal", None) in options_of("compute")
    assert Option("--empty-rows", ("zero", "nan", "uniform", "unmasked")) in options_of("compute")
    assert Option("--heads", int) in options_of("explain")
    assert "--batch" not in [option.flag for option in options_of("explain")]


def test_whatever_is_changed_in_a_result_is_found() -> None:
    """The second reading can fail: for each stage it knows, the labels, and the convention."""
    q = b'{"q": [[1, 0], [0, 2]], "tokens": ["a", "b"], "mask": [[true, false], [true, true]]}'
    flags: list[tuple[str, str | None]] = [("--q", "q.json"), ("--format", "json")]
    case = Case("JSON", "compute", flags=flags, files={"q.json": q})
    code, out, *_ = called(case)
    assert (code, misread(case, out)) == (0, "")
    trace = json.loads(out)
    for number, stage in enumerate(trace["steps"]):
        if stage["name"] in ("q", "k", "v", "mask", "scores", "scaled", "weights", "output"):
            changed = json.loads(out)
            changed["steps"][number]["value"][1][0] = 0.25
            assert misread(case, json.dumps(changed)).startswith(f"{stage['name']}: ")
            del changed["steps"][number]
            assert misread(case, json.dumps(changed)).startswith("no stage")
    assert (
        misread(case, out.replace('"causal": false', '"causal": true'))
        == "causal is True, not False"
    )
    assert misread(case, out.replace('["a", "b"]', '["b", "a"]')).startswith("q is labelled")
