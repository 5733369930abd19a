"""What an accepted call must give: its files read once more, its attention computed once more."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array

from . import plain, second
from .case import Case
from .second import NoOpinionError, Reading, RefusalError
from .vectors import vectors_of
from .weights import weights_of

KNOBS = (
    "scale", "softcap", "softcap_place", "causal", "causal_align", "window", "softmax_over",
    "mask_means", "mask_value", "empty_rows", "head_order", "dropout", "seed", "dtype",
)  # fmt: skip
EXACT = {"q", "k", "v", "mask", "embeddings", "vectors", "table"}
"""Stages that are read, not computed: equal to the last bit."""
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-1}
LARGEST = 1e6
"""Scores beyond this have no reliable weights: a last bit of theirs decides."""


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
    try:
        judge = {"check": _check, "examples": _examples}.get(case.command, _trace)
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
    if not may_lack and (lacking := expected.stages.keys() - shown.keys()):
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
            index[axis] = _bounds(text, wanted.shape[axis])
    return np.asarray(wanted[tuple(index)])


def _bounds(text: str, size: int) -> list[int]:
    """A:B, counted from 1 and both included, from the end where negative; as indices."""
    first, colon, last = text.partition(":")
    numbers = [int(part) if part.strip() else None for part in (first, last)]
    start, end = [n if n is None or n > 0 else size + 1 + n for n in numbers]
    end = end if colon else start
    return [i for i in range(size) if (start or 1) <= i + 1 <= (size if end is None else end)]


# ---- compute


def inputs_of(case: Case) -> Iterator[tuple[dict[str, Array], dict[str, Any], Reading, bool]]:
    """Every honest reading of a call's inputs: arrays by role, convention, main file, split."""
    sources = {
        role: case.given[f"--{role.replace('_', '-')}"] or ""
        for role in second.NAMES
        if f"--{role.replace('_', '-')}" in case.given
    }
    read = {role: second.readings(text, case.files, case.stdin) for role, text in sources.items()}
    choices = [[(found, member) for found in every] for every, member in read.values()]
    for chosen in itertools.product(*choices):
        files = dict(zip(read, chosen, strict=True))
        main, member = files["q"]
        arrays = _by_role(main, member)
        for role, (found, name) in files.items():
            if role != "q":
                arrays[role] = _only(found, name, role)
        arrays.setdefault("k", arrays["q"])
        arrays.setdefault("v", arrays["k"])
        if ("past_k" in arrays) != ("past_v" in arrays):
            raise RefusalError("half a cache")
        if member and main.scale is not None:
            raise NoOpinionError("whether a scale beside the array that is asked for is meant")
        flags = flags_of(case)
        how = _convention(main) | flags
        is_of_trace = main.how is not None and "mask" not in files
        if "mask" in arrays:
            arrays["mask"] = read_mask(arrays["mask"], flags.get("mask_means"), is_of_trace)
        elif "mask_means" in flags:
            raise RefusalError("--mask-means without a mask")
        yield *_arranged(case, arrays, how), main, bool(member)


