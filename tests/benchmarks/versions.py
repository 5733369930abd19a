"""The suite with other versions, in other places and as somebody else. By hand:

    .venv/bin/python tests/benchmarks/versions.py [--every N] [RUN …]

lowest        the lowest versions that pyproject.toml declares, on the oldest Python found here;
              of check the tests of its command alone
3.11 … 3.14   the newest versions, on each Python found here
spaces        in a folder with spaces in its name
user          as another user, who may not write to the checkout (needs root and setpriv)
random        in random order, three times

Without names all of them; `--every N` runs each N-th test alone. Each run has a copy of the project and a virtual environment of its own
in a temporary folder. Prints a table; the exit code is 1 where a run fails. `lowest` is a step of
.ci/run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FLOOR = re.compile(r"([\w.-]+)(?:\[.*\])?>=([\d.]+)")
LEFT_OUT = (".git", ".venv", ".*_cache", "__pycache__", "*.egg-info", ".hypothesis")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
SEEDS = (1, 2, 3)


def pythons() -> dict[str, str]:
    """Each Python that is found here: on the path, or in pyenv's folder."""
    found = {}
    for name in PYTHONS:
        places = sorted(Path.home().glob(f".pyenv/versions/{name}.*/bin/python"))
        path = shutil.which(f"python{name}") if not places else str(places[-1])
        if path and subprocess.run([path, "-c", "import venv"], check=False).returncode == 0:
            found[name] = path
    return found


def lowest() -> str:
    """The versions that pyproject.toml names as the lowest, as constraints of pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = project["dependencies"] + extras["safetensors"] + extras["figures"] + extras["test"]
    floors = (FLOOR.match(one) for one in declared)
    return "".join(f"{floor[1]}=={floor[2]}\n" for floor in floors if floor)


def suite(folder: Path, python: str, name: str, every: int) -> list[str]:
    """Installs a copy of the project there and gives the call that runs its tests."""
    here = folder / ("a folder with spaces" if name == "spaces" else "attncli")
    shutil.copytree(ROOT, here, ignore=shutil.ignore_patterns(*LEFT_OUT))
    subprocess.run([python, "-m", "venv", str(here / ".venv")], check=True)
    ours = str(here / ".venv/bin/python")
    install = [ours, "-m", "pip", "install", "-q", "-e", f"{here}[test]"]
    if name == "lowest":
        (folder / "lowest.txt").write_text(lowest())
        install += ["-c", str(folder / "lowest.txt")]
    if name == "random":
        install.append("pytest-randomly")
    subprocess.run(install, check=True)
    # Without a cache, for the folder may be read-only; a temporary folder for each user.
    call = [ours, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider"]
    call += ["--basetemp", str(folder / "tmp"), f"--every={every}"]
    if name == "lowest":  # bugs are searched for in numbers, which are those of any version
        call += [f"--ignore-glob=*/commands/check/test_{rest}*.py" for rest in ("[!c]", "c[!o]")]
        call.append("--ignore=tests/cli/test_rooms.py")  # rooms are the same in any version
    if name == "user":
        (folder / "home").mkdir()
        for path in (folder, folder / "home"):
            shutil.chown(path, 65534, 65534)
        return [*NOBODY, "env", f"HOME={folder / 'home'}", *call]
    return call


def run(name: str, python: str, every: int) -> tuple[bool, str]:
    """Whether the suite passes in this run, and its last line."""
    with tempfile.TemporaryDirectory() as folder:
        call = suite(Path(folder), python, name, every)
        here = Path(call[call.index("-m") - 1]).parents[2]
        quiet: dict[str, Any] = {"cwd": here, "capture_output": True, "text": True}
        for order in [[f"--randomly-seed={seed}"] for seed in SEEDS] if name == "random" else [[]]:
            done = subprocess.run([*call, *order], check=False, **quiet)
            lines = done.stdout.splitlines()
            if done.returncode:
                failed = [x[:300] for x in lines if x.startswith(("FAILED", "ERROR", "E  "))]
                return False, "\n".join([*lines[-1:], *failed, done.stderr[-500:]])
        return True, lines[-1]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    arguments = parser.parse_args()
    known = pythons()
    oldest = next(iter(known.values()), sys.executable)
    plain = sys.executable if os.geteuid() else shutil.which("python3", path="/usr/bin") or oldest
    runs = {"lowest": oldest, **known, "spaces": oldest, "random": oldest}
    if os.geteuid() == 0 and shutil.which("setpriv"):
        runs["user"] = plain  # which another user may run too
    asked = arguments.runs or list(runs)
    failed = False
    for name in (*asked, *(one for one in PYTHONS if one not in known and not arguments.runs)):
        if name not in runs:
            print(f"{name:<8} cannot be had here")
            failed = failed or name in arguments.runs
            continue
        start = time.monotonic()
        ok, last = run(name, runs[name], arguments.every)
        failed = failed or not ok
        state = "passed" if ok else "FAILED"
        print(f"{name:<8} {state}  {time.monotonic() - start:4.0f} s  {last}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
