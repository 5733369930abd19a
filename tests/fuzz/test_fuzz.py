"""Damaged inputs: each is refused in one line, or used as a second reading says."""

import contextlib
import io
import json
import re
import signal
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from attncli.cli.main import run
from tests import plain
from tests.commands.examples.made import CATALOG
from tests.fuzz import forms, reading
from tests.fuzz.forms import FORMS, SINGLE, Arrays, damaged
from tests.turns import in_turn

SLOW, HANGS = 5.0, 180
"""Seconds of the processor that a call may take, and seconds after which a test is ended."""
SIZES = ("attncli.files.table.LARGE", "attncli.files.npy.MAP_FROM")
"""From which size on files are read otherwise; 0 where a case is to be read so."""
Q = {name: [[1.0, 0.0], [0.5, 2.0], [1.5, 1.0]] for name in "qkv"}
BESIDE = {"q.json": json.dumps(Q).encode(), "words.txt": b"cat 1 2 3\nthe 0 1 2\nNew 2 2 1\n"}
"""Files that are never damaged."""
READERS = {"json": reading.json_values, "literal": reading.json_values, "npy": reading.npy_values}


@dataclass
class Case:
    """A call, and how its numbers are known.

    how    the convention of its flags; None where no opinion is had on the result
    read   the values of the input by name; it raises where they may not be accepted
    large  whether files are read as large ones are: by NumPy's parser, mapped
    """

    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    convention: dict[str, Any] | None = None
    read: Callable[[], dict[str, Any]] = dict
    large: bool = False


class Row(NamedTuple):
    """A kind of input: the call that reads it as F, what it holds, and its forms."""

    call: str
    make: Callable[[Random], Arrays]
    forms: tuple[str, ...]


WHOLE = [json.loads(path.read_text("utf-8")) for path in sorted(CATALOG.glob("*.json"))]
WORKED: list[Arrays] = [{**x, "examples": [one]} for x in WHOLE for one in x["examples"]]
"""Each worked example as a catalogue of its own."""


def words(rng: Random) -> Arrays:
    return {word: forms.numbers(rng, 3) for word in ("cat", "the", "New", "é")}


def observed(rng: Random) -> Arrays:
    arrays = {name: np.array(x) for name, x in Q.items()}
    return {"weights": plain.attention(arrays, {"scale": rng.choice([1, "none"])})["weights"]}


OF_Q = ("json", "literal", "npy", "npz", "table", "safetensors", "trace", "trace npz", "gz", "zip")
EXPLAIN = "explain --tokens cat,the,New --vectors"
CHECK = "check --q q.json --single --stage weights --observed F"
ROWS = {form: Row("compute --q F", forms.problem, (form,)) for form in OF_Q} | {
    "mask": Row("compute --q q.json --mask F", forms.mask, OF_Q[:5]),
    "weights": Row(f"{EXPLAIN} words.txt --weights F", forms.weights, OF_Q[:6:5]),
    "vectors": Row("similarity cat the --nearest 2 --vectors F", words, ("glove",)),
    "glove": Row(f"{EXPLAIN} F", words, ("glove",)),
    "observed": Row(CHECK, observed, OF_Q[:6]),
    "examples": Row("examples --verify --file F", lambda rng: rng.choice(WORKED), ("json",)),
}
FLAGS: tuple[tuple[str, dict[str, Any] | None], ...] = (
    *[("", {})] * 9, ("--causal", {"causal": True}), ("--scale none", {"scale": "none"}),
    ("--window 1,0", {"window": [1, 0]}), ("--softmax-over queries", {"softmax_over": "queries"}),
    ("--softcap 2", {"softcap": 2.0}), ("--dtype float32", {"dtype": "float32"}),
    ("--mask-value -1e4", {"mask_value": -1e4}), ("--empty-rows uniform", {"empty_rows": "uniform"}),
    ("--stage weights", None), ("--kv-len 1", None), ("--d-output ones", None),
)  # fmt: skip


