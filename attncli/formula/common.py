"""Formulas beside those of attention: positions, word vectors, and rows that come after a cache.

Those of attention are in attention/formulas.py; the language is that of expression.py.
"""

from __future__ import annotations

import re

from attncli.formula.parser import relettered

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
SUM_COSINES = (
    "cos(a, b) = sum[d]((x[a,d] + y[a,d]) * (x[b,d] + y[b,d]))"
    " / (sqrt(sum[d]((x[a,d] + y[a,d]) ** 2)) * sqrt(sum[d]((x[b,d] + y[b,d]) ** 2)))"
)
DIFFERENCE = "D[d] = x[1,d] - x[0,d]"
ANALOGY = "D[d] = difference[d] + x[2,d]"
CENTRE = "μ[m] = sum[i](x[i,m]) / size[i]"
CENTRED = "C[i,m] = x[i,m] - mean[m]"
COORDINATES = "Y[i,c] = sum[m](x[i,m] * w[c,m])"
WORD_ANGLES = "angle(a, b) = degrees(arccos(x[a,b]))"

# ---- a cache


def after_cache(text: str) -> str:
    """The formula of rows of x that come after cached ones."""
    cell, _, right = text.partition(" = ")
    cached = re.sub(r"^\w+", "past", cell)
    body = right.replace("x[b,j,", "x[b,j - n_cached,")
    return f"{cell} = {cached} if j < n_cached else {body}  # from the cache"


def joined(cell: str) -> str:
    """The formula of a cache and of new rows after it, both as they are.

    >>> joined("K[b,j,d]")
    'K[b,j,d] = past[b,j + 0,d] if j < n_cached else new[b,j - n_cached,d]'
    """
    index = cell[cell.index("[") :]
    past, new = f"past{relettered(index, j='j + 0')}", f"new{relettered(index, j='j - n_cached')}"
    return f"{cell} = {past} if j < n_cached else {new}"
