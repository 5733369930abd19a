"""What small files cost: files below 1 MB that hold as much as they can, each through a command.

    python tests/benchmarks/small_files.py [PART OF A NAME …]

Prints seconds, memory and exit code of every call, and exits with 1 where one takes more than 1 GB
or 5 seconds, or ends otherwise than with 0, 1 or 2. Linux alone: the memory is that of wait4.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MOST_BYTES, MOST_SECONDS = 1e9, 5.0
SMALL = 1 << 20
UNPACKED = (9_900_000, 100_000_000)  # below what is read at any ratio of compression, and beyond

STAGE = b'{"kind":"stage","name":"q","symbol":"","formula":"","axes":[],"shape":[],"value":1},'
TRACE = b'{"attncli":"trace","version":1,"title":"","notes":[%s],"steps":[%s]}'
TEXTS = {  # what is repeated, between what
    "spaces.json": (b"[", b" ", b"[1]]"),
    "empty lists.json": (b"[", b"[],", b"[]]"),
    "numbers.json": (b"[[", b"1.5,", b"1]]"),
    "rows.json": (b"[", b"[1.5],", b"[1]]"),
    "NaN.json": (b"[[", b'"NaN",', b"1]]"),
    "tokens.json": (b'{"q":[[1]],"tokens":[', b'"ab",', b'"a"]}'),
    "objects.json": (b'{"q":[[1]],"x":[', b'{"a":1},', b"1]}"),
    "one text.json": (b'{"q":[[1]],"tokens":["', b"a", b'"]}'),
    "escapes.json": (b'{"q":[[1]],"tokens":["', b"\\u00e9", b'"]}'),
    "deep.json": (b"", b"[", b""),
    "digits.json": (b"[[", b"1", b"]]"),
    "fraction.json": (b"[[1.", b"1", b"]]"),
    "stages.json": (TRACE.split(b"%s")[0] + b'"a"],"steps":[', STAGE, STAGE[:-1] + b"]}"),
    "examples.json": (b'{"attncli":"examples","version":1,"examples":[', b"{},", b"{}]}"),
    "blank lines.csv": (b"", b"\n", b""),
    "commas.csv": (b"", b",", b""),
    "column.csv": (b"", b"1\n", b""),
    "labelled.csv": (b"", b"a,2\n", b""),
    "row.csv": (b"", b"1,", b"1\n"),
    "quoted.csv": (b"", b'"1",', b"1\n"),
    "blank lines.txt": (b"", b"\n", b""),
    "vectors.txt": (b"", b"a 1\n", b""),
    "one letter.txt": (b"", b"b 1\n", b""),
    "one vector.txt": (b"a", b" 1", b"\n"),
    "vectors.json": (b"{", b'"a":[1],', b'"b":[1]}'),
}


def files() -> Iterator[tuple[str, bytes]]:
    """Names and contents."""
    for name, (begin, part, end) in TEXTS.items():
        yield name, begin + part * ((SMALL - len(begin + end)) // len(part)) + end
        for size in UNPACKED:
            data = begin + part * (size // len(part)) + end
            yield f"{size // 10**6} MB {name}.gz", gzip.compress(data)
    for size in UNPACKED:
        for dtype in (np.float64, np.bool_):
            x = np.zeros((size // np.dtype(dtype).itemsize // 16, 16), dtype)
            file = io.BytesIO()
            np.save(file, x)
            yield f"{size // 10**6} MB {x.dtype}.npy.gz", gzip.compress(file.getvalue())
            file = io.BytesIO()
            labels = np.zeros(size // 8, "U1")
            np.savez_compressed(file, q=x, k=x, mask=x, tokens=labels)
            yield f"{size // 10**6} MB {x.dtype}.npz", file.getvalue()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        member = io.BytesIO()
        np.save(member, np.zeros(1 << 23))
        for n in range(12):
            archive.writestr(f"{n or 'q'}.npy", member.getvalue())
    yield "twelve members.npz", file.getvalue()
    for shape in ((11000, 11), (120_000, 1), (1, 120_000), (30_000, 1, 1), (200, 300, 1, 1)):
        file = io.BytesIO()
        np.save(file, np.ones(shape))
        yield f"{' × '.join(map(str, shape))}.npy", file.getvalue()
    header = {
        f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(9999)
    }
    text = json.dumps(header).encode()
    yield "tensors.safetensors", len(text).to_bytes(8, "little") + text + bytes(9999)


def calls(name: str) -> list[list[str]]:
    """What is asked of a file."""
    if "examples" in name:
        return [["examples", "--file", name]]
    if "vector" in name or "letter" in name or ".txt" in name:
        return [
            ["similarity", "bank", "--vectors", name],
            ["similarity", "a", "--nearest", "2", "--vectors", name],
            ["explain", "bank bank", "--glove", name],
        ]
    return [
        ["compute", "--q", name],
        ["compute", "--q", "[[1]]", "--mask", name],
        ["explain", "a b", "--weights", name],
        ["check", "--q", "[[1]]", "--observed", name],
        ["posenc", "--add", name],
    ]


def measured(arguments: list[str]) -> tuple[float, float, int]:
    """Seconds, bytes at most, and exit code of a call."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "attncli", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - started, usage.ru_maxrss * 1024, process.returncode


def main() -> int:
    wanted, n_calls, failed = sys.argv[1:], 0, 0
    worst = [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, data in files():
            if len(data) > SMALL or (wanted and not any(part in name for part in wanted)):
                continue
            Path(name).write_bytes(data)
            for arguments in calls(name):
                seconds, size, code = measured(arguments)
                is_bad = size > MOST_BYTES or seconds > MOST_SECONDS or code not in (0, 1, 2)
                print(
                    f"{'***' if is_bad else '   '} {seconds:5.1f} s {size / 1e6:6.0f} MB  exit {code}"
                    f"  {len(data):8,} bytes  {' '.join(arguments)}"
                )
                n_calls, failed = n_calls + 1, failed + is_bad
                worst = [max(worst[0], seconds), max(worst[1], size)]
            Path(name).unlink()
    print(
        f"{n_calls} calls, {failed} too costly; at most {worst[0]:.1f} s, {worst[1] / 1e6:.0f} MB"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
