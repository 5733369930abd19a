"""Every stage that a trace can hold, one row each: pure data, read by the runner, views and files.

    SPECS["weights"] = StageSpec("A", "batch head query key", sums=True, masks=True, shade="share")

To add a stage: a row here, its formula in attention/formulas.py, a line where it belongs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple

Role = Literal["step", "operand", "input", "parameter", "inner", "aside"]
Shade = Literal["", "share", "signed"]
DISPLAY = ("role", "sums", "masks", "shade", "plotted", "beside", "words", "undefined")
"""The fields of StageSpec that a trace is saved with, where no name says them."""


class StageSpec(NamedTuple):
    """What is known of a stage before anything is computed.

    axes    names of its axes; an array with fewer dimensions lacks the first of them.
            "h·d_k" is one axis, in which each head has d_k entries
    role    "step" is computed, "input" and "parameter" are given, "operand" is given or, where it
            has a formula, computed; "inner" is computed and not shown, but what it was computed
            from is; "aside" is not shown at all
    shade   how its numbers are shaded without being asked: "share" of 1, "signed" around 0, or ""
    beside  the parameter it is computed from next to whose numbers its own may be as good as 0
    undefined  what NaN means in it, where it has a meaning: a dash is shown in its place
    """

    symbol: str  # the letter in formulas
    axes: str = ""
    role: Role = "step"
    sums: bool = False  # its rows (or columns) sum to 1
    masks: bool = False  # its masked cells are marked as such
    shade: Shade = ""
    note: str = ""  # what it is, in one sentence
    summarized: bool = False  # sentences say which keys its rows attend to
    plotted: bool = False  # its first two columns are drawn as points
    beside: str = ""
    words: bool = False  # its cells are words, written from the left
    vector: bool = False  # one number for each row, or column, of a map: shown as one beside it
    heading: str = ""  # of the part of the computation that it belongs to, if not the forward one
    asked: bool = False  # it is computed, shown and written only where it is named
    for_work: bool = False  # a page shows it only beside the arithmetic that reads it (--work)
    undefined: str = ""

    @property
    def display(self) -> dict[str, Any]:
        """What it says of how a stage is shown, where it says something: saved with the stage.

        >>> StageSpec("cos", "word other", shade="signed").display
        {'shade': 'signed'}
        """
        values = {name: getattr(self, name) for name in DISPLAY}
        return {name: x for name, x in values.items() if x != self._field_defaults[name]}

    def axes_of(self, ndim: int) -> tuple[str, ...]:
        """The axis names of an array with so many dimensions: the last ones."""
        return tuple(self.axes.split())[-ndim:] if ndim else ()


_MAP, _ROWS, _TOKENS = "batch head query key", "batch head query", "batch query d_model"

# fmt: off
SPECS: dict[str, StageSpec] = {
    # from words to the input of the first layer
    "tokens": StageSpec("T", "count token",
        note="words and punctuation; equal words have the same word id"),
    "embeddings": StageSpec("E", "token dimension",
        note="one vector for each word, whatever its context: static"),
    "divisors": StageSpec("w", "pair", for_work=True),
    "angles": StageSpec("θ", "batch position pair", for_work=True),
    "positions": StageSpec("PE", "position dimension", shade="signed",
        note="the position of each token, counted from 0 (token 1 is pos 0, column 1 is "
        "dimension 0): all that distinguishes equal words"),
    "input": StageSpec("X", "token dimension",
        note="the vector of each word with its position: what the first layer reads"),
    "dots": StageSpec("D", "position other", shade="signed"),
    "cos": StageSpec("cos θ", "batch position pair"),
    "sin": StageSpec("sin θ", "batch position pair"),
    "unrotated": StageSpec("x", "batch head position dimension"),
    "rotated": StageSpec("x′", "batch head position dimension"),
    "slopes": StageSpec("m", "head"),
    "bias": StageSpec("B", "head query key"),
    # x, the weights, and what they give
    "x": StageSpec("X", _TOKENS, "operand"),
    "x_kv": StageSpec("C", "batch key d_model", "operand"),
    "x_v": StageSpec("C_v", "batch key d_model", "operand"),
    "w_q": StageSpec("W_q", "d_model h·d_k", "parameter"),
    "w_k": StageSpec("W_k", "d_model h_kv·d_k", "parameter"),
    "w_v": StageSpec("W_v", "d_model h_kv·d_v", "parameter"),
    "w_o": StageSpec("W_o", "h·d_v d_model", "parameter"),
    "b_q": StageSpec("b_q", "h·d_k", "parameter"),
    "b_k": StageSpec("b_k", "h_kv·d_k", "parameter"),
    "b_v": StageSpec("b_v", "h_kv·d_v", "parameter"),
    "b_o": StageSpec("b_o", "d_model", "parameter"),
    "w_1": StageSpec("W₁", "d_model d_ff", "parameter"),
    "w_2": StageSpec("W₂", "d_ff d_model", "parameter"),
    "b_1": StageSpec("b₁", "d_ff", "parameter"),
    "b_2": StageSpec("b₂", "d_model", "parameter"),
    "gamma": StageSpec("γ", "d_model", "parameter"),
    "beta": StageSpec("β", "d_model", "parameter"),
    # attention
    "rows": StageSpec("", "query", "aside"),
    "past_k": StageSpec("", "batch head key d_k", "aside"),
    "past_v": StageSpec("", "batch head key d_v", "aside"),
    "kv_len": StageSpec("", "batch", "aside"),
    "given_mask": StageSpec("M", _MAP, "aside"),
    "q": StageSpec("Q", "batch head query d_k", "operand",
        note="a query for each token: what it looks for"),
    "k": StageSpec("K", "batch kv_head key d_k", "operand",
        note="a key for each token: what it is matched against"),
    "v": StageSpec("V", "batch kv_head key d_v", "operand",
        note="a value for each token: what it contributes to the tokens that attend to it"),
    "sinks": StageSpec("s", "head", "parameter",
        note="a learned score per head that takes weight and has no value"),
    "q_gain": StageSpec("γ_q", "d_k", "parameter", note="what each entry of Q' is multiplied by"),
    "k_gain": StageSpec("γ_k", "d_k", "parameter", note="what each entry of K' is multiplied by"),
    "q_norm": StageSpec("Q'", "batch head query d_k", note="each query over its root mean square"),
    "k_norm": StageSpec("K'", "batch kv_head key d_k", note="each key over its root mean square"),
    "k_shared": StageSpec("K", role="inner"),
    "v_shared": StageSpec("V", role="inner"),
    "mask": StageSpec("M", _MAP, "input"),
    "kept": StageSpec("", _MAP, "aside"),
    "scores": StageSpec("S", _MAP,
        note="every query times every key: the larger, the better they fit"),
    "scaled": StageSpec("Z", _MAP,
        note="scaled, so that a large d_k does not saturate the softmax"),
    "biased": StageSpec("P", _MAP, note="with the numbers of the mask, before the softcap"),
    "capped": StageSpec("B", _MAP, note="bounded smoothly, so that no score exceeds the cap"),
    "masked": StageSpec("L", _MAP, masks=True,
        note="masked scores become −inf, so their weight is 0"),
    "weights": StageSpec("A", _MAP, sums=True, masks=True, shade="share", summarized=True,
        note="how each token divides its attention among the keys"),
    "mean_weights": StageSpec("Ā", "batch query key", sums=True, masks=True, shade="share",
        note="the mean of the weights over all heads"),
    "lse": StageSpec("lse", "batch head query", asked=True, vector=True,
        note="the log of the sum by which softmax divides: parts of the keys are merged by it"),
    "dropped": StageSpec("D", _MAP, sums=True, masks=True, shade="share",
        note="some weights are set to 0 at random, as in training"),
    "output": StageSpec("O", "batch head query d_v",
        note="for each token a mixture of all values, in the proportions of its weights"),
    "concat": StageSpec("H", _TOKENS, note="the outputs of the heads, side by side"),
    "projected": StageSpec("Y", _TOKENS, note="the heads mixed, back at the width of the input"),
    # around an attention
    "sublayer_kept": StageSpec("", role="aside"),
    "sublayer_dropped": StageSpec("", _TOKENS,
        note="some numbers are set to 0 at random, as in training"),
    "residual": StageSpec("R", _TOKENS,
        note="the input is added, so that the word itself is not lost"),
    "mean": StageSpec("μ", "batch query", beside="x", note="the mean of each token's numbers"),
    "deviation": StageSpec("σ", "batch query", note="their standard deviation"),
    "rms": StageSpec("ρ", "batch query", note="the root mean square of each token's numbers"),
    "norm": StageSpec("N", _TOKENS,
        note="each token's numbers brought to mean 0 and deviation 1, then times γ (gain) plus β "
        "(bias)"),
    "hidden": StageSpec("G", "batch query d_ff",
        note="each token by itself: more numbers, the negative ones set to 0 (ReLU)"),
    "feed_forward": StageSpec("F", _TOKENS, note="projected back to the width of the model"),
}
# fmt: on
"""Each row by the name of its stage; `x` that is rotated has a row of another key."""


@lru_cache(4096)
def spec_of(name: str) -> StageSpec:
    """The row of a stage by its dotted name; of an unknown one a row that says nothing."""
    leaf = name.rpartition(".")[2]
    return SPECS.get(leaf) or StageSpec(leaf, heading=BACKWARD if leaf.startswith("d_") else "")


HIDDEN = ("inner", "aside")
"""The roles of stages that are not shown."""

QKV = tuple(name for name, kind in SPECS.items() if kind.role == "operand" and "head" in kind.axes)
"""The three operands of an attention: q, k and v."""

MAPS = tuple(n for n, kind in SPECS.items() if kind.axes == _MAP and kind.role == "step")
"""The stages with a number for every query and key, in the order of computation."""
BEFORE_SOFTMAX = MAPS[: MAPS.index("weights")]

GIVEN_GRADIENT = "given_gradient"
"""The input that the gradients follow from: how fast the loss grows with each number of what an
attention gives. As `given_mask` it is shown by the stage that is made of it."""

BACKWARD = "Backward: how the loss changes with each number"
"""The heading of all gradients."""

_GRADIENTS_OF = (
    "output concat projected v dropped weights masked capped biased scaled scores sinks q_norm "
    "k_norm q_gain k_gain q k w_q b_q w_k b_k w_v b_v w_o b_o x x_kv x_v k_shared v_shared "
    "residual mean deviation rms norm gamma beta hidden feed_forward w_1 b_1 w_2 b_2 "
    "sublayer_dropped input embeddings"
)
_GRADIENT_NOTES = {
    "output": "how fast the loss grows with each number of the output",
    "projected": "how fast the loss grows with each number of the result",
    "v": "the gradients of the outputs, each times the weight that its query gives the key",
    "weights": "how fast the loss grows with each weight: the output's gradient times the value",
    "scores": "how fast the loss grows with each score: more weight lowers it for keys with "
    "negative numbers",
    "q": "the keys, each times the gradient of its score",
    "k": "the queries, each times the gradient of their scores",
    **dict.fromkeys(
        ("input", "embeddings"), "how fast the loss grows with each number that goes in"
    ),
}


def gradient_of(name: str) -> str:
    """The stage that holds the gradient of a stage: that of a mask is the one of a bias.

    >>> gradient_of("attention.q"), gradient_of("given_mask")
    ('attention.d_q', 'd_bias')
    """
    place, dot, leaf = name.rpartition(".")
    return f"{place}{dot}d_{'bias' if leaf == 'given_mask' else leaf}"


SPECS[GIVEN_GRADIENT] = StageSpec("", SPECS["output"].axes, "aside")
for _name in _GRADIENTS_OF.split():
    SPECS[gradient_of(_name)] = StageSpec(
        f"d{SPECS[_name].symbol}",
        SPECS[_name].axes,
        "inner" if SPECS[_name].role == "inner" else "step",
        masks=_name in BEFORE_SOFTMAX,
        shade="signed" if _name == "scores" else "",
        note=_GRADIENT_NOTES.get(_name, ""),
        heading=BACKWARD,
    )
# fmt: off
SPECS |= {
    "d_bias": StageSpec("dM", _MAP, heading=BACKWARD),
    "delta": StageSpec("δ", _ROWS, vector=True, heading=BACKWARD,
        note="the mean of a row's gradients, each counted by its weight"),
    "delta_of_keys": StageSpec("δ", "batch head key", vector=True, heading=BACKWARD),
    # keys part by part
    "m": StageSpec("m", _ROWS, vector=True, note="the largest score of all keys so far"),
    "alpha": StageSpec("α", _ROWS, vector=True,
        note="what is summed so far is multiplied by it, as m has grown"),
    "p": StageSpec("p", _MAP, masks=True, note="the powers of the scores, at most 1"),
    "l": StageSpec("l", _ROWS, vector=True, note="the sum of the powers of all keys so far"),
    "acc": StageSpec("acc", "batch head query d_v", note="the values so far, each times its power"),
    "so_far": StageSpec("o", "batch head query d_v",
        note="what the output would be if these were all keys"),
    "merge_weights": StageSpec("w", "batch head query part",
        note="the weight of each part of the keys in the output"),
}
# fmt: on

OF_TILES = ("m", "alpha", "p", "l", "acc", "so_far")
"""What the stages of a tile are called, from its maximum on."""

DELTA = "delta"
_SOURCES = ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o", "x", "x_kv", "x_v")
OF_X = tuple(map(gradient_of, _SOURCES))
"""Those of what q, k and v are made of, and of what the heads are projected by."""

GRADIENTS = (
    *map(gradient_of, ("v", "dropped", "weights")),
    DELTA,
    *map(gradient_of, ("sinks", "masked", "capped", "biased", "given_mask", "scaled", "scores")),
    *map(gradient_of, ("q_gain", "k_gain", "q", "k")),
    *OF_X,
)
"""The gradients that can be observed, in the order of the computation."""

SCORES, SCALED, CAPPED, MASKED = "scores", "scaled", "capped", "masked"
WEIGHTS, DROPPED = "weights", "dropped"
OUTPUT, CONCAT, PROJECTED, RESIDUAL = "output", "concat", "projected", "residual"
MEAN_WEIGHTS = "mean_weights"
LSE = "lse"
PARTS = TILE, SPLIT = "tile", "split"
"""The names of stages that more than the runner must know: what an attention gives is its output
for each head, with the heads side by side, projected, and added to its input. And the
blocks that hold parts of the keys: `tile.1`, `split.2`."""

_MASKS = "nothing is masked here; add --causal or a mask"
LEFT_OUT = {
    "mask": _MASKS,
    MASKED: _MASKS,
    "capped": "add --softcap",
    DROPPED: "add --dropout",
    LSE: "a softmax over queries has no sum for each query",
}
"""What to say of a stage that is left out, as it would change nothing."""

_SCORES = (SCORES, SCALED, MASKED)
"""What "logits" are: some divide by √d_k before they call them so, some mask them as well."""

_CALLED: dict[tuple[str, ...], str] = {
    (OUTPUT,): "attn_output attn_out attention_output attention_out out outputs o context ctx "
    "context_layer ctx_layer attention_context attended result results observed sdpa_output",
    (WEIGHTS,): "attn_weights attention_weights attn_output_weights attn_probs attn_prob "
    "attention_probs attention_probabilities probs probabilities p_attn softmax attentions "
    "attn_map attention_map attention_matrix alpha alphas a",
    (WEIGHTS, OUTPUT): "attn attention",
    (WEIGHTS, "biased"): "p",
    (SCORES,): "raw_scores raw_attention_scores qk qkt qk_t dots dot_products s",
    _SCORES: "logits attn_logits attention_logits attn_scores attention_scores energy energies "
    "sim similarity",
    (SCALED, MASKED): "scaled_scores scores_scaled scaled_logits scaled_attention_scores "
    "scaled_attention_logits",
    (SCALED, OUTPUT): "z",
    (MASKED,): "masked_scores scores_masked masked_logits masked_attention_scores",
    (DROPPED,): "dropped_weights weights_dropped attn_weights_dropped",
    (LSE,): "softmax_lse softmax_logsumexp logsumexp log_sum_exp lse_out",
    (MEAN_WEIGHTS,): "avg_weights avg_attn_weights average_weights average_attn_weights "
    "averaged_weights mean_attn_weights attn_weights_mean",
    (CONCAT,): "concatenated concat_output concat_heads heads_concat merged merged_heads",
    (PROJECTED,): "projected_output output_projected attn_proj y",
}
CALLED: dict[str, tuple[str, ...]] = {
    name: stages for stages, names in _CALLED.items() for name in names.split()
}
"""What libraries, courses and papers call stages → the stages that it may be, those first that it
mostly is. One table for every file of stages and every --stage."""

LETTERS: dict[str, tuple[str, ...]] = {
    **{SPECS[name].symbol: (name,) for name in (*MAPS, OUTPUT, CONCAT, PROJECTED)},
    "P": (WEIGHTS, "biased"),
    "Z": (SCALED, OUTPUT),
    "L": (MASKED, LSE),
}
"""The letters of stages in formulas, as they are written there → the stages that they may be: P is
also that of the weights, Z of the output, and L of the log-sum-exp."""


def stages_called(name: str) -> tuple[str, ...]:
    """The stages that an array of this name may be, the likeliest first; () where none is.

    >>> stages_called("attn_weights"), stages_called("Logits"), stages_called("O")
    (('weights',), ('scores', 'scaled', 'masked'), ('output',))
    >>> stages_called("x")
    ()
    """
    plain = name.lower().replace("-", "_").replace(" ", "_")
    if plain in SPECS and SPECS[plain].role == "step" and len(plain) > 1:
        return (plain,)
    return LETTERS.get(name) or CALLED.get(plain, ())
