"""Attention as a page of formulas: every stage in reading order, then the order of a convention.

    x ── q, k, v ── scores ── scaled ── capped ── masked ── weights ── dropped ── output ── concat
      ── projected;   around it: residual, mean, deviation, norm, hidden, feed_forward

A formula says how each cell of a stage is computed (the language is that of expression.py); from it
follow NumPy, its gradient, the arithmetic of a cell, the cells that it reads and the formula in
matrices. Letters: b batch, h head, g key head, i query, j key, d width of a key, e of a value, m of
the model, n of the result, f of the feed-forward. A part in braces is left out where nothing has
its names; x is the stage that the formula is applied to. D_… is a gradient that is not written as
the chain rule gives it: in it y is the stage, d the gradient of y.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attncli.attention.masks import compiled_mask, total_mask
from attncli.convention import LseBase
from attncli.formula.kernels import draw_kept, like_kept
from attncli.formula.matrices import plain

if TYPE_CHECKING:
    from attncli.attention.plan import Merge, Plan

# ---- from x to q, k and v: the width of a model holds its heads side by side

PROJECTED_ROWS = {
    "q": "Q[b,h,i,d] = sum[m](x[b,i,m] * w[m,h·d]){ + b[h·d]}",
    "k": "K[b,g,j,d] = sum[m](x[b,j,m] * w[m,g·d]){ + b[g·d]}",
    "v": "V[b,g,j,e] = sum[m](x[b,j,m] * w[m,g·e]){ + b[g·e]}",
}
SPLIT_ROWS = {  # of vectors that are queries, keys or values themselves
    "q": "Q[b,h,i,d] = x[b,i,h·d]",
    "k": "K[b,g,j,d] = x[b,j,g·d]",
    "v": "V[b,g,j,e] = x[b,j,g·e]",
}

# ---- queries and keys over their root mean square (QK-norm: Dehghani et al., 2023, section 3)

_RMS = "sqrt(sum[c](x[b,{0},c] ** 2) / size[d] + epsilon)"
NORM_EPSILON = 1e-6
"""What is added to a mean square, so that a norm of zeros is 0."""
QK_NORM = {
    "q": f"Q'[b,h,i,d] = {{gain[d] * }}x[b,h,i,d] / {_RMS.format('h,i')}",
    "k": f"K'[b,g,j,d] = {{gain[d] * }}x[b,g,j,d] / {_RMS.format('g,j')}",
}
D_QK_NORM = {
    name: f"dX[b,{at},d] = ({{gain[d] * }}d[b,{at},d] - x[b,{at},d] / {_RMS.format(at)}"
    f" * sum[c](d[b,{at},c] * y[b,{at},c]) / size[d]) / {_RMS.format(at)}"
    for name, at in (("q", "h,i"), ("k", "g,j"))
}
D_QK_GAIN = {
    "q": f"dγ[d] = sum[b,h,i](d[b,h,i,d] * x[b,h,i,d] / {_RMS.format('h,i')})",
    "k": f"dγ[d] = sum[b,g,j](d[b,g,j,d] * x[b,g,j,d] / {_RMS.format('g,j')})",
}

# ---- scores: every query by every key, scaled, bounded, restricted

SCORES = "S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,g,j,d])"
D_QUERIES = (
    "dQ[b,h,i,d] = sum[j](d[b,h,i,j] * k[b,g,j,d] where mask[b,h,i,j] != -inf or d[b,h,i,j] != 0)"
)
UNSCALED = "Z[b,h,i,j] = x[b,h,i,j]"
SCALED = f"{UNSCALED} * factor"
SCALED_BY_ROOT = f"{UNSCALED} / sqrt(size[d])"
BIASED = "P[b,h,i,j] = x[b,h,i,j] if mask[b,h,i,j] == -inf else x[b,h,i,j] + mask[b,h,i,j]"
CAPPED = "B[b,h,i,j] = cap * tanh(x[b,h,i,j] / cap)"  # Gemma 2 technical report, section 2
D_CAPPED = "dB[b,h,i,j] = d[b,h,i,j] * (1 - (y[b,h,i,j] / cap) ** 2)"
MASKED = (
    "L[b,h,i,j] = value if mask[b,h,i,j] == -inf else x[b,h,i,j] + mask[b,h,i,j]"
    "  # masked: may not attend"
)
D_MASKED = (
    "dL[b,h,i,j] = d[b,h,i,j] if mask[b,h,i,j] != -inf else 0"
    "  # masked: it does not depend on its score"
)

# ---- softmax over the keys of each query, or the queries of each key

WEIGHTS = "A[b,h,i,j] = softmax[j](x[b,h,i,j]{ where mask[b,h,i,j] != -inf}{, sink=sinks[h]})"
LSE = {
    "e": "lse[b,h,i] = lse[j](x[b,h,i,j]{, sink=sinks[h]})",
    "2": "lse[b,h,i] = lse[j](x[b,h,i,j]{, sink=sinks[h]}) / ln(2)",
}
# t is the letter along which the weights sum to 1, j or i, and s the other one
DELTA = "δ[b,h,s] = sum[t](y[b,h,i,j] * d[b,h,i,j]{ where mask[b,h,i,j] != -inf})"
D_WEIGHTS = (  # Dao et al. (2022), appendix B.4
    "dZ[b,h,i,j] = y[b,h,i,j] * (d[b,h,i,j] - delta[b,h,s]){ if mask[b,h,i,j] != -inf else 0}"
    "  # masked: its weight does not depend on its score"
)
D_SINKS = "ds[h] = -sum[b,i](delta[b,h,i] * exp(sinks[h] - lse[j](x[b,h,i,j], sink=sinks[h])))"
DROPPED = "D[b,h,i,j] = x[b,h,i,j] / (1 - p) if kept[b,h,i,j] else 0  # set to 0 by dropout"

# ---- the output

OUTPUT = (
    "O[b,h,i,e] = sum[j](a[b,h,i,j] * v[b,g,j,e]{ where mask[b,h,i,j] != -inf or a[b,h,i,j] != 0})"
)
CONCAT = "H[b,i,h·e] = x[b,h,i,e]"
PROJECTED = "Y[b,i,n] = sum[m](x[b,i,m] * w[m,n]){ + b[n]}"
PROJECTED_HEADS = "Y[b,i,n] = sum[h,e](x[b,h,i,e] * w[h·e,n]){ + b[n]}"

# ---- around an attention

DROPPED_ROWS = "D[b,i,m] = x[b,i,m] / (1 - p) if kept[b,i,m] else 0  # set to 0 by dropout"
RESIDUAL = "R[b,i,m] = x[b,i,m] + y[b,i,m]"
MEAN = "μ[b,i] = sum[m](x[b,i,m]) / size[m]"
DEVIATION = "σ[b,i] = sqrt(sum[m]((x[b,i,m] - mean[b,i]) ** 2) / size[m])"
D_DEVIATION = (
    "dX[b,i,m] = d[b,i] * (x[b,i,m] - mean[b,i]) / (size[m] * y[b,i]) if y[b,i] != 0 else 0"
)
NORM = (
    "N[b,i,m] = {gamma[m] * }(x[b,i,m] - mean[b,i]) / sqrt(deviation[b,i] ** 2 + epsilon)"
    "{ + beta[m]}"
)
D_NORM = {
    "gamma": (
        "dγ[m] = sum[b,i](d[b,i,m] * (x[b,i,m] - mean[b,i]) / sqrt(deviation[b,i] ** 2 + epsilon))",
        "Σ {d} ∘ ({x} − μ) / √(σ² + ε) over the tokens",
    ),
    "mean": (
        "dμ[b,i] = -sum[m](d[b,i,m]{ * gamma[m]}) / sqrt(deviation[b,i] ** 2 + epsilon)",
        "−Σ {d}{γ} / √(σ² + ε)",
    ),
    "deviation": (
        "dσ[b,i] = -sum[m](d[b,i,m]{ * gamma[m]} * (x[b,i,m] - mean[b,i])) * deviation[b,i]"
        " / (deviation[b,i] ** 2 + epsilon) ** 1.5",
        "−Σ {d}{γ} ∘ ({x} − μ) · σ / √(σ² + ε)³",
    ),
}
RMS = "ρ[b,i] = sqrt(sum[m](x[b,i,m] ** 2) / size[m])"  # Zhang & Sennrich (2019), equation 4
D_RMS = "dX[b,i,m] = d[b,i] * x[b,i,m] / (size[m] * y[b,i]) if y[b,i] != 0 else 0"
RMS_NORM = "N[b,i,m] = {gamma[m] * }x[b,i,m] / sqrt(rms[b,i] ** 2 + epsilon){ + beta[m]}"
D_RMS_NORM = {
    "gamma": (
        "dγ[m] = sum[b,i](d[b,i,m] * x[b,i,m] / sqrt(rms[b,i] ** 2 + epsilon))",
        "Σ {d} ∘ {x} / √(ρ² + ε) over the tokens",
    ),
    "rms": (
        "dρ[b,i] = -sum[m](d[b,i,m]{ * gamma[m]} * x[b,i,m]) * rms[b,i]"
        " / (rms[b,i] ** 2 + epsilon) ** 1.5",
        "−Σ {d}{γ} ∘ {x} · ρ / √(ρ² + ε)³",
    ),
}
HIDDEN = "G[b,i,f] = max(0, sum[m](x[b,i,m] * w[m,f]){ + b[f]})"
FEED_FORWARD = "F[b,i,m] = sum[f](x[b,i,f] * w[f,m]){ + b[m]}"

# ---- which of them there are, and in which order


def attention(plan: Plan, x: str, merge: Merge) -> None:
    """Adds the stages that a convention asks for, from x, or from q, k and v, to the output.

    What is not asked for is left out: without x nothing is projected, without a mask nothing is
    masked. `x` is the stage that is projected where x is given, such as its norm.
    """
    convention, sizes = plan.convention, plan.sizes
    if "x" in sizes.inputs:
        operands(plan, x)
    q, k, v = "q", *(plan.shared(x) if plan.spreads else x for x in "kv")
    if convention.qk_norm:
        q, k = (qk_norm(plan, name, x) for name, x in (("q", q), ("k", k)))
    is_masked, guard = mask(plan)
    back: Mapping[str, Any] = {"q": (D_QUERIES, "{d} {k}")} if guard else {}
    x = plan.add("scores", SCORES, reads={"q": q, "k": k}, back=back)
    if convention.is_scaled:
        x = scaled(plan, x)
    if is_masked:
        x = restricted(plan, x)
    elif convention.softcap is not None:
        x = capped(plan, x, convention.softcap)
    a = weights(plan, x, guard)
    if p := convention.dropout:
        drawn: Any = {"shape": sizes.scores, "p": p, "seed": convention.seed}
        plan.add_function("kept", draw_kept, like=like_kept, **drawn)
        words, back = dropout(DROPPED, p)
        a = plan.add("dropped", DROPPED, words, a, reads={"kept": "kept"}, back=back, p=p)
    x = plan.add("output", OUTPUT, reads={"a": a, "v": v} | guard)
    if "x" not in sizes.inputs:
        return
    weight = plan.inputs(w="w_o")
    is_merged = plan.has_heads and (merge == "shown" or (merge == "needed" and not weight))
    x = concat(plan, x) if is_merged else x
    if weight:
        by_heads = plan.has_heads and not is_merged
        text, heads = (PROJECTED_HEADS, {"h": sizes.n_heads}) if by_heads else (PROJECTED, {})
        plan.add("projected", text, "", x, reads=weight | plan.inputs(b="b_o"), sizes=heads)


def scaled(plan: Plan, x: str) -> str:
    """Adds the scores over √d_k, or times another factor, and over the temperature."""
    convention, d_k = plan.convention, plan.sizes.d_k
    t, by_t, over_t, fields = convention.temperature, "", "", dict[str, Any]()
    if t != 1:
        by_t, over_t, fields = " / temperature", f" / {t:g}", {"temperature": t}
    if convention.scale == "none":
        return plan.add("scaled", UNSCALED + by_t, f"{{x}}{over_t}", x, **fields)
    if convention.scale != "1/sqrt(d_k)":
        factor = float(convention.scale)
        words = f"{{x}} · {factor:g}{over_t}"
        return plan.add("scaled", SCALED + by_t, words, x, factor=factor, **fields)
    root = f"(√d_k · {t:g})" if t != 1 else "√d_k"
    text, words = SCALED_BY_ROOT + by_t, f"{{x}} / {root} = {{x}} / {math.sqrt(d_k) * t:.5g}"
    fields |= {"sizes": {"d": d_k}, "factor": convention.scale_factor(d_k)}
    fields["back"] = {"x": (text.replace("x[", "d["), words.replace("{x}", "{d}"))}
    return plan.add("scaled", text, words, x, **fields)


def operands(plan: Plan, source: str) -> None:
    """Adds q, k and v of x; keys and values of a context, where there is one."""
    inputs = plan.sizes.inputs
    sources = {"q": source, "k": "x_kv" if "x_kv" in inputs else source}
    sources["v"] = "x_v" if "x_v" in inputs else sources["k"]
    for name, x in sources.items():
        weight = plan.inputs(w=f"w_{name}")
        text = PROJECTED_ROWS[name] if weight else SPLIT_ROWS[name]
        bias = plan.inputs(b=f"b_{name}") if weight else {}
        shares, sizes = name != "q" and plan.is_shared, plan.sizes
        heads = {"g": sizes.n_kv_heads} if shares else {"h": sizes.n_heads}
        plan.add(name, text, "", x, reads=weight | bias, sizes=heads if plan.has_heads else {})
        if f"past_{name}" in inputs:
            plan.after_cache(name)
        elif name == "q" and "rows" in inputs:
            plan.of_rows()


def qk_norm(plan: Plan, name: str, x: str) -> str:
    """Adds queries or keys over their root mean square, times the gains where there are any, and
    gives the stage's name."""
    gain, root = plan.inputs(gain=f"{name}_gain"), "√(mean({x}²) + ε)"
    by_gain = "{gain} ∘ " if gain else ""
    words = f"{by_gain}{{x}} / {root}"
    scaled = f"{{x}} / {root}" if gain else "{y}"
    back = {
        "x": (D_QK_NORM[name], f"({by_gain}{{d}} − {scaled} · mean({{d}} ∘ {{y}})) / {root}"),
    }
    if gain:
        back["gain"] = D_QK_GAIN[name], f"Σ {{d}} ∘ {{x}} / {root} over the tokens"
    more: dict[str, Any] = {"reads": gain, "back": back, "epsilon": NORM_EPSILON}
    return plan.add(f"{name}_norm", QK_NORM[name], f"{words}, ε = 1e-6", x, **more)


