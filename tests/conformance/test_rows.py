"""The table of conformance, read by every path through attncli.

rows ──┬── attend, stream, tiles, split      the functions
       └── compute                           the command line: files in, JSON out
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import attncli
from attncli import Convention, ConventionError, convention, heads_first, merge_heads
from attncli.attention.positions import Layout, alibi, rotary
from attncli.cli.main import run
from attncli.presets import PRESETS
from tests.conformance.rows import (
    BY_HAND,
    KNOBS,
    Row,
    expected_of,
    of_libraries,
    of_onnx,
    placed_row,
    random_row,
)

Read = Callable[[Row], dict[str, Any]]


def in_split(q: Any, k: Any, v: Any, **convention: Any) -> attncli.Trace:
    n_keys = k.shape[-2] + (convention["past_k"].shape[-2] if "past_k" in convention else 0)
    return attncli.attend_split(
        q, k, v, split=[*range(1, n_keys, max(1, n_keys // 3))], **convention
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "attend": attncli.attend, "stream": attncli.stream,
    "tiles": lambda q, k, v, **x: attncli.attend_tiles(q, k, v, tiles=max(2, k.shape[-2] // 4), **x),
    "split": in_split,
}  # fmt: skip
SHARED = {"softmax_over", "dropout"}
LACKS = {"stream": {*SHARED, "sinks", "float16", "bfloat16"}, "tiles": SHARED}
LACKS["split"] = {*SHARED, "bfloat16"}  # which parts round once more
"""What a path does not take. Of one key nothing can be split."""
NO_EFFECT = {"causal alone", "empty by truth"}
"""Rows of a choice that has no effect, which the command line refuses."""
NO_DIGITS = {"scores of any size", "ort-mha/boolean mask, empty row"}
"""Rows whose log-sum-exps are so large that no parts can be merged by them."""


def takes(path: str, row: Row) -> bool:
    n_keys = row.inputs["k"].shape[-2] + ("past_k" in row.inputs)
    lacks = LACKS.get(path, set()) & {*row.convention, *row.inputs, row.convention.get("dtype")}
    if path == "compute":
        return row.name not in NO_EFFECT
    return not lacks and (path != "split" or (n_keys > 1 and row.name not in NO_DIGITS))


def by_function(path: str, row: Row) -> dict[str, Any]:
    """The stages that a function gives; of `stream` the output alone."""
    fields = dict(PRESETS[row.semantics].fields) if row.semantics else {}
    convention: dict[str, Any] = {"convention": Convention(**{**fields, **row.convention})}
    arrays, function = _placed(row), FUNCTIONS[path]
    if row.heads and path == "attend":
        function = attncli.attend_heads
        convention |= {"n_heads": row.heads[0], "n_kv_heads": row.heads[1]}
    elif row.heads:
        for name, n in zip("qkv", (*row.heads, row.heads[1]), strict=True):
            arrays[name] = heads_first(arrays[name], "bsd", n)
    trace = function(**arrays, **convention)
    if path == "stream":
        stages = {"output": trace}
    else:
        names = [*trace, "lse"] if convention["convention"].softmax_over == "keys" else [*trace]
        stages = {name: trace[name].value for name in names}
    if row.heads and path != "attend":
        stages = {"output": merge_heads(stages["output"])}
    return stages


def _placed(row: Row) -> dict[str, Any]:
    """The inputs of a row with its positions."""
    arrays = dict(row.inputs)
    if row.positions == "alibi":
        (*heads, n_q, _), n_k = arrays["q"].shape, arrays["k"].shape[-2] + row.n_past
        n_heads = heads[-1] if heads else 1
        trace = alibi(n_heads, n_q, n_k, causal=False, first_query=row.n_past)
        arrays["mask"] = trace["bias"].value if heads else trace["bias"].value[0]
    elif row.positions:
        for name, first in (("q", row.n_past), ("k", row.n_past), ("past_k", 0)):
            if name in arrays:
                x, layout = arrays[name], cast(Layout, row.positions)
                ids = np.arange(first, first + x.shape[-2])
                trace = rotary(x, position_ids=ids, layout=layout)
                arrays[name] = trace["rotated"].value
    return arrays


@pytest.fixture
def by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Read:
    """Reads a row as `attncli compute` does; ConventionError where it refuses the call."""

    def read(row: Row) -> dict[str, Any]:
        words, convention = ["compute", "--format=json", "--stage=output"], dict(row.convention)
        if convention.get("softmax_over") != "queries":
            words.append("--stage=lse")
        for name, x in row.inputs.items():
            flag = f"--{name.replace('_', '-')}"
            if name == "kv_len":
                words.append(f"{flag}={','.join(map(str, np.ravel(x)))}")
                continue
            is_known = x.dtype.kind in "bif"  # else bfloat16, which .npy does not know
            np.save(tmp_path / f"{name}.npy", x if is_known else x.astype(np.float32))
            words.append(f"{flag}={tmp_path / name}.npy")
        if row.heads:
            words += [f"--heads={row.heads[0]}", f"--kv-heads={row.heads[1]}", "--layout=bsd"]
            words.append("--stage=concat")
        words += [f"--semantics={row.semantics}"] if row.semantics else []
        for name, value in convention.items():
            if value != getattr(Convention, name) and (
                name != "causal_align" or convention["causal"]
            ):
                text = ",".join(map(str, value)) if isinstance(value, tuple) else value
                flag = f"--{name.replace('_', '-')}"
                words.append(flag if value is True else f"{flag}={text}")
        code = run(words)
        out, err = capsys.readouterr()
        if code:
            raise ConventionError(err)
        return {
            stage["name"]: np.array(stage["value"], float) for stage in json.loads(out)["steps"]
        }

    return read


def agree(rows: list[Row], read: Read) -> None:
    """Compares what each row is to give with what it gives."""
    for row in rows:
        try:
            result = read(row)
        except ConventionError:
            result = {}
        assert bool(result) == (row.expected is not None), row.name
        n_compared = 0
        for names, wanted in (row.expected or {}).items():
            present = [name for name in names.split("|") if name in result]
            for name in present[-1:]:
                n_compared += 1
                what, ours = f"{row.name}: {name}", result[name].astype(wanted.dtype)
                assert ours.shape == wanted.shape, what
                pair = ours.astype(np.float64), wanted.astype(np.float64)
                np.testing.assert_allclose(*pair, row.rtol, row.atol, err_msg=what)
        assert n_compared or not result, row.name


def later(parts: range) -> list[Any]:
    """Parts that are left to `pytest --exhaustive`."""
    return [pytest.param(part, marks=pytest.mark.exhaustive) for part in parts]


@pytest.mark.parametrize("path", [*FUNCTIONS, "compute"])
def test_by_hand_and_what_libraries_gave(path: str, by_command: Read) -> None:
    rows = [row for row in [*BY_HAND, *of_libraries()] if takes(path, row)]
    assert len(rows) > 70
    agree(rows, by_command if path == "compute" else partial(by_function, path))


@pytest.mark.parametrize("path", FUNCTIONS)
@pytest.mark.parametrize("part", [0, *later(range(1, 20))])
def test_random_calls_with_every_knob(path: str, part: int) -> None:
    rows = [random_row(number) for number in range(100 * part, 100 * part + 100)]
    agree([row for row in rows if takes(path, row)], partial(by_function, path))


@pytest.mark.parametrize("path", FUNCTIONS)
@pytest.mark.parametrize("part", [0, *later(range(1, 20))])
def test_random_calls_with_positions(path: str, part: int) -> None:
    rows = [placed_row(number) for number in range(50 * part, 50 * part + 50)]
    agree([row for row in rows if takes(path, row)], partial(by_function, path))


NOT_OF_THE_OUTPUT = {"lse_base"}
"""Knobs that change no output; a path that gives nothing else may leave them."""


def test_no_knob_is_left_out_of_the_random_calls() -> None:
    """Every field of Convention is drawn, and counts in a call that is streamed, or is refused."""
    x, refused = np.ones((3, 2)), set()
    for name in convention.KNOBS.keys() & SHARED:
        other: Any = {"softmax_over": "queries", "dropout": 0.5}[name]
        with pytest.raises(ConventionError):
            attncli.stream(x, x, x, **{name: other})
        refused |= {name, *(n for n, knob in convention.KNOBS.items() if knob.needs == (name,))}
    assert {*KNOBS, "dtype"} | refused == {*convention.KNOBS}
    rows = [row for row in map(random_row, range(100)) if takes("stream", row)]
    for name, values in KNOBS.items():
        if name in convention.CHOICES:
            others = {*convention.CHOICES[name]} - {getattr(Convention, name)}
            assert {*values} >= others - refused, name
        for value in values:
            assert any(row.convention.get(name) == value for row in rows), (name, value)
        assert name in NOT_OF_THE_OUTPUT or any(_counts(name, row) for row in rows), name


def _counts(name: str, row: Row) -> bool:
    """Whether a knob of a row changes what is expected of it."""
    without = {own: value for own, value in row.convention.items() if own != name}
    if name not in row.convention or row.expected is None:
        return name in row.convention and expected_of(row.inputs, without) is not None
    other = expected_of(row.inputs, without)
    atol = 100 * row.atol
    return other is None or not np.allclose(
        other["output"], row.expected["output"], 0, atol, equal_nan=True
    )


@pytest.mark.parametrize("path", FUNCTIONS)
def test_onnx(path: str) -> None:
    assert len(of_onnx()) == 93
    agree([row for row in of_onnx() if takes(path, row)], partial(by_function, path))


@pytest.mark.parametrize("part", [5, *later(range(5))])
def test_onnx_on_the_command_line(part: int, by_command: Read) -> None:
    agree(of_onnx()[part::6], by_command)
