"""A zoo of wrong attentions: each bug as somebody would have written it, in plain NumPy.

A keeper knows the name that its animal must get, and how to make one of any size and type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.check import zoo_layout, zoo_masking, zoo_masks, zoo_scores
from tests.check.zoo_positions import placed
from tests.check.zoo_room import Room, Specimen


@dataclass(frozen=True)
class Keeper:
    """A row of the catalogue: the name it must get, and what makes a specimen."""

    name: str
    make: Callable[[Room], Specimen]
    also: tuple[str, ...] = ()  # bugs that give the same numbers on this input


UNIFORM = ("finite mask value",)
ZOO = (
    Keeper("scale left out", zoo_scores.scaled_by(lambda room: 1.0)),
    Keeper(
        "√d_model instead of √d_k", zoo_scores.scaled_by(lambda room: (room.h * room.d_k) ** -0.5)
    ),
    Keeper("divided by d_k, not √d_k", zoo_scores.scaled_by(lambda room: 1 / room.d_k)),
    Keeper("multiplied by √d_k", zoo_scores.scaled_by(lambda room: room.d_k**0.5)),
    Keeper("scale applied twice", zoo_scores.scaled_twice),
    Keeper("default scale, not the one given", zoo_scores.default_scale),
    Keeper("softmax over queries, not keys", zoo_scores.over_queries),
    Keeper("softmax over keys, not queries", zoo_scores.over_keys),
    Keeper("softmax over heads", zoo_scores.over_heads),
    Keeper("softmax over the batch", zoo_scores.over_batch),
    Keeper("softcap on the other side of the mask", zoo_scores.softcap_after_mask),
    Keeper("softcap left out", zoo_scores.no_softcap),
    Keeper("scores overflow in float16", zoo_scores.float16_overflow),
    Keeper("boolean mask read the other way round", zoo_masks.mask_inverted),
    Keeper("boolean mask added as numbers", zoo_masks.mask_as_numbers),
    Keeper("mask left out", zoo_masks.mask_forgotten),
    Keeper("padding left out", zoo_masks.padding_forgotten),
    Keeper("padding mask on queries, not keys", zoo_masks.padding_on_queries),
    Keeper("padding mask on queries, not keys", zoo_masks.mask_turned),
    Keeper(
        "causal mask left out", zoo_masks.with_hidden(lambda i, j, room: j < 0, {"causal": True})
    ),
    Keeper("causal mask where none is wanted", zoo_masks.with_hidden(lambda i, j, room: j > i, {})),
    Keeper(
        "causal mask where none is wanted, bottom-right",
        zoo_masks.with_hidden(lambda i, j, room: j > i + room.n_k - room.n_q, {}),
    ),
    Keeper(
        "causal mask aligned bottom-right, not top-left",
        zoo_masks.with_hidden(lambda i, j, room: j > i + room.n_k - room.n_q, {"causal": True}),
    ),
    Keeper(
        "causal mask aligned top-left, not bottom-right",
        zoo_masks.with_hidden(
            lambda i, j, room: j > i, {"causal": True, "causal_align": "bottom-right"}
        ),
    ),
    Keeper(
        "causal mask hides each query's own position",
        zoo_masks.with_hidden(lambda i, j, room: j >= i, {"causal": True}),
    ),
    Keeper(
        "causal mask shows the next position",
        zoo_masks.with_hidden(lambda i, j, room: j > i + 1, {"causal": True}),
    ),
    Keeper("cached decode masks its own history", zoo_masks.history_masked),
    Keeper(
        "window one too wide",
        zoo_masks.with_hidden(
            lambda i, j, room: (j > i) | (j < i - 3),
            {"causal": True, "window": (2, 0)},
            n_q=7,
        ),
    ),
    Keeper(
        "window one too narrow",
        zoo_masks.with_hidden(
            lambda i, j, room: (j > i) | (j < i - 1),
            {"causal": True, "window": (2, 0)},
            n_q=7,
        ),
    ),
    Keeper(
        "window left out",
        zoo_masks.with_hidden(lambda i, j, room: j > i, {"causal": True, "window": (2, -1)}, n_q=7),
    ),
    Keeper("mask applied after softmax, not renormalised", zoo_masking.after_softmax),
    Keeper("mask multiplied into the scores", zoo_masking.multiplied),
    Keeper("finite mask value", zoo_masking.finite_value),
    Keeper("rows with nothing to attend to become NaN", zoo_masking.empty_nan),
    Keeper("rows with nothing to attend to become zero", zoo_masking.empty_zero),
    Keeper("rows with nothing to attend to get the mean of V", zoo_masking.empty_uniform, UNIFORM),
    Keeper("0 · −∞ in the mask", zoo_masking.zero_times_infinity),
    Keeper("NaN leaks from masked keys", zoo_masking.nan_in("keys")),
    Keeper("NaN leaks from masked values", zoo_masking.nan_in("values")),
    Keeper("K and V swapped", zoo_layout.k_v_swapped),
    Keeper("Q and K swapped", zoo_layout.q_k_swapped),
    Keeper("K not transposed", zoo_layout.k_not_transposed),
    Keeper("heads split by reshape without transpose", zoo_layout.split_by_reshape),
    Keeper("heads merged by reshape without transpose", zoo_layout.merged_by_reshape),
    Keeper("heads split by reshape without transpose", zoo_layout.split_and_merged_by_reshape),
    Keeper("heads merged by reshape without transpose", zoo_layout.output_cut_by_reshape),
    Keeper("key heads tiled, not in blocks", zoo_layout.heads_tiled),
    Keeper("key heads in blocks, not tiled", zoo_layout.heads_in_blocks),
    Keeper("rows and columns exchanged", zoo_layout.weights_turned),
    Keeper("heads merged by reshape without transpose", zoo_layout.output_turned),
    Keeper("the observed scores are scaled already", zoo_layout.scores_scaled),
    Keeper("the observed scores are masked already", zoo_layout.scores_masked),
    Keeper("dropout left on", zoo_layout.dropout_on),
    Keeper("rotary pairs interleaved, not in halves", placed("rope-halves", "rope-interleaved")),
    Keeper(
        "rotary pairs interleaved, not in halves",
        placed("rope-halves", "rope-interleaved", past=True),
    ),
    Keeper("rotary pairs in halves, not interleaved", placed("rope-interleaved", "rope-halves")),
    Keeper("sinusoid exponent 2·2i/d, not 2i/d", placed("paper", "article")),
    Keeper("sinusoid exponent 2i/d, not 2·2i/d", placed("article", "paper", past=True)),
    Keeper("sines, then cosines, not interleaved", placed("paper", "in halves")),
    *(
        Keeper("positions left out", placed(kind, "none"))
        for kind in ("paper", "article", "rope-halves", "rope-interleaved")
    ),
    Keeper("positions left out", placed("rope-halves", "rope-halves", on="k", past=True)),
    Keeper("positions left out", placed("rope-interleaved", "rope-interleaved", on="q")),
    Keeper("positions left out of the values", placed("paper", "paper", on="qk")),
    Keeper("rotary positions in the values too", placed("rope-halves", "rope-halves", on="qkv")),
    Keeper("positions counted from 1, not 0", placed("paper", "paper", starts=(1, 1, 1))),
    Keeper(
        "positions counted from 1, not 0", placed("article", "article", starts=(3, 1, 3), past=True)
    ),
    *(
        Keeper(
            "positions restarted at 0 after the past",
            placed(kind, kind, starts=(0, 0, new), past=True),
        )
        for kind in ("paper", "rope-halves", "rope-interleaved")
        for new in (0, 2)
    ),
)
