"""Library conventions: a library's own outputs are named by check, and match by its conventions."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import Convention
from attncli.arrays import Array
from attncli.commands.check.diagnose import check
from attncli.commands.check.report import summary_text, verdict_to_dict
from attncli.commands.check.verdict import Verdict, report_text
from attncli.presets import PRESETS
from tests import plain
from tests.commands.check.planted.rows import names
from tests.turns import in_turn

FILE = Path(__file__).parents[2] / "fixtures" / "library_outputs.npz"
KEYWORDS = {
    "torch-mha: boolean mask": "true in a mask hides",
    "torch-mha: mask and causal": "causal has no effect | true in a mask hides",
    "torch-mha-fast: mask and causal": "the mask has no effect",
    "transformers-eager: boolean mask": "added to the scores as 1 and 0",
    "jax: boolean mask, empty row": "mean of V",
    "keras-mha: 0/-inf mask": "numbers of a mask are read as true or false",
    "keras-attention: plain": "not scaled",
    "mlx: causal 3x5": "the last query is at the position of the last key",
    "tinygrad: boolean mask, empty row": "gets NaN",
    "ort-mha: boolean mask, empty row": "lowered by 10000",
    "ort-mha: causal 3x5": "with fewer queries than keys, the last sees every key",
}
"""What differs from the default, of the recorded calls in which anything does."""


@cache
def recorded() -> dict[str, tuple[Array, dict[str, Any]]]:
    """Of each call a library's own output, and the inputs as keywords of check."""
    with np.load(FILE) as file:
        calls = {}
        for one in json.loads(str(file["index"])):
            place = f"{one['preset']}/{one['call']}/"
            given: dict[str, Any] = {n: file[place + n] for n in "qkv"}
            given |= {"mask": file[place + "mask"]} if place + "mask" in file else {}
            given |= {"causal": True} if one["causal"] else {}
            calls[f"{one['preset']}: {one['call']}"] = (file[place + "output"], given)
    return calls


def verdict_on(case: str, **more: Any) -> Verdict:
    output, given = recorded()[case]
    return check(output, **given, **more)


@pytest.mark.parametrize("case", KEYWORDS)
def test_the_conventions_of_a_library_are_named(case: str) -> None:
    (meaning,) = verdict_on(case, pairs=False).meanings
    assert case.partition(":")[0] in meaning.names
    assert meaning.flag == f"--semantics {meaning.names[0]}"
    for word, sentence in zip(KEYWORDS[case].split(" | "), meaning.sentences, strict=True):
        assert word in sentence


def test_by_its_own_conventions_it_matches() -> None:
    assert verdict_on("ort-mha: boolean mask").meanings == ()  # as the default has it
    for case, (output, given) in recorded().items():
        convention = replace(
            Convention.of(case.partition(":")[0]), causal=given.get("causal", False)
        )
        verdict = check(output, **{**given, "causal": convention.causal}, convention=convention)
        assert (verdict.status, verdict.meanings) == ("match", ()), case


@pytest.mark.parametrize(
    ("case", "more", "status", "in_order"),
    [
        ("keras-mha: 0/-inf mask", {}, "found", ["default conventions", "flax", "--semantics flax", "keras-mha, equinox", "bug", "other way round"]),
        ("jax: boolean mask, empty row", {"empty_rows_inf": "nan"}, "ambiguous", ["jax", "--semantics jax", "ambiguous", "1. finite mask value"]),
        ("torch-mha: mask and causal", {}, "meaning", ["torch-mha", "causal has no effect", "output differs"]),
    ],
)  # fmt: skip
def test_the_text_of_a_convention_and_of_a_bug(
    case: str, more: dict[str, Any], status: str, in_order: list[str]
) -> None:
    verdict = verdict_on(case, **more)
    text = report_text(verdict)
    places = [text.find(part) for part in in_order]
    assert (-1 in places, places) == (False, sorted(places))
    assert (verdict.status, "bug" in text) == (status, status != "meaning")


def test_the_data_and_the_summary() -> None:
    data = verdict_to_dict(verdict_on("ort-mha: boolean mask, empty row"))
    assert data["is_default"] is True
    (meaning,) = data["meanings"]
    assert (meaning["names"], meaning["flag"]) == (["ort-mha"], "--semantics ort-mha")
    assert meaning["fields"] == {"mask_value": -10000.0, "mask_value_rule": "add"}
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    cases = "torch-mha: boolean mask", "keras-attention: plain", "ort-mha: boolean mask"
    lines = summary_text(dict(zip("abc", map(verdict_on, cases), strict=True))).splitlines()
    parts = "1 of 3", "torch-mha", "scale left out", "matches"
    assert all(part in line for part, line in zip(parts, lines[:4], strict=True))


