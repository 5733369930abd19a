"""What an accepted call must give: its files read once more, its attention computed once more."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from attncli.arrays import Array
from tests import plain
from tests.plain import READ, reliable

from .cases import Case
from .reading import NAMES, NoOpinionError, Reading, RefusalError, role_of
from .second import NOT_JSON, json_array, reading_of

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-1}
OF_A_MASK = {"mask_means", "mask_numbers", "mask_and_causal", "empty_rows_inf"}
PARTS = {
    "--rows", "--cols", "--cell", "--head", "--batch", "--heads", "--kv-heads", "--layout",
    "--against", "--semantics", "--output", "-o", "--tiles", "--split", "--kv-len", "--step",
}  # fmt: skip
"""Flags whose results are held by tests of their own."""


def misread(case: Case, out: str) -> str:
    """What is wrong with the result of an accepted call; "" where nothing is."""
    given = case.given
    if case.command != "compute" or PARTS & given.keys() or given.get("--format") != "json":
        raise NoOpinionError("held by tests of their own")
    try:
        return _compute(case, json.loads(out))
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
        is_read = name in READ
        if is_read and dtype != "float64" and size > 1000:
            continue  # beyond what the type holds with this tolerance
        allowed = 0 if is_read and dtype == "float64" else TOLERANCE[dtype] * max(1.0, size)
        if own.shape != wanted.shape:
            return f"{name}: shape {own.shape}, not {wanted.shape}"
        if not np.isclose(own, wanted, rtol=0, atol=allowed, equal_nan=True).all():
            return f"{name}: {own} not {wanted}"
    return ""


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
