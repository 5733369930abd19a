"""How long ten words take out of a file as large as glove.6B.100d.txt; a plain loop; pandas.

    python tests/benchmarks/glove_reader.py [--lines 400000] [--dim 100] [--keep FILE]

Makes the file in a temporary directory, reads it with each, in a process of its own with the file
in the page cache, and prints the times, their ratios and each process's peak memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

REPEATS = 5  # the least time of five counts; the slow way into a dict is run once

PREAMBLE = """
import sys, time
def peak_mb():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")
path, words = sys.argv[1], sys.argv[2:]
"""

OURS = """
from attncli.files.word_vectors import read_vectors
start = time.perf_counter()
found = read_vectors(path, words)
print(time.perf_counter() - start, peak_mb(), len(found.words))
"""

NEAREST = """
from attncli.files.word_vectors import nearest, read_vectors
vector = read_vectors(path, words[:1]).matrix[0]
start = time.perf_counter()
found = nearest(path, vector, 10, words[:1])
print(time.perf_counter() - start, peak_mb(), len(found.pairs))
"""

PLAIN = """
start = time.perf_counter()
wanted, found = {word.encode() for word in words}, {}
with open(path, "rb") as file:
    for line in file:
        word, _, rest = line.partition(b" ")
        if word in wanted:
            found[word] = [float(number) for number in rest.split()]
            if len(found) == len(wanted):
                break
print(time.perf_counter() - start, peak_mb(), len(found))
"""

PANDAS = """
import pandas
start = time.perf_counter()
frame = pandas.read_csv(path, sep=" ", header=None, index_col=0)
table = dict(zip(frame.index, frame.to_numpy()))
print(time.perf_counter() - start, peak_mb(), sum(word in table for word in words))
"""

PANDAS_LISTS = PANDAS.replace("dict(zip(frame.index, frame.to_numpy()))", "frame.T.to_dict('list')")


def make(path: Path, lines: int, dim: int) -> None:
    """Words and numbers as GloVe writes them; numbers repeat every 1009 lines."""
    random = np.random.default_rng(7)
    tails = [" ".join(f"{x:.5g}" for x in random.normal(0, 0.4, dim)).encode() for _ in range(1009)]
    letters = np.frombuffer(b"etaoinshrdlucmfwyp", dtype="S1")
    with path.open("wb") as file:
        for number in range(lines):
            stem = b"".join(random.choice(letters, random.integers(1, 7)))
            file.write(b"%s%d %s\n" % (stem, number, tails[number % 1009]))


def words_of(path: Path, places: list[int]) -> list[str]:
    with path.open("rb") as file:
        wanted = set(places)
        return [line.split()[0].decode() for at, line in enumerate(file) if at in wanted]


def measure(
    code: str, path: Path, words: list[str], repeats: int = REPEATS
) -> tuple[float, float, int]:
    """Seconds (the least of some runs), peak megabytes, words found."""
    runs = []
    for _ in range(repeats):
        call = [sys.executable, "-c", PREAMBLE + code, str(path), *words]
        out = subprocess.run(call, capture_output=True, text=True, check=False)
        if "No module named 'pandas'" in out.stderr:
            raise ModuleNotFoundError("pandas not installed")
        if out.returncode:
            raise RuntimeError(out.stderr)
        seconds, memory, found = out.stdout.split()
        runs.append((float(seconds), float(memory), int(found)))
    return min(runs)


def report(path: Path, lines: int) -> None:
    spread = words_of(path, [(2 * i + 1) * lines // 20 for i in range(9)] + [lines - 1])
    print(f"{path.stat().st_size / 1e6:.0f} MB, {lines} lines; the tenth word is the last line")
    cases = {
        "ten words": (OURS, spread),
        "nine words and one missing": (OURS, [*spread[:9], "etaoinshr"]),
        "nearest of one word": (NEAREST, spread),
        "a plain loop": (PLAIN, spread),
        "pandas, dict of rows": (PANDAS, spread),
        "pandas, dict of lists": (PANDAS_LISTS, spread),
    }
    seconds = {}
    for name, (code, words) in cases.items():
        try:
            seconds[name], memory, found = measure(
                code, path, words, 1 if code is PANDAS_LISTS else REPEATS
            )
        except ModuleNotFoundError as error:
            print(f"{name:28} {error}")
            continue
        print(f"{name:28} {seconds[name]:8.3f} s  {memory:8.1f} MB  {found} found")
    for theirs in list(seconds)[3:]:
        print(f"ten words / {theirs}: {seconds['ten words'] / seconds[theirs]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=400_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="use this file, making it if it is not there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "vectors.txt"
        if not path.exists():
            make(path, options.lines, options.dim)
        report(path, options.lines)


if __name__ == "__main__":
    main()