def _arranged(
    case: Case, arrays: dict[str, Array], how: dict[str, Any]
) -> tuple[dict[str, Array], dict[str, Any]]:
    layout, heads = case.given.get("--layout"), case.numbers("--heads")
    shared = case.numbers("--kv-heads") or heads
    for name in ("q", "k", "v", "past_k", "past_v") if layout or heads else ():
        if name not in arrays:
            continue
        x = arrays[name]
        if layout and x.ndim != len(layout):
            raise RefusalError("layout")
        if layout in ("shd", "bshd"):
            x = np.swapaxes(x, -2, -3)
        elif layout == "bsd" or heads:
            n = ((heads if name == "q" else shared) or [1])[0]
            x = np.swapaxes(x.reshape(*x.shape[:-1], n, x.shape[-1] // n), -2, -3)
        arrays[name] = x
    return arrays, how


def _by_role(main: Reading, member: str) -> dict[str, Array]:
    """The arrays of a file that is given for everything."""
    if member in main.arrays and member:
        return {"q": main.arrays[member]}
    if main.how is not None:
        prefix = main.prefix
        found = {role: main.arrays.get(prefix + role) for role in second.NAMES}
        return {role: x for role, x in found.items() if x is not None}
    if member:
        raise RefusalError(f"no {member}")
    if any(map(second.role_of, main.wrong)):
        raise RefusalError("something else under the name of an array")
    roles = [second.role_of(name) for name in main.arrays]
    if any(role and roles.count(role) > 1 for role in roles):
        raise RefusalError("two arrays of one role")
    if not any(roles) and len(roles) == 1:
        return {"q": next(iter(main.arrays.values()))}
    return {role: x for role, x in zip(roles, main.arrays.values(), strict=True) if role}


def _only(found: Reading, member: str, role: str) -> Array:
    """The array of a file that is given for one role."""
    if member and member in found.arrays:
        return found.arrays[member]
    if member and found.how is None:
        raise RefusalError(f"no {member}")
    if found.how is None and role in map(second.role_of, found.wrong):
        raise RefusalError("something else under the name of the array")
    is_it = (lambda n: n == found.prefix + role) if found.how is not None else None
    named = [n for n in found.arrays if (is_it(n) if is_it else second.role_of(n) == role)]
    if len(named) == 1 or (not named and len(found.arrays) == 1):
        return found.arrays[(named or list(found.arrays))[0]]
    raise RefusalError(f"which is {role}")


def _convention(main: Reading) -> dict[str, Any]:
    """What a file itself says: a scale, or the convention of a trace but for its masking."""
    if main.how is None:
        return {} if main.scale is None else {"scale": main.scale}
    own = {name: second.NOT_JSON.get(str(value), value) for name, value in main.how.items()}
    masking = ("causal", "window", "causal_align", "mask_means")
    return {name: value for name, value in own.items() if name not in masking}


def flags_of(case: Case) -> dict[str, Any]:
    """The convention as the flags say."""
    found: dict[str, Any] = {}
    for flag, text in case.flags:
        name = flag[2:].replace("-", "_")
        if name == "causal":
            found[name] = True
        elif name == "window":
            found[name] = tuple(int(part) for part in str(text).split(","))
        elif name in ("softcap", "mask_value", "dropout") or (name == "scale" and text != "none"):
            found[name] = float(text or "")
        elif name in KNOBS:
            found[name] = int(text or "") if name == "seed" else text
    return found


def read_mask(mask: Array, means: str | None, is_of_trace: bool) -> Array:
    """True and false, or numbers to add; RefusalError where that is not said."""
    if mask.dtype == np.bool_ or is_of_trace:
        if means == "add" and mask.dtype == np.bool_:
            raise RefusalError("true and false cannot be added")
        return mask
    is_binary = bool(np.isin(mask, (0, 1)).all())
    if (means is None) == is_binary and means != "add":
        raise RefusalError("0 and 1 may be either")
    return mask.astype(bool) if means in ("keep", "ignore") else mask


def _compute(case: Case, _: dict[str, Shown]) -> Iterator[Expected]:
    if "--cell" in case.given:
        raise NoOpinionError("a derivation is held by tests of its own")
    for arrays, how, main, has_member in inputs_of(case):
        # a mask that the type's own rounding hides is compared as it is
        stages = reliable(plain.attention(arrays, how, case.numbers("--kv-len")))
        if {"--heads", "--layout"} & case.given.keys() and "output" in stages:
            x = np.swapaxes(stages["output"], -2, -3)
            if "--heads" in case.given or case.given["--layout"] == "bsd":
                stages["concat"] = x.reshape(*x.shape[:-2], -1)
        has_labels = not has_member and "past_k" not in arrays
        yield Expected(stages, _labels(case, main, arrays) if has_labels else {}, how)


def reliable(stages: dict[str, Array]) -> dict[str, Array]:
    """The stages of which every number follows from the inputs but for rounding."""
    inputs = [stages[name] for name in ("q", "k", "v")]
    scores = stages.get("scaled", stages["scores"])
    mask = stages.get("mask", np.zeros(1))
    is_plain = all(np.isfinite(x).all() and np.abs(x).max(initial=0) < 1e100 for x in inputs)
    is_plain = is_plain and bool((np.abs(mask[~np.isneginf(mask)]) < LARGEST).all())
    if is_plain and np.abs(stages["scores"]).max() < LARGEST > np.abs(scores).max():
        return stages
    return {name: x for name, x in stages.items() if name in EXACT}


def _labels(
    case: Case, main: Reading, arrays: dict[str, Array]
) -> dict[tuple[str, str], list[str]]:
    """The names of the queries, and of the keys where they are in the same file."""
    n = {"query": arrays["q"].shape[-2], "key": arrays["k"].shape[-2]}
    tokens = main.labels.get("tokens")
    rows = main.labels.get("rows")
    found: dict[tuple[str, str], list[str]] = {}
    for axis in ("query",) if "--k" in case.given else ("query", "key"):
        own = (
            tokens.get({"query": "queries", "key": "keys"}[axis])
            if isinstance(tokens, dict)
            else tokens
        )
        names = main.labels.get(f"{axis}_tokens", own if own is not None else rows)
        if names is not None and len(names) == n[axis]:
            found[axis[0], axis] = [str(name) for name in names]
            if found[axis[0], axis] != names:
                raise RefusalError("a label that is no text")
        elif names is not None and n["query"] == n["key"]:
            raise RefusalError(f"{len(names)} names for {n[axis]}")
    return found


# ---- explain, posenc, similarity


def _explain(case: Case, shown: dict[str, Shown]) -> Iterator[Expected]:
    flags, stages, labels = case.given, dict[str, Array](), dict[tuple[str, str], list[str]]()
    if "--tokens" in flags:
        tokens = listed(flags["--tokens"] or "", "--lowercase" in flags)
        tokens += ["<pad>"] * ((case.numbers("--pad-to") or [0])[0] - len(tokens))
        labels["embeddings", "token"] = tokens
        if "--glove" in flags:
            found = vectors_of(flags["--glove"] or "", tokens, case)
            rows = shown["embeddings"].value
            if flags.get("--unknown") == "error" and len(found) < len(set(tokens)):
                raise RefusalError("a word that is missing")
            table = [found.get(token, row) for token, row in zip(tokens, rows, strict=True)]
            stages["embeddings"] = np.array(table)
    is_cut = {"--rows", "--cols", "--head", "--stage", "--target"} & flags.keys()
    if flags.get("--block", "attention") != "attention" or is_cut:
        stages |= {} if "--weights" not in flags else weights_of(case, shown)
        yield Expected(stages, labels)
        return
    if "--weights" in flags:
        stages |= weights_of(case, shown)
    every = {name: shown[name].value for name in shown} | stages
    x, n_heads = every.get("input", every["embeddings"]), (case.numbers("--heads") or [1])[0]
    shared = (case.numbers("--kv-heads") or [n_heads])[0]
    inner = {}
    for name, n in (("q", n_heads), ("k", shared), ("v", shared)):
        wide = x @ every[f"attention.w_{name}"] if f"attention.w_{name}" in every else x
        wide = wide + every.get(f"attention.b_{name}", 0)
        inner[name] = np.swapaxes(wide.reshape(len(x), n, -1), 0, 1)
    n_words = len(x) if "--tokens" not in flags else len(listed(flags["--tokens"] or "", False))
    padding = np.broadcast_to(np.where(np.arange(len(x)) < n_words, 0, -np.inf), (len(x), len(x)))
    how = {name: value for name, value in flags_of(case).items() if name != "mask_means"}
    for mask in _masks(case):
        given = (
            inner
            if mask is None and n_words == len(x)
            else inner
            | {"mask": padding if mask is None else np.where(np.isneginf(padding), padding, mask)}
        )
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
        mask = read_mask(_only(found, member, "mask"), means, False)
        if mask.dtype == np.bool_:
            mask = np.where(mask == (means != "ignore"), 0.0, -np.inf)
        yield mask


def listed(text: str, lowercase: bool) -> list[str]:
    """The tokens of --tokens: A,B,C or a JSON list."""
    tokens = json.loads(text) if text.startswith("[") else [x.strip() for x in text.split(",")]
    if not tokens or not all(isinstance(token, str) and token for token in tokens):
        raise RefusalError("tokens")
    return [token.lower() for token in tokens] if lowercase else list(tokens)


def _posenc(case: Case, _: dict[str, Shown]) -> Iterator[Expected]:
    flags, kind = case.given, case.given.get("--kind", "sinusoidal")
    if kind == "alibi":
        bias = plain.alibi(
            int(flags["--heads"] or ""), int(flags["--len"] or ""), "--symmetric" in flags
        )
        yield Expected({} if bias is None else {"bias": bias})
        return
    if kind != "sinusoidal" or {"--add", "--dots"} & flags.keys():
        raise NoOpinionError("rotary positions, sums and dots are held by tests of their own")
    table = plain.sinusoidal(
        int(flags["--len"] or ""),
        int(flags["--dim"] or ""),
        flags.get("--exponent") or "paper",
        float(flags.get("--base") or 10000),
        int(flags.get("--start") or 0),
    )
    if abs(int(flags.get("--start") or 0)) > LARGEST:
        raise NoOpinionError("an angle so large has no reliable sine")
    yield Expected({"positions": table})


def _similarity(case: Case, shown: dict[str, Shown]) -> Iterator[Expected]:
    words = list(dict.fromkeys(word.rpartition("=")[0] or word for word in case.words))
    source = case.given.get("--vectors")
    if {"--analogy", "--nearest", "--pca"} & case.given.keys():
        raise NoOpinionError("held by tests of their own")
    if source is None:
        pairs = [word.rpartition("=") for word in case.words]
        found = {
            w: np.array([float(x) for x in numbers.split(",")]) for w, _, numbers in reversed(pairs)
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
    yield Expected(stages, {("vectors", "word"): words})


# ---- check and examples


def _check(case: Case, out: str) -> str:
    if {"--positions", "--head", "--decimals"} & case.given.keys():
        raise NoOpinionError("held by tests of their own")
    verdict, wrong = json.loads(out), "no stage is compared"
    every, member = second.readings(case.given["--observed"] or "", case.files, case.stdin)
    for (arrays, how, _, _), observed in itertools.product(inputs_of(case), every):
        stages = reliable(plain.attention(arrays, how, case.numbers("--kv-len")))
        wrong = _wrong_verdict(case, verdict, stages, observed, member)
        if not wrong:
            return ""
    return wrong


def _wrong_verdict(
    case: Case, verdict: Any, stages: dict[str, Array], observed: Reading, member: str
) -> str:
    if "weights" not in stages or verdict["status"] == "wrong shape":
        raise NoOpinionError("nothing reliable to compare with")
    known = second.STAGE_NAMES - {"q", "k", "v", "mask"}
    named = {name: x for name, x in observed.arrays.items() if name in known}
    stage = case.given.get("--stage")
    if stage or not named or (member and member in observed.arrays):
        named = {stage or "output": _only_observed(observed, member, stage)}
    elif known.intersection(observed.wrong):
        return "a stage that cannot be read is left out"
    compared = {found["name"]: found for found in verdict["stages"]}
    if compared.keys() != named.keys():
        return f"compares {sorted(compared)}, not {sorted(named)}"
    for name, found in compared.items():
        if name not in stages:
            continue
        wanted, x = stages[name], named[name].astype(float)
        if "--rows" in case.given:
            wanted = wanted[..., _bounds(case.given["--rows"] or "", wanted.shape[-2]), :]
        if x.size != wanted.size or not np.isfinite(x).all():
            continue
        largest = np.abs(x.reshape(wanted.shape) - wanted).max()
        if not math.isclose(found["largest"], largest, rel_tol=1e-6, abs_tol=1e-9):
            return f"the largest error of {name} is {largest}, not {found['largest']}"
        if found["matches"] and largest > 0.1 and not {"--atol", "--rtol"} & case.given.keys():
            return f"{name} matches with an error of {largest}"
    return ""


def _only_observed(observed: Reading, member: str, stage: str | None) -> Array:
    name = member or stage
    if name in observed.arrays:
        return observed.arrays[name or ""]
    if len(observed.arrays) != 1 or member:
        raise RefusalError("which is observed")
    return next(iter(observed.arrays.values()))


def _examples(case: Case, out: str) -> str:
    if "--file" not in case.given:
        raise NoOpinionError("the catalogue is held by tests of its own")
    data, _, _ = second.opened(case.given["--file"] or "", case.files, case.stdin)
    document, verdicts = second.json_document(data), json.loads(out)
    wrong = [_wrong_example(*pair) for pair in _pairs(document["examples"], verdicts["examples"])]
    return next(filter(None, wrong), "")


def _pairs(examples: Any, verdicts: Any) -> Iterator[tuple[Any, Any]]:
    by_name = {example["name"]: example for example in examples}
    return ((by_name[verdict["name"]], verdict) for verdict in verdicts)


def _wrong_example(example: Any, verdict: Any) -> str:
    """What is wrong with the verdicts on an attention of one head, or ""."""
    inputs = example["inputs"]
    if example["compute"] != "attention" or inputs.get("n_heads"):
        return ""
    arrays = {name: second.json_array(inputs[name]) for name in "qkv" if inputs.get(name)}
    if inputs.get("mask"):
        arrays["mask"] = second.json_array(inputs["mask"])
    arrays.setdefault("k", arrays["q"])
    arrays.setdefault("v", arrays["k"])
    how = {k: second.NOT_JSON.get(str(v), v) for k, v in inputs.get("convention", {}).items()}
    stages = reliable(plain.attention(arrays, how))
    for claim, found in zip(example["claims"], verdict["claims"], strict=True):
        at, name = claim.get("at", {}), claim["stage"]
        if name not in stages or claim.get("take") or set(at) - {"query"}:
            continue
        rows = at.get("query", list(range(1, len(stages[name]) + 1)))
        if isinstance(rows, str) or (isinstance(rows, list) and not all(map(_is_whole, rows))):
            continue
        ours = stages[name][..., np.array(rows) - 1, :]
        theirs = np.array(second.json_array(found["ours"]))
        if ours.size != theirs.size or not np.allclose(ours.reshape(theirs.shape), theirs):
            return f"{name} is {theirs}, not {ours}"
        if verdict_wrong := _wrong_claim(claim, found, ours):
            return verdict_wrong
    return ""


def _is_whole(entry: object) -> bool:
    return type(entry) is int


def _wrong_claim(claim: Any, found: Any, ours: Array) -> str:
    """Whether numbers that are printed as plain decimals were held against the right ones."""
    texts = list(_leaves(claim.get("printed") or []))
    plain_text = all(isinstance(x, str) and re.fullmatch(r"-?\d+\.\d+", x) for x in texts)
    if not texts or not plain_text or len(texts) != ours.size:
        return ""
    errors = [
        abs(float(text) - x) - 0.5 * 10.0 ** -len(text.partition(".")[2])
        for text, x in zip(texts, ours.reshape(-1), strict=True)
    ]
    differs = found["verdict"] == "differs"
    if (max(errors) > 1e-9 and not differs) or (max(errors) < -1e-9 and differs):
        return f"the verdict on {texts} is {found['verdict']}, ours are {ours}"
    recorded = claim.get("verdict")
    if recorded and found["ok"] and recorded != found["verdict"]:
        return f"recorded as {recorded}, found {found['verdict']}, and said to be ok"
    return ""


def _leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for inner in node:
            yield from _leaves(inner)
    else:
        yield node
