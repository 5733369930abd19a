"""A script of plain NumPy gives the numbers of its trace, in a process without attncli."""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.errors import AttncliError
from attncli.formats.html import SCRIPT
from attncli.formats.python import script_of
from attncli.formats.variables import variables_of
from attncli.page.options import DisplayOptions
from attncli.programs.variants import variants
from attncli.trace import Stage, Trace
from tests.calls import SAMPLES, Call
from tests.formats.hostile import BODIES, LABELS, LEFT_SIDES
from tests.page.traces import WORDS, attention, every_kind, grouped, numbers, projected
from tests.programs.conventions import of_qkv, of_x
from tests.programs.random_programs import random_program
from tests.programs.references import inputs_of

Results = dict[str, Mapping[str, Any]]
RUN = """
import contextlib, io, runpy, sys, warnings
import numpy as np
warnings.simplefilter("error")
for path in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()), np.errstate():
        arrays = runpy.run_path(path)
    arrays = {k: x for k, x in arrays.items() if isinstance(x, (np.ndarray, np.generic))}
    np.savez(path + ".results.npz", **arrays)
assert "attncli" not in sys.modules
"""


def run(*paths: Path) -> list[Mapping[str, Any]]:
    """The variables of scripts, which a process of their own runs with warnings as errors."""
    words = [sys.executable, "-I", "-c", RUN, *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return [np.load(f"{path}.results.npz") for path in paths]


def names_in(text: str) -> list[str]:
    """The dotted names of the stages of a script, each in a line above it."""
    return re.findall(r"(?m)^# ([^\s(]+) \(.*\)", text)


def check(text: str, results: Mapping[str, Any], trace: Trace) -> int:
    """How many stages were compared: every one that has a formula is there, with its numbers."""
    names = names_in(text)
    variables = variables_of(names)
    assert {name for name, stage in trace.stages() if stage.expression} <= {*names}, text
    for name in names:
        ours, theirs = results[variables[name]], trace[name].value
        ours = np.broadcast_to(ours, theirs.shape) if name.endswith("mask") else ours
        assert ours.shape == theirs.shape, (name, text)
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12, err_msg=f"{name}\n{text}")
    return len(names)


def check_all(traces: Mapping[str, Trace], folder: Path) -> int:
    """How many stages of the scripts of these traces were compared."""
    texts = {
        name: "".join(script_of(trace, DisplayOptions()).text()) for name, trace in traces.items()
    }
    paths = [folder / f"{at}.py" for at in range(len(texts))]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, "utf-8")
    every = zip(texts.values(), run(*paths), traces.values(), strict=True)
    return sum(check(text, results, trace) for text, results, trace in every)


def code_of(trace: Trace, **options: Any) -> list[str]:
    """The lines of a script that compute, without comments and what is given."""
    text = attncli.render(trace, "python", **options)
    lines = [x.partition("  # ")[0] for x in text.splitlines() if re.match(r"\w+ = ", x)]
    return [x for x in lines if "np.array(" not in x and "np.arange(" not in x]


# ---- the numbers


def test_every_kind_of_trace_gives_its_numbers(tmp_path: Path) -> None:
    traces = {name: make() for name, make in every_kind().items() if name != "similarity"}
    assert check_all(traces, tmp_path) > 300


