"""Attention as a page of formulas: how each cell of each stage is computed, in reading order.

    x ── q, k, v ── scores ── scaled ── capped ── masked ── weights ── dropped ── output ── concat
      ── projected;   around it: residual, mean, deviation, norm, hidden, feed_forward

The language is that of expression.py. Letters: b batch, h head, g key head, i query, j key,
d width of a key, e of a value, m of the model, f of the feed-forward. A part in braces is left out
where nothing is read by its name. What steps read is named as their functions name it: x is the
stage before.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from attncli.expression import relettered

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

# ---- scores: every query by every key, scaled, bounded, restricted

SCORES = "S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,g,j,d])"
SCALED = "Z[b,h,i,j] = x[b,h,i,j] * factor"
SCALED_BY_ROOT = "Z[b,h,i,j] = x[b,h,i,j] / sqrt(size[d])"
BIASED = "P[b,h,i,j] = x[b,h,i,j] if mask[b,h,i,j] == -inf else x[b,h,i,j] + mask[b,h,i,j]"
CAPPED = "B[b,h,i,j] = cap * tanh(x[b,h,i,j] / cap)"  # Gemma 2 technical report, section 2
MASKED = (
    "L[b,h,i,j] = value if mask[b,h,i,j] == -inf else x[b,h,i,j] + mask[b,h,i,j]"
    "  # masked: may not attend"
)
HIDDEN_SCORES = MASKED.replace(" + mask[b,h,i,j]", "")  # its numbers are in the scores already

# ---- softmax over the keys of each query, or the queries of each key

WEIGHTS = "A[b,h,i,j] = softmax[j](x[b,h,i,j]{, sink=sinks[h]})"
WEIGHTS_OF_KEYS = "A[b,h,i,j] = softmax[i](x[b,h,i,j])"
LSE = {
    "e": "lse[b,h,i] = lse[j](x[b,h,i,j]{, sink=sinks[h]})",
    "2": "lse[b,h,i] = lse[j](x[b,h,i,j]{, sink=sinks[h]}) / ln(2)",
}
DROPPED = "D[b,h,i,j] = x[b,h,i,j] / (1 - p) if kept[b,h,i,j] else 0  # set to 0 by dropout"

# ---- the output

OUTPUT = "O[b,h,i,e] = sum[j](a[b,h,i,j] * v[b,g,j,e])"
CONCAT = "H[b,i,h·e] = x[b,h,i,e]"
PROJECTED = "Y[b,i,n] = sum[m](x[b,i,m] * w[m,n]){ + b[n]}"
PROJECTED_HEADS = "Y[b,i,n] = sum[h,e](x[b,h,i,e] * w[h·e,n]){ + b[n]}"

# ---- around an attention

DROPPED_ROWS = relettered(DROPPED.replace("h,i,j", "i,m"))
RESIDUAL = "R[b,i,m] = x[b,i,m] + y[b,i,m]"
MEAN = "μ[b,i] = sum[m](x[b,i,m]) / size[m]"
DEVIATION = "σ[b,i] = sqrt(sum[m]((x[b,i,m] - mean[b,i]) ** 2) / size[m])"
NORM = (
    "N[b,i,m] = {gamma[m] * }(x[b,i,m] - mean[b,i]) / sqrt(deviation[b,i] ** 2 + epsilon)"
    "{ + beta[m]}"
)
HIDDEN = "G[b,i,f] = max(0, sum[m](x[b,i,m] * w[m,f]){ + b[f]})"
FEED_FORWARD = "F[b,i,m] = sum[f](x[b,i,f] * w[f,m]){ + b[m]}"

# ---- the backward pass: d is the gradient of what a step gave (Dao et al., 2022, appendix B.4)

D_VALUES = "dV[b,g,j,e] = sum[i](a[b,h,i,j] * b[b,h,i,e])"
D_KEYS = D_VALUES.replace("dV", "dK").replace("e]", "d]")
D_WEIGHTS = "dA[b,h,i,j] = sum[e](q[b,h,i,e] * k[b,g,j,e])"
SUMS_TO_1 = {-1: {"s": "i", "t": "j"}, -2: {"s": "j", "t": "i"}}
"""By the axis of a softmax: s is the letter of what sums to 1, t the one that it runs along."""
DELTA = "δ[b,h,s] = sum[t](a[b,h,i,j] * d[b,h,i,j]{ where mask[b,h,i,j] != -inf})"
D_SOFTMAX = (
    "dZ[b,h,i,j] = a[b,h,i,j] * (d[b,h,i,j] - delta[b,h,s]){ if mask[b,h,i,j] != -inf else 0}"
    "  # masked: its weight does not depend on its score"
)
D_SINKS = "ds[h] = -sum[b,i](delta[b,h,i] * exp(sinks[h] - lse[j](x[b,h,i,j], sink=sinks[h])))"
D_CAPPED = "dB[b,h,i,j] = d[b,h,i,j] * (1 - (b[b,h,i,j] / cap) ** 2)"
D_HIDDEN = (
    "dL[b,h,i,j] = d[b,h,i,j] if mask[b,h,i,j] != -inf else 0"
    "  # masked: it does not depend on its score"
)
D_QUERIES = "dQ[b,h,i,d] = sum[j](a[b,h,i,j] * v[b,g,j,d])"
D_CONCAT = "dH[b,i,m] = sum[n](q[b,i,n] * k[m,n])"
D_HEADS = "dO[b,h,i,e] = x[b,i,h·e]"
D_PROJECTED_HEADS = "dO[b,h,i,e] = sum[n](q[b,i,n] * k[h·e,n])"
D_OF_W = {
    "q": "dW[m,h·d] = sum[b,i](x[b,i,m] * d[b,h,i,d])",
    "k": "dW[m,g·d] = sum[b,i](x[b,i,m] * d[b,g,i,d])",
    "o": "dW[m,n] = sum[b,i](x[b,i,m] * d[b,i,n])",
    "o of heads": "dW[h·e,n] = sum[b,i](x[b,h,i,e] * d[b,i,n])",
}
D_OF_B = {
    "q": "db[h·d] = sum[b,i](d[b,h,i,d])",
    "k": "db[g·d] = sum[b,i](d[b,g,i,d])",
    "o": "db[n] = sum[b,i](d[b,i,n])",
}

# ---- a walk through tiles of the keys: `before` is what the tile before has

_IS_EMPTY = "if m[b,h,i] != -inf else 0  # no key so far"
RUNNING_MAX = {
    "": "m[b,h,i] = max[j](x[b,h,i,j])",
    "sinks": "m[b,h,i] = max(sinks[h], max[j](x[b,h,i,j]))",
    "before": "m[b,h,i] = max(before[b,h,i], max[j](x[b,h,i,j]))",
}
RESCALING = {
    "sinks": f"α[b,h,i] = exp(sinks[h] - m[b,h,i]) {_IS_EMPTY}",
    "before": f"α[b,h,i] = exp(before[b,h,i] - m[b,h,i]) {_IS_EMPTY}",
}
POWERS = (
    "p[b,h,i,j] = exp(x[b,h,i,j] - m[b,h,i]) if x[b,h,i,j] != -inf else 0  # masked: exp(-inf) = 0"
)
BY_SUM = (
    "o[b,h,i,e] = acc[b,h,i,e] / total[b,h,i] if total[b,h,i] != 0 else 0  # no key to attend to"
)
_LSE = "lse[b,h,i] = {} if total[b,h,i] != 0 else -inf  # every key is masked: ln 0"
LSE_OF_PARTS = {
    "e": _LSE.format("m[b,h,i] + ln(total[b,h,i])"),
    "2": _LSE.format("(m[b,h,i] + ln(total[b,h,i])) / ln(2)"),
}

# ---- positions: p position, c pair, d dimension

ADDED = "X[i,m] = x[i,m] + y[i,m]"
DIVISORS = {"paper": "w[c] = base ** (2 * c / dim)", "article": "w[c] = base ** (4 * c / dim)"}
POSITION_ANGLES = "θ[p,c] = (p + start) / w[c]"
WAVES_ALONE = {  # of a table without its angles
    name: f"PE[p,d] = sin({angle}) if d % 2 == 0 else cos({angle})"
    for name, angle in (
        ("paper", "p / base ** (d // 2 * 2 / dim)"),
        ("article", "p / base ** (d // 2 * 4 / dim)"),
    )
}
WAVES = "PE[p,d] = sin(angles[p,d // 2]) if d % 2 == 0 else cos(angles[p,d // 2])"
SLOPES = (
    "m[h] = 2 ** (-8 * (h + 1) / heads) if h < heads else"
    " 2 ** (-8 * (2 * (h - heads) + 1) / (2 * heads))"
)
DISTANCES = {
    True: "B[h,i,j] = -inf if j > i + first_query else -m[h] * (i + first_query + 1 - (j + 1))"
    "  # masked: the key comes after its query",
    False: "B[h,i,j] = -m[h] * abs(i + first_query + 1 - (j + 1))",
}
ROTARY_ANGLES = "θ[p,c] = pos[p] * base ** (-2 * c / rotary_dim)"
COS, SIN = "cos θ[b,p,c] = cos(angles[b,p,c])", "sin θ[b,p,c] = sin(angles[b,p,c])"
TURNED = {  # the second of a pair, or its first; what is past r is no part of one
    "halves": "x′[b,h,p,d] = x[b,h,p,d] if d >= r else"
    " x[b,h,p,d % (r // 2)] * cos[b,p,d % (r // 2)]"
    " - x[b,h,p,d % (r // 2) + r // 2] * sin[b,p,d % (r // 2)] if d < r // 2 else"
    " x[b,h,p,d % (r // 2)] * sin[b,p,d % (r // 2)]"
    " + x[b,h,p,d % (r // 2) + r // 2] * cos[b,p,d % (r // 2)]",
    "interleaved": "x′[b,h,p,d] = x[b,h,p,d] if d >= r else"
    " x[b,h,p,d // 2 * 2] * cos[b,p,d // 2] - x[b,h,p,d // 2 * 2 + 1] * sin[b,p,d // 2]"
    " if d % 2 == 0 else"
    " x[b,h,p,d // 2 * 2] * sin[b,p,d // 2] + x[b,h,p,d // 2 * 2 + 1] * cos[b,p,d // 2]",
}

# ---- word vectors: a and b words

DOTS = "a · b = sum[d](x[a,d] * x[b,d])"
LENGTHS = "‖a‖ = sqrt(sum[d](x[a,d] ** 2))"
COSINES = "cos(a, b) = dots[a,b] / (lengths[a] * lengths[b])"
ROW_COSINES = (
    "cos(a, b) = sum[d](x[a,d] * x[b,d]) / (sqrt(sum[d](x[a,d] ** 2)) * sqrt(sum[d](x[b,d] ** 2)))"
)
DIFFERENCE = "D[d] = x[1,d] - x[0,d]"
ANALOGY = "D[d] = difference[d] + x[2,d]"
CENTRE = "μ[m] = sum[i](x[i,m]) / size[i]"
CENTRED = "C[i,m] = x[i,m] - mean[m]"
COORDINATES = "Y[i,c] = sum[m](x[i,m] * w[c,m])"
WORD_ANGLES = "angle(a, b) = degrees(arccos(x[a,b]))"

# ---- formulas that depend on what there is


def masked(*, is_biased: bool, is_sum: bool) -> str:
    """The masked scores: whether the mask's numbers are in them already, and a value is added."""
    text = HIDDEN_SCORES if is_biased else MASKED
    return text.replace("= value", "= x[b,h,i,j] + value") if is_sum else text


