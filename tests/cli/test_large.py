"""Inputs whose stages are too large: the output streamed, the shown rows computed, or a refusal."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import Convention, attend, budget
from attncli.cli import compute
from tests.cli.conftest import LISTENING, Call

N_Q, N_K = 41, 53


@pytest.fixture
def arrays(tmp_path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    shapes = {"q": (2, N_Q, 5), "k": (2, N_K, 5), "v": (2, N_K, 3)}
    found = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    for name, x in found.items():
        np.save(tmp_path / f"{name}.npy", x)
    return found


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for the stages of some of the rows, not for those of all."""
    monkeypatch.setattr(budget, "_LITTLE", 0)
    monkeypatch.setattr(budget, "free_memory", lambda: 2 * 20 * N_K * 8 * 6)
    monkeypatch.setattr(compute, "_SURELY_FITS", 1)


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Anything is worth streaming; what was streamed is counted."""
    monkeypatch.setattr(compute, "_WORTH_STREAMING", 1)
    calls: list[str] = []
    streamed = compute._streamed

    def counted(*given: Any) -> Any:
        calls.append("streamed")
        return streamed(*given)

    monkeypatch.setattr(compute, "_streamed", counted)
    return calls


QKV = ["compute", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]


@pytest.mark.parametrize("flags", [[], ["--stage", "output"], ["--causal", "--softcap", "3"]])
def test_the_output_alone_is_streamed(
    call: Call, arrays: Any, streaming: list[str], tmp_path: Path, flags: list[str]
) -> None:
    result = call(*QKV, *flags, "--output", "out.npy")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert streaming == ["streamed"]
    how = Convention(causal="--causal" in flags, softcap=3 if "--softcap" in flags else None)
    expected = attend(**arrays, convention=how)["output"].value
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-12)


def test_heads_are_put_side_by_side_again(call: Call, streaming: list[str], tmp_path: Path) -> None:
    x = np.random.default_rng(4).normal(size=(7, 6))
    np.save(tmp_path / "x.npy", x)
    flags = ["compute", "--q", "x.npy", "--heads", "3", "--quiet"]
    assert call(*flags, "--output", "out.npy").code == 0
    assert call(*flags, "--stage", "output", "--output", "heads.npy").code == 0
    assert streaming == ["streamed"] * 2
    heads, merged = np.load(tmp_path / "heads.npy"), np.load(tmp_path / "out.npy")
    assert (heads.shape, merged.shape) == ((3, 7, 2), (7, 6))
    np.testing.assert_array_equal(merged, np.concatenate(list(heads), axis=-1))


@pytest.mark.parametrize("flags", [["--stage", "weights"], ["--dtype", "float16"]])
def test_what_is_not_streamed_is_computed_as_ever(
    call: Call, arrays: Any, streaming: list[str], flags: list[str]
) -> None:
    assert call(*QKV, *flags, "--output", "out.npy").code == 0
    assert streaming == []


@pytest.mark.usefixtures("arrays", "streaming")
def test_the_streamed_output_can_be_shown(call: Call) -> None:
    result = call(*QKV, "--stage", "output", "--head", "2", "--rows", "40:41", "--format", "csv")
    assert result.code == 0
    assert [line.split(",")[0] for line in result.out.splitlines()[1:]] == ["q40", "q41"]


@pytest.mark.usefixtures("little_memory")
def test_rows_that_are_shown_are_computed_alone(call: Call, arrays: Any, tmp_path: Path) -> None:
    flags = ["--causal", "--causal-align", "bottom-right", "--rows", "7:9"]
    result = call(*QKV, *flags, "--output", "rows.npz")
    assert (result.code, result.err) == (0, "")
    how = Convention(causal=True, causal_align="bottom-right")
    whole, rows = attend(**arrays, convention=how), np.load(tmp_path / "rows.npz")
    for name in ("q", "scores", "mask", "weights", "output"):
        np.testing.assert_allclose(rows[name], whole[name].value[:, 6:9], atol=1e-13)


@pytest.mark.usefixtures("arrays", "little_memory")
def test_without_rows_the_first_and_last_are_shown(call: Call) -> None:
    result = call(*QKV, "--stage", "output", "--head", "1")
    assert result.code == 0
    assert "16 of 41 queries computed" in result.err
    names = [line.split()[0] for line in result.out.splitlines() if line.startswith("  q")]
    assert names == [f"q{n}" for n in [*range(1, 9), *range(34, 42)]]


@pytest.mark.usefixtures("arrays", "little_memory")
@pytest.mark.parametrize("cell", ["29,17", "q29,17"])
def test_one_cell_needs_one_row(call: Call, cell: str) -> None:
    result = call(*QKV, "--cell", cell)
    assert (result.code, result.err) == (0, "")
    assert "How q29 attends to k17" in result.out


@pytest.mark.usefixtures("arrays", "little_memory")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--output", "all.npz"], "scores need"),
        (["--full"], "name some with --rows A:B"),
        (["--dropout", "0.5"], "2 × 41 × 53 scores need"),
        (["--softmax-over", "queries"], "2 × 41 × 53 scores need"),
        (["--rows", "42:"], "there are no rows 42:; there are 41 queries"),
        (["--cell", "42,1"], "there is no query '42'; use a number from 1 to 41"),
    ],
)
def test_what_does_not_fit_either_is_refused(call: Call, flags: list[str], words: str) -> None:
    result = call(*QKV, *flags)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("arrays")
@pytest.mark.parametrize("form", ["json", "csv", "tsv"])
def test_a_text_of_very_many_numbers_is_refused(
    call: Call, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(budget, "cells", lambda: 2 * N_Q * N_K)
    result = call(*QKV, "--format", form)
    assert (result.code, result.out) == (2, "")
    assert "use --format npz" in result.err
    assert call(*QKV, "--format", form, "--stage", "weights").code == 0
    assert call(*QKV, "--format", form, "--stage", "weights", "--stage", "output").code == 2


# ---- from x and the weights: 4.5 million scores, of which --max-size 100MB allows some rows

N, HEADS = 1500, 2
SMALL = ("--max-size", "100MB", "--quiet", "--output", "o.npz")


@pytest.fixture(scope="module")
def projections() -> dict[str, Any]:
    """x, the weights, and the gradient of what the whole gives."""
    rng = np.random.default_rng(8)
    shapes = {"x": (N, 5), "w_q": (5, 6), "w_k": (5, 6), "w_v": (5, 4), "w_o": (4, 3)}
    return {name: rng.normal(size=shape) for name, shape in (shapes | {"d": (N, 3)}).items()}


@pytest.fixture(scope="module")
def stages(projections: dict[str, Any]) -> dict[str, Any]:
    """Every stage and gradient by NumPy, head by head."""
    x, w_q, w_k, w_v, w_o, d = projections.values()
    made = zip(("q", "k", "v"), (w_q, w_k, w_v), strict=True)
    found = {name: np.stack(np.split(x @ w, HEADS, axis=-1)) for name, w in made}
    q, k, v = found.values()
    powers = np.exp(q @ np.swapaxes(k, -1, -2) / np.sqrt(3))
    a = powers / powers.sum(axis=-1, keepdims=True)
    concat = np.concatenate(list(a @ v), axis=-1)
    found |= {"x": x, "w_o": w_o, "weights": a, "output": a @ v, "concat": concat}
    found |= {"projected": concat @ w_o, "d_projected": d, "d_concat": d @ w_o.T}
    found |= {"d_w_o": concat.T @ d, "d_output": np.stack(np.split(d @ w_o.T, HEADS, axis=-1))}
    d_a = found["d_output"] @ np.swapaxes(v, -1, -2)
    d_s = a * (d_a - (a * d_a).sum(axis=-1, keepdims=True)) / np.sqrt(3)
    own = {"d_q": d_s @ k, "d_k": np.swapaxes(d_s, -1, -2) @ q}
    own["d_v"] = np.swapaxes(a, -1, -2) @ found["d_output"]
    wide = {name: np.concatenate(list(y), axis=-1) for name, y in own.items()}
    d_x = sum(wide[f"d_{n}"] @ projections[f"w_{n}"].T for n in "qkv")
    return found | own | {"d_x": d_x} | {f"d_w_{n}": x.T @ wide[f"d_{n}"] for n in "qkv"}


@pytest.fixture
def large(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, projections: dict[str, Any]
) -> dict[str, tuple[str, ...]]:
    """The calls: of x and its weights, and of q, k and v with their heads side by side."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)  # each thread takes memory of its own
    x = projections["x"]
    np.savez(tmp_path / "x.npz", **{n: y for n, y in projections.items() if n != "d"})
    np.savez(tmp_path / "q.npz", **{n: x @ projections[f"w_{n}"] for n in "qkv"})
    np.save(tmp_path / "d.npy", projections["d"])
    np.save(tmp_path / "d_heads.npy", projections["d"] @ projections["w_o"].T)
    calls = {"x.npz": "d.npy", "q.npz": "d_heads.npy"}
    return {name: (name, "--heads", str(HEADS), "--d-output", d) for name, d in calls.items()}