COMPUTE = f"""
    {SAMPLES}/three-tokens.json
    {SAMPLES}/three-tokens.json --causal --d-output random --seed 3
    {SAMPLES}/three-tokens.json --window 1,0 --scale none
    {SAMPLES}/three-tokens.json --softcap 2 --causal --mask-value -1e9
    {SAMPLES}/three-tokens.json --softmax-over queries --d-output random
    {SAMPLES}/three-tokens.json --sinks [0.5] --dropout 0.3 --seed 1
    {SAMPLES}/three-tokens.json --mask [[false,false,false],[true,false,true],[true,true,true]]
    {SAMPLES}/three-tokens.json --mask [[0.5,-1,2]] --softcap 3 --softcap-place after-bias
    {SAMPLES}/three-tokens.json --mask [[0,0,0],[1,0,1],[1,1,1]] --mask-means keep --empty-rows nan
    {SAMPLES}/three-tokens.json --mask [[0,0,0],[1,0,1],[1,1,1]] --mask-means keep --empty-rows uniform
    {SAMPLES}/three-tokens.json --tiles 2 --causal
    {SAMPLES}/three-tokens.json --split 1 --causal
    {SAMPLES}/three-tokens.json --qk-norm --d-output random
    {SAMPLES}/three-tokens.json --qk-norm --q-gain [2,0.5] --k-gain [1,-3] --d-output random
    {SAMPLES}/heads.json --causal --causal-align bottom-right
    {SAMPLES}/batch.npz --kv-len 2 --d-output random
    {SAMPLES}/cache.npz --causal
    {SAMPLES}/sentence.json --d-output random --causal
    {SAMPLES}/sentence.json --heads 2 --d-output random
    --random 5x4 --seed 2 --heads 2
    {SAMPLES}/three-tokens.json --formulas alibi
    {SAMPLES}/three-tokens.json --set scaled[i,j]=scores[i,j]/2
"""
OTHERS = """
    explain The#bank#near#the#bank --heads 2 --causal
    explain The#bank --block encoder --layers 2 --dim 4 --dropout 0.1
    explain The#bank --block decoder --target La#rive --dim 4 --heads 2
    explain The#bank --positions none --projection identity --dim 3
    posenc --len 5 --dim 7 --positions article --start 3
    posenc --len 5 --dim 6 --dots
    posenc --len 5 --dim 6 --kind rope --start 2
    posenc --len 5 --kind alibi --heads 6
    posenc --add [[1,0],[0,1],[1,1]]
    posenc --kind rope --apply [[1,0,2,3],[0,1,4,1],[1,1,5,2]]
    posenc --kind rope --apply [[1,0,2,3],[0,1,4,1],[1,1,5,2]] --layout interleaved
"""
CALLS = [f"compute {line}" for line in COMPUTE.split("\n") if line.strip()]
CALLS += [line.strip() for line in OTHERS.split("\n") if line.strip()]


def test_every_call_of_the_command_line_gives_its_numbers(call: Call, tmp_path: Path) -> None:
    paths, expected = list[Path](), list[dict[str, Any]]()
    for at, line in enumerate(CALLS):
        words = [word.replace("#", " ") for word in line.split()]
        paths.append(tmp_path / f"{at}.py")
        done = call(*words, "--output", paths[-1])
        assert (done.code, done.out) == (0, ""), (line, done.err)
        expected.append(dict(stages_of(call(*words, "--format", "json").json)))
    for line, path, stages, results in zip(CALLS, paths, expected, run(*paths), strict=True):
        names = names_in(path.read_text("utf-8"))
        variables = variables_of(names)
        assert {x for x, stage in stages.items() if stage.get("expression")} <= {*names}, line
        for name in names:
            theirs = np.array(stages[name]["value"], float)
            ours = np.broadcast_to(results[variables[name]], theirs.shape)
            np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12, err_msg=f"{line} {name}")


def stages_of(document: dict[str, Any], prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
    """The stages of a saved trace by their dotted names."""
    every = list[tuple[str, dict[str, Any]]]()
    for step in document["steps"]:
        name = f"{prefix}{step['name']}"
        every += stages_of(step, f"{name}.") if step["kind"] == "trace" else [(name, step)]
    return every


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 15), *(pytest.param(n, n + 60, marks=pytest.mark.exhaustive) for n in (15, 75, 135))],
)
def test_random_conventions_give_their_numbers(first: int, last: int, tmp_path: Path) -> None:
    made = {(make, n): make(n) for make in (of_qkv, of_x) for n in range(first, last)}
    traces = {
        f"{make.__name__} {n}": inputs.trace()
        for (make, n), inputs in made.items()
        if inputs is not None and inputs.convention.dtype == "float64"
    }
    assert len(traces) > (last - first) / 2  # half of what is drawn is neither refused nor rounded
    assert check_all(traces, tmp_path) > 15 * len(traces)


