"""The inputs of an attention as the files and flags of a call give them, read once more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array

from . import second
from .case import Case
from .reading import NAMES, NoOpinionError, Reading, RefusalError, role_of

KNOBS = (
    "scale", "softcap", "softcap_place", "causal", "causal_align", "window", "softmax_over",
    "mask_means", "mask_value", "empty_rows", "head_order", "dropout", "seed", "dtype",
    "mask_and_causal", "window_counts", "mask_numbers", "mask_value_rule", "empty_rows_inf",
    "lse_base",
)  # fmt: skip
"""The fields of a convention, as the README's flags."""
OF_A_MASK = {"mask_means", "mask_numbers", "mask_and_causal", "empty_rows_inf"}


def inputs_of(case: Case) -> Iterator[tuple[dict[str, Array], dict[str, Any], Reading, bool]]:
    """Every honest reading of a call's inputs: arrays by role, convention, main file, split."""
    sources = {
        role: case.given[f"--{role.replace('_', '-')}"] or ""
        for role in NAMES
        if f"--{role.replace('_', '-')}" in case.given
    }
    if sources.get("d_output") in ("ones", "random"):
        raise NoOpinionError("gradients of numbers that no file holds have tests of their own")
    read = {role: second.readings(text, case.files, case.stdin) for role, text in sources.items()}
    choices = [[(found, member) for found in every] for every, member in read.values()]
    for chosen in itertools.product(*choices):
        files = dict(zip(read, chosen, strict=True))
        main, member = files["q"]
        arrays = _by_role(main, member)
        for role, (found, name) in files.items():
            if role != "q":
                arrays[role] = only(found, name, role)
        arrays.setdefault("k", arrays["q"])
        arrays.setdefault("v", arrays["k"])
        if ("past_k" in arrays) != ("past_v" in arrays):
            raise RefusalError("half a cache")
        flags = flags_of(case)
        how = _convention(main) | flags
        is_of_trace = main.how is not None and "mask" not in files
        if "mask" in arrays:
            is_said = is_of_trace or "mask_numbers" in flags
            arrays["mask"] = read_mask(arrays["mask"], flags.get("mask_means"), is_said)
        elif flags.keys() & OF_A_MASK:
            raise RefusalError("what a mask means, without a mask")
        yield *_arranged(case, arrays, how), main, bool(member)


def _arranged(
    case: Case, arrays: dict[str, Array], how: dict[str, Any]
) -> tuple[dict[str, Array], dict[str, Any]]:
    layout, heads = case.given.get("--layout"), case.numbers("--heads")
    shared = case.numbers("--kv-heads") or heads
    for name in ("q", "k", "v", "past_k", "past_v", "d_output") if layout or heads else ():
        if name not in arrays:
            continue
        x = arrays[name]
        if layout and x.ndim != len(layout):
            raise RefusalError("layout")
        if layout in ("shd", "bshd"):
            x = np.swapaxes(x, -2, -3)
        elif layout == "bsd" or heads:
            n = ((heads if name in ("q", "d_output") else shared) or [1])[0]
            x = np.swapaxes(x.reshape(*x.shape[:-1], n, x.shape[-1] // n), -2, -3)
        arrays[name] = x
    return arrays, how


def _by_role(main: Reading, member: str) -> dict[str, Array]:
    """The arrays of a file that is given for everything."""
    if member in main.arrays and member:
        return {"q": main.arrays[member]}
    if main.how is not None:
        prefix = main.prefix
        found = {role: main.arrays.get(prefix + role) for role in NAMES}
        return {role: x for role, x in found.items() if x is not None}
    if member:
        raise RefusalError(f"no {member}")
    if any(map(role_of, main.wrong)):
        raise RefusalError("something else under the name of an array")
    roles = [role_of(name) for name in main.arrays]
    if any(role and roles.count(role) > 1 for role in roles):
        raise RefusalError("two arrays of one role")
    if not any(roles) and len(roles) == 1:
        return {"q": next(iter(main.arrays.values()))}
    return {role: x for role, x in zip(roles, main.arrays.values(), strict=True) if role}


def only(found: Reading, member: str, role: str) -> Array:
    """The array of a file that is given for one role."""
    if member and member in found.arrays:
        return found.arrays[member]
    if member and found.how is None:
        raise RefusalError(f"no {member}")
    if found.how is None and role in map(role_of, found.wrong):
        raise RefusalError("something else under the name of the array")
    is_it = (lambda n: n == found.prefix + role) if found.how is not None else None
    named = [n for n in found.arrays if (is_it(n) if is_it else role_of(n) == role)]
    if len(named) == 1 or (not named and len(found.arrays) == 1):
        return found.arrays[(named or list(found.arrays))[0]]
    raise RefusalError(f"which is {role}")


def _convention(main: Reading) -> dict[str, Any]:
    """What a file itself says: a scale, or the convention of a trace but for its masking."""
    if main.how is None:
        names = {name.lower() for name in (*main.arrays, *main.wrong)}
        if names & {*KNOBS, "convention"} - {"scale"}:
            raise NoOpinionError("conventions within files are held by tests of their own")
        return {} if main.scale is None else {"scale": main.scale}
    own = {name: second.NOT_JSON.get(str(value), value) for name, value in main.how.items()}
    masking = (
        "causal", "window", "causal_align", "mask_means", "mask_and_causal", "window_counts",
        "mask_numbers", "empty_rows_inf",
    )  # fmt: skip
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


def read_mask(mask: Array, means: str | None, is_said: bool) -> Array:
    """True and false, or numbers; RefusalError where it is not said which of them 0 and 1 are."""
    if mask.dtype == np.bool_ or is_said:
        return mask
    if means is None and mask.dtype.kind == "f" and not mask.any():
        return mask  # nothing is added
    is_binary = bool(np.isin(mask, (0, 1)).all())
    if (means is None) == is_binary and means != "add":
        raise RefusalError("0 and 1 may be either")
    return mask.astype(bool) if means in ("keep", "ignore") else mask


def labels_of(
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