def mask(plan: Plan) -> tuple[bool, dict[str, str]]:
    """Adds the mask of everything that restricts, where there is anything.

    -> whether there is, and {"mask": "mask"} where a masked score is −inf when softmax reads it, so
    that its key has no weight: it is not where scores are capped after the mask.
    """
    convention, sizes = plan.convention, plan.sizes
    inputs = plan.inputs(given_mask="given_mask", kv_len="kv_len")
    causal, has_mask = convention.restricting("given_mask" in inputs)
    if not has_mask:
        inputs.pop("given_mask", None)
        plan.sizes = sizes = sizes._replace(adds=False)
    if not inputs and not causal and convention.window is None:
        return False, {}
    n_q, n_k = sizes.scores[-2:]
    params: dict[str, Any] = {"n_q": n_q, "n_k": n_k, "n_past": sizes.n_past}
    params |= {"n_axes": len(sizes.scores), "causal": causal, "align": convention.causal_align}
    params |= {
        "window_size": convention.reach,
        "means": convention.mask_means,
        "numbers": convention.mask_numbers,
    }
    params["unmasks"] = convention.empty_rule(sizes.adds) == "unmasked"
    words = "0 = may attend, −inf = may not, other numbers are added"
    reads = inputs | plan.inputs(rows="rows")
    plan.add_function("mask", total_mask, words, like=compiled_mask, reads=reads, **params)
    capped_after = convention.softcap is not None and convention.softcap_place == "after-mask"
    hides = convention.hidden_value(sizes.adds) == -math.inf and not capped_after
    return True, {"mask": "mask"} if hides else {}


