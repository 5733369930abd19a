"""Whether a verdict of check, or of a worked example, is that of the second reading."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from tests import plain
from tests.plain import reliable

from . import second
from .case import Case
from .inputs import inputs_of
from .reading import NAMES, STAGE_NAMES, NoOpinionError, Reading, RefusalError, role_of

TOLERANCES = {"--atol", "--rtol", "--decimals"}


def check(case: Case, out: str) -> str:
    """Whether the right stages are compared, and the largest errors are those of the arrays."""
    if {"--positions", "--head"} & case.given.keys():
        raise NoOpinionError("held by tests of their own")
    verdict, wrong = json.loads(out), "no stage is compared"
    every, member = second.readings(case.given["--observed"] or "", case.files, case.stdin)
    for (arrays, how, _, _), observed in itertools.product(inputs_of(case), every):
        stages = reliable(plain.attention(arrays, how, case.numbers("--kv-len")))
        if (first := verdict["first_difference"]) in NAMES:
            brought = [x for name, x in observed.arrays.items() if role_of(name) == first]
            same = all(np.array_equal(x, arrays.get(first)) for x in brought)
            wrong = f"the observed {first} is the given one" if same else ""
        else:
            wrong = _wrong_verdict(case, verdict, stages, observed, member)
        if not wrong:
            return ""
    return wrong


def _wrong_verdict(
    case: Case, verdict: Any, stages: dict[str, Array], observed: Reading, member: str
) -> str:
    if "weights" not in stages:
        raise NoOpinionError("nothing reliable to compare with")
    known = STAGE_NAMES - {"q", "k", "v", "mask"}
    named = {name: x for name, x in observed.arrays.items() if name in known}
    stage = case.given.get("--stage")
    if stage or not named or (member and member in observed.arrays):
        named = {stage or "output": _only_observed(observed, member, stage)}
    elif known.intersection(observed.wrong):
        return "a stage that cannot be read is left out"
    if verdict["status"] == "wrong shape":
        known_shapes = [
            x.shape == stages[name].shape for name, x in named.items() if name in stages
        ]
        fits = known_shapes and all(known_shapes) and "--rows" not in case.given
        return f"{sorted(named)} have the right shape" if fits else ""
    compared = {found["name"]: found for found in verdict["stages"]}
    if compared.keys() != named.keys():
        return f"compares {sorted(compared)}, not {sorted(named)}"
    for name, found in compared.items():
        if name not in stages:
            continue
        wanted, x = stages[name], named[name].astype(float)
        if "--rows" in case.given:
            wanted = wanted[..., case.bounds(case.given["--rows"] or "", wanted.shape[-2]), :]
        if x.size != wanted.size or not np.isfinite(x).all():
            continue
        largest = np.abs(x.reshape(wanted.shape) - wanted).max()
        if not math.isclose(found["largest"], largest, rel_tol=1e-6, abs_tol=1e-9):
            return f"the largest error of {name} is {largest}, not {found['largest']}"
        if found["matches"] and largest > 0.1 and not TOLERANCES & case.given.keys():
            return f"{name} matches with an error of {largest}"
    return ""


def _only_observed(observed: Reading, member: str, stage: str | None) -> Array:
    name = member or stage
    if name in observed.arrays:
        return observed.arrays[name or ""]
    if len(observed.arrays) != 1 or member:
        raise RefusalError("which is observed")
    return next(iter(observed.arrays.values()))


def examples(case: Case, out: str) -> str:
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
