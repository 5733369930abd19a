"""How many functions of attncli one call enters, and in how many files: what a reader follows.

    python tests/benchmarks/functions_entered.py [compute --q samples/three-tokens.json]

Counted with sys.setprofile: named functions of the package, each once, imports included; not
lambdas, comprehensions, class bodies and module bodies.
"""

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
    """Prints how many functions and files, and the functions of each folder."""
    codes = entered(words or ["compute", "--q", "samples/three-tokens.json"])
    paths = [code.co_filename.removeprefix(f"{PACKAGE}/") for code in codes]
    print(f"{len(codes)} functions in {len({*paths})} files")
    print(Counter(path.partition("/")[0] for path in paths).most_common())


if __name__ == "__main__":
    main(sys.argv[1:])