def case_of(kind: str, number: int, *, intact: bool = False) -> Case:
    """The case of this number: its input in one of the row's forms, damaged unless intact."""
    rng, row = Random(f"{kind}/{number}"), ROWS[kind]  # noqa: S311 - not for secrets
    form, arrays = rng.choice(row.forms), row.make(rng)
    if form in SINGLE:
        name, first = next(iter(arrays.items()))
        is_flat = form in ("literal", "table")
        arrays = {"": first.reshape(-1, first.shape[-1])} if is_flat else {name: first}
    ending, write = FORMS[form]
    data = write(arrays, rng)
    data = data if intact or rng.random() < 0.1 else damaged(data, form, rng)
    case = Case(row.call.split(), {**BESIDE}, large=rng.random() < 0.3)
    case.read = (lambda: arrays) if intact else lambda: READERS[form](data)
    source = f"in{ending}" if form != "literal" else data.decode("utf-8", "surrogateescape")
    if form != "literal" and rng.random() < 0.2 and kind not in ("examples", "vectors"):
        case.stdin, source = data, "-"
    elif form != "literal":
        case.files[source] = data
    if form == "zip":
        source += "::q.npy" if intact else rng.choice(["", "::q.npy", "::q"])
    case.arguments = [source if word == "F" else word for word in case.arguments]
    if row.call.startswith("compute"):
        flags, convention = rng.choice(FLAGS)
        case.convention = (
            convention if (intact and "trace" not in form) or form in READERS else None
        )
        case.arguments += flags.split()
    case.arguments += ["--format", "json"]
    return case


# ---- how a call ends


class HangError(BaseException):
    """The call did not end."""


