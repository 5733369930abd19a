"""How many functions of attncli one call enters, and in how many files: what a reader follows.

    python tests/benchmarks/functions_entered.py [--list] [compute --q samples/three-tokens.json]

Counted with sys.setprofile: named functions of the package, each once, imports included; not
lambdas, comprehensions, class bodies and module bodies.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import attncli

PACKAGE = str(Path(attncli.__file__).parent)
OPTIMIZED = 0x1  # the flag of a function's code; bodies of classes and modules have none


def entered(arguments: list[str]) -> set[CodeType]:
    """The functions that the call enters."""
    found: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(PACKAGE):
            found.add(code)

    from attncli.cli.main import run

    sys.setprofile(profile)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            code = run(arguments)
    finally:
        sys.setprofile(None)
    if code:
        raise SystemExit(f"attncli {' '.join(arguments)} ended with {code}")
    return found


def main(words: list[str]) -> None:
    """Prints the numbers, by folder; with --list the functions too."""
    arguments = [word for word in words if word != "--list"]
    found = entered(arguments or ["compute", "--q", "samples/three-tokens.json"])
    places = [(code.co_filename.removeprefix(f"{PACKAGE}/"), code) for code in found]
    places.sort(key=lambda place: (place[0], place[1].co_firstlineno))
    if "--list" in words:
        for path, code in places:
            print(f"{path}:{code.co_firstlineno} {code.co_name}")
    folders = Counter(path.partition("/")[0] for path, _ in places)
    print(f"{len(found)} functions in {len({path for path, _ in places})} files")
    print(", ".join(f"{folder} {count}" for folder, count in folders.most_common()))


if __name__ == "__main__":
    main(sys.argv[1:])