def d_of_mask(scores: tuple[int, ...], given: tuple[int, ...]) -> str:
    """The gradient of the numbers of a mask: a sum over all that they were broadcast over.

    >>> d_of_mask((2, 3, 5), (3, 1))
    'dM[i,_] = sum[h,j](d[b,h,i,j] where mask[b,h,i,j] != -inf)  # masked: may not attend'
    """
    letters = "bhij"[-len(scores) :]
    sizes = (1,) * (len(scores) - len(given)) + given
    summed = [x for x, n, size in zip(letters, scores, sizes, strict=True) if size < n]
    own = ("_" if x in summed else x for x in letters[len(letters) - len(given) :])
    cell, seen = "d[b,h,i,j]", "mask[b,h,i,j] != -inf"
    body = f"sum[{','.join(summed)}]({cell} where {seen})" if summed else f"{cell} if {seen} else 0"
    left = f"dM[{','.join(own)}]" if given else "dM"
    return f"{left} = {body}  # masked: may not attend"


def d_of_rows(reads: Collection[str]) -> str:
    """The gradient of the rows that queries, keys and values are made of.

    >>> d_of_rows(["d_v", "w_v"])
    'dX[b,i,m] = sum[n,e](d_v[b,n,i,e] * w_v[m,n·e])'
    """
    letters = {"q": "hd", "k": "nd", "v": "ne"}  # n key heads, whichever queries share them
    names = [name for name in letters if f"d_{name}" in reads]
    plain = [name for name in names if f"w_{name}" not in reads]  # the rows themselves
    row, terms = "·".join(letters[plain[0]]) if plain else "m", []
    for name in names:
        head, width = [*letters[name if name not in plain else plain[0]]]
        inner = "fc" if plain and name not in plain else head + width
        cell = f"d_{name}[b,{inner[0]},i,{inner[1]}]"
        weighted = f"sum[{','.join(inner)}]({cell} * w_{name}[{row},{'·'.join(inner)}])"
        terms.append(cell if name in plain else weighted)
    return f"dX[b,i,{row}] = {' + '.join(terms)}"


