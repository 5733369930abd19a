"""Which tests fail for a fault of one line: whether the suite still guards what it guarded. By hand:

    python tests/benchmarks/faults_planted.py [--jobs 2] [WORD …]     (those whose name has the word)

Each fault is written into a copy of the tracked files; the tests of the folders near it run there
as by default, up to five failures. It ends with 1 where no test fails, or where the line that a
fault changes is no longer there once: then the fault has to follow the code.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PYTEST = "-m pytest -q --tb=no -rfE --maxfail=5 -p no:cacheprovider"


class Fault(NamedTuple):
    """A line of attncli/ and what stands there instead.

    tests  the folders or files of tests/ that run
    needs  a module without which these tests are skipped
    """

    name: str
    path: str
    before: str
    after: str
    tests: str
    needs: str = ""


# fmt: off
FAULTS = [
    Fault("a sink is not in the sum of softmax", "formula/kernels.py",
          "total = total if sink is None else total + np.exp(sink - top)",
          "total = total", "attention conformance"),
    Fault("empty rows that are uniform get 1, not 1/n", "formula/kernels.py",
          '"uniform": 1.0 / max(1, size)', '"uniform": 1.0', "attention conformance"),
    Fault("0 · ∞ is no longer NaN", "formula/kernels.py",
          "any_of(reaching, np.isnan(v)) | any_of(reaching & (a == 0), np.isinf(v))",
          "any_of(reaching, np.isnan(v))", "attention conformance"),
    Fault("a window is one too narrow on the left", "attention/masks.py",
          "allowed &= distance >= -left", "allowed &= distance > -left", "attention conformance"),
    Fault("grouped heads as if tiled", "attention/plan.py",
          '"g·r" if self.convention.head_order == "blocks" else "r·g"', '"r·g"', "attention conformance"),
    Fault("the gradient of a quotient's divisor has the wrong sign", "formula/derivative.py",
          '("d / b", "-(d * a / b ** 2)")', '("d / b", "d * a / b ** 2")', "attention"),
    Fault("the gradient of the softcap has the wrong sign", "attention/formulas.py",
          "d[b,h,i,j] * (1 - (y[b,h,i,j] / cap) ** 2)", "d[b,h,i,j] * (1 + (y[b,h,i,j] / cap) ** 2)",
          "attention commands/check"),
    Fault("the gradient of the sinks has the wrong sign", "attention/formulas.py",
          "ds[h] = -sum[b,i](", "ds[h] = sum[b,i](", "attention commands/check"),
    Fault("streaming: the largest score is subtracted too late", "attention/streaming.py",
          "top = np.maximum(shift, powers.max(axis=1, keepdims=True))",
          "top = np.where(np.isneginf(shift), powers.max(axis=1, keepdims=True), shift)", "attention conformance"),
    Fault("streaming: the numbers of a mask without log2 e", "attention/streaming.py",
          "(bias * LOG2_E)", "(bias * 1.0)", "attention conformance"),
    Fault("streaming: the norm is not rounded up", "attention/streaming.py",
          "* (1 + d * info.eps) + d * float(info.tiny)", "", "attention conformance"),
    Fault("W_k and W_v of different numbers of heads are accepted", "transformer/published.py",
          'if heads.get("w_k", kv_heads) != heads.get("w_v", kv_heads):', "if False:", "attention cli"),
    Fault("half a unit of a decimal is 0.6 of it", "tolerance/rule.py",
          "0.5 * 10.0**-self.n", "0.6 * 10.0**-self.n", "commands/check"),
    Fault("pairs of bugs that touch the same thing are tried", "commands/check/search.py",
          "if not a.touches & b.touches]", "]", "commands/check"),
    Fault("infinities of a mask are counted with the wrong sign", "files/load.py",
          "infinite &= array > 0", "infinite &= array < 0", "files cli"),
    Fault("the labels of a cut trace are kept", "files/trace.py",
          "if len(labels) == sizes[0]), None)", "), None)", "files cli"),
    Fault("nearest words: the cosine is not clipped to 1", "words/vectors.py",
          "np.clip(rows @ direction / lengths, -1.0, 1.0)", "(rows @ direction / lengths)", "files words"),
    Fault("on no key is said from 5 % on, not 1 %", "page/sentences.py",
          "MISSING = 0.01", "MISSING = 0.05", "page formats cli/test_golden.py"),
    Fault("numbers have an exponent from 1e8 on, not 1e7", "page/numbers.py",
          "WIDE = 1e7", "WIDE = 1e8", "page formats"),
    Fault("csv: words are not guarded against formulas", "formats/exact.py",
          'write = guarded if values.dtype.kind == "U"', 'write = str if values.dtype.kind == "U"', "page formats"),
    Fault("the analogy is a − b for b − a", "formula/common.py",
          "x[1,d] - x[0,d]", "x[0,d] - x[1,d]", "words cli"),
    Fault("the difference of NaN and NaN is NaN, not 0", "commands/diff/comparison.py",
          "where=(a == b) | (np.isnan(a) & np.isnan(b))", "where=a == b", "commands/diff cli"),
    Fault("what surely fits into memory is 1024 times as large", "budget.py",
          "SURELY_FITS = 1 << 16", "SURELY_FITS = 1 << 26", "commands/compute"),
    Fault("a reversed causal mask of the catalogue begins one key later", "commands/check/bugs/catalogue.md",
          "right if j >= rows[i] + {first}", "right if j >= rows[i] + 1 + {first}", "commands/check"),
    Fault("the noise of float32 is twice as large", "tolerance/number_types.py",
          "return cls(unit, unit, unit)", "return cls(2 * unit, 2 * unit, 2 * unit)", "commands/check"),
    Fault("padding is not masked", "words/sentence.py",
          "[not is_padding(token) for token in self.tokens]", "[True for token in self.tokens]",
          "commands/explain/test_command.py"),
    Fault("induction counts the query itself", "commands/model/heads.py",
          "if earlier + 1 < query]", "if earlier + 1 <= query]", "commands/model test_doctests.py"),
    # of what lies further out
    Fault("the first query is counted as its own predecessor", "commands/model/heads.py",
          "weights[:, i, i - 1].mean(-1)", "weights[:, i - 1, i].mean(-1)", "commands/model test_doctests.py"),
    Fault("a model's own softmax is checked without its gradients", "commands/model/call.py",
          "if has_gradients or name not in GRADIENTS]", "if name not in GRADIENTS]", "commands/model", "transformers"),
    Fault("a call of more tokens than labels takes any labels", "commands/model/call.py",
          "if len(tokens) != n_k:", "if len(tokens) < n_k:", "commands/model", "torch"),
    Fault("libraries that differ by a tenth give the same", "commands/semantics/outcomes.py",
          "SAME = 1e-9", "SAME = 0.1", "commands/semantics cli"),
    Fault("the largest group of libraries is the last", "commands/semantics/outcomes.py",
          "together.sort(key=len, reverse=True)", "together.sort(key=len)", "commands/semantics cli"),
    Fault("a way recorded for a claim may give anything", "commands/examples/judge.py",
          "if other.verdict not in _FINE]", "if other.verdict not in (*_FINE, 'differs')]", "commands/examples"),
    Fault("what follows from wrong printed numbers is called rounding", "commands/examples/judge.py",
          "if used <= set(_RIGHT) else", "if True else", "commands/examples cli"),
    Fault("safetensors: the tensors may leave a gap", "files/safetensors.py",
          "return ends[::2] == ends[1::2] and all(", "return all(", "files"),
    Fault("html: the script is allowed by the digest of another", "formats/html/__init__.py",
          "script_hash=_digest(script)", "script_hash=_digest(style)", "page formats cli"),
    Fault("html: the title of the page is not escaped", "formats/html/__init__.py",
          "title=escape(clean(trace.title)),", "title=trace.title,", "page formats cli"),
]
# fmt: on


def planted(fault: Fault) -> tuple[int, list[str]]:
    """How many tests ran and failed with the fault (-1: it cannot be planted), and which."""
    with tempfile.TemporaryDirectory() as folder:
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        copy = ["tar", "--null", "--files-from=-", "--create", "--file=-"]
        packed = subprocess.run(copy, cwd=ROOT, input=files.stdout, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], cwd=folder, input=packed.stdout, check=True)
        file = Path(folder, "attncli", fault.path)
        text = file.read_text("utf-8") if file.exists() else ""
        if text.count(fault.before) != 1:
            return -1, [f"{fault.path} has {text.count(fault.before)} times: {fault.before}"]
        file.write_text(text.replace(fault.before, fault.after), "utf-8")
        names = [name for name in fault.tests.split() if Path(folder, "tests", name).exists()]
        paths = [f"tests/{name}" for name in names]
        call = [sys.executable, *PYTEST.split(), *paths]
        result = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", result.stdout, flags=re.MULTILINE)
    if result.returncode not in (0, 1, 2):
        return -1, result.stdout.splitlines()[-3:]
    return len(failed), failed


def main() -> int:
    """Plants the faults, the chosen ones or all; prints a line for each, and the tests below it."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("words", nargs="*", help="words of which the name of a fault has one")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    asked = parser.parse_args()
    chosen = [fault for fault in FAULTS if any(word in fault.name for word in asked.words or [""])]
    able = [fault for fault in chosen if not fault.needs or find_spec(fault.needs)]
    n_caught = 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        for fault, (n_failed, which) in zip(able, pool.map(planted, able), strict=True):
            print(f"{n_failed:3}  {fault.name} ({fault.path})", *which, sep="\n       ", flush=True)
            n_caught += n_failed > 0
    print(f"{n_caught} of {len(able)} faults are caught")
    print(*(f"not planted, needs {x.needs}: {x.name}" for x in chosen if x not in able), sep="\n")
    return int(n_caught < len(able))


if __name__ == "__main__":
    sys.exit(main())
