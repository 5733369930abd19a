"""The table: each cell as it was found when the libraries were run, and each is one of few words."""

import numpy as np
import pytest

from attncli.commands.semantics.cases import CASES, REFUSED
from attncli.commands.semantics.differences import differences
from attncli.commands.semantics.outcomes import outcomes
from attncli.commands.semantics.tables import of_one, of_two, table
from attncli.convention import Convention
from attncli.errors import ConventionError
from attncli.page.conventions import sentence_of, sentences
from attncli.presets import PRESETS, Preset, features_of

KEEP, HIDE, ADD = "may attend", "hides", "adds 1"
NO, BOTH = REFUSED, "both"
TRUTH, INVERTED, NOTHING = "1 may attend", "inverted", "nothing hidden"
# true | 0/1 | 0/−inf | causal 3 × 5 | mask and causal | no key | no key by −inf | heads | d_v
FOUND = {
    "torch-sdpa": (KEEP, "added", "added", "top-left", BOTH, "zeros", "zeros", "blocks", "yes"),
    "torch-flex": (KEEP, "added", "added", "top-left", NO, "zeros", "zeros", "blocks", "yes"),
    "torch-mha": (HIDE, "added", "added", NO, "mask alone", "NaN", "NaN", NO, NO),
    "torch-mha-fast": (HIDE, "added", "added", NO, "causal alone", "zeros", "zeros", NO, NO),
    "transformers-eager": (ADD, "added", "added", NO, NO, NOTHING, "NaN", "blocks", "yes"),
    "transformers-sdpa": (KEEP, "added", "added", "top-left", "mask alone", "zeros", "zeros", "blocks", "yes"),
    "jax": (KEEP, "added", "added", "top-left", BOTH, "mean of V", "NaN", "blocks", NO),
    "flax": (KEEP, TRUTH, INVERTED, NO, NO, "mean of V", NOTHING, NO, "yes"),
    "keras-ops": (KEEP, TRUTH, INVERTED, "top-left", BOTH, "mean of V", NOTHING, "blocks", "yes"),
    "keras-mha": (KEEP, TRUTH, INVERTED, "top-left", BOTH, "mean of V", NOTHING, NO, "yes"),
    "keras-attention": (NO, NO, NO, "top-left", NO, NO, NO, NO, "yes"),
    "equinox": (KEEP, TRUTH, INVERTED, NO, NO, "mean of V", NOTHING, NO, "yes"),
    "mlx": (KEEP, "added", "added", "bottom-right", NO, "mean of V", "NaN", "blocks", "yes"),
    "tinygrad": (KEEP, "added", "added", "top-left", NO, "NaN", "NaN", "blocks", "yes"),
    "onnx": (KEEP, "added", "added", "top-left", BOTH, "zeros", "zeros", "blocks", "yes"),
    "onnx-reference": (KEEP, "added", "added", "top-left", BOTH, "zeros", "zeros", "blocks", "yes"),
    "flash-attn": (NO, NO, NO, "bottom-right", NO, NO, NO, "blocks", NO),
}  # fmt: skip
"""By hand from runs of torch 2.13.0, transformers 5.23.0, jax 0.10.2, flax 0.12.8, equinox 0.13.8,
keras 3.15.1, mlx 0.32.4, tinygrad 0.14.0, onnx 1.23.2 and onnxruntime 1.31.1; of flash-attn from its
documents."""


def test_the_cells_are_as_seen() -> None:
    stage = table()["libraries"]
    names = stage.names("library")
    assert (names, stage.names("case")) == (tuple(PRESETS), (*CASES, "layout", "checked with"))
    rows = dict(zip(names, map(tuple, stage.value.tolist()), strict=True))
    assert {name: rows[name][: len(cells)] for name, cells in FOUND.items()} == FOUND
    assert {name for name, row in rows.items() if row[-4] != "1/√d_k"} == {"keras-attention"}
    assert rows["jax"][-2:] == ("bshd", "jax 0.10.2")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_how_it_is_known_and_what_it_means(name: str) -> None:
    row, page = PRESETS[name], of_one(name)
    assert all(row.refuses.values())
    assert (page.notes[0], page["library"].names("library")) == (row.call, (name, "most"))
    for field, value in row.fields.items():  # every value has a sentence
        assert not sentence_of(field, value).startswith(("--", "without")), (field, value)