def summed(reads: Collection[str], output: str = "") -> str:
    """What is summed so far, times α, and what the tile adds: l, or with the formula of O acc.

    >>> summed(["p", "alpha", "before"])
    'l[b,h,i] = alpha[b,h,i] * before[b,h,i] + sum[j](p[b,h,i,j])'
    """
    rows = f"b,{output.partition('[')[2].split(',')[1] if output else 'h'},i"
    before = f"before[{rows},e]" if output else f"before[{rows}]"
    terms = [f"alpha[{rows}]"] * ("alpha" in reads) + [before] * ("before" in reads)
    carried = " * ".join(terms)
    text = output.replace("a[", "p[") or "l[b,h,i] = sum[j](p[b,h,i,j])"
    return text.replace(" = ", f" = {carried} + ", 1) if carried else text


MOST_PARTS = 32  # whose merging is written by cells: longer formulas nobody reads


def merging(n_parts: int, base: str, *, has_sinks: bool) -> tuple[str, str, str]:
    """The formulas by cells of the merged lse, the weights of parts and the output; "" of many."""
    if n_parts > MOST_PARTS:
        return "", "", ""
    numbers = range(1, n_parts + 1)
    log, power = {"e": ("ln", "exp"), "2": ("log2", "exp2")}[base]
    terms = [f"{power}(lse_{n}[b,h,i])" for n in numbers] + ["exp(sinks[h])"] * has_sinks
    is_empty = " and ".join(f"lse_{n}[b,h,i] == -inf" for n in numbers)
    lse = f"{log}({' + '.join(terms)})"
    if not has_sinks:
        lse = f"-inf if {is_empty} else {lse}  # every key is masked: ln 0"
    cases = [
        f"0 if c == {n - 1} and lse_{n}[b,h,i] == -inf else"
        f" {power}(lse_{n}[b,h,i] - lse[b,h,i]) if c == {n - 1} else"
        for n in numbers
    ]
    outputs = [f"w[b,h,i,{n - 1}] * output_{n}[b,h,i,e]" for n in numbers]
    return (
        f"lse[b,h,i] = {lse}",
        f"w[b,h,i,c] = {' '.join(cases)} 0  # no key of this part",
        f"O[b,h,i,e] = {' + '.join(outputs)}",
    )


