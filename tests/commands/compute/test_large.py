"""Inputs whose stages are too large: the output streamed, the shown rows computed, or a refusal.

Most are of 2 heads × 1500 × 1500 scores, of which --max-size 100MB allows some rows.
"""

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import budget
from tests.calls import Call, Result
from tests.plain import attention

N, HEADS = 1500, 2
SMALL = ("--max-size", "100MB", "--quiet")


@pytest.fixture(scope="module")
def projections() -> dict[str, Any]:
    """x, the weights, and the gradient of what the whole gives."""
    rng = np.random.default_rng(8)
    shapes = {"x": (N, 5), "w_q": (5, 6), "w_k": (5, 6), "w_v": (5, 4), "w_o": (4, 3)}
    return {name: rng.normal(size=shape) for name, shape in (shapes | {"d": (N, 3)}).items()}


@pytest.fixture(scope="module")
def stages(projections: dict[str, Any]) -> dict[str, Any]:
    """Every stage and gradient by NumPy."""
    x, w_q, w_k, w_v, w_o, d = projections.values()
    q, k, v, d_output = (np.stack(np.split(y, HEADS, axis=-1))
                         for y in (x @ w_q, x @ w_k, x @ w_v, d @ w_o.T))  # fmt: skip
    whole = attention({"q": q, "k": k, "v": v, "d_output": d_output}, {})
    concat = np.concatenate(whole["output"], axis=-1)
    whole |= {"x": x, "w_o": w_o, "concat": concat, "projected": concat @ w_o}
    whole |= {"d_projected": d, "d_concat": d @ w_o.T, "d_w_o": concat.T @ d, "d_output": d_output}
    wide = {n: np.concatenate(whole[f"d_{n}"], axis=-1) for n in "qkv"}
    whole |= {f"d_w_{n}": x.T @ wide[n] for n in "qkv"}
    return whole | {"d_x": sum(wide[n] @ projections[f"w_{n}"].T for n in "qkv")}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, projections: Any) -> Any:
    """The calls: of x and its weights, and of q, k and v with their heads side by side."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)  # each thread takes memory of its own
    x = projections["x"]
    np.savez(tmp_path / "x.npz", **{n: y for n, y in projections.items() if n != "d"})
    np.savez(tmp_path / "q.npz", **{n: x @ projections[f"w_{n}"] for n in "qkv"})
    np.save(tmp_path / "d.npy", projections["d"])
    np.save(tmp_path / "d_heads.npy", projections["d"] @ projections["w_o"].T)
    calls = {"x": "d.npy", "q": "d_heads.npy"}
    return {n: (f"{n}.npz", "--heads", str(HEADS), "--d-output", d) for n, d in calls.items()}


@pytest.mark.parametrize(
    ("file", "names", "rows"),
    [
        ("x", "output", ""),  # streamed, as are the next two
        *[("x", name, "") for name in ("concat", "projected", "k x w_o", "d_w_o")],
        ("x", "d_projected d_concat d_output", ""), ("x", "d_q d_k d_v d_x d_w_q d_w_k d_w_v", ""),
        ("x", "d_q d_w_o", ""),
        *[("q", names, "") for names in ("concat", "k", "d_q d_k d_v")],
        *[("x", name, "7:9") for name in ("weights", "output", "projected", "concat", "q", "k", "v", "x")],
    ],
)  # fmt: skip
def test_a_stage_that_is_named_is_given(
    call: Call, large: Any, stages: Any, tmp_path: Path, file: str, names: str, rows: str
) -> None:
    named = [f"--stage={name}" for name in names.split()]
    line = (*large[file][:3], "--rows", rows) if rows else large[file]
    done = call("compute", *line, *SMALL, *named, "--output", "o.npz")
    assert (done.code, done.err) == (0, "")
    written = np.load(tmp_path / "o.npz")
    for name in names.split():
        expected = stages[name][..., 6:9, :] if rows else stages[name]
        np.testing.assert_allclose(written[name], expected, atol=1e-12 if rows else 1e-10 * N)


def test_small_queries_and_keys_are_normalised_once(call: Call, tmp_path: Path) -> None:
    """At a size of 1e-3 the ε of the norm counts, and a second norm would change the weights."""
    draw, n = np.random.default_rng(5), 2053  # more scores than are computed at once
    q, k, v = (draw.normal(size=(n, d)) for d in (3, 3, 2))
    np.savez(tmp_path / "small.npz", q=q * 1e-3, k=k * 1e-3, v=v)
    stages = attention({"q": q * 1e-3, "k": k * 1e-3, "v": v}, {"qk_norm": True, "softcap": 2.0})
    line = "compute small.npz --qk-norm --softcap 2 --quiet --stage output"
    for more, rows in (("", slice(None)), ("--rows 2:4", slice(1, 4))):
        assert call(*f"{line} {more} --output o.npy --force".split()).code == 0
        np.testing.assert_allclose(np.load(tmp_path / "o.npy"), stages["output"][rows], atol=1e-12)


def test_gradients_of_normalised_queries_and_keys_are_streamed(call: Call, tmp_path: Path) -> None:
    draw, n = np.random.default_rng(5), 1500  # × 2 heads, whose stages need more than 100 MB
    arrays: dict[str, Any] = {name: draw.normal(size=(2, n, 3)) for name in "qkv"}
    np.savez(tmp_path / "n.npz", **arrays)
    d = np.ones_like(arrays["v"])
    np.save(tmp_path / "d.npy", d)
    line = "compute n.npz --qk-norm --d-output d.npy --stage d_q --stage d_k --output o.npz"
    done = call(*line.split(), *SMALL)
    assert (done.code, done.err) == (0, "")
    written, step, way = np.load(tmp_path / "o.npz"), 1e-4, draw.normal(size=(2, n, 3))
    for name in "qk":  # along one way: a difference of two losses
        moved = ({**arrays, name: arrays[name] + h * way} for h in (step, -step))
        above, below = ((attention(x, {"qk_norm": True})["output"] * d).sum() for x in moved)
        along = (written[f"d_{name}"] * way).sum()
        assert along == pytest.approx((above - below) / (2 * step), rel=1e-3)


def test_a_page_has_the_first_and_last_rows_or_that_of_a_cell(call: Call, large: Any) -> None:
    line = ("compute", *large["q"][:3], "--max-size", "100MB")
    page = call(*line, "--stage", "weights", "--head", "1")
    assert page.code == 0
    assert "16 of 1500 queries" in page.err
    names = dict.fromkeys(re.findall(r"^  (q\d+)", page.out, re.MULTILINE))
    assert [*names] == [f"q{n}" for n in [*range(1, 9), *range(N - 7, N + 1)]]
    for cell in ("29,17", "q29,17"):
        derived = call(*line, "--cell", cell)
        assert (derived.code, derived.err) == (0, "")
        assert "q29 attends to k17" in derived.out


def test_sixty_five_thousand_scores_fit_anywhere(call: Call, tmp_path: Path) -> None:
    for n, code in ((256, 0), (257, 2)):
        np.save(tmp_path / f"{n}.npy", np.ones((n, 1)))
        line = f"compute {n}.npy --max-size 1MB --quiet --output {n}.npz"
        assert call(*line.split()).code == code, n


def test_a_text_of_very_many_numbers(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    np.save(tmp_path / "q.npy", np.ones((41, 2)))
    monkeypatch.setattr(budget, "_CELL", budget.DEFAULT // 41**2)  # so many numbers
    for form in ("json", "csv", "tsv"):
        line = ("compute", "--q", "q.npy", "--quiet", "--format", form)
        whole = call(*line)
        assert (whole.code, whole.out) == (2, "")
        assert "--format npz" in whole.err
        assert call(*line, "--stage", "weights").code == 0
        assert call(*line, "--stage", "weights", "--stage", "output").code == 2


def peak_of(call: Call, line: str, *, code: int = 0) -> tuple[Result, int]:
    """What a call leaves behind, and the bytes that it takes at most while it runs."""
    tracemalloc.start()
    done = call(*line.split())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert done.code == code, done.err
    return done, peak


LONG = 300_007  # cells of the only stage: 2.4 MB


@pytest.mark.parametrize(
    "form",
    ["table", "html", *(pytest.param(form, marks=pytest.mark.exhaustive)
                        for form in ("markdown", "latex", "csv", "json", "npz"))],
)  # fmt: skip
def test_a_long_stage_takes_little_more_than_its_array(
    call: Call, tmp_path: Path, form: str
) -> None:
    """Names of places that are not shown are not made, and a page of a part holds a part."""
    np.save(tmp_path / "q.npy", np.arange(6.0).reshape(3, 2))
    for name, size in (("short", 11), ("long", LONG)):
        (tmp_path / f"{name}.attn").write_text(f"size[z] = {size}\nA[z] = q[z % 3, 0]\n")
    line = f"compute --q q.npy --quiet --force --format {form} --output out --formulas"
    _, short = peak_of(call, f"{line} short.attn")
    _, short = peak_of(call, f"{line} short.attn")  # all is imported
    _, peak = peak_of(call, f"{line} long.attn")
    assert peak - short < 8 * 8 * LONG


@pytest.mark.parametrize(
    ("flags", "words"),
    [("--full", "as table needs"), ("--full --format html", "as html needs"),
     ("--format svg --output o.svg", "as svg needs"), ("--format csv", "90 million numbers")],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_before_it_is_computed(
    call: Call, tmp_path: Path, flags: str, words: str
) -> None:
    np.save(tmp_path / "q.npy", np.ones((3, 2)))
    size = 90_000_000 if "csv" in flags else 9_000_000
    text = f"size[z] = {size}\nA[z] = q[0, 0]\n"
    (tmp_path / "long.attn").write_text(text)
    line = f"compute --q q.npy --quiet --formulas long.attn {flags}"
    done, peak = peak_of(call, line, code=2)
    assert words in done.err
    assert "--max-size" in done.err
    assert peak < 30e6


def test_layers_are_counted_before_they_are_written_as_text(call: Call) -> None:
    line = "explain a --pad-to 1000 --layers 6 --heads 4 --block encoder --quiet"
    for more, count in (("", 120), ("--stage scores", 24)):
        done, peak = peak_of(call, f"{line} --format json {more}", code=2)
        assert f"{count} million numbers, 20 million are allowed" in done.err
        assert peak < 30e6
    few = line.replace("1000", "11")
    assert call(*f"{few} --format json --rows :2 --stage scores".split()).code == 0


REFUSED = [  # others are among tests/cli/test_wrong_calls.py
    "compute --q long.npy --output all.npz|64 × 50000 × 50000 scores need",
    "explain a --pad-to 1000000000|need", "explain a --layers 1000000000 --block encoder|need",
    "explain a --dim 1000000 --heads 1000000|need", f"explain ab --dim 1{'0' * 30}|widths need",
    "explain a --d-ff 10000000000 --block encoder|need", "posenc --len 1000000000000 --dim 1|need",
    "posenc --kind rope --len 2 --dim 10000000000|need",
    "posenc --kind alibi --len 2 --heads 10000000000|need",
    "compute --q q.npy --k flat.npy --v flat.npy|number of dimensions",
    "compute --q flat.npy --k q.npy --v q.npy|number of dimensions",
]  # fmt: skip


def test_a_refusal_costs_nothing(call: Call, tmp_path: Path) -> None:
    shapes = {"long": (64, 50_000, 1), "q": (4, 701, 61), "flat": (701, 61)}
    for name, shape in shapes.items():
        path = tmp_path / f"{name}.npy"
        np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    for refused in REFUSED:
        line, _, words = refused.partition("|")
        tracemalloc.start()
        done = call(*line.split(), "--quiet")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), line
        assert words in done.err
        assert peak < 30e6, line
