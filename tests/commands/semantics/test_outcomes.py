"""Where an input makes the libraries part: groups, the queries that part them, what is not shown."""

import numpy as np
import pytest

from attncli.commands.semantics.outcomes import Outcomes, outcomes
from attncli.commands.semantics.tables import of_input
from attncli.errors import ShapeError
from tests.commands.semantics.calls import EMPTY

DRAW = np.random.default_rng(7)
Q, K, V = (DRAW.standard_normal(shape) for shape in ((3, 3, 7), (3, 5, 7), (3, 5, 7)))
ZEROS = {"torch-sdpa", "torch-flex", "transformers-sdpa", "onnx", "onnx-reference", "flashinfer"}
MEAN = {"jax", "flax", "keras-ops", "keras-mha", "equinox", "mlx"}


def of(parts: Outcomes, name: str) -> tuple[dict[str, str], set[str], list[int]]:
    """What a library does, with which others, and the queries in which they part from the first."""
    (group,) = (group for group in parts.groups if name in group.names)
    return dict(group.does), {*group.names}, np.flatnonzero(group.apart).tolist()


def test_a_row_with_no_key_parts_them() -> None:
    """Query 2 of 3 sees no key; by hand from what the libraries give."""
    parts = outcomes(Q, K, V, mask=EMPTY)
    assert of(parts, "torch-sdpa")[1:] == (ZEROS, [])
    assert of(parts, "jax") == ({"no key": "mean of V"}, MEAN, [1])
    assert of(parts, "tinygrad") == ({"no key": "NaN"}, {"tinygrad"}, [1])
    assert of(parts, "ort-mha")[0] == {"no key": "as if unmasked"}
    assert of(parts, "torch-mha")[1:] == ({"torch-mha", "torch-mha-fast"}, [0, 1, 2])
    assert {*parts.refused} == {"keras-attention", "ort-gqa", "flash-attn"}
    unseen = {case.name for case in parts.unseen}
    assert {"numbers 0, 1", "causal 3 × 5", "heads 6 on 3"} <= unseen
    assert not {"true", "no key", "scale"} & unseen
    # the largest distance of all heads: zeros beside the mean of V; NaN beside numbers is NaN
    apart = {name: group.apart for group in parts.groups for name in group.names}
    assert apart["jax"].tolist() == pytest.approx([0, np.abs(V.mean(axis=1)).max(), 0])
    assert np.isnan(apart["tinygrad"][1])
    trace = of_input(parts, ("a", "b", "c"))
    cells = dict(zip(trace["outcomes"].names("library"), trace["outcomes"].value, strict=True))
    assert cells["flash-attn"][0].startswith("refused: ")
    assert (trace["apart"].names("query"), trace["apart"].value.shape) == (("a", "b", "c"), (17, 3))


def test_causal_between_different_lengths() -> None:
    parts = outcomes(Q, K, V, fields={"causal": True})
    same = {"mlx", "flash-attn", "flashinfer"}
    assert of(parts, "mlx") == ({"causal 3 × 5": "bottom-right"}, same, [0, 1, 2])
    assert of(parts, "ort-mha")[2] == [2]
    assert "torch-mha" in parts.refused
    close = outcomes(Q, K, 1 + V / 1000, fields={"causal": True})  # a small distance parts them
    assert [group.names for group in close.groups] == [group.names for group in parts.groups]


def test_a_mask_and_causal() -> None:
    q, k, v = (DRAW.standard_normal((1, 4, 7)) for _ in range(3))
    mask = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 1]], bool)
    parts = outcomes(q, k, v, mask=mask, fields={"causal": True})
    assert of(parts, "transformers-sdpa")[0] == {"mask, causal": "mask alone"}
    assert of(parts, "keras-mha")[1] == of(parts, "torch-sdpa")[1] | {"keras-mha"}
    assert {"torch-flex", "mlx", "tinygrad"} <= {*parts.refused}


def test_a_flag_holds_for_all_of_them() -> None:
    parts = outcomes(Q, K, V, fields={"scale": 0.5})
    assert "keras-attention" in of(parts, "torch-sdpa")[1]
    assert "scale" in [case.name for case in parts.unseen]
    square = outcomes(Q[:1], K[:1, :3], V[:1, :3], fields={"scale": 0.5})
    assert len(square.groups) == 2  # one library is causal unasked, all others give the same
    assert of(square, "ort-gqa")[0] == {"hidden unasked": "later keys"}
    with pytest.raises(ShapeError):
        outcomes(Q, K[..., :5], V)
