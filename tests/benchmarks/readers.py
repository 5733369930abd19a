"""How much memory and time reading a file of 100 MB takes. Run by hand:

    .venv/bin/python tests/benchmarks/readers.py

Each format in a process of its own: seconds, and the peak memory beyond an empty process as a
multiple of the array that is read (float64). Peak memory is Linux's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

READ = """
import sys, time
from attncli.files.load import load
from attncli.files.roles import pick
def peak_so_far():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
before = peak_so_far()
start = time.perf_counter()
array = pick(load(sys.argv[1]), "q")
took = time.perf_counter() - start
float(array.sum())  # a mapped file is read when it is used
print(took, (peak_so_far() - before) * 1024, array.size * 8)
"""


def write(folder: Path, size: float) -> list[Path]:
    """Files of about `size` MB: JSON and csv as text, npy and npz of as many numbers."""
    n = int(size * 1e6 / 20 / 100)  # a number of 17 digits and its comma take 20 characters
    x = np.random.default_rng(0).normal(size=(n, 100))
    paths = [folder / f"q.{ending}" for ending in ("json", "csv", "npz", "npy")]
    paths[0].write_text(json.dumps({"q": x.tolist()}))
    np.savetxt(paths[1], x, delimiter=",", fmt="%.17g")
    np.savez(paths[2], q=x)
    np.save(paths[3], x)
    return paths


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), 100):
            command = [sys.executable, "-c", READ, str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            took, peak, array = map(float, done.stdout.split())
            name, file = path.suffix[1:], path.stat().st_size / 1e6
            print(f"{name:<5} {file:6.0f} MB  {took:6.2f} s  peak {peak / array:5.1f} × the array")


if __name__ == "__main__":
    main()
