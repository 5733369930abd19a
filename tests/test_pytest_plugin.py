"""The pytest plugin: the report of a check that fails is in pytest's output, whole."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TEST = """
from attncli.check import check
from attncli.testing import assert_attention

Q = K = V = [[1.0, 0.0], [0.0, 1.0]]
RIGHT = [[0.6698, 0.3302], [0.3302, 0.6698]]
WRONG = [[0.7311, 0.2689], [0.2689, 0.7311]]

def test_it():
    {}
"""
REPORT = [
    "*- attncli check -*",
    "it differs; the cause:",
    "  scale left out",
    "     the scores go into softmax as they are, not multiplied by 1/√d_k",
    "output differs in *",
]
LOADED = ("-p", "no:attncli", "-p", "attncli.pytest_plugin", "-p", "no:xdist")


@pytest.mark.parametrize(
    "body",
    [
        "assert check(WRONG, Q, K, V, atol=1e-4)",
        "assert check(WRONG, Q, K, V, atol=1e-4).matches",
        'assert check(WRONG, Q, K, V, atol=1e-4).status == "match"',
        "verdict = check(WRONG, Q, K, V, atol=1e-4); assert verdict.matches",
        "verdict = check(WRONG, Q, K, V, atol=1e-4); assert verdict",
    ],
)
def test_an_assertion_shows_the_report(pytester: pytest.Pytester, body: str) -> None:
    pytester.makepyfile(TEST.format(body))
    result = pytester.runpytest_subprocess(*LOADED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(REPORT)


def test_of_several_verdicts_the_one_that_failed_is_shown(pytester: pytest.Pytester) -> None:
    body = "other = check([[1.0, 2, 3]], Q, K, V); assert check(WRONG, Q, K, V, atol=1e-4)"
    pytester.makepyfile(TEST.format(body))
    result = pytester.runpytest_subprocess(*LOADED)
    result.stdout.fnmatch_lines(REPORT)
    result.stdout.no_fnmatch_line("the shape is wrong")


@pytest.mark.parametrize(
    ("body", "failed"),
    [
        ("assert check(RIGHT, Q, K, V, atol=1e-4)", 0),
        ("assert_attention(WRONG, Q, K, V, atol=1e-4)", 1),  # its text is the report
        ("check(WRONG, Q, K, V, atol=1e-4); assert not Q", 1),
        ("verdict = check(WRONG, Q, K, V, atol=1e-4); raise ValueError", 1),
    ],
)
def test_nothing_is_added_elsewhere(pytester: pytest.Pytester, body: str, failed: int) -> None:
    pytester.makepyfile(TEST.format(body))
    result = pytester.runpytest_subprocess(*LOADED)
    result.assert_outcomes(failed=failed, passed=1 - failed)
    result.stdout.no_fnmatch_line("*- attncli check -*")


@pytest.mark.parametrize("other", ["", "import numpy"])
def test_it_imports_nothing_heavy(pytester: pytest.Pytester, other: str) -> None:
    """Beside a run without it: another plugin, or a .pth file, may import anything."""
    pytester.makeconftest(other)
    pytester.makepyfile(
        """
        import sys
        from pathlib import Path

        def test_it():
            Path("modules").write_text(" ".join(sys.modules))
        """
    )
    imported = []
    for flags in (LOADED, ("-p", "no:attncli", "-p", "no:xdist")):
        pytester.runpytest_subprocess(*flags).assert_outcomes(passed=1)
        imported.append({*(pytester.path / "modules").read_text().split()})
    own = imported[0] - imported[1]
    assert "attncli.pytest_plugin" in own
    assert not own & {"numpy", "pydantic", "rich", "typer", "attncli.attention", "attncli.check"}
