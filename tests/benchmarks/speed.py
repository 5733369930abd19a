"""How fast attncli answers, as ratios measured side by side in one run. By hand:

    pip install -e '.[bench]' && python tests/benchmarks/speed.py [--rounds 9] [SECTION …]

start     whole processes, against a Python that imports numpy, typer and what of Rich prints tables
large     `compute` on 8 heads × 1024 tokens × 64, every stage, start-up aside, against plain NumPy
stream    the output of 8 × 4096 × 64 in float32 alone, against PyTorch and plain NumPy
gradients dQ, dK, dV of the same in blocks, against both passes of PyTorch
check     verdicts of 8 × 1024 × 64 and 8 × 2048 × 64, and of small inputs that no bug and no edit
          explains (with their processor time), against plain NumPy in float64
tiles     2,000 keys in tiles of one key: whole processes, and the memory of each
page      html of 12 × 12 heads of 64 tokens: writing it, against computing it
capture   the forward pass of 6 layers of BERT's width with and without `attncli.capture`

Medians; in each round every contender runs once. The first round warms up and is not counted.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import attncli  # noqa: E402

ATTNCLI = (sys.executable, "-m", "attncli")
FLOOR = (sys.executable, "-c", "import numpy, typer, rich.console, rich.table")
SAMPLE = (*ATTNCLI, "compute", "--q", "samples/three-tokens.json")
SENTENCE = "She visited the money bank, near the river bank"
Works = dict[str, Callable[[], Any]]
# Compiled once, in the round that warms up, as in any installed copy.
BYTECODE = tempfile.TemporaryDirectory()
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": BYTECODE.name}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)


def medians(rounds: int, works: Works) -> dict[str, float]:
    """The median seconds of each, measured in turns so that a slow moment hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def process(*command: str) -> Callable[[], Any]:
    """A whole process, its output thrown away."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return lambda: subprocess.run(command, check=True, cwd=ROOT, env=ENVIRONMENT, **quiet)


def plain_numpy(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Attention as it is usually written, each step a new array."""
    scaled = q @ np.swapaxes(k, -1, -2) / np.asarray(np.sqrt(q.shape[-1]), q.dtype)
    if causal:
        scaled = np.where(np.tri(*scaled.shape[-2:], dtype=np.bool_), scaled, -np.inf)
    powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def drawn(*shape: int, count: int = 3) -> list[Any]:
    """Arrays of normal float32 numbers."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]


def start(rounds: int) -> Iterator[tuple[int, Works]]:
    works: Works = {"imports alone": process(*FLOOR), "compute, three tokens": process(*SAMPLE)}
    works["explain, ten tokens"] = process(*ATTNCLI, "explain", SENTENCE)
    works |= {flag: process(*ATTNCLI, flag) for flag in ("--help", "--version")}
    table = "posenc --len 512 --dim 512 --format svg"
    yield 2 * rounds, works | {"posenc 512 × 512, svg": process(*ATTNCLI, *table.split())}


def large(rounds: int) -> Iterator[tuple[int, Works]]:
    arrays = [x.astype(float) for x in drawn(8, 1024, 64)]
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/large.npz", **dict(zip("qkv", arrays, strict=True)))
        whole = process(*ATTNCLI, "compute", f"{folder}/large.npz")
        works: Works = {"plain NumPy": partial(plain_numpy, *arrays)}
        works |= {"compute 8 × 1024 × 64, whole process": whole}
        yield rounds, works | {"compute, three tokens": process(*SAMPLE)}


def stream(rounds: int) -> Iterator[tuple[int, Works]]:
    arrays = drawn(8, 4096, 64)
    for causal in (False, True):
        works: Works = {}
        if find_spec("torch"):
            import torch

            tensors = [torch.tensor(x)[None] for x in arrays]
            kernel: Any = torch.nn.functional.scaled_dot_product_attention
            works["PyTorch"] = partial(kernel, *tensors, is_causal=causal)
        if not causal:  # it has no mask
            works["plain NumPy"] = partial(plain_numpy, *arrays)
        name = "stream, causal" if causal else "stream, full"
        works[name] = partial(attncli.stream, *arrays, causal=causal, dtype="float32")
        yield rounds, works


def gradients(rounds: int) -> Iterator[tuple[int, Works]]:
    arrays = drawn(8, 4096, 64, count=4)
    for causal in (False, True):
        convention: dict[str, Any] = {"causal": causal, "dtype": "float32"}
        works: Works = {"stream, forward": partial(attncli.stream, *arrays[:3], **convention)}
        if find_spec("torch"):
            works["PyTorch, both passes"] = _both_passes(arrays, causal=causal)
        name = "stream_gradients, causal" if causal else "stream_gradients, full"
        works[name] = partial(attncli.stream_gradients, *arrays, **convention)
        yield rounds, works


def _both_passes(arrays: list[Any], *, causal: bool) -> Callable[[], Any]:
    import torch

    *qkv, d_output = (torch.tensor(x)[None] for x in arrays)
    leaves = [x.requires_grad_() for x in qkv]
    kernel: Any = torch.nn.functional.scaled_dot_product_attention
    return lambda: torch.autograd.grad(kernel(*leaves, is_causal=causal), leaves, d_output)


def check(rounds: int) -> Iterator[tuple[int, Works]]:
    from attncli.commands.check.diagnose import check as verdict_of

    for n in (1024, 2048):
        q, k, v = (x.astype(float) for x in drawn(8, n, 64))
        causal = partial(plain_numpy, causal=True)
        observed: dict[str, Any] = {
            "match": causal(q, k, v),
            "scale left out": causal(8 * q, k, v),
            "a number fitted": causal(0.8 * q, k, v),
            "two bugs": plain_numpy(8 * q, k, v),
            "another channel of the keys": causal(q, np.roll(k, 1, axis=-1), v),
            "every third query head": causal(*(x[np.arange(8) // 3 * 3] for x in (q, k, v))),
            "no known bug": causal(q, k, v) + drawn(8, n, 64, count=2)[1][::-1],
        }
        works: Works = {"plain NumPy": partial(causal, q, k, v)}
        for name, output in observed.items():
            arrays = [x.astype(np.float32) for x in (output, q, k, v)]
            print(f"          {name}: {verdict_of(*arrays, causal=True).status}")
            works[f"check, {name}"] = partial(verdict_of, *arrays, causal=True)
        yield max(1, rounds // 3), works
    yield max(1, rounds // 3), _of_small_inputs(verdict_of)


def _of_small_inputs(verdict_of: Callable[..., Any]) -> Works:
    """Verdicts without the questions on numbers that nothing explains, and one that they give."""
    rng = np.random.default_rng(0)
    q, k, v, d_output = (rng.standard_normal((2, n, 7)) for n in (10, 5, 5, 10))
    trace = attncli.attend(q, k, v, causal=True, d_output=d_output)
    gradients = {f"d_{x}": trace[f"d_{x}"].value.copy() for x in "qkv"}
    gradients["d_q"][:, 5:] = rng.standard_normal((2, 5, 7))
    x, y, z = (rng.standard_normal((2, 9, 7)) for _ in "qkv")
    mask = rng.random((9, 9)) < 0.5
    mask[:, 0] = True
    of_chunk = attncli.attend(x, y, z, mask=mask[np.arange(9) // 3 * 3])["output"].value
    a, b, c = (rng.standard_normal((3, 2, n, 7)) for n in (4, 11, 11))
    place = np.arange(11) - (np.arange(4)[:, None] + 7)  # of the longest item
    window = (place <= 0) & (place >= -6) & (np.arange(11) < np.array([11, 8, 6])[:, None, None])
    of_longest = attncli.attend(a, b, c, mask=window[:, None])["output"].value
    lengths = {"causal": True, "causal_align": "bottom-right", "window": (6, -1)}
    calls: dict[str, Callable[[], Any]] = {
        "d_q past the keys": partial(
            verdict_of, gradients, q, k, v, causal=True, d_output=d_output
        ),
        "a chunk's first mask": partial(verdict_of, of_chunk, x, y, z, mask=mask),
        "the longest item's window": partial(
            verdict_of, of_longest, a, b, c, kv_len=[11, 8, 6], **lengths
        ),
        "random numbers": partial(verdict_of, rng.standard_normal((2, 9, 7)), x, y, z),
    }

    def unasked(call: Callable[[], Any]) -> Any:
        with patch("attncli.commands.check.diagnose.solved", lambda search: []):
            return call()

    output = attncli.attend(x, y, z)["output"].value
    solved = partial(verdict_of, output[:, np.arange(9) // 4 * 4], x, y, z)
    works: Works = {"plain NumPy": partial(plain_numpy, x, y, z)}
    works |= {f"unasked, {name}": partial(unasked, call) for name, call in calls.items()}
    works["a solved answer"] = solved
    for name, work in works.items():
        start = time.process_time()
        verdict = work()
        seconds = time.process_time() - start
        print(f"          {name}: {getattr(verdict, 'status', '')}, {seconds:.2f} s of a processor")
    return works


def tiles(rounds: int) -> Iterator[tuple[int, Works]]:
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        shapes = {"q": (1, 4), "k": (2000, 4), "v": (2000, 4)}
        arrays: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        np.savez(f"{folder}/t.npz", **arrays)
        call = (*ATTNCLI, "compute", f"{folder}/t.npz", "--tiles", "1", "--format")
        for form in ("table", "json", "npz", "html"):
            works = {"compute, three tokens": process(*SAMPLE), form: process(*call, form)}
            yield max(1, rounds // 3), works
            used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(f"          at most {used:.0f} MB until here")


def page(rounds: int) -> Iterator[tuple[int, Works]]:
    arrays = drawn(12, 12, 64, 64)
    works: Works = {"attend 12 × 12 heads of 64": partial(attncli.attend, *arrays)}
    works["render as html"] = partial(attncli.render, attncli.attend(*arrays), "html")
    yield rounds, works


def capture(rounds: int) -> Iterator[tuple[int, Works]]:
    if not find_spec("transformers"):
        print("capture   is not measured: it needs transformers")
        return
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    ids = torch.randint(0, 1000, (1, 128))
    for kind in ("eager", "sdpa"):
        config = transformers.BertConfig(num_hidden_layers=6)
        model: Any = transformers.BertModel._from_config(config, attn_implementation=kind).eval()

        def plain(model: Any = model) -> None:
            with torch.no_grad():
                model(ids)

        def captured(model: Any = model, plain: Callable[[], None] = plain) -> None:
            with attncli.capture(model):
                plain()

        yield 4 * rounds, {f"BERT, {kind}": plain, f"BERT, {kind}, captured": captured}


ALL = (start, large, stream, gradients, check, tiles, page, capture)
SECTIONS = {section.__name__: section for section in ALL}


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    for name in asked.sections:
        for rounds, works in SECTIONS[name](asked.rounds):
            times = medians(rounds, works)
            floor = next(iter(times.values()))
            for what, seconds in times.items():
                numbers = f"{seconds * 1e3:9.1f} ms {seconds / floor:7.2f} ×"
                print(f"{name:<9} {what:<40} {numbers}", flush=True)


if __name__ == "__main__":
    main()