@pytest.fixture(autouse=True)
def _in_a_folder_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGALRM, mock.Mock(side_effect=HangError))
    signal.alarm(HANGS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def called(case: Case) -> tuple[int, str, str]:
    """Exit code, output and errors, with a warning of Python that would be printed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in "oe")
    streams: dict[str, Any] = {"stdin": io.TextIOWrapper(io.BytesIO(case.stdin))}
    for name, data in case.files.items():
        Path(name).write_bytes(data)
    with contextlib.ExitStack() as stack:
        warned = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        for name in SIZES if case.large else ():
            stack.enter_context(mock.patch(name, 0))
        stack.enter_context(mock.patch.multiple(sys, **streams, stdout=out, stderr=err))
        code = run(case.arguments)
    for stream in (out, err):
        stream.seek(0)
    return code, out.read(), err.read() + "".join(f"\nwarned: {w.message}" for w in warned)


def outcome(case: Case) -> str:
    """refused, accepted, or equal to the second reading; else what is wrong."""
    start = time.process_time()
    code, out, err = called(case)
    if (took := time.process_time() - start) > SLOW:
        return f"{took:.1f} s"
    lines = err.splitlines()
    errors = [line for line in lines if not line.startswith("attncli: note: ")]
    is_one_line = len(errors) == 1 and re.match(r"attncli: \S", errors[0]) and not out
    codes = (0, 1, 2) if {"check", "--verify"} & {*case.arguments} else (0, 2)
    is_fault = re.search("Traceback|internal error|^warned: ", err, re.MULTILINE)
    is_clean = all(line.isprintable() for line in lines) and (code != 2 or is_one_line)
    if code not in codes or is_fault or not is_clean:
        return f"exit code {code}: {out[:100]!a} {err!a:.500}"
    if code == 2 or case.convention is None:
        return "refused" if code == 2 else "accepted"
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return misread(case, json.loads(out)) or "equal"
        except reading.NoOpinionError:
            return "accepted"
        except Exception as problem:
            return f"accepted, but {type(problem).__name__}: {problem}"


def misread(case: Case, document: Any) -> str:
    """Where a result is not that of plain attention on the inputs; "" where it is."""
    convention = dict(case.convention or {})
    inputs = reading.by_role(case.read(), "mask" if "--mask" in case.arguments else "q")
    if "--mask" in case.arguments:
        inputs = {name: np.array(x) for name, x in Q.items()} | {"mask": inputs["mask"]}
    if "scale" in inputs:
        convention = {"scale": inputs.pop("scale"), **convention}
    inputs.setdefault("k", inputs["q"])
    inputs.setdefault("v", inputs["k"])
    mask = inputs.get("mask", np.zeros(1))
    if mask.dtype != bool and mask.any() and np.isin(mask, (0, 1)).all():
        raise reading.RefusalError("0 and 1 may be either")
    if ("past_k" in inputs) != ("past_v" in inputs):
        raise reading.RefusalError("half a cache")
    for name, usual in plain.DEFAULTS.items():
        shown = document["convention"][name]
        if reading.NOT_JSON.get(str(shown), shown) != convention.get(name, usual):
            return f"{name} is {shown}, not {convention.get(name, usual)}"
    steps = {step.get("name"): step for step in document["steps"]}
    for name, wanted in plain.reliable(plain.attention(inputs, convention)).items():
        if name not in steps and name != "lse":
            return f"no stage {name}"
        if name in steps:
            own = reading.json_array(steps[name]["value"])
            allowed = 1e-4 if "dtype" in convention else 0 if name in plain.READ else 1e-9
            allowed *= max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
            is_same = own.shape == wanted.shape and np.allclose(own, wanted, 0, allowed, True)
            if not is_same:
                return f"{name}: {own} not {wanted}"
    return ""


# ---- tests


ENDS = {"refused", "accepted", "equal"}
TURNS = [range(8), pytest.param(range(8, 40), marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("turns", TURNS, ids=str)
@pytest.mark.parametrize("kind", ROWS)
def test_damaged_inputs(kind: str, turns: range) -> None:
    ends = {n: outcome(case_of(kind, n)) for n in turns}
    assert {n: end for n, end in ends.items() if end not in ENDS} == {}


@pytest.mark.parametrize("kind", ROWS)
def test_undamaged_inputs(kind: str) -> None:
    """What is valid is accepted, and attention on it is plain attention."""
    for number in range(5):
        case = case_of(kind, number, intact=True)
        wanted = (
            {"accepted"} if case.convention is None else {"equal"} if not case.convention else ENDS
        )
        assert outcome(case) in wanted, (number, case.arguments)


def test_whatever_is_changed_in_a_result_is_seen() -> None:
    """The second reading can fail: for each stage it knows, and the convention."""
    q = b'{"q": [[1, 0], [0, 2]], "mask": [[true, false], [true, true]]}'
    arguments = ["compute", "--q", "q.json", "--format", "json"]
    case = Case(arguments, {"q.json": q}, convention={}, read=lambda: reading.json_values(q))
    document: Any = json.loads(called(case)[1])
    assert misread(case, document) == ""
    for stage in (step for step in document["steps"] if step["name"] != "masked"):
        with mock.patch.dict(stage, value=[stage["value"][0], [0.25, stage["value"][1][1]]]):
            assert misread(case, document).startswith(f"{stage['name']}: ")
    document["convention"]["causal"] = True
    assert misread(case, document).startswith("causal")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40) | st.text('[]{},:"0123456789.eE+-tfnNaIi ', max_size=40), st.binary())
@example("[" * 99_999, b"[" * 99_999)
@example("9" * 5000 + "]", b"[" + b"9" * 5000 + b"]")
@example("\0", b"[\xed\xa0\x80]")
def test_any_text_and_any_bytes(text: str, data: bytes) -> None:
    assert outcome(Case(["compute", "--q", f"[{text}"])) in ENDS
    assert outcome(Case(["similarity", "king", "--nearest=2", "--vectors", f"king={text}"])) in ENDS
    assert outcome(Case(["compute", "--q", "-"], stdin=data)) in ENDS


FILES = in_turn(["npy", "npz", "safetensors", "trace npz", "gz", "zip"], range(11))


@pytest.mark.parametrize(("form", "start"), FILES)
def test_claimed_sizes_are_not_allocated(form: str, start: int) -> None:
    """Four bytes at one place after another claim 2 GiB; memory stays far below that."""
    rng = Random(0)  # noqa: S311 - not for secrets
    data = FORMS[form][1]({name: forms.numbers(rng, 2, 3) for name in "qkv"}, rng)
    tracemalloc.start()
    for at in range(3 * start, len(data), max(33, len(data) // 20)):
        claim = data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :]
        assert outcome(Case(["compute", "--q", "-"], stdin=claim)) in ENDS
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert highest < 120 << 20