def capped(plan: Plan, x: str, cap: float) -> str:
    """Adds the scores x bounded, and gives the stage's name."""
    words = "{d} ∘ (1 − ({y} / c)²), c = {cap}"
    return plan.add("capped", CAPPED, "", x, back={"x": (D_CAPPED, words)}, cap=cap)


def restricted(plan: Plan, x: str) -> str:
    """Adds the scores x with mask and cap, in the convention's order; gives the last one's name."""
    convention, adds = plan.convention, plan.sizes.adds
    cap, is_last = convention.softcap, convention.softcap_place == "after-mask"
    value, is_added = convention.hidden_value(adds), convention.mask_value_rule == "add"
    is_biased = adds and cap is not None and convention.softcap_place == "after-bias"
    reads, gradients = {"mask": "mask"}, dict[str, Any]()
    if adds:
        reads |= {"given": "given_mask"}
        words = "{d}, summed over what {mask} was broadcast over, 0 where it is −inf"
        gradients["given"] = d_of_mask(plan.sizes.scores, plan.sizes.mask), words
    if is_biased:
        words = "{x} + M, M the numbers of the mask"
        x = plan.add("biased", BIASED, words, x, reads=reads, back=gradients | {"mask": None})
        reads, gradients = {"mask": "mask"}, {}
    x = x if cap is None or is_last else capped(plan, x, cap)
    params: dict[str, Any] = {"value": value}
    words = "{x}" if is_biased else "{x} + M, M the mask"
    if value != -math.inf:
        sum_ = f"{{x}} + ({plain(value)}), without M,"
        words += f", but {sum_ if is_added else plain(value)} where masked"
        params |= {"rule": "add"} if is_added else {}
        of_scores = {"x": (D_MASKED, "{d}, but 0 where masked")}
        gradients = ({} if is_added else of_scores) | gradients
    elif is_biased:
        words += ", but −inf where masked"
    text = masked(is_biased=is_biased, is_sum="rule" in params)
    back = gradients | {"mask": None}
    x = plan.add("masked", text, words, x, reads=reads, back=back, **params)
    return capped(plan, x, cap) if cap is not None and is_last else x


