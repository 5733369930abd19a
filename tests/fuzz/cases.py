"""The case of a number: which input is fuzzed, how it is damaged, and the call that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, get_args, get_origin

from attncli.cli.commands import COMMANDS
from attncli.cli.groups import parameters_of
from tests import plain

from . import forms
from .forms import FORMS, SINGLE, Arrays, problem
from .mutate import damaged
from .reading import role_of


@dataclass
class Case:
    """A call: its words, flags (None of a switch), files and standard input.

    kind   of input that is fuzzed, a row of the benchmark's table
    large  whether files are read as large ones are: by NumPy's parser, mapped
    """

    kind: str
    command: str
    words: list[str] = field(default_factory=list)
    flags: list[tuple[str, str | None]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    large: bool = False

    @property
    def arguments(self) -> list[str]:
        """What a shell would pass."""
        flags = [part for flag in self.flags for part in flag if part is not None]
        return [self.command, *self.words, *flags]

    @property
    def given(self) -> dict[str, str | None]:
        """The value of each flag, the last one of a flag that is given twice."""
        return dict(self.flags)


HARMLESS = (
    ("--causal", None), ("--scale", "0.5"), ("--scale", "none"), ("--window", "1,0"),
    ("--softmax-over", "queries"), ("--softcap", "2"), ("--dtype", "float32"), ("--rows", "1"),
    ("--stage", "weights"), ("--stage", "output"), ("--mask-value", "-1e4"), ("--kv-len", "1"),
    ("--heads", "2"), ("--empty-rows", "nan"), ("--causal-align", "bottom-right"), ("--dropout", "0.5"),
    ("--d-output", "ones"), ("--empty-rows", "uniform"), ("--decimals", "2"),
)  # fmt: skip
"""Flags that most attentions take."""


def case_of(seed: int, number: int) -> Case:
    """The case of this number; kinds take turns."""
    rng = Random(f"{seed}/{number}")  # noqa: S311 - not for secrets
    kind = list(KINDS)[number % len(KINDS)]
    case = KINDS[kind](rng, kind)
    if not {"--format", "--output", "-o"} & case.given.keys():
        case.flags.append(("--format", "json"))
    return case


def _put(case: Case, flag: str, form: str, arrays: Arrays, rng: Random, intact: float = 0) -> None:
    """Adds a flag that gives these arrays in a form, damaged: a file, packed, or standard input."""
    ending, write = FORMS[form]
    data, name = write(arrays, rng), flag.strip("-")
    how, is_intact = rng.random(), rng.random() < intact
    is_packed = how < 0.2 or (case.kind == "zip, gz" and form != "literal")
    if not is_intact and (not is_packed or rng.random() < 0.5):
        data, is_intact = damaged(data, form, rng), True
    if form == "literal":
        case.flags.append((flag, data.decode("utf-8", "surrogateescape")))
        return
    member = rng.choice([*arrays] * 9 + ["x", "weights"]) if rng.random() < 0.1 else ""
    source, member = name + ending, f"::{member}" if member and form not in SINGLE else ""
    if is_packed and (rng.random() < 0.5 or ending == ".npz"):
        source, data = f"{source}.gz", forms.gzipped(data)
        data = data if is_intact else damaged(data, "gz", rng)
    elif is_packed:
        data = forms.zipped([(f"in/{source}", data), ("notes.md", b"notes")], rng)
        data = data if is_intact else damaged(data, "zip", rng)
        member = rng.choice(["", f"::in/{source}", f"::{source}", f"::{source}{member}"])
        source = f"{name}.zip"
    elif how > 0.96:
        source = name + rng.choice([".txt", "", ".json", ".csv"])
    if how > 0.8 and not case.stdin:
        case.stdin, source = data, "-"
    else:
        case.files[source] = data
    case.flags.append((flag, source + member))


def _inputs(form: str, arrays: Arrays, case: Case, rng: Random, intact: float = 0) -> None:
    """The flags for q, and in a form of one matrix for k and v too."""
    if form not in SINGLE:
        return _put(case, "--q", form, arrays, rng, intact)
    for name, x in arrays.items():
        if (role := role_of(name)) and role in "qkv":
            _put(case, f"--{role}", form, {name: x}, rng, max(intact, 0.5 * (role != "q")))
    return None


def _files(*of: str) -> Callable[[Random, str], Case]:
    """Cases of compute whose inputs are in one of these forms."""

    def make(rng: Random, kind: str) -> Case:
        case = Case(kind, "compute", large=rng.random() < 0.3)
        _inputs(rng.choice(of), problem(rng), case, rng)
        case.flags += [rng.choice(HARMLESS)] if rng.random() < 0.3 else []
        return case

    return make


def _masks(rng: Random, kind: str) -> Case:
    """A mask in a file of its own."""
    case = Case(kind, rng.choice([*["compute"] * 4, "explain"]))
    arrays = {name: x for name, x in problem(rng).items() if "mask" not in name}
    if case.command == "explain":
        arrays = {"q": forms.numbers(rng, 3, 2)}  # as many tokens
        case.flags.append(("--tokens", "a,b,c"))
    else:
        _inputs("json", arrays, case, rng, intact=1)
    by_role = {role_of(name): x for name, x in arrays.items()}
    q = by_role["q"]
    n_k = by_role.get("k", q).shape[-2] + (2 if "past_k" in by_role else 0)
    mask = forms.mask(rng, q.shape[-2], n_k)
    means = rng.choice([None, "keep", "ignore"] if mask.dtype == bool else [None, "add"])
    if means and mask.dtype == bool and rng.random() < 0.6:
        mask = mask.astype(float)
    means = rng.choice(["keep", "ignore", "add"]) if rng.random() < 0.1 else means
    form = rng.choice(["json", "literal", "npy", "npz", "csv", "safetensors"])
    _put(case, "--mask", form, {"mask": mask}, rng)
    case.flags += [("--mask-means", means)] if means else []
    case.flags += [rng.choice(HARMLESS)] if rng.random() < 0.3 else []
    return case


WORDS = ["cat", "the", "New York", "Bank", "é"]


def _weights(rng: Random, kind: str) -> Case:
    """Weights of one attention, on word vectors of three numbers."""
    case = Case(kind, "explain", flags=[("--tokens", "cat,the,Bank"), ("--glove", "words.txt")])
    case.files["words.txt"] = forms.to_glove(["cat", "the", "Bank"], rng)
    form = rng.choice(["json", "json", "npz", "safetensors"])
    _put(case, "--weights", form, forms.attention_weights(rng, 3), rng)
    more = [("--heads", "3"), ("--causal", None), ("--block", "encoder"), ("--pad-to", "4")]
    case.flags += [rng.choice(more)] if rng.random() < 0.3 else []
    return case


def _vectors(rng: Random, kind: str) -> Case:
    """Word vectors, for similarity or explain."""
    words = rng.sample(WORDS, rng.randint(2, 5))
    asked = [rng.choice([w, w, w.upper()]) for w in rng.sample(words, 2)]
    case, lines = Case(kind, "similarity", asked), forms.to_glove(words, rng)
    case.files["words.txt"] = damaged(lines, "glove", rng)
    case.flags.append(("--vectors", "words.txt"))
    if rng.random() < 0.3:
        case.flags += [("--nearest", "2")]
    elif rng.random() < 0.3:
        case.command, case.words = "explain", []
        case.flags = [("--tokens", json.dumps(asked)), ("--glove", "words.txt")]
    return case


def _tokens(rng: Random, kind: str) -> Case:
    """--tokens as a list with commas or as JSON."""
    words = rng.choices([*WORDS, "a", "b", "c", "Don't", "=1", "[red]"], k=rng.randint(1, 4))
    is_json = rng.random() < 0.5
    text = json.dumps(words, ensure_ascii=rng.random() < 0.5) if is_json else ",".join(words)
    data = damaged(text.encode(), "json" if is_json else "text", rng)
    case = Case(kind, "explain", flags=[("--tokens", data.decode("utf-8", "surrogateescape"))])
    more = [("--lowercase", None), ("--pad-to", "5"), ("--causal", None), ("--mask", "[[0.5]]")]
    case.flags += rng.sample(more, rng.randint(0, 2))
    return case


def _observed(rng: Random, kind: str) -> Case:
    """What check compares: one stage, or a file of several."""
    case, arrays = Case(kind, "check"), {n: forms.numbers(rng, 2, 2) for n in "qkv"}
    _inputs("json", arrays, case, rng, intact=1)
    stages = plain.attention(arrays, {"scale": rng.choice(["1/sqrt(d_k)"] * 3 + ["none"])})
    names = rng.sample(["scores", "weights", "output"], rng.randint(1, 3))
    form = rng.choice(["json", "json", "npz", "npy", "csv", "literal", "safetensors"])
    if form in SINGLE:
        case.flags.append(("--stage", names[0]))
    _put(case, "--observed", form, {name: stages[name] for name in names}, rng)
    case.flags.append(("--single", None))
    return case


def _examples(rng: Random, kind: str) -> Case:
    """A catalogue of one worked example: softmax of [1, 0] is [0.731, 0.269]."""
    claim = {"claim": "w", "stage": "weights", "at": {"query": 1}, "printed": ["0.73", "0.27"]}
    inputs: Any = {"q": [[1]], "k": [[1], [0]], "v": [[2, 3], [5, 7]], "mask": [[True, True]]}
    example = {"name": "one", "title": "t", "compute": "attention", "inputs": inputs}
    document = {"attncli": "examples", "version": 1, "source": {"id": "mine", "title": "A sheet"}}
    whole = {**document, "examples": [{**example, "claims": [claim]}]}
    case = Case(kind, "examples", flags=[("--verify", None), ("--file", "mine.json")])
    case.files["mine.json"] = damaged(json.dumps(whole).encode(), "examples", rng)
    return case


# ---- flags


def options_of(command: str) -> list[tuple[str, Any]]:
    """Every option of a command: its flag, and its choices, type or None of a switch."""
    options, declared = [], COMMANDS[command]
    for parameter in (p for group in declared.groups for p in parameters_of(group)):
        annotation, option = get_args(parameter.annotation)
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)] or [annotation]
        kind = annotation if get_origin(annotation) is Literal else kinds[0]
        takes = get_args(kind) if get_origin(kind) is Literal else None if kind is bool else kind
        names = [name for name in (option.default, *(option.param_decls or ())) if name]
        flags = [part for name in names if isinstance(name, str) for part in name.split("/")]
        if parameter.name not in declared.without:
            options += [(flag, takes) for flag in flags if flag.startswith("-")]
    return options


ODD = (
    "0", "-1", "1", "2", "3", "1.5", "1e400", "nan", "inf", "-inf", "", " ", "٣", "1_0", "1e9",
    str(10**30), "9" * 5000, "x" * 100_000, "\x1b[31m", "\ud800", "\x00", "none", "true", "[1,2]",
    "[[1, 0], [0, 1], [1, 1]]", "q2,k3", "1,2", "1:2", "2:1", "0:", "-", "--q", "q.json",
    "nosuch.json", "3,0", ",", "é\n", "0x10", "1e-320", "-0", "+1", "2:", ":-1", "5GB", "1kB",
    "weights", "output", "a.npy", "a.json", "a", "a.xyz", "/nosuch/a.json", "q.json::q",
    "{\"q\": 1}", "[]", "cat", "1.0",
)  # fmt: skip
VALID = ("1", "2", "3", "0.5", "1,0", "1:2", "none", "q.json", "q.json::k", "words.txt", "mask.json",
         "weights.json", "weights", "output", "cat,the", "[[0, 1.5, 2]]", "[0.5]", "--causal")  # fmt: skip
BASES: dict[str, tuple[list[str], list[tuple[str, str | None]]]] = {
    "compute": ([], [("--q", "q.json")]),
    "explain": (["the cat"], []),
    "posenc": ([], [("--len", "3"), ("--dim", "4")]),
    "similarity": (["cat=1,2,3", "the=0,1,2"], []),
    "model": (["nowhere", "the cat"], []),
    "diff": (["q.json", '{"q": [[1, 0], [0, 1], [2, 1]], "v": [[1, 2], [3, 4], [5, 6]]}'], []),
    "semantics": ([], [("--q", "q.json")]),
    "check": ([], [("--q", "q.json"), ("--observed", "[[0.5, 1]]"), ("--single", None)]),
}


def _flags(rng: Random, kind: str) -> Case:
    """Any command with one to three of its options, their values valid or not."""
    command = rng.choice(["compute", "compute", "explain", *COMMANDS])
    words, flags = BASES.get(command, ([], []))
    case = Case(kind, command, [*words], [*flags])
    options = [option for option in options_of(command) if option[0] not in ("--open", "--work")]
    for flag, takes in rng.sample(options, rng.choice([1, 1, 2, 3])):
        value = rng.choice(ODD)
        if takes and rng.random() < 0.6:
            values = takes if isinstance(takes, tuple) else VALID
            value = str(rng.choice(values))
        if flag == "--analogy":
            case.words += ["--analogy", "cat", "the", value]
        else:
            case.flags.append((flag, value if takes else None))
    case.words += [rng.choice(ODD)] if rng.random() < 0.1 else []
    case.files = {
        "q.json": forms.to_json({name: forms.numbers(rng, 3, 2) for name in "qkv"}, rng),
        "mask.json": json.dumps([[True, False, True]]).encode(),
        "words.txt": forms.to_glove(WORDS, rng),
        "weights.json": forms.to_json(forms.attention_weights(rng, 8), rng),
    }
    return case


KINDS: dict[str, Callable[[Random, str], Case]] = {
    "JSON": _files("json", "json", "literal"),
    "npy": _files("npy"),
    "npz": _files("npz"),
    "csv, tsv, txt": _files("csv", "tsv", "txt"),
    "safetensors": _files("safetensors"),
    "traces": _files("trace", "trace", "trace npz"),
    "zip, gz": _files(*FORMS),
    "masks": _masks,
    "weights": _weights,
    "word vectors": _vectors,
    "tokens": _tokens,
    "observed": _observed,
    "examples": _examples,
    "flags": _flags,
}
"""Each kind of input that is fuzzed, and what makes its cases."""