def test_a_convention_that_was_not_chosen_by_name_is_not_left_out() -> None:
    convention: Any = {"convention": Convention.of("tinygrad"), "chosen": (), "pairs": False}
    (meaning,) = verdict_on("jax: boolean mask, empty row", **convention).meanings
    assert meaning.flag == "--semantics jax"


# ---- against NumPy alone

RNG = np.random.default_rng(23)
Q, K, V = (RNG.normal(size=(2, n, 7)).astype(np.float32) for n in (3, 5, 5))
KEEP = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], dtype=bool)


def computed(k: Array = K, v: Array = V, mask: Array | None = None, **convention: Any) -> Array:
    given = {"q": Q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
    return plain.attention(given, convention)["output"].astype(np.float32)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("flash-attn", {"causal": True}),
        ("flashinfer", {"causal": True}),
        ("ort-gqa", {"causal": True, "window": (2, -1)}),
        ("ort-gqa", {}),
    ],
)
def test_conventions_known_from_documents_are_named(name: str, asked: dict[str, Any]) -> None:
    k, v = (x[:, : 3 if name == "ort-gqa" else 5] for x in (K, V))
    observed = computed(k, v, **{**PRESETS[name].fields, **asked})
    (meaning,) = check(observed, Q, k, v, pairs=False, **asked).meanings
    assert name in meaning.names
    assert check(observed, Q, k, v, convention=Convention(**{**asked, **meaning.fields}))


def test_what_was_said_of_the_mask_is_left_out_where_a_library_means_otherwise() -> None:
    """0 and 1, said to be added; the numbers are those of 1 = may attend."""
    convention: dict[str, Any] = {
        "mask": KEEP.astype(np.float32),
        "mask_means": "add",
        "pairs": False,
    }
    (meaning,) = check(computed(mask=KEEP), Q, K, V, **convention).meanings
    assert meaning.names == ("flax", "keras-ops", "keras-mha", "equinox")
    assert meaning.flag == "--semantics flax, without --mask-means"


def test_a_single_query_is_not_masked_by_transformers() -> None:
    """is_causal is set for more than one query: as transformers 5.23.0 was seen to compute."""
    rng = np.random.default_rng(59)
    q, k, v = (rng.normal(size=(2, n, 7)) for n in (1, 5, 5))
    output = plain.attention({"q": q, "k": k, "v": v}, {}, None)["output"]
    (meaning,) = (x for x in check(output, q, k, v, causal=True).meanings if len(x.names) > 1)
    assert "transformers-sdpa" in meaning.names
    assert meaning.fields == {"causal_align": "bottom-right"}
    convention = Convention.of("transformers-sdpa", n_queries=1)
    assert check(output, q, k, v, causal=True, convention=convention)


def test_a_library_that_refuses_the_call_is_not_named() -> None:
    """keras.layers.Attention takes no such mask, though it does not scale either."""
    verdict = check(computed(mask=KEEP, scale="none"), Q, K, V, mask=KEEP)
    assert (names(verdict), verdict.meanings) == (["scale left out"], ())


def test_a_mask_and_causal_that_are_refused_together_do_not_stop_the_search() -> None:
    mask = np.tri(3, 5, 1, dtype=bool)
    mask[2, 0] = False
    observed = computed(mask=mask & np.tri(3, 5, dtype=bool))
    (bug,) = check(observed, Q, K, V, mask=mask, convention=Convention.of("tinygrad")).explanations
    assert bug.name == "causal mask where none is wanted"
    assert bug.flag == "--causal --mask-and-causal both"


@pytest.mark.parametrize(
    ("stage", "kind"), in_turn(["masked", "weights", "output"], [np.float32, np.float64])
)
def test_scores_that_are_lowered_keep_few_digits(stage: str, kind: Any) -> None:
    """−10,000 leaves a score in float32 with three decimals; that is no bug."""
    q, k, v = (x.astype(kind) for x in (Q, K, V))
    keep = KEEP.copy()
    keep[1] = False
    x = q @ k.swapaxes(-1, -2) * kind(7**-0.5)
    lowered = x + np.where(keep, kind(0), kind(-1e4))
    powers = np.exp(lowered - lowered.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    seen = {"masked": lowered, "weights": weights, "output": weights @ v}[stage]
    convention: dict[str, Any] = {"mask": keep, "mask_value": -1e4, "mask_value_rule": "add"}
    assert seen.dtype == kind
    assert check(seen, q, k, v, stage=stage, **convention).status == "match"
