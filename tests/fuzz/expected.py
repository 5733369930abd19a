"""What an accepted call must give: its files read once more, its attention computed once more."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from tests import plain
from tests.plain import LARGEST, READ, reliable

from . import second, verdicts
from .case import Case
from .inputs import KNOBS, flags_of, inputs_of, labels_of, only, read_mask
from .reading import NoOpinionError, RefusalError
from .vectors import nearest, vectors_of
from .weights import weights_of

EXACT = {*READ, "embeddings", "vectors"}
"""Stages that are read, not computed: equal to the last bit."""
ASKED = {"lse"}
"""Stages that are shown only where they are named."""
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-1}


class Shown(NamedTuple):
    """A stage as it was printed."""

    value: Array
    axes: list[str]
    labels: dict[str, list[str]]


@dataclass(frozen=True)
class Expected:
    """What one reading of the files gives: stages and labels by dotted name, and the convention."""

    stages: dict[str, Array]
    labels: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    how: dict[str, Any] | None = None


def misread(case: Case, out: str) -> str:
    """What is wrong with the result of an accepted call; "" where nothing is.

    Raises NoOpinionError where the second reading has none.
    """
    if case.given.get("--format") != "json" or {"--output", "-o"} & case.given.keys():
        raise NoOpinionError("other formats are held by tests of their own")
    if case.command == "semantics" or "--semantics" in case.given:
        raise NoOpinionError("what a library means is held by tests that run it")
    if case.command == "diff" or "--against" in case.given:
        raise NoOpinionError("comparisons are held by tests of their own")
    try:
        judge = {"check": verdicts.check, "examples": verdicts.examples}.get(case.command, _trace)
        return judge(case, out)
    except NoOpinionError:
        raise
    except Exception as problem:
        return f"accepted, but {type(problem).__name__}: {problem}"


# ---- traces: compute, explain, posenc, similarity


def _trace(case: Case, out: str) -> str:
    document, wrong = json.loads(out), ""
    shown, parts = shown_stages(document), {part.get("name"): part for part in document["steps"]}
    makers = {"compute": _compute, "explain": _explain, "posenc": _posenc}
    how = parts.get("attention", document).get("convention")
    for expected in makers.get(case.command, _similarity)(case, shown):
        wrong = _difference(case, expected, shown, how)
        if not wrong:
            return ""
    return wrong


def shown_stages(document: Any, prefix: str = "") -> dict[str, Shown]:
    """The stages of a trace that was printed as JSON."""
    found: dict[str, Shown] = {}
    for step in document["steps"]:
        name = prefix + step.get("name", "")
        if step["kind"] == "trace":
            found |= shown_stages(step, f"{name}." if step.get("name") else prefix)
        else:
            found[name] = Shown(second.json_array(step["value"]), step["axes"], step["labels"])
    return found


def _difference(case: Case, expected: Expected, shown: dict[str, Shown], how: Any) -> str:
    may_lack = {"--stage", "--rows", "--cols", "--cell"} & case.given.keys()
    if not may_lack and (lacking := expected.stages.keys() - shown.keys() - ASKED):
        return f"no stage {sorted(lacking)}"
    if expected.how is not None:
        for name in KNOBS:
            found = second.NOT_JSON.get(str(how[name]), how[name])
            wanted = expected.how.get(name, plain.DEFAULTS[name])
            if found != (list(wanted) if isinstance(wanted, tuple) else wanted):
                return f"{name} is {found}, not {wanted}"
    dtype = (expected.how or {}).get("dtype", "float64")
    for name, wanted in expected.stages.items():
        if name in shown and (wrong := _unequal(case, name, wanted, shown[name], dtype)):
            return f"{name}: {wrong}"
    for (name, axis), labels in expected.labels.items():
        whole = not {"--rows", "--cols", "--head", "--batch", "--cell"} & case.given.keys()
        if whole and name in shown and shown[name].labels.get(axis) != labels:
            return f"{name} is labelled {shown[name].labels.get(axis)}, not {labels}"
    return ""


def _unequal(case: Case, name: str, wanted: Array, shown: Shown, dtype: str) -> str:
    found = shown.value
    if wanted.shape != found.shape:
        wanted = _cut(case, wanted, shown.axes)
        if wanted.size != found.size:
            return f"shape {found.shape}, not {wanted.shape}"
        wanted = wanted.reshape(found.shape)
    last = name.rpartition(".")[2]
    is_read = last in EXACT or last.startswith(("w_", "b_"))
    if is_read and dtype == "float64":
        return "" if np.array_equal(wanted, found, equal_nan=True) else f"{found} not {wanted}"
    if is_read and np.abs(wanted[np.isfinite(wanted)]).max(initial=0) > 1000:
        return ""  # beyond what the type holds with this tolerance
    allowed = TOLERANCE[dtype] * max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
    close = np.isclose(found, wanted, rtol=0, atol=allowed, equal_nan=True)
    return "" if close.all() else f"{found} not {wanted}"


def _cut(case: Case, wanted: Array, axes: list[str]) -> Array:
    """The part of a stage that --head, --batch, --rows and --cols choose."""
    index: list[Any] = [slice(None)] * wanted.ndim
    for flag, names in (("--head", ("head", "kv_head")), ("--batch", ("batch",))):
        for number in case.numbers(flag) or ():
            for axis in range(wanted.ndim):
                if axes[axis] in names:
                    index[axis] = slice(number - 1, number)
    for flag, axis in (("--rows", -2), ("--cols", -1)):
        text = case.given.get(flag)
        if text is not None and wanted.ndim >= 2:
            wanted = wanted.take(case.bounds(text, wanted.shape[axis]), axis)
    return np.asarray(wanted[tuple(index)])


def _compute(case: Case, _: dict[str, Shown]) -> Iterator[Expected]:
    if "--cell" in case.given:
        raise NoOpinionError("a derivation is held by tests of its own")
    for arrays, how, main, has_member in inputs_of(case):
        # a mask that the type's own rounding hides is compared as it is
        stages = reliable(plain.attention(arrays, how, case.numbers("--kv-len")))
        if {"--tiles", "--split"} & case.given.keys():
            stages = _in_parts(case, how, arrays, stages)
        if {"--heads", "--layout"} & case.given.keys() and "output" in stages:
            x = np.swapaxes(stages["output"], -2, -3)
            if "--heads" in case.given or case.given["--layout"] == "bsd":
                stages["concat"] = x.reshape(*x.shape[:-2], -1)
        has_labels = not has_member and "past_k" not in arrays
        yield Expected(stages, labels_of(case, main, arrays) if has_labels else {}, how)


def _in_parts(
    case: Case, how: dict[str, Any], arrays: dict[str, Array], stages: dict[str, Array]
) -> dict[str, Array]:
    """What is the same however the keys are cut; RefusalError where they cannot be."""
    n_k = stages["k"].shape[-2]
    places = [0, *(case.numbers("--split") or [1] * (n_k > 1)), n_k]
    ascend = all(a < b for a, b in itertools.pairwise(places))
    if {"--tiles", "--split"} <= case.given.keys() or not ascend or "d_output" in arrays:
        raise RefusalError("parts")
    if how.get("softmax_over") == "queries" or how.get("dropout"):
        raise RefusalError("parts of what needs all keys")
    return {name: x for name, x in stages.items() if name in (*READ, "output", "lse")}


# ---- explain, posenc, similarity


def _explain(case: Case, shown: dict[str, Shown]) -> Iterator[Expected]:
    flags, stages, labels = case.given, dict[str, Array](), dict[tuple[str, str], list[str]]()
    if "--tokens" in flags:
        tokens = listed(flags["--tokens"] or "", "--lowercase" in flags)
        tokens += ["<pad>"] * (case.number("--pad-to") - len(tokens))
        labels["embeddings", "token"] = tokens
        if "--glove" in flags:
            found = vectors_of(flags["--glove"] or "", tokens, case)
            rows = shown["embeddings"].value
            if flags.get("--unknown") == "error" and len(found) < len(set(tokens)):
                raise RefusalError("a word that is missing")
            table = [found.get(token, row) for token, row in zip(tokens, rows, strict=True)]
            stages["embeddings"] = np.array(table)
    is_cut = {"--rows", "--cols", "--head", "--stage", "--target", "--dropout"} & flags.keys()
    is_cut |= {"--pad-to"} & flags.keys() - {"--tokens"} if "--tokens" not in flags else set()
    if flags.get("--block", "attention") != "attention" or is_cut:
        stages |= {} if "--weights" not in flags else weights_of(case, shown)
        yield Expected(stages, labels)
        return
    if "--weights" in flags:
        stages |= weights_of(case, shown)
    every = {name: shown[name].value for name in shown} | stages
    x, n_heads = every.get("input", every["embeddings"]), case.number("--heads", 1)
    shared = case.number("--kv-heads", n_heads)
    inner = {}
    for name, n in (("q", n_heads), ("k", shared), ("v", shared)):
        wide = x @ every[f"attention.w_{name}"] if f"attention.w_{name}" in every else x
        wide = wide + every.get(f"attention.b_{name}", 0)
        inner[name] = np.swapaxes(wide.reshape(len(x), n, -1), 0, 1)
    n_words = len(x) if "--tokens" not in flags else len(listed(flags["--tokens"] or "", False))
    is_word = np.broadcast_to(np.arange(len(x)) < n_words, (len(x), len(x)))
    own = ("mask_means", "mask_numbers")
    how = {name: value for name, value in flags_of(case).items() if name not in own}
    for mask in _masks(case):
        total = is_word if mask is None else np.where(is_word, mask, -np.inf)
        if mask is not None and mask.dtype == np.bool_:
            total = mask & is_word
        given = inner if mask is None and n_words == len(x) else inner | {"mask": total}
        found = reliable(plain.attention(given, how))
        names = ("weights", "output") if how.get("dtype", "float64") == "float64" else ()
        more = {f"attention.{name}": found[name] for name in names if name in found}
        yield Expected(stages | more, labels, how if "--stage" not in flags else None)


def _masks(case: Case) -> Iterator[Array | None]:
    """The mask of --mask as numbers to add, in each reading."""
    source, means = case.given.get("--mask"), case.given.get("--mask-means")
    if source is None:
        yield None
        return
    every, member = second.readings(source, case.files, case.stdin)
    for found in every:
        how = {**plain.DEFAULTS, **flags_of(case)}
        mask = read_mask(only(found, member, "mask"), means, how["mask_numbers"] is not None)
        yield plain.meant(mask, how)


def listed(text: str, lowercase: bool) -> list[str]:
    """The tokens of --tokens: A,B,C or a JSON list."""
    tokens = json.loads(text) if text.startswith("[") else [x.strip() for x in text.split(",")]
    if not tokens or not all(isinstance(token, str) and token for token in tokens):
        raise RefusalError("tokens")
    return [token.lower() for token in tokens] if lowercase else list(tokens)


def _posenc(case: Case, _: dict[str, Shown]) -> Iterator[Expected]:
    flags, kind = case.given, case.given.get("--kind", "sinusoidal")
    if kind == "alibi":
        bias = plain.alibi(case.number("--heads"), case.number("--len"), "--symmetric" in flags)
        yield Expected({} if bias is None else {"bias": bias})
        return
    if kind != "sinusoidal" or {"--add", "--dots"} & flags.keys():
        raise NoOpinionError("rotary positions, sums and dots are held by tests of their own")
    table = plain.sinusoidal(
        case.number("--len"),
        case.number("--dim"),
        flags.get("--exponent") or "paper",
        float(flags.get("--base") or 10000),
        case.number("--start"),
    )
    if abs(case.number("--start")) > LARGEST:
        raise NoOpinionError("an angle so large has no reliable sine")
    yield Expected({"positions": table})


def _similarity(case: Case, shown: dict[str, Shown]) -> Iterator[Expected]:
    words = list(dict.fromkeys(word.rpartition("=")[0] or word for word in case.words))
    source = case.given.get("--vectors")
    if {"--analogy", "--pca"} & case.given.keys():
        raise NoOpinionError("held by tests of their own")
    if source is None:
        pairs = [word.rpartition("=") for word in case.words]
        found = {
            w: np.array([float(x) for x in numbers.strip(";").split(",")])
            for w, _, numbers in reversed(pairs)
        }
    else:
        words = list(dict.fromkeys(case.words))
        found = vectors_of(source, words, case)
    vectors = np.array([found[word] for word in words])
    with np.errstate(all="ignore"):
        dots = vectors @ vectors.T
        lengths = np.sqrt(np.diag(dots))
    stages = {"vectors": vectors}
    if lengths.min(initial=1) > 1e-100 and lengths.max(initial=1) < 1e100:
        stages |= {"lengths": lengths, "dots": dots, "cosines": dots / np.outer(lengths, lengths)}
    if "--nearest" in case.given and source is not None:
        n = case.number("--nearest")
        near = [nearest(source, word, found[word], n, case) for word in words]
        stages |= {f"nearest_{i}.nearest": x for i, x in enumerate(near, start=1)}
    yield Expected(stages, {("vectors", "word"): words})