@pytest.mark.parametrize(
    ("file", "names"),
    [
        *(("x.npz", name) for name in ("output", "concat", "projected", "k", "x", "w_o")),
        *(("x.npz", f"d_{name}") for name in ("q", "k", "v", "x", "w_q", "w_v", "w_o")),
        *(("x.npz", f"d_{name}") for name in ("projected", "concat", "output")),
        ("x.npz", "d_q d_x d_w_k d_w_o"),
        *(("q.npz", name) for name in ("output", "concat", "k", "d_q", "d_k", "d_v")),
    ],
)
def test_a_stage_that_is_named_is_given(
    call: Call, large: Any, stages: Any, tmp_path: Path, file: str, names: str
) -> None:
    done = call("compute", *large[file], *SMALL, *(f"--stage={name}" for name in names.split()))
    assert (done.code, done.err) == (0, "")
    found = np.load(tmp_path / "o.npz")
    for name in names.split():
        np.testing.assert_allclose(found[name], stages[name], atol=1e-10 * N, err_msg=name)


@pytest.mark.parametrize("name", ["weights", "output", "projected", "concat", "q", "k", "v", "x"])
def test_some_rows_of_a_stage_are_given(
    call: Call, large: Any, stages: Any, tmp_path: Path, name: str
) -> None:
    done = call("compute", *large["x.npz"][:3], *SMALL, "--rows", "7:9", "--stage", name)
    assert (done.code, done.err) == (0, "")
    found = np.load(tmp_path / "o.npz")[name]
    np.testing.assert_allclose(found, stages[name][..., 6:9, :], atol=1e-12)


@pytest.mark.parametrize(
    ("file", "flags", "words"),
    [
        ("x.npz", "--stage d_scores", "gradients are sums over all queries"),
        ("x.npz", "--stage d_b_q", "gradients are sums over all queries"),
        ("q.npz", "--stage d_weights --stage d_q", "gradients are sums over all queries"),
        ("q.npz", "--stage weights", "scores need"),
        ("x.npz", "--stage weights --stage k --rows 7:9", "k are not those of the queries"),
    ],
)
def test_a_stage_that_cannot_be_given_is_refused(
    call: Call, large: Any, file: str, flags: str, words: str
) -> None:
    done = call("compute", *large[file], *SMALL, *flags.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (1, 200_000, 64))
    del x
    command = [*LISTENING, "compute", "--q", "x.npy", "--output", "out.npy"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as running:
        time.sleep(2)
        running.send_signal(signal.SIGINT)
        try:
            _, printed = running.communicate(timeout=30)
        finally:
            running.kill()
    assert running.returncode == 130
    assert printed.decode().splitlines()[-1] == "attncli: interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
