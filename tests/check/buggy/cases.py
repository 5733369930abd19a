"""Buggy attentions: each bug as somebody would have written it, in plain NumPy.

A case has the name that `check` must find, and computes the bug for any sizes and number type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.check.buggy import heads, mask_arithmetic, masking, scaling
from tests.check.buggy.parts import Computed, Inputs
from tests.check.buggy.positions import with_positions


@dataclass(frozen=True)
class BuggyCase:
    """A row of the catalogue: the name that must be found, and what computes the bug."""

    name: str
    make: Callable[[Inputs], Computed]
    also: tuple[str, ...] = ()  # bugs that give the same numbers on this input


FINITE = ("finite mask value",)
BUGGY_CASES = (
    BuggyCase("scale left out", scaling.scaled_by(lambda inputs: 1.0)),
    BuggyCase(
        "√d_model instead of √d_k",
        scaling.scaled_by(lambda inputs: (inputs.h * inputs.d_k) ** -0.5),
    ),
    BuggyCase("divided by d_k, not √d_k", scaling.scaled_by(lambda inputs: 1 / inputs.d_k)),
    BuggyCase("multiplied by √d_k", scaling.scaled_by(lambda inputs: inputs.d_k**0.5)),
    BuggyCase("scale applied twice", scaling.scaled_twice),
    BuggyCase("default scale, not the one given", scaling.default_scale),
    BuggyCase("softmax over queries, not keys", scaling.over_queries),
    BuggyCase("softmax over keys, not queries", scaling.over_keys),
    BuggyCase("softmax over heads", scaling.over_heads),
    BuggyCase("softmax over the batch", scaling.over_batch),
    BuggyCase("softcap on the other side of the mask", scaling.softcap_after_mask),
    BuggyCase("softcap left out", scaling.no_softcap),
    BuggyCase("sinks left out", scaling.no_sinks),
    BuggyCase("scores overflow in float16", scaling.float16_overflow),
    BuggyCase("boolean mask read the other way round", masking.mask_inverted),
    BuggyCase("boolean mask added as numbers", masking.mask_as_numbers),
    BuggyCase("mask left out", masking.mask_left_out),
    BuggyCase("padding left out", masking.padding_left_out),
    BuggyCase("padding mask on queries, not keys", masking.padding_on_queries),
    BuggyCase("padding mask on queries, not keys", masking.mask_transposed),
    BuggyCase(
        "causal mask left out", masking.with_masked(lambda i, j, inputs: j < 0, {"causal": True})
    ),
    BuggyCase(
        "causal mask where none is wanted", masking.with_masked(lambda i, j, inputs: j > i, {})
    ),
    BuggyCase(
        "causal mask where none is wanted, bottom-right",
        masking.with_masked(lambda i, j, inputs: j > i + inputs.n_k - inputs.n_q, {}),
    ),
    BuggyCase(
        "causal mask aligned bottom-right, not top-left",
        masking.with_masked(lambda i, j, inputs: j > i + inputs.n_k - inputs.n_q, {"causal": True}),
    ),
    BuggyCase(
        "causal mask aligned top-left, not bottom-right",
        masking.with_masked(
            lambda i, j, inputs: j > i, {"causal": True, "causal_align": "bottom-right"}
        ),
    ),
    BuggyCase(
        "causal mask hides each query's own position",
        masking.with_masked(lambda i, j, inputs: j >= i, {"causal": True}),
    ),
    BuggyCase(
        "causal mask shows the next position",
        masking.with_masked(lambda i, j, inputs: j > i + 1, {"causal": True}),
    ),
    BuggyCase("cached decode masks its own history", masking.past_masked),
    BuggyCase(
        "window one too wide",
        masking.with_masked(
            lambda i, j, inputs: (j > i) | (j < i - 3),
            {"causal": True, "window": (2, 0)},
            n_q=7,
        ),
    ),
    BuggyCase(
        "window one too narrow",
        masking.with_masked(
            lambda i, j, inputs: (j > i) | (j < i - 1),
            {"causal": True, "window": (2, 0)},
            n_q=7,
        ),
    ),
    BuggyCase(
        "window left out",
        masking.with_masked(lambda i, j, inputs: j > i, {"causal": True, "window": (2, -1)}, n_q=7),
    ),
    BuggyCase("mask applied after softmax, not renormalised", mask_arithmetic.after_softmax),
    BuggyCase("mask multiplied into the scores", mask_arithmetic.multiplied),
    BuggyCase("finite mask value", mask_arithmetic.finite_value),
    BuggyCase("mask value −∞, not the finite one given", mask_arithmetic.infinite_value, FINITE),
    BuggyCase("rows with nothing to attend to become NaN", mask_arithmetic.empty_nan),
    BuggyCase("rows with nothing to attend to become zero", mask_arithmetic.empty_zero),
    BuggyCase(
        "rows with nothing to attend to get the mean of V", mask_arithmetic.empty_uniform, FINITE
    ),
    BuggyCase("0 · −∞ in the mask", mask_arithmetic.zero_times_infinity),
    BuggyCase("NaN leaks from masked keys", mask_arithmetic.nan_in("keys")),
    BuggyCase("NaN leaks from masked values", mask_arithmetic.nan_in("values")),
    BuggyCase("K and V swapped", heads.k_v_swapped),
    BuggyCase("Q and K swapped", heads.q_k_swapped),
    BuggyCase("K not transposed", heads.k_not_transposed),
    BuggyCase("heads split by reshape without transpose", heads.split_by_reshape),
    BuggyCase("heads merged by reshape without transpose", heads.merged_by_reshape),
    BuggyCase("heads split by reshape without transpose", heads.split_and_merged_by_reshape),
    BuggyCase("heads merged by reshape without transpose", heads.output_cut_by_reshape),
    BuggyCase("key heads tiled, not in blocks", heads.heads_tiled),
    BuggyCase("key heads in blocks, not tiled", heads.heads_in_blocks),
    BuggyCase("rows and columns exchanged", heads.weights_transposed),
    BuggyCase("heads merged by reshape without transpose", heads.output_transposed),
    BuggyCase("the observed scores are scaled already", heads.scores_scaled),
    BuggyCase("the observed scores are masked already", heads.scores_masked),
    BuggyCase("dropout left on", heads.dropout_on),
    BuggyCase(
        "rotary pairs interleaved, not in halves", with_positions("rope-halves", "rope-interleaved")
    ),
    BuggyCase(
        "rotary pairs interleaved, not in halves",
        with_positions("rope-halves", "rope-interleaved", past=True),
    ),
    BuggyCase(
        "rotary pairs in halves, not interleaved", with_positions("rope-interleaved", "rope-halves")
    ),
    BuggyCase("sinusoid exponent 2·2i/d, not 2i/d", with_positions("paper", "article")),
    BuggyCase("sinusoid exponent 2i/d, not 2·2i/d", with_positions("article", "paper", past=True)),
    BuggyCase("sines, then cosines, not interleaved", with_positions("paper", "in halves")),
    *(
        BuggyCase("positions left out", with_positions(kind, "none"))
        for kind in ("paper", "article", "rope-halves", "rope-interleaved")
    ),
    BuggyCase(
        "positions left out", with_positions("rope-halves", "rope-halves", on="k", past=True)
    ),
    BuggyCase("positions left out", with_positions("rope-interleaved", "rope-interleaved", on="q")),
    BuggyCase("positions left out of the values", with_positions("paper", "paper", on="qk")),
    BuggyCase(
        "rotary positions in the values too", with_positions("rope-halves", "rope-halves", on="qkv")
    ),
    BuggyCase(
        "positions counted from 1, not 0", with_positions("paper", "paper", starts=(1, 1, 1))
    ),
    BuggyCase(
        "positions counted from 1, not 0",
        with_positions("article", "article", starts=(3, 1, 3), past=True),
    ),
    *(
        BuggyCase(
            "positions restarted at 0 after the past",
            with_positions(kind, kind, starts=(0, 0, new), past=True),
        )
        for kind in ("paper", "rope-halves", "rope-interleaved")
        for new in (0, 2)
    ),
)
