"""Where an input makes the libraries part: groups, the queries that part them, what is not shown."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.errors import ShapeError
from attncli.semantics.outcomes import Outcomes, outcomes
from attncli.semantics.tables import of_input

DRAW = np.random.default_rng(7)
Q, K, V = (DRAW.standard_normal(shape) for shape in ((3, 3, 7), (3, 5, 7), (3, 5, 7)))
KEEP = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 1]], bool)
ZEROS = {"torch-sdpa", "torch-flex", "transformers-sdpa", "onnx", "onnx-reference", "flashinfer"}
MEAN = {"jax", "flax", "keras-ops", "keras-mha", "equinox", "mlx"}


def of(found: Outcomes, name: str) -> tuple[dict[str, str], set[str], list[int]]:
    """What a library does, with which others, and the queries in which they part from the first."""
    (group,) = (group for group in found.groups if name in group.names)
    return dict(group.does), {*group.names}, np.flatnonzero(group.apart).tolist()


def test_a_row_with_no_key_parts_them() -> None:
    """Query 2 of 3 sees no key; by hand from what the libraries give."""
    found = outcomes(Q, K, V, mask=KEEP)
    assert of(found, "torch-sdpa")[1:] == (ZEROS, [])
    assert of(found, "jax") == ({"no key": "mean of V"}, MEAN, [1])
    assert of(found, "tinygrad") == ({"no key": "NaN"}, {"tinygrad"}, [1])
    assert of(found, "ort-mha")[0] == {"no key": "as if unmasked"}
    assert of(found, "torch-mha")[1:] == ({"torch-mha", "torch-mha-fast"}, [0, 1, 2])
    assert {*found.refused} == {"keras-attention", "ort-gqa", "flash-attn"}
    unseen = [case.name for case in found.unseen]
    assert {"numbers 0, 1", "causal 3 × 5", "heads 6 on 3"} <= {*unseen}
    assert not {"true", "no key", "scale"} & {*unseen}


def test_the_distance_is_the_largest_of_all_heads() -> None:
    """Zeros beside the mean of V, so the mean itself; NaN beside numbers is NaN."""
    found = outcomes(Q, K, V, mask=KEEP)
    apart = {name: group.apart for group in found.groups for name in group.names}
    assert apart["jax"].tolist() == pytest.approx([0, np.abs(V.mean(axis=1)).max(), 0])
    assert np.isnan(apart["tinygrad"][1])


def test_causal_between_different_lengths() -> None:
    found = outcomes(Q, K, V, fields={"causal": True})
    assert of(found, "mlx") == (
        {"causal 3 × 5": "bottom-right"},
        {"mlx", "flash-attn", "flashinfer"},
        [0, 1, 2],
    )
    assert of(found, "ort-mha")[2] == [2]
    assert "torch-mha" in found.refused


def test_a_mask_and_causal() -> None:
    q, k, v = (DRAW.standard_normal((1, 4, 7)) for _ in range(3))
    mask = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 1]], bool)
    found = outcomes(q, k, v, mask=mask, fields={"causal": True})
    assert of(found, "transformers-sdpa")[0] == {"mask, causal": "mask alone"}
    assert of(found, "keras-mha")[1] == of(found, "torch-sdpa")[1] | {"keras-mha"}
    assert {"torch-flex", "mlx", "tinygrad"} <= {*found.refused}


def test_a_flag_holds_for_all_of_them() -> None:
    found = outcomes(Q, K, V, fields={"scale": 0.5})
    assert "keras-attention" in of(found, "torch-sdpa")[1]
    assert "scale" in [case.name for case in found.unseen]


def test_where_all_give_the_same_there_is_one_group() -> None:
    q, k, v = Q[:1], K[:1, :3], V[:1, :3]
    found = outcomes(q, k, v, fields={"scale": 0.5})
    assert len(found.groups) == 2  # one library is causal unasked
    assert of(found, "ort-gqa")[0] == {"hidden unasked": "later keys"}


def test_the_trace_names_every_library() -> None:
    found = outcomes(Q, K, V, mask=KEEP)
    trace = of_input(found, ("a", "b", "c"))
    stage = trace["outcomes"]
    cells = dict(zip(stage.names("library"), stage.value[:, 0].tolist(), strict=True))
    assert cells["jax"] == "no key: mean of V"
    assert cells["flash-attn"].startswith("refused: ")
    assert trace["apart"].names("query") == ("a", "b", "c")
    assert trace["apart"].value.shape == (17, 3)


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError):
        outcomes(Q, K[..., :5], V)
