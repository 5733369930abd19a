"""What an accepted call must give: its files read once more, its attention computed once more."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from attncli.arrays import Array
from tests import plain
from tests.plain import READ, reliable

from .cases import Case
from .reading import NAMES, NoOpinionError, Reading, RefusalError, role_of
from .second import NOT_JSON, json_array, opened, reading_of

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-1}
OF_A_MASK = {"mask_means", "mask_numbers", "mask_and_causal", "empty_rows_inf"}
PARTS = {
    "--rows", "--cols", "--cell", "--head", "--batch", "--heads", "--kv-heads", "--layout",
    "--against", "--semantics", "--output", "-o", "--tiles", "--split", "--kv-len", "--step",
}  # fmt: skip
"""Flags whose results are held by tests of their own."""


def misread(case: Case, out: str) -> str:
    """What is wrong with the result of an accepted call; "" where nothing is."""
    judges = {"compute": _compute, "check": _check, "explain": _explain, "similarity": _similarity}
    given = case.given
    if case.command not in judges or PARTS & given.keys() or given.get("--format") != "json":
        raise NoOpinionError("held by tests of their own")
    try:
        return judges[case.command](case, json.loads(out))
    except NoOpinionError:
        raise
    except Exception as problem:
        return f"accepted, but {type(problem).__name__}: {problem}"


def _differ(document: Any, expected: dict[str, Array], dtype: str, *, is_part: bool) -> str:
    """The first stage that is missing or has other numbers; what is read is equal to the last bit."""
    shown = {step.get("name"): step for step in document["steps"]}
    for name, wanted in expected.items():
        if name not in shown and not is_part and name != "lse":
            return f"no stage {name}"
        if name not in shown:
            continue
        own = json_array(shown[name]["value"])
        size = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        is_read = name in (*READ, "embeddings", "vectors")
        if is_read and dtype != "float64" and size > 1000:
            continue  # beyond what the type holds with this tolerance
        allowed = 0 if is_read and dtype == "float64" else TOLERANCE[dtype] * max(1.0, size)
        close = own.shape == wanted.shape or f"shape {own.shape}, not {wanted.shape}"
        if close is not True:
            return f"{name}: {close}"
        if not np.isclose(own, wanted, rtol=0, atol=allowed, equal_nan=True).all():
            return f"{name}: {own} not {wanted}"
    return ""


# ---- attention


def _compute(case: Case, document: Any) -> str:
    arrays, how, main = inputs_of(case)
    for name in plain.DEFAULTS:
        said = document["convention"][name]
        wanted = how.get(name, plain.DEFAULTS[name])
        if NOT_JSON.get(str(said), said) != (
            list(wanted) if name == "window" and wanted else wanted
        ):
            return f"{name} is {said}, not {wanted}"
    stages, part = reliable(plain.attention(arrays, how)), "--stage" in case.given
    if wrong := _differ(document, stages, how.get("dtype", "float64"), is_part=part):
        return wrong
    tokens = main.labels.get("tokens")
    shown = [step["labels"].get("query") for step in document["steps"] if step["name"] == "q"]
    is_named = isinstance(tokens, list) and len(tokens) == arrays["q"].shape[-2]
    if shown and is_named and shown != [tokens] and "::" not in (case.given["--q"] or ""):
        return f"q is labelled {shown}, not {tokens}"
    return ""


def inputs_of(case: Case) -> tuple[dict[str, Array], dict[str, Any], Reading]:
    """The arrays of a call by role, its convention, and what --q is read as."""
    sources = {role: case.given.get(f"--{role.replace('_', '-')}") for role in NAMES}
    if sources["d_output"] in ("ones", "random"):
        raise NoOpinionError("gradients of numbers that no file holds have tests of their own")
    main, member = reading_of(sources["q"] or "", case)
    arrays = {"q": main.arrays[member]} if member in main.arrays and member else _by_role(main)
    if member and member not in main.arrays:
        raise RefusalError(f"no {member}")
    for role, source in sources.items():
        if source is not None and role != "q":
            arrays[role] = _only(*reading_of(source, case), role)
    arrays.setdefault("k", arrays["q"])
    arrays.setdefault("v", arrays["k"])
    if ("past_k" in arrays) != ("past_v" in arrays):
        raise RefusalError("half a cache")
    flags = flags_of(case)
    if "mask" in arrays:
        arrays["mask"] = _mask(arrays["mask"], flags.get("mask_means"), "mask_numbers" in flags)
    elif flags.keys() & OF_A_MASK:
        raise RefusalError("what a mask means, without a mask")
    names = {name.lower() for name in (*main.arrays, *main.wrong)}
    if names & {*plain.DEFAULTS, "convention"} - {"scale"}:
        raise NoOpinionError("conventions within files are held by tests of their own")
    return arrays, ({} if main.scale is None else {"scale": main.scale}) | flags, main


def _by_role(main: Reading) -> dict[str, Array]:
    """The arrays of a file that is given for everything."""
    if any(map(role_of, main.wrong)):
        raise RefusalError("something else under the name of an array")
    roles = [role_of(name) for name in main.arrays]
    if any(role and roles.count(role) > 1 for role in roles):
        raise RefusalError("two arrays of one role")
    if not any(roles) and len(roles) == 1:
        return {"q": next(iter(main.arrays.values()))}
    return {role: x for role, x in zip(roles, main.arrays.values(), strict=True) if role}


def _only(reading: Reading, member: str, role: str) -> Array:
    """The array of a file that is given for one role."""
    if member:
        return reading.arrays[member]
    if role in map(role_of, reading.wrong):
        raise RefusalError("something else under the name of the array")
    named = [x for name, x in reading.arrays.items() if role_of(name) == role]
    (array,) = named or reading.arrays.values()
    return array


def flags_of(case: Case) -> dict[str, Any]:
    """The convention as the flags say."""
    how: dict[str, Any] = {}
    for flag, text in case.flags:
        name = flag[2:].replace("-", "_")
        if name == "window":
            how[name] = tuple(int(part) for part in str(text).split(","))
        elif name in ("softcap", "mask_value", "dropout") or (name == "scale" and text != "none"):
            how[name] = float(text or "")
        elif name in plain.DEFAULTS:
            how[name] = int(text or "") if name == "seed" else True if text is None else text
    return how


def _mask(mask: Array, means: str | None, is_said: bool) -> Array:
    """True and false, or numbers; RefusalError where it is not said which of them 0 and 1 are."""
    nothing_is_added = means is None and mask.dtype.kind == "f" and not mask.any()
    if mask.dtype == np.bool_ or is_said or nothing_is_added:
        return mask
    if (means is None) == bool(np.isin(mask, (0, 1)).all()) and means != "add":
        raise RefusalError("0 and 1 may be either")
    return mask.astype(bool) if means in ("keep", "ignore") else mask


def _check(case: Case, verdict: Any) -> str:
    """Whether the largest errors are those of the arrays, and large ones are no match."""
    arrays, how, _ = inputs_of(case)
    stages = reliable(plain.attention(arrays, how))
    observed, member = reading_of(case.given["--observed"] or "", case)
    for stage in verdict["stages"]:
        name = stage["name"]
        is_one = member or case.given.get("--stage") or name not in observed.arrays
        x = _only(observed, member, name) if is_one else observed.arrays[name]
        if name not in stages or x.shape != stages[name].shape or not np.isfinite(x).all():
            continue
        largest = np.abs(x.astype(float) - stages[name]).max()
        if not np.isclose(stage["largest"], largest, rtol=1e-6, atol=1e-4):  # the digits of q
            return f"the largest error of {name} is {largest}, not {stage['largest']}"
        if stage["matches"] and largest > 0.1 and not {"--atol", "--rtol"} & case.given.keys():
            return f"{name} matches with an error of {largest}"
    return ""


# ---- words


def _explain(case: Case, document: Any) -> str:
    """Whether the words are those of --tokens, and have the vectors of --glove."""
    text = case.given.get("--tokens") or ""
    words = json.loads(text) if text.startswith("[") else [x.strip() for x in text.split(",")]
    words = [word.lower() for word in words] if "--lowercase" in case.given else words
    words += ["<pad>"] * (int(case.given.get("--pad-to") or 0) - len(words))
    stages = [step for step in document["steps"] if step.get("name") == "embeddings"]
    if not text or not stages:
        raise NoOpinionError("how a sentence is parted is held by tests of its own")
    if not all(isinstance(word, str) and word for word in words):
        raise RefusalError("tokens")
    if (labels := stages[0]["labels"]["token"]) != words:
        return f"the tokens are {labels}, not {words}"
    known = _vectors(case.given["--glove"] or "", case) if "--glove" in case.given else {}
    rows = dict(zip(words, stages[0]["value"], strict=True))
    return next((f"{w} is {rows[w]}" for w in known if rows.get(w, known[w]) != known[w]), "")


def _similarity(case: Case, document: Any) -> str:
    words, source = [*dict.fromkeys(case.words)], case.given.get("--vectors")
    if source is None or {"--analogy", "--pca"} & case.given.keys():
        raise NoOpinionError("held by tests of their own")
    known = _vectors(source, case)
    if any(word not in known for word in words):
        raise NoOpinionError("words in another case of letters")
    vectors = np.array([known[word] for word in words])
    expected, lengths = {"vectors": vectors}, np.linalg.norm(vectors, axis=1)
    if 1e-100 < lengths.min() and lengths.max() < 1e100:
        expected["cosines"] = vectors @ vectors.T / np.outer(lengths, lengths)
    return _differ(document, expected, "float64", is_part=False)


def _vectors(source: str, case: Case) -> dict[str, list[float]]:
    """Words and as many plain numbers on each line, perhaps after a line of two counts."""
    text = opened(source, case)[0].decode("utf-8", "replace")
    lines = text.removesuffix("\n").split("\n")
    lines = lines[1:] if re.fullmatch(r"\d+ \d+", lines[0]) and len(lines) > 1 else lines
    parts = [re.fullmatch(r"([^\s\d]+(?: [^\s\d]+)*)((?: -?\d+\.\d+)+)", line) for line in lines]
    if (
        "\ufffd" in text
        or not all(parts)
        or len({part[2].count(" ") for part in parts if part}) != 1
    ):
        raise NoOpinionError("what is word and what is number is held by tests of its own")
    return {part[1]: [*map(float, part[2].split())] for part in reversed(parts) if part}