def test_a_preset_is_one_row() -> None:
    """A library of our own: a row, and it is in the table and among what an input makes part."""
    fields = {"mask_means": "ignore", "scale": "none"}
    row = Preset("ours", "ours.attention", "ours 1.0", fields, {"d_v": "no"}, "bshd")
    cells = table([row])["libraries"].value[0].tolist()
    assert cells[:2] + cells[-3:] == ["hides", "added", "nothing", "bshd", "ours 1.0"]
    x = np.eye(2)
    parts = outcomes(x, x, x, mask=x > 0, presets=[PRESETS["torch-sdpa"], row])
    assert [group.names for group in parts.groups] == [("torch-sdpa",), ("ours",)]
    assert dict(parts.groups[1].does)["true"] == "hides"


def test_what_no_screen_shows() -> None:
    with pytest.raises(ConventionError, match="torch-spda") as problem:
        Convention.of("torch-spda")
    assert problem.value.hint == "did you mean torch-sdpa?"
    masked, scale = sentences({"mask_value": -10000.0, "mask_value_rule": "add", "scale": "none"})
    assert ("10000" in masked, "not scaled" in scale) == (True, True)
    assert [*features_of(mask=None, causal=False, lengths=(3, 5))] == ["lengths"]


# ---- two libraries


def test_what_differs_between_two_libraries() -> None:
    """By hand from their documents: a mask and causal, and refusals in the target's words."""
    moves = {about: (ours, theirs) for about, ours, theirs in differences("keras-mha", "mlx")}
    assert {*moves} == {"numbers in a mask", "causal", "mask and causal", "layout"}
    assert moves["causal"] == (
        "query 1 is at the position of key 1",
        "the last query is at the position of the last key",
    )
    assert moves["mask and causal"][1].startswith("refused: ")
    assert moves["layout"] == ("[batch, token, head * d]", "[batch, head, token, d]")
    from_one_head = {about: words for about, *words in differences("keras-attention", "jax")}
    assert from_one_head["layout"] == ["[batch, token, d]", "[batch, token, head, d]"]
    assert "rows with no key" not in from_one_head  # it takes no mask that could hide all keys
    late = {about: words for about, *words in differences("flash-attn", "torch-sdpa")}
    assert "rows with no key" not in late  # both give zeros
    assert "rows with no key" in {about for about, *_ in differences("flash-attn", "jax")}
    with pytest.raises(ConventionError, match="torch"):
        differences("torch", "jax")


@pytest.mark.parametrize("source", PRESETS)
def test_no_difference_is_of_two_that_are_the_same(source: str) -> None:
    assert differences(source, source) == []
    for target in PRESETS:
        assert [x for x in differences(source, target) if x.source == x.target] == []


def test_the_page_of_two_libraries() -> None:
    trace = of_two("torch-mha", "flash-attn")
    stage = trace["differences"]
    cells = dict(zip(stage.names("case"), stage.value.tolist(), strict=True))
    assert cells["true"] == ["hides", REFUSED]
    flags = "torch-mha is the same as flags: --mask-and-causal mask --mask-means ignore"
    assert [note for note in trace.notes if note.startswith(flags)]
    assert any("torch-mha projects" in note for note in trace.notes)
    assert any("flash-attn" in note and "not run" in note for note in trace.notes)
    same = of_two("onnx", "onnx-reference")
    assert ([*same], same["library"].names("library")) == (["library"], ("onnx", "onnx-reference"))
    assert any("the same in every case" in note for note in same.notes)