def weights(plan: Plan, x: str, guard: Mapping[str, str]) -> str:
    """Adds the softmax of the stage x, whose name it gives, and the log of what it divides by."""
    convention, sinks = plan.convention, plan.inputs(sinks="sinks")
    over_keys, empty = convention.softmax_over == "keys", convention.empty_rule(plan.sizes.adds)
    axis, each, letters = -1, "row", {"s": "i", "t": "j"}
    if not over_keys:
        axis, each, letters = -2, "column", {"s": "j", "t": "i"}
    sums = f"each {each} sums to {'δ times what the sink takes' if sinks else '0'}"
    back = {
        "delta": (DELTA, f"Σ {{y}} ∘ {{d}} over each {each}"),
        "x": (D_WEIGHTS, f"{{y}} ∘ ({{d}} − δ): {sums}"),
    }
    words = f"softmax({{x}}) over {convention.softmax_over}: each {each} sums to 1"
    if sinks:
        words = "exp({x}) / (Σ exp({x}) + exp({sinks})): a row sums to less than 1"
        back["sinks"] = D_SINKS, "−Σ δ exp({sinks}) / (Σ exp({x}) + exp({sinks}))"
    text = WEIGHTS if over_keys else WEIGHTS.replace("softmax[j]", "softmax[i]")
    if empty in ("nan", "uniform"):
        text = f"{text[:-1]}, empty={empty})"
    more: dict[str, Any] = {"letters": letters, "back": back, "axis": axis, "empty": empty}
    more["fields"] = {"hides": bool(guard)}
    a = plan.add("weights", text, words, x, reads={**guard, **sinks}, **more)
    if over_keys:
        lse = lse_formula("{x}", convention.lse_base, "{sinks}" if sinks else "")
        plan.add("lse", LSE[convention.lse_base], lse, x, reads=sinks, base=convention.lse_base)
    return a