@pytest.mark.parametrize(
    ("step", "seeds"), [(5, 4), pytest.param(1, 60, marks=pytest.mark.exhaustive)]
)
def test_formulas_of_a_user_give_their_numbers(step: int, seeds: int, tmp_path: Path) -> None:
    given = {name: inputs_of(name, n=3) for name in [*variants()][::step]}
    given |= {of.text: of.inputs for of in map(random_program, range(seeds))}
    traces = {text: attncli.attend_by(text, x, d_output="random") for text, x in given.items()}
    assert check_all(traces, tmp_path) > 10 * len(traces)


COMPUTED_PLACES = """
size[p] = 3
size[d] = 5
A[p,d] = q[2,p,d // 2]
B[p,d] = q[2,p % 2,d // 2] + q[p,0,d % 2] * d
C[p,d] = q[p,d // 3,1] - A[p,d] * B[p // 2,d]
D[p] = sum[d](C[p,d] * q[p,d // 3,d // 2] where d != p)
E[p] = D[p * (2 - p)] if p < 2 else D[p]
"""


def test_computed_places_stand_beside_fixed_ones(tmp_path: Path) -> None:
    q = {"q": np.random.default_rng(3).normal(size=(3, 3, 5))}
    trace = attncli.attend_by(COMPUTED_PLACES, q, d_output="random")
    assert check_all({"places": trace}, tmp_path) > 8


# ---- how it is written


def test_it_is_written_as_in_a_textbook() -> None:
    trace = attention(causal=True, d_output="random")
    assert code_of(trace) == [
        "mask = np.where(j <= i[:, None], 0, -np.inf)",
        "scores = q @ k.T",
        "scaled = scores / np.sqrt(2)",
        "masked = scaled + mask",
        "powers = np.exp(masked - masked.max(axis=-1, keepdims=True))",
        "weights = powers / powers.sum(axis=-1, keepdims=True)",
        "output = weights @ v",
        "d_v = weights.T @ d_output",
        "d_weights = d_output @ v.T",
        "delta = (weights * d_weights).sum(axis=-1)",
        "d_masked = weights * (d_weights - delta[:, None])",
        "d_scores = d_masked / np.sqrt(2)",
        "d_q = d_scores @ k",
        "d_k = d_scores.T @ q",
    ]


def test_large_numbers_have_an_exponent() -> None:
    trace = attncli.attend_by("S[i,j] = max(x[i,j], -1e300) + 3", {"x": np.eye(2)})
    assert code_of(trace) == ["S = np.maximum(x, -1e+300) + 3"]


def test_heads_stacks_and_positions_have_their_axes_by_letters() -> None:
    encoder = code_of(every_kind()["encoder"]())
    assert 'q = np.einsum("im,mhd->hid", input_, w_q.reshape(4, 2, 2))' in encoder
    assert "concat = output.transpose(1, 0, 2).reshape(3, 4)" in encoder
    assert "attention_mean = attention_residual.mean(axis=-1)" in encoder
    assert any(line.startswith("hidden = np.maximum(0, attention_norm @ w_1") for line in encoder)
    cached = of_x(4)
    assert cached is not None
    assert "past_k" in cached.arrays
    assert "np.concatenate(" in attncli.render(cached.trace(), "python")
    waves = "positions = np.where(d % 2 == 0, np.sin(angles[:, d // 2]), np.cos(angles[:, d // 2]))"
    assert waves in code_of(every_kind()["posenc"]())


def test_what_no_key_is_left_to_and_nan_is_written_where_it_is_needed() -> None:
    never = [[-np.inf] * 3, [0, 0, 0], [0, -np.inf, 0]]
    assert any("is_empty" in line for line in code_of(attention(mask=never)))
    assert not any("is_empty" in line for line in code_of(attention(causal=True)))
    v = np.array([[1.0, 2.0], [3.0, 4.0], [np.nan, 5.0]])
    lines = code_of(attention(numbers(3, 2), numbers(3, 2), v, causal=True))
    assert not any(line == "output = weights @ v" for line in lines)


def test_a_named_stage_comes_with_what_it_follows_from_alone() -> None:
    names = [line.partition(" = ")[0] for line in code_of(attention(), stages="weights")]
    assert names == ["scores", "scaled", "powers", "weights"]
    text = attncli.render(attention(), "python", stages="weights")
    assert "\nv = " not in text
    assert text.rstrip().endswith('print("weights", weights, sep="\\n")')


