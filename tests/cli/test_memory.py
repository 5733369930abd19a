"""The size said before computing is that which is measured; a limit on memory is a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.memory import FURTHEST, measured, ran, said, save

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
QKV = "--q q.npy --k k.npy --v v.npy"


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """q, k and v of 4 heads × 700 × 64, observed weights of another scale, and a long x."""
    for name in "qkv":
        save(tmp_path, name, 4, 701, 61)
    np.save(tmp_path / "w.npy", np.random.default_rng(0).random((4, 701, 701)).astype(np.float32))
    return tmp_path


@pytest.mark.parametrize(
    "call",
    [
        f"compute {QKV} --dropout 0.1",
        f"compute {QKV} --causal -o out.npz",
        f"compute {QKV} --dtype float16 --softmax-over queries --format csv --stage output",
        f"check {QKV} --observed w.npy --stage weights --single",
        "explain a,b --pad-to 1100 --block encoder --layers 3",
        "explain a,b --dim 700 --block encoder --layers 3 -o out.npz",
        "posenc --len 1500 --dim 1300",
        "posenc --kind alibi --heads 5 --len 1100",
        "posenc --len 1500 --dim 1300 --format svg",
        f"compute {QKV} --dropout 0.1 --format svg",
        f"compute {QKV} --dropout 0.1 --format html",
        "posenc --len 1500 --dim 1300 --format html",
    ],
)
def test_the_size_said_is_that_measured(arrays: Path, call: str) -> None:
    arguments = call.replace("a,b", "--tokens a,b").split()
    allowed = "45MB"
    if call.startswith("check"):  # refused once more, before the search
        allowed = f"{said(arguments, arrays) + 1}MB"
    before, after = said(arguments, arrays, allowed), measured(arguments, arrays)
    assert before == pytest.approx(after, rel=FURTHEST)


@pytest.mark.parametrize("limit", [40, 120, 160, 220, 300])
@pytest.mark.parametrize(
    "call",
    [
        "compute --q [[1,2],[3,4]] --quiet",
        f"compute {QKV} --quiet",
        f"compute {QKV} -o out.npy",
        "posenc --len 3000 --dim 2000",
    ],
)
def test_a_limit_on_memory_is_a_line(arrays: Path, call: str, limit: int) -> None:
    command = f"ulimit -v {limit * 1000}; exec {sys.executable} -m attncli {call}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=arrays, capture_output=True, text=True, check=False
    )
    lines = done.stderr.splitlines()
    if done.returncode == 0:
        assert lines == []
    else:
        assert (done.returncode, len(lines)) == (2, 1)
        assert lines[0].startswith("attncli: ")
        assert "MemoryError" not in lines[0]


@pytest.mark.parametrize(
    "call",
    [
        "explain a --pad-to 1000000000",
        "explain a --layers 1000000000 --block encoder",
        "explain a --dim 1000000 --heads 1000000",
        "explain a --d-ff 10000000000 --block encoder",
        "posenc --len 1000000000000 --dim 1",
        "posenc --kind rope --len 2 --dim 10000000000",
        "posenc --kind alibi --len 2 --heads 10000000000",
    ],
)
def test_a_size_that_is_too_large_costs_nothing(tmp_path: Path, call: str) -> None:
    code, printed, peak = ran(call.split(), tmp_path)
    assert (code, printed.count("\n")) == (2, 1)
    assert " need" in printed
    assert peak < 60


def test_large_shapes_that_do_not_fit_together_are_named(arrays: Path) -> None:
    save(arrays, "flat", 701, 61)
    for call in ("--q q.npy --k flat.npy --v flat.npy", "--q flat.npy --k k.npy --v v.npy"):
        code, printed, _ = ran(["compute", *call.split()], arrays)
        assert (code, printed.count("\n")) == (2, 1)
        assert "all three need the same number of dimensions" in printed


def test_weights_of_a_file_have_their_own_widths(tmp_path: Path) -> None:
    wide, narrow = np.eye(5, 6), np.eye(6, 5)
    np.savez(tmp_path / "w.npz", w_q=wide, w_k=wide, w_v=wide, w_o=narrow)
    call = "explain --tokens a,b --dim 5 --heads 3 --weights w.npz"
    assert ran(call.split(), tmp_path)[0] == 0
