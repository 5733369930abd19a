"""The pytest plugin: the report of a check that fails is in pytest's output, whole."""

import re

import pytest

pytest_plugins = ["pytester"]

HEAD = """
from attncli import check
from attncli.testing import assert_attention

Q = K = V = [[1.0, 0.0], [0.0, 1.0]]
RIGHT = [[0.6698, 0.3302], [0.3302, 0.6698]]
WRONG = [[0.7311, 0.2689], [0.2689, 0.7311]]

"""
SHOWN = {
    "plain": "assert check(WRONG, Q, K, V, atol=1e-4)",
    "matches": "assert check(WRONG, Q, K, V, atol=1e-4).matches",
    "status": 'assert check(WRONG, Q, K, V, atol=1e-4).status == "match"',
    "named": "verdict = check(WRONG, Q, K, V, atol=1e-4); assert verdict.matches",
    "named_plain": "verdict = check(WRONG, Q, K, V, atol=1e-4); assert verdict",
    "of_two": "other = check([[1.0, 2, 3]], Q, K, V); assert check(WRONG, Q, K, V, atol=1e-4)",
}
NOT_SHOWN = {
    "own_text": "assert_attention(WRONG, Q, K, V, atol=1e-4)",  # its text is the report
    "other": "check(WRONG, Q, K, V, atol=1e-4); assert not Q",
    "raised": "verdict = check(WRONG, Q, K, V, atol=1e-4); raise ValueError",
}
WITHOUT = ("-p", "no:attncli", "-p", "no:xdist")
LOADED = (*WITHOUT, "-p", "attncli.pytest_plugin")


def test_the_report_is_shown_where_a_check_failed_and_nowhere_else(
    pytester: pytest.Pytester,
) -> None:
    """One pytest for all cases, a test for each."""
    bodies = {**SHOWN, **NOT_SHOWN, "right": "assert check(RIGHT, Q, K, V, atol=1e-4)"}
    tests = (f"def test_{name}():\n    {body}\n" for name, body in bodies.items())
    pytester.makepyfile(HEAD + "".join(tests))
    result = pytester.runpytest_subprocess(*LOADED)
    result.assert_outcomes(failed=len(bodies) - 1, passed=1)
    printed, _, _ = result.stdout.str().partition("= short test summary info =")
    parts = re.split(r"^_+ test_(\w+) _+$", printed, flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert sections.keys() == {*SHOWN, *NOT_SHOWN}
    for name, text in sections.items():
        lines = text.splitlines()
        assert ("- attncli check -" in text) == (name in SHOWN)
        assert ("  scale left out" in lines) == (name in SHOWN) or name == "own_text"
        assert "the shape is wrong" not in text


def test_it_imports_nothing_heavy(pytester: pytest.Pytester) -> None:
    """Beside a run without it: another plugin, or a .pth file, may import anything."""
    body = 'open("modules", "w").write(" ".join(sys.modules))'
    pytester.makepyfile(f"import sys\n\ndef test_it():\n    {body}\n")
    imported = []
    for flags in (LOADED, WITHOUT):
        pytester.runpytest_subprocess(*flags).assert_outcomes(passed=1)
        imported.append({*(pytester.path / "modules").read_text().split()})
    own = imported[0] - imported[1]
    assert "attncli.pytest_plugin" in own
    assert not own & {
        "numpy",
        "pydantic",
        "rich",
        "typer",
        "attncli.attention",
        "attncli.commands.check",
    }