def test_variables_have_as_few_blocks_as_tell_them_apart() -> None:
    layers = [
        f"encoder.{n}.{x}" for n in "12" for x in ("attention.q", "attention.norm", "ff.norm")
    ]
    assert [*variables_of(layers).values()] == [
        "encoder_1_q", "encoder_1_attention_norm", "encoder_1_ff_norm",
        "encoder_2_q", "encoder_2_attention_norm", "encoder_2_ff_norm",
    ]  # fmt: skip
    names = ["x", "encoder.1.attention.norm", "encoder.1.feed_forward.norm", "encoder.1.hidden"]
    assert [*variables_of(names).values()] == [
        "x", "attention_norm", "feed_forward_norm", "hidden",
    ]  # fmt: skip
    two = ["tile.1.k", "tile.2.k", "k", "for", "input", "a b", "a_b", "α", "1", "np", "print"]
    assert [*variables_of(two).values()] == [
        "tile_1_k", "tile_2_k", "k", "for_", "input_", "a_b", "a_b_", "alpha", "stage_1", "np_",
        "print_",
    ]  # fmt: skip


# ---- arrays in a file beside it


def test_large_arrays_are_in_a_file_beside_the_script(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = {name: rng.normal(size=(19, 23)).tolist() for name in "qkv"}
    Path("x.json").write_text(json.dumps(x), "utf-8")
    line = ("compute", "x.json", "--causal")
    done = call(*line, "--format", "python")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "q has 437 numbers" in done.err
    done = call(*line, "-o", "script.py")
    assert done.code == 0
    assert "script.npz" in done.err
    assert {*np.load("script.npz")} == {*"qkv"}
    trace = attncli.attend(**x, causal=True)
    text = Path("script.py").read_text("utf-8")
    assert len(text) < 3000
    assert check(text, run(tmp_path / "script.py")[0], trace) > 7
    full = call(*line, "--format", "python", "--full").out
    assert "np.load" not in full
    assert len(full) > 20_000


def test_script_and_arrays_are_written_both_or_neither(call: Call) -> None:
    rng = np.random.default_rng(5)
    x = {name: rng.normal(size=(19, 23)).tolist() for name in "qkv"}
    Path("x.json").write_text(json.dumps(x), "utf-8")
    for taken, other in (("s.py", "s.npz"), ("s.npz", "s.py")):
        Path(taken).write_text("mine", "utf-8")
        done = call("compute", "x.json", "-o", "s.py")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert f"{taken} exists already" in done.err
        assert Path(taken).read_text("utf-8") == "mine"
        assert not Path(other).exists()
        Path(taken).unlink()
    assert call("compute", "x.json", "-o", "s.npz", "--format", "python").code == 2
    assert [path.name for path in Path().iterdir()] == ["x.json"]
    assert call("compute", "x.json", "-o", "/dev/null", "--format", "python").code == 0
    assert call("compute", "x.json", "-o", "s.py").code == 0
    assert call("compute", "x.json", "-o", "s.py").code == 2
    assert call("compute", "x.json", "-o", "s.py", "--force").code == 0


# ---- what is no script


def test_what_cannot_be_written_is_refused_in_a_line(call: Call) -> None:
    three = f"compute {SAMPLES}/three-tokens.json"
    for line, words in {
        f"{three} --dtype float16": "--dtype",
        f"{three} --dtype bfloat16": "--dtype",
        f"{three} --head 1": "--head",
        f"{three} --rows 1:2": "--rows",
        f"{three} --blank": "--blank",
        f"{three} --work": "--work",
        f"{three} --sweep scale 1,2": "formula",
        "similarity mom=0.2,0.7,0.9 dad=0.9,0.7,0.8": "angles",
        f"{three} --stage q": "formula",
    }.items():
        done = call(*line.split(), "--format", "python")
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), line
        assert words in done.err, line


def test_a_formula_that_does_not_give_its_numbers_is_refused() -> None:
    trace = attention().mapped(
        lambda stage: (
            replace(stage, expression="S[i,j] = sum[d](q[i,d] * k[j,d]) + 1")
            if stage.name == "scores"
            else stage
        )
    )
    with pytest.raises(AttncliError, match="scores cannot be written"):
        attncli.render(trace, "python")