def concat(plan: Plan, x: str) -> str:
    """Adds the outputs of the heads, side by side, and gives the stage's name."""
    words = "[O₁ … O_h], the heads side by side"
    back = {"x": ("dO[b,h,i,e] = d[b,i,h·e]", "the part of {d} that each head gave")}
    return plan.add("concat", CONCAT, words, x, sizes={"h": plan.sizes.n_heads}, back=back)


def lse_formula(x: str, base: LseBase, sinks: str = "") -> str:
    """The log-sum-exp of a stage in words."""
    log, sink = {"e": "ln", "2": "log₂"}[base], f" + exp({sinks})" if sinks else ""
    total = f"Σ exp({x}){sink}"
    return f"{log} {f'({total})' if sinks else total} over each row"


def masked(*, is_biased: bool, is_sum: bool) -> str:
    """The masked scores: whether the mask's numbers are in them already, and a value is added."""
    text = MASKED.replace(" + mask[b,h,i,j]", "") if is_biased else MASKED
    return text.replace("= value", "= x[b,h,i,j] + value") if is_sum else text


def d_of_mask(scores: tuple[int, ...], mask_shape: tuple[int, ...]) -> str:
    """The gradient of the numbers of a mask: a sum over all that they were broadcast over.

    >>> d_of_mask((2, 3, 5), (3, 1))
    'dM[i,_] = sum[h,j](d[b,h,i,j] where mask[b,h,i,j] != -inf)  # masked: may not attend'
    """
    letters = "bhij"[-len(scores) :]
    sizes = (1,) * (len(scores) - len(mask_shape)) + mask_shape
    mask_letters = letters[len(letters) - len(mask_shape) :]
    summed = [
        x
        for x, n, size in zip(letters, scores, sizes, strict=True)
        if size < n or x not in mask_letters
    ]
    cell, condition = "d[b,h,i,j]", "mask[b,h,i,j] != -inf"
    body = (
        f"sum[{','.join(summed)}]({cell} where {condition})"
        if summed
        else f"{cell} if {condition} else 0"
    )
    left_side = (
        f"dM[{','.join('_' if x in summed else x for x in mask_letters)}]" if mask_shape else "dM"
    )
    return f"{left_side} = {body}  # masked: may not attend"


def dropout(text: str, p: float) -> tuple[str, dict[str, Any]]:
    """A dropout in words, and its gradient."""
    words = f"{{x}}, each number set to 0 with probability {p:g}, the others divided by {1 - p:g}"
    back = text.replace("x[", "d["), f"{{d}} / {1 - p:g}, and 0 for what was dropped"
    return words, {"x": back}
