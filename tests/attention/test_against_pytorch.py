"""Attention, layers and stacks against PyTorch's numbers on the same weights.

The numbers are stored: tests/fixtures/make_torch_fixtures.py made them and can make them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import Projections, Trace, multi_head_attention
from attncli.attention.layers import Architecture
from attncli.attention.state_dict import canonical, weights_from_arrays
from attncli.attention.weights import Block, Dimensions, Weights
from attncli.convention import Convention

from .stacks import decode, encode, result

FOLDER = Path(__file__).parents[1] / "fixtures" / "torch"
SIZES = Dimensions(d_model=10, n_heads=2)


class Case:
    """A fixture: its arrays, and its state dict."""

    def __init__(self, name: str) -> None:
        with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
            self.arrays = dict(file)
        prefix = "weights/"
        self.state = {n.removeprefix(prefix): x for n, x in self.arrays.items() if prefix in n}

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def weights(self, block: Block) -> Any:
        return weights_from_arrays(self.state, block, SIZES)


def architecture(name: str, **convention: Any) -> Architecture:
    norm: Any = "pre" if name.endswith("pre") else "post"
    return Architecture(n_heads=2, norm=norm, convention=Convention(**convention))


def projections(weights: Weights) -> Projections:
    return Projections(**{name.rpartition(".")[2]: x for name, x in weights.items()})


def assert_equal(ours: Any, theirs: Any) -> None:
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_the_fixtures_name_the_version_that_made_them() -> None:
    files = sorted(FOLDER.glob("*.npz"))
    assert len(files) == 11
    assert {str(Case(file.stem)["torch_version"]) for file in files} == {"2.13.0+cpu"}


def test_multi_head_self_attention() -> None:
    case = Case("self_attention")
    trace = multi_head_attention(case["x"], projections(case.weights("attention")), n_heads=2)
    assert_equal(trace["weights"].value, case["attention"])
    assert_equal(trace["projected"].value, case["output"])


def test_multi_head_cross_attention_to_another_width() -> None:
    case = Case("cross_attention")
    found = canonical(case.state, "attention")
    weights = projections({name: array.value for name, array in found.items()})
    trace = multi_head_attention(case["x"], weights, n_heads=2, context=case["memory"])
    assert_equal(trace["weights"].value, case["attention"])
    assert_equal(trace["projected"].value, case["output"])


@pytest.mark.parametrize(
    "name", ["encoder_layer_post", "encoder_layer_pre", "encoder_layer_no_bias"]
)
def test_encoder_layer(name: str) -> None:
    case = Case(name)
    weights = case.weights("encoder")
    assert ("encoder.1.feed_forward.b_1" in weights) == (name != "encoder_layer_no_bias")
    assert_equal(result(encode(case["x"], weights, architecture(name))), case["output"])


def test_encoder_layer_of_a_padded_batch_with_a_causal_mask() -> None:
    case = Case("encoder_layer_masked")
    how = architecture("post", causal=True)
    mask = ~case["padded"][:, None, None, :]
    trace = encode(case["x"], case.weights("encoder"), how, mask=mask)
    assert_equal(result(trace), case["output"])


@pytest.mark.parametrize("name", ["decoder_layer_post", "decoder_layer_pre"])
def test_decoder_layer(name: str) -> None:
    case = Case(name)
    trace = decode(case["x"], case["memory"], case.weights("decoder"), architecture(name))
    assert_equal(result(trace), case["output"])


def test_encoder_stack() -> None:
    case = Case("encoder")
    trace = encode(case["x"], case.weights("encoder"), architecture("pre"))
    assert [step.name for step in trace.steps if isinstance(step, Trace)] == ["1", "2"]
    assert_equal(result(trace), case["output"])


@pytest.mark.parametrize("name", ["transformer_post", "transformer_pre"])
def test_the_whole_transformer(name: str) -> None:
    case, how = Case(name), architecture(name)
    assert_equal(result(decoded(case, case.weights("encoder-decoder"), how)), case["output"])


def decoded(case: Case, weights: Weights, how: Architecture) -> Trace:
    memory = result(encode(case["source"], weights, how))
    return decode(case["x"], memory, weights, how)
