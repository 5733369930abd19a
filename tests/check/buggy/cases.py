"""Buggy attentions: each bug as somebody would have written it, in plain NumPy.

A case has the name that `check` must find, and computes the bug for any sizes and number type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.check.buggy import caches, heads, kernels, layouts, mask_arithmetic, masking, scaling
from tests.check.buggy import inputs as wrong_inputs
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
    BuggyCase("numbers of the mask inside the softcap", scaling.bias_by_softcap(inside=True)),
    BuggyCase("numbers of the mask outside the softcap", scaling.bias_by_softcap(inside=False)),
    BuggyCase("softcap left out", scaling.no_softcap),
    BuggyCase("sinks left out", scaling.no_sinks),
    BuggyCase("scores overflow in float16", scaling.float16_overflow),
    BuggyCase("boolean mask read the other way round", masking.mask_inverted),
    BuggyCase("boolean mask added as numbers", masking.mask_as_numbers),
    BuggyCase("boolean mask not added as numbers", masking.mask_not_as_numbers),
    BuggyCase("boolean mask read the other way round", masking.truth_inverted),
    BuggyCase("numbers of the mask read as true or false", masking.numbers_as_truth),
    BuggyCase("numbers of the mask added, not read as true or false", masking.truth_as_numbers),
    *(
        BuggyCase("mask and causal both applied, not one alone", masking.both_restrict(alone))
        for alone in ("mask", "causal")
    ),
    BuggyCase("mask left out", masking.mask_left_out),
    BuggyCase("padding left out", masking.padding_left_out),
    BuggyCase("padding mask on queries, not keys", masking.padding_on_queries),
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
        "causal mask leaves the last query all keys",
        masking.with_masked(lambda i, j, inputs: (j > i) & (i < inputs.n_q - 1), {"causal": True}),
    ),
    BuggyCase(
        "causal mask for the last query too",
        masking.with_masked(
            lambda i, j, inputs: j > i, {"causal": True, "causal_align": "open-last"}
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
        "window one too wide",
        masking.with_masked(
            lambda i, j, inputs: (j > i) | (j < i - 2),
            {"causal": True, "window": (2, 0), "window_counts": "own"},
            n_q=7,
        ),
    ),
    BuggyCase(
        "window one too narrow",
        masking.with_masked(
            lambda i, j, inputs: (j > i) | (j < i - 1),
            {"causal": True, "window": (3, 0), "window_counts": "own"},
            n_q=7,
        ),
    ),
    BuggyCase(
        "another window",
        masking.with_masked(
            lambda i, j, inputs: (j > i) | (j < i - 3),
            {"causal": True, "window": (2, 0), "window_counts": "own"},
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
    BuggyCase(
        "rows with nothing to attend to get the mean of V",
        mask_arithmetic.empty_uniform_not_nan,
        FINITE,
    ),
    BuggyCase("rows with nothing to attend to as if unmasked", mask_arithmetic.empty_unmasked),
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

MORE_CASES = (
    BuggyCase("padding mask on queries, not keys", masking.padding_mask_on_queries),
    BuggyCase("mask transposed", masking.mask_transposed),
    BuggyCase(
        "causal the wrong way round",
        masking.with_masked(lambda i, j, inputs: j < i, {"causal": True}),
    ),
    BuggyCase(
        "causal the wrong way round",
        masking.with_masked(lambda i, j, inputs: j <= i, {"causal": True}),
    ),
    BuggyCase("chunks, not a sliding window", masking.in_chunks(2)),
    BuggyCase("chunks, not a sliding window", masking.in_chunks(3)),
    BuggyCase("chunks, not a sliding window", masking.in_chunks(3, counts="own")),
    BuggyCase("key lengths off by one", caches.one_fewer),
    BuggyCase("key lengths off by one", caches.one_more),
    BuggyCase("one batch item's key length for all", caches.longest),
    BuggyCase("padding on the left taken for right", caches.padded_on_the_left),
    BuggyCase("padding on the left taken for right", caches.mask_on_the_other_side),
    BuggyCase("mask of another batch item", caches.length_of_the_next),
    BuggyCase("mask of another batch item", caches.first_mask),
    BuggyCase("mask of another batch item", caches.tiled_masks),
    BuggyCase("newest key not cached", caches.newest_missing),
    BuggyCase("newest key not cached", caches.all_new_missing),
    BuggyCase("newest key overwrites the last one", caches.overwritten),
    BuggyCase("cache ignored", caches.cache_ignored),
    BuggyCase("dropout left on", heads.dropout_in_the_output),
    BuggyCase("softmax not normalised", scaling.by_weights(scaling.exp_alone)),
    BuggyCase("softmax not normalised", scaling.by_weights(scaling.exp_less_the_largest)),
    BuggyCase("sum over queries, maximum over keys", scaling.by_weights(scaling.sum_over_queries)),
    BuggyCase("sum over queries, maximum over keys", scaling.by_weights(scaling.sum_over_heads)),
    BuggyCase("sigmoid, not softmax", scaling.by_weights(scaling.sigmoid)),
    BuggyCase("sigmoid, not softmax", scaling.by_weights(scaling.biased_sigmoid)),
    BuggyCase(
        "softmax with 1 added to the sum", scaling.by_weights(scaling.one_more_in_the_sum, n_k=5)
    ),
    BuggyCase("scale after softmax", scaling.by_weights(scaling.scaled_afterwards, scaled=False)),
    BuggyCase("heads and tokens exchanged in the inputs", layouts.heads_as_tokens),
    *(
        BuggyCase(f"{name.upper()} read with wrong strides", layouts.misread(name, read))
        for name in "qkv"
        for read in (
            lambda x: layouts.tokens_first(x).reshape(x.shape),
            layouts.read_as_tokens_first,
            layouts.columns_first,
        )
    ),
    *(
        BuggyCase(f"{source.upper()} used as {target.upper()}", layouts.used_as(source, target))
        for source, target in ("kv", "vk", "qk", "kq")
    ),
    BuggyCase("two heads exchanged", layouts.heads_exchanged),
    BuggyCase("two heads exchanged", layouts.keys_of_heads_exchanged),
    BuggyCase("two heads exchanged", layouts.shared_keys_exchanged),
    BuggyCase("two batch items exchanged", layouts.items_exchanged),
    BuggyCase("two batch items exchanged", layouts.keys_of_items_exchanged),
    BuggyCase("one head for all", layouts.one_head),
    BuggyCase("one head for all", layouts.one_head_of_the_output),
    BuggyCase("one batch item for all", layouts.one_item),
    *(
        BuggyCase("rows shifted by one", layouts.shifted(step, rolled=rolled))
        for step in (1, -1)
        for rolled in (True, False)
    ),
    BuggyCase("weights transposed before the sum", layouts.weights_transposed),
    *(
        BuggyCase(
            "zero keys of the last block counted",
            kernels.with_output(kernels.filled_up(block, masked=False)),
        )
        for block in (16, 64)
    ),
    BuggyCase(
        "last block of keys skipped",
        kernels.with_output(kernels.some_blocks(16, lambda start, n: start + 16 <= n)),
    ),
    BuggyCase("last rows not written", kernels.with_output(kernels.whole_blocks_of_rows, n_q=37)),
    *(
        BuggyCase("one block of keys lost", kernels.with_output(kernels.one_lost(block, start)))
        for block, start in ((16, 0), (16, 32), (32, 32))
    ),
    *(
        BuggyCase(
            "sum not rescaled when the maximum grows",
            kernels.with_output(
                kernels.online(block, rescale_sum=of_sum, rescale_output=of_output)
            ),
        )
        for block in (1, 16)
        for of_sum, of_output in ((True, False), (False, True), (False, False))
    ),
    *(
        BuggyCase(
            "blocks averaged without their log-sum-exp",
            kernels.with_output(kernels.split_keys(n, np.ones_like, np.log)),
        )
        for n in (2, 4)
    ),
    BuggyCase(
        "blocks merged in the wrong base",
        kernels.with_output(kernels.split_keys(4, np.exp2, np.log), d_k=5),
    ),
    BuggyCase(
        "blocks merged in the wrong base",
        kernels.with_output(kernels.split_keys(2, np.exp, np.log2), d_k=5),
    ),
    BuggyCase("bias of the values missing", wrong_inputs.value_bias),
    BuggyCase("bias of the queries missing", wrong_inputs.query_bias),
    BuggyCase("channels of the keys times factors", wrong_inputs.key_channels),
    BuggyCase("queries and keys times factors", wrong_inputs.no_norm),
    BuggyCase("queries and keys times factors", wrong_inputs.key_tokens),
    BuggyCase("queries and keys normalised", wrong_inputs.rms_norm),
    BuggyCase("queries and keys normalised", wrong_inputs.l2_norm),
    BuggyCase("residual already in the output", wrong_inputs.query_residual),
    BuggyCase("residual already in the output", wrong_inputs.value_residual),
    BuggyCase("output projected already", wrong_inputs.projected_heads),
    BuggyCase("output projected already", wrong_inputs.projected_together),
)
"""Of these the sizes matter less: many set their own."""

RIGHT_CASES = (
    layouts.right,
    *kernels.RIGHT,
    caches.right_lengths,
    caches.right_masks,
    caches.right_past,
    wrong_inputs.right_wide,
)
"""The same computations without their bug."""