@lru_cache(1024)
def written(text: str, *reads: str, **letters: str) -> str:
    """A formula without its optional parts of which nothing is read, and with other letters.

    >>> written("A[h,i] = softmax[i](x[h,i]{, sink=sinks[h]})", "x")
    'A[h,i] = softmax[i](x[h,i])'
    """

    def kept(part: re.Match[str]) -> str:
        return part[1] if {*re.findall(r"(\w+)\[", part[1])} & {*reads} else ""

    return relettered(re.sub(r"\{([^}]*)\}", kept, text), **letters)


@lru_cache(1024)
def shared(text: str, n_heads: int, n_kv_heads: int, order: str) -> str:
    """A formula of query heads h and key heads g: where they are as many, g is h.

    Else r query heads are side by side on each key head, or take the key heads in turn.

    >>> shared("dV[g,j,e] = sum[i](a[h,i,j] * b[h,i,e])", 6, 3, "blocks")
    'dV[g,j,e] = sum[r](sum[i](a[g·r,i,j] * b[g·r,i,e]))'
    """
    if n_heads == n_kv_heads:
        return relettered(text, g="h")
    left, _, right = text.partition(" = ")
    if not letters_of(text) >= {"g", "h"}:
        return text
    if "g" in letters_of(left):  # of a key head: the sum over its query heads
        text = f"{left} = sum[r]({right})"
    return relettered(text, h="g·r" if order == "blocks" else "r·g")


def letters_of(text: str) -> set[str]:
    """The letters of all axes in a formula."""
    brackets = re.findall(r"\[[^]]*\]", text)
    return {*re.findall(r"\b[a-z]\b", " ".join(brackets))}


def after_cache(text: str, names: Collection[str] = ()) -> str:
    """The formula of rows of x that come after cached ones, or of gradients that read such rows."""
    if names:
        return re.sub(rf"\b({'|'.join(names)})\[b,(\w),i,", r"\1[b,\2,i + n_cached,", text)
    left, _, right = text.partition(" = ")
    cached = re.sub(r"^\w+", "past", left)
    body = right.replace("x[b,j,", "x[b,j - n_cached,")
    return f"{left} = {cached} if j < n_cached else {body}  # from the cache"
