"""The case of a number: which input is fuzzed, how it is damaged, and the call that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Literal, NamedTuple, get_args, get_origin

from attncli.cli.commands import COMMANDS
from attncli.cli.groups import parameters_of
from tests import plain

from . import forms
from .case import Case
from .forms import FORMS, SINGLE, Arrays, catalogue, problem
from .mutate import damaged, of_bytes
from .reading import role_of

HARMLESS = (
    ("--causal", None), ("--scale", "0.5"), ("--scale", "none"), ("--window", "1,0"),
    ("--softmax-over", "queries"), ("--softcap", "2"), ("--dtype", "float32"), ("--rows", "1"),
    ("--stage", "weights"), ("--stage", "output"), ("--mask-value", "-1e4"), ("--kv-len", "1"),
    ("--heads", "2"), ("--layout", "shd"), ("--causal-align", "bottom-right"), ("--dropout", "0.5"),
    ("--d-output", "ones"), ("--d-output", "random"),
)  # fmt: skip
"""Flags that any attention takes."""


def case_of(seed: int, number: int) -> Case:
    """The case of this number; kinds take turns."""
    rng = Random(f"{seed}/{number}")  # noqa: S311 - not for secrets
    kind = list(KINDS)[number % len(KINDS)]
    case = KINDS[kind](rng, kind)
    if case.command != "examples" and not {"--format", "--output", "-o"} & case.given.keys():
        case.flags.append(("--format", "json"))
    return case


def _put(case: Case, name: str, data: bytes, ending: str, rng: Random) -> str:
    """The SOURCE under which the case gives these bytes: a file, packed, or standard input."""
    how = rng.random()
    if how < 0.12 and not case.stdin and "-" not in case.given.values():
        case.stdin = data
        return "-"
    if how < 0.2:
        ending, data = f"{ending}.gz", forms.gzipped(data)
    elif how < 0.28 and ending != ".npz":
        members = {f"in/{name}{ending}": data, "notes.md": b"notes"}
        case.files[f"{name}.zip"] = forms.zipped(members, rng)
        return f"{name}.zip::{rng.choice(['in/', ''])}{name}{ending}"
    elif how < 0.32:
        ending = rng.choice([".txt", "", ".json", ".csv", ".npy", ending.upper()])
    case.files[name + ending] = data
    return name + ending


def _inputs(form: str, arrays: Arrays, case: Case, rng: Random, *, intact: bool = False) -> None:
    """Adds the flags that give these arrays in a form, damaged unless it should stay intact."""
    ending, write = FORMS[form]
    groups = {"q": arrays}
    if form in SINGLE:
        groups = {str(role_of(name)): {name: x} for name, x in arrays.items()}
        groups = {role: group for role, group in groups.items() if role in ("q", "k", "v")}
    for name, group in groups.items():
        data = write(group, rng)
        data = (
            data if intact or (len(groups) > 1 and rng.random() < 0.5) else damaged(data, form, rng)
        )
        if form == "literal":
            source = data.decode("utf-8", "surrogateescape")
        else:
            source = _put(case, name, data, ending, rng)
        if form in ("json", "npz", "safetensors") and rng.random() < 0.1:
            source += f"::{rng.choice([*arrays] * 5 + ['x'])}"
        if form.startswith("trace") and rng.random() < 0.1:
            source += f"::{rng.choice(['q', 'q', 'weights', 'x'])}"
        case.flags.append((f"--{name}", source))


def _files(*of: str) -> Callable[[Random, str], Case]:
    """Cases of compute whose inputs are in one of these forms."""

    def make(rng: Random, kind: str) -> Case:
        case, form = Case(kind, "compute", large=rng.random() < 0.3), rng.choice(of)
        _inputs(form, problem(rng), case, rng)
        if rng.random() < 0.3:
            case.flags.append(rng.choice(HARMLESS))
        if case.large and rng.random() < 0.5:
            case.flags.append(("--stage", "output"))
        return case

    return make


def _packed(rng: Random, kind: str) -> Case:
    """A gz or a zip, damaged itself."""
    case, form = Case(kind, "compute"), rng.choice(list(FORMS))
    ending, write = FORMS[form]
    data = write(problem(rng), rng)
    if rng.random() < 0.4:
        case.files[f"q{ending}.gz"] = damaged(forms.gzipped(data), "gz", rng)
        case.flags.append(("--q", f"q{ending}.gz"))
        return case
    members = {f"q{ending}": data, f"in/b{ending}": write(problem(rng), rng)}
    members = dict(rng.sample(sorted(members.items()), rng.choice([1, 2])))
    case.files["q.zip"] = damaged(forms.zipped(members, rng), "zip", rng)
    asked = rng.choice(
        ["", f"::q{ending}", f"::b{ending}", f"::in/b{ending}", f"::q{ending}::q", "::q"]
    )
    case.flags.append(("--q", f"q.zip{asked}"))
    return case


def _masks(rng: Random, kind: str) -> Case:
    """A mask in a file of its own."""
    case = Case(kind, rng.choice([*["compute"] * 4, "check", "explain"]))
    arrays = {name: x for name, x in problem(rng).items() if "mask" not in name}
    if case.command == "explain":
        arrays = {"q": forms.numbers(rng, 1, 3, 2)}  # three tokens, one head
        case.flags.append(("--tokens", "a,b,c"))
    else:
        _inputs("json", arrays, case, rng, intact=True)
    by_role = {role_of(name): x for name, x in arrays.items()}
    q, past = by_role["q"], by_role.get("past_k", forms.numbers(rng, 0, 1))
    n_k = by_role.get("k", q).shape[-2] + past.shape[-2]
    mask = forms.mask(rng, q.shape[-2], n_k, rng.randint(1, q.ndim))
    means = rng.choice([None, "keep", "ignore"] if mask.dtype == bool else [None, "add"])
    if means and mask.dtype == bool and rng.random() < 0.6:
        mask = mask.astype(float)
    if rng.random() < 0.1:
        means = rng.choice(["keep", "ignore", "add"])
    form = rng.choice(["json", "literal", "npy", "npz", "csv", "safetensors"])
    ending, write = FORMS[form]
    data = damaged(
        write({"mask": mask.reshape(1, -1) if form == "csv" and mask.ndim < 2 else mask}, rng),
        form,
        rng,
    )
    source = data.decode("utf-8", "surrogateescape")
    source = source if form == "literal" else _put(case, "mask", data, ending, rng)
    case.flags += [("--mask", source), *([("--mask-means", means)] if means else [])]
    if case.command == "check":
        given = {role: x for role, x in by_role.items() if role in ("q", "k", "v")}
        given = {"k": q, "v": given.get("k", q), **given}
        seen = json.dumps(plain.attention(given, {})["output"].tolist())
        case.flags += [("--observed", seen), ("--single", None)]
    elif rng.random() < 0.3:
        more = [("--empty-rows", "uniform"), ("--causal", None), ("--scale", "none")]
        case.flags.append(rng.choice([*HARMLESS, *more] if case.command == "compute" else more))
    return case


WORDS = ["cat", "the", "New York", "Bank", "é"]


def _weights(rng: Random, kind: str) -> Case:
    """Weights of one attention, on word vectors of three numbers."""
    case = Case(kind, "explain", flags=[("--tokens", "cat,the,Bank")])
    case.files["words.txt"] = forms.to_glove(forms.word_vectors(rng, ["cat", "the", "Bank"]), rng)
    case.flags += [("--glove", "words.txt"), ("--positions", rng.choice(["none", "paper"]))]
    form = rng.choice(["json", "json", "npz", "safetensors"])
    ending, write = FORMS[form]
    data = damaged(write(forms.attention_weights(rng, 3, torch=rng.random() < 0.5), rng), form, rng)
    case.flags.append(("--weights", _put(case, "weights", data, ending, rng)))
    if rng.random() < 0.3:
        more = [("--heads", "3"), ("--causal", None), ("--scale", "none"), ("--pad-to", "4")]
        case.flags.append(rng.choice(more))
    elif rng.random() < 0.2:
        case.flags += [("--block", "encoder"), ("--d-ff", "0")]
    return case


def _vectors(rng: Random, kind: str) -> Case:
    """Word vectors, for similarity or explain."""
    words = rng.sample(WORDS, rng.randint(2, 5))
    vectors, form = forms.word_vectors(rng, words), rng.choice(["glove", "glove", "json", "inline"])
    asked = [rng.choice([w, w, w.upper()]) for w in rng.sample(words, 2)]
    if form == "inline":
        texts = [
            f"{w}={','.join(map(str, x.tolist()))}".replace(" ", "") for w, x in vectors.items()
        ]
        texts = [
            of_bytes(t.encode(), rng).decode("utf-8", "replace") if rng.random() < 0.5 else t
            for t in texts
        ]
        return Case(kind, "similarity", [text for text in texts if text])
    write = forms.to_json if form == "json" else forms.to_glove
    case = Case(kind, "similarity", asked)
    data = damaged(write(vectors, rng), form, rng)
    source = _put(case, "words", data, ".json" if form == "json" else ".txt", rng)
    if rng.random() < 0.3:
        tokens = ("--tokens", json.dumps(asked))
        case.command, case.words = "explain", []
        case.flags = [tokens, ("--glove", source), ("--unknown", rng.choice(["zero", "error"]))]
    else:
        case.flags.append(("--vectors", source))
        case.flags += [("--nearest", "2")] if rng.random() < 0.4 else []
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
    _inputs("json", arrays, case, rng, intact=True)
    stages = plain.attention(arrays, {"scale": rng.choice(["1/sqrt(d_k)", "none"])})
    named = {
        name: stages[name]
        for name in rng.sample(["scores", "weights", "output"], rng.randint(1, 3))
    }
    form = rng.choice(["json", "json", "npz", "npy", "csv", "literal", "safetensors"])
    if form in SINGLE and rng.random() < 0.7:
        case.flags.append(("--stage", next(iter(named))))
    ending, write = FORMS[form]
    data = damaged(write(named, rng), form, rng)
    source = data.decode("utf-8", "surrogateescape") if form == "literal" else ""
    case.flags.append(("--observed", source or _put(case, "seen", data, ending, rng)))
    case.flags += rng.choice([[], [], [("--rows", "2")], [("--decimals", "2")]])
    case.flags.append(("--single", None))
    return case


def _examples(rng: Random, kind: str) -> Case:
    """A catalogue of one worked example."""
    case = Case(kind, "examples", rng.choice([[], [], ["one"]]))
    data = damaged(json.dumps(catalogue(rng)).encode(), "examples", rng)
    case.flags = [("--verify", None), ("--file", _put(case, "mine", data, ".json", rng))]
    case.flags.append(("--format", "json"))
    return case


# ---- flags


class Option(NamedTuple):
    """An option as a command declares it: its flag, and its choices, type or None of a switch."""

    flag: str
    takes: Any


def options_of(command: str) -> list[Option]:
    """Every option of a command."""
    found = []
    declared = COMMANDS[command]
    for parameter in (p for group in declared.groups for p in parameters_of(group)):
        annotation, option = get_args(parameter.annotation)
        names = [option.default, *(option.param_decls or ())]
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)] or [annotation]
        kind = annotation if get_origin(annotation) is Literal else kinds[0]
        takes = get_args(kind) if get_origin(kind) is Literal else kind
        flags = [part for name in names if isinstance(name, str) for part in name.split("/")]
        if parameter.name not in declared.without:
            takes = None if kind is bool else takes
            found += [Option(flag, takes) for flag in flags if flag.startswith("-")]
    return found


ODD = (
    "0", "-1", "1", "2", "3", "1.5", "1e400", "nan", "inf", "-inf", "", " ", "٣", "1_0", "1e9",
    str(10**30), "9" * 5000, "x" * 100_000, "\x1b[31m", "\ud800", "\x00", "none", "true", "[1,2]",
    "[[1, 0], [0, 1], [1, 1]]", "q2,k3", "1,2", "1:2", "2:1", "0:", "-", "--q", "q.json",
    "nosuch.json", "3,0", ",", "é\n", "0x10", "1e-320", "-0", "+1", "2:", ":-1", "5GB", "1kB",
    "weights", "output", "a.npy", "a.json", "a", "a.xyz", "/nosuch/a.json", "q.json::q",
    "{\"q\": 1}", "[]", "cat", "1.0",
)  # fmt: skip
VALID = {
    "--split": ("1", "1,2"),
    "--scale": ("0.5", "none"), "--window": ("1,0", "-1,-1"), "--softcap": ("2",), "--seed": ("7",),
    "--mask-value": ("-1e9",), "--dropout": ("0.3",), "--kv-len": ("2",), "--rows": ("1:2", "2:"),
    "--cols": ("1", ":2"), "--cell": ("1,2",), "--stage": ("weights", "scores"),
    "--precision": ("9",), "--mask": ("mask.json", "[[0, 1.5, 2]]"), "--k": ("q.json::k",),
    "--v": ("q.json::v",), "--tokens": ("cat,the",), "--glove": ("words.txt",),
    "--vectors": ("words.txt",), "--base": ("100",), "--weights": ("weights.json",),
    "--add": ("q.json::q",), "--apply": ("q.json::q",),
    "--observed": ("[[0.5, 1], [1, 2], [0, 0]]",), "--max-size": ("200MB",), "--width": ("80",),
    "--target": ("la rive",), "--file": ("mine.json",), "--q": ("q.json", "[[1, 0], [0, 1]]"),
    "--sinks": ("[0.5]",), "--past-k": ("[[1, 2]]",), "--past-v": ("[[1, 2]]",), "--head": ("1",),
    "--against": ("--causal", "--scale none", "--rows 1"),
}  # fmt: skip
BASES: dict[str, tuple[list[str], list[tuple[str, str | None]]]] = {
    "compute": ([], [("--q", "q.json")]),
    "explain": (["the cat"], []),
    "posenc": ([], [("--len", "3"), ("--dim", "4")]),
    "similarity": (["cat=1,2,3", "the=0,1,2"], []),
    "examples": ([], []),
    "model": (["nowhere", "the cat"], []),
    "diff": (["q.json", '{"q": [[1, 0], [0, 1], [2, 1]], "v": [[1, 2], [3, 4], [5, 6]]}'], []),
    "semantics": ([], [("--q", "q.json")]),
    "check": ([], [("--q", "q.json"), ("--observed", "[[0.5, 1]]"), ("--single", None)]),
}
NOT_FUZZED = {"--debug", "--step", "--format", "--output", "-o", "--work"}
"""Left to one flag case in six: these print something else than numbers."""


def _flags(rng: Random, kind: str) -> Case:
    """Any command with one to three of its options, their values valid or not."""
    command = rng.choice(["compute", "compute", "explain", *COMMANDS])
    words, flags = BASES[command]
    case = Case(kind, command, list(words), list(flags))
    options = [option for option in options_of(command) if option.flag != "--open"]
    if rng.random() < 0.85:
        options = [option for option in options if option.flag not in NOT_FUZZED]
    for flag, takes in rng.sample(options, rng.choice([1, 1, 2, 3])):
        value: str | None = rng.choice(ODD)
        if takes is None:
            value = None
        elif rng.random() < 0.6:
            values = takes if isinstance(takes, tuple) else VALID.get(flag, ("1", "2", "3"))
            value = rng.choice([str(one) for one in values])
        if flag == "--analogy":
            case.words += ["--analogy", "cat", "the", str(value)]
            continue
        case.flags.append((flag, value))
    if rng.random() < 0.1:
        case.words.append(rng.choice(ODD))
    arrays = {
        "q": forms.numbers(rng, 3, 2),
        "k": forms.numbers(rng, 3, 2),
        "v": forms.numbers(rng, 3, 2),
    }
    case.files = {
        "q.json": forms.to_json(arrays, rng),
        "mask.json": json.dumps([[True, False, True]]).encode(),
        "words.txt": forms.to_glove(forms.word_vectors(rng, WORDS), rng),
        "weights.json": forms.to_json(forms.attention_weights(rng, 8, torch=False), rng),
        "mine.json": json.dumps(catalogue(rng)).encode(),
    }
    return case


KINDS: dict[str, Callable[[Random, str], Case]] = {
    "JSON": _files("json", "json", "literal"),
    "npy": _files("npy"),
    "npz": _files("npz"),
    "csv, tsv, txt": _files("csv", "tsv", "txt"),
    "safetensors": _files("safetensors"),
    "traces": _files("trace", "trace", "trace npz"),
    "zip, gz": _packed,
    "masks": _masks,
    "weights": _weights,
    "word vectors": _vectors,
    "tokens": _tokens,
    "observed": _observed,
    "examples": _examples,
    "flags": _flags,
}
"""Each kind of input that is fuzzed, and what makes its cases."""