# ---- hostile text

NASTY = (*LABELS.values(), "a\nimport os", "\r\nx = 1", "coding: utf-7", "-*- coding: latin-1 -*-", '"""', "'''",
         "\\", "\f\v\x1c\x85\u2028", "#", "{q}", "\ud800", "\x00", "\u202e", "[0]\n)", "q; import os")  # fmt: skip


def test_no_text_of_a_trace_is_code() -> None:
    x, labels = numbers(3, 2), {"query": ("a", "b", "c"), "key": ("a", "b", "c")}
    plain = ast.dump(ast.parse(attncli.render(attention(x, labels=labels), "python")))
    for text in NASTY:
        labels = {"query": (text, text, "c"), "key": (text, "b", text)}
        trace = attention(x, labels=labels, notes=(text,))
        trace = replace(trace, title=text).mapped(
            lambda stage, text=text: replace(stage, formula=text, note=text)  # type: ignore[misc]
        )
        script = attncli.render(trace, "python")
        assert ast.dump(ast.parse(script)) == plain, text
        encoding, _ = tokenize.detect_encoding(io.BytesIO(script.encode()).readline)
        assert encoding == "utf-8"
        assert all(x.isprintable() or x == "\n" for x in script), text


def test_no_name_of_a_stage_is_code() -> None:
    for text in NASTY:
        axes, value = ("query", "key"), numbers(2, 3)
        given = Stage(text, "X", "", value, axes)
        reads, line = {"x": text}, "Z[i,j] = x[i,j] + 1"
        stage = Stage("z", text, text, value + 1, axes, reads=reads, expression=line)
        script = attncli.render(Trace(text, (given, stage)), "python")
        called = {
            ast.unparse(x.func) for x in ast.walk(ast.parse(script)) if isinstance(x, ast.Call)
        }
        assert called == {"np.array", "np.set_printoptions", "print"}, text
        assert not any(
            isinstance(x, ast.Import) and x.names[0].name != "numpy"
            for x in ast.walk(ast.parse(script))
        )


@pytest.mark.parametrize("left", LEFT_SIDES)
@pytest.mark.parametrize("body", BODIES)
def test_any_formula_of_a_file_is_a_script_or_an_error(left: str, body: str) -> None:
    trace = attention().mapped(lambda stage: replace(stage, expression=f"{left} = {body}"))
    with pytest.raises(AttncliError):
        attncli.render(trace, "python")


# ---- the page's copy, by node

NODE = shutil.which("node")
PAGE = """
const { readFileSync } = require("fs");
const [script, pages] = process.argv.slice(2).map(path => readFileSync(path, "utf8"));
const CHANGES = [() => {}, () => {  // numbers that are given
  const inputs = stages.filter(s => s.isInput && !masks().includes(s));
  inputs.forEach((s, n) => (s.data[(5 * n + 2) % s.data.length] = ((n * 91 + 37) % 400 - 200) / 64));
}, () => {  // a parameter
  for (const { params } of stages) for (const name in params) params[name] *= 1.25;
}, () => {
  const changed = masks()[0];
  if (changed) changed.data[changed.cols - 1] = -5;
}, () => {
  page.groups.filter(group => group.ifMasked).forEach(turnMask);
}];
const TAIL = `
  const results = [${CHANGES}].map(change => {
    stages.length = 0;
    readData();
    for (const group of page.groups) group.isMasked = false;
    change();
    computed().forEach(compute);
    const isOther = s => s.group.isMasked || Object.keys(s.params).some(name => s.params[name] !== s.had[name]);
    state.edited = stages.some(s => isOther(s) || s.data.some((x, at) => differs(x, s.original[at], 1e-12)));
    const numbers = stages.filter(s => !s.words).map(s => [s.id, s.shape, [...s.data].map(String)]);
    return [state.edited, hasScript() ? scriptNow() : "", numbers];
  });
  console.log(JSON.stringify(results));
`;
for (const textContent of pages.trim().split("\\n")) {
  const element = () => ({ textContent, append() {}, setAttribute() {}, addEventListener() {} });
  const document = { ...element(), createElement: element, getElementById: element, documentElement: element(), querySelectorAll: () => [] };
  new Function("document", "window", "matchMedia", script + TAIL)(document, element(), element);
}
"""
PAGES: dict[str, Any] = {
    "causal": lambda: attention(causal=True, labels=WORDS),
    "no mask": lambda: attention(numbers(3, 2), softcap=3.0, d_output="random"),
    "a bias": lambda: attention(mask=[[0, 1, 0], [1, 0, 0], [0.5, 0, -np.inf]]),
    "a mask of heads": lambda: grouped(mask=numbers(4, 1, 5), scale=0.3),
    "dropout": lambda: attention(dropout=0.3, seed=4, causal=True),
    "heads of x": lambda: projected(2, causal=True, d_output="random"),
    "a sentence": lambda: attncli.explain("The bank near the bank", dim=4, heads=2),
    "an encoder": lambda: attncli.explain("The bank", dim=4, heads=2, block="encoder", d_ff=5),
    "positions": lambda: attncli.posenc(4, 6),
    "tiles": lambda: attncli.attend_tiles(*(numbers(5, 2, seed=n) for n in range(3)), tiles=2),
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of each page, before and after changes: whether it has some, the script, and its numbers."""
    if NODE is None:
        pytest.skip("there is no node")
    folder = tmp_path_factory.mktemp("copied")
    pages = [attncli.render(make(), "html") for make in PAGES.values()]
    data = [re.findall(r'id="data">([^<]*)', page)[0] for page in pages]
    names = (*SCRIPT, "script")
    script = "\n".join(
        resources.files("attncli.formats.html").joinpath(f"{name}.js").read_text("utf-8")
        for name in names
    )
    for name, text in {"run.js": PAGE, "script": script, "pages": "\n".join(data)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    words = [str(NODE), *(str(folder / name) for name in ("run.js", "script", "pages"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(PAGES, map(json.loads, done.stdout.splitlines()), strict=True))


def test_the_copied_script_gives_the_numbers_of_the_page(
    copied: dict[str, Any], tmp_path: Path
) -> None:
    texts, expected = list[str](), list[dict[str, Any]]()
    for name, results in copied.items():
        assert results[0][1], name
        is_of_given = any(
            stage.value.size and not stage.expression for _, stage in PAGES[name]().stages()
        )
        assert results[1][0] == is_of_given, name
        for _, text, stages in results[:2]:
            texts.append(text)
            expected.append({name: (shape, numbers) for name, shape, numbers in stages})
    paths = [tmp_path / f"{at}.py" for at in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, "utf-8")
    n = 0
    for text, stages, results in zip(texts, expected, run(*paths), strict=True):
        names = names_in(text)
        variables = variables_of(names)
        for name in names:
            shape, numbers_of_page = stages[name]
            theirs = np.array([*map(float, numbers_of_page)])
            ours = results[variables[name]]
            ours = np.broadcast_to(ours, shape) if name.endswith("mask") else ours
            np.testing.assert_allclose(
                ours.ravel(), theirs, 1e-12, 1e-12, err_msg=f"{name}\n{text}"
            )
            n += 1
    assert n > 150


def test_no_script_is_copied_where_it_would_give_other_numbers(copied: dict[str, Any]) -> None:
    """A parameter, a mask that is changed, and one that is added."""
    for name, results in copied.items():
        for is_edited, text, _ in results[2:]:
            assert bool(text) != is_edited, name
    edited = {name: [x[0] for x in results[2:]] for name, results in copied.items()}
    assert edited["no mask"] == [True, False, True]
    assert edited["causal"] == [True, True, False]


def test_a_copied_script_says_its_call_while_nothing_is_changed(copied: dict[str, Any]) -> None:
    (_, plain, _), (_, other, _), *_ = copied["a sentence"]
    assert "attncli.explain('The bank near the bank', dim=4, heads=2)" in plain
    assert "attncli.explain" not in other


def test_a_page_of_large_arrays_or_of_a_part_has_no_script() -> None:
    large = attention(*(numbers(20, 23, seed=n) for n in range(3)))
    for text in (
        attncli.render(large, "html"),
        attncli.render(attention(), "html", stages="weights"),
    ):
        assert '"pieces"' not in text
        assert "scriptNow" not in text
