"""Traces of version 1, whose stages named a rule for their arithmetic (`work`), not a formula.

The rule, and what a stage says of itself besides, tell which formula it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attncli.attention import formulas as page
from attncli.attention import tiles
from attncli.formula import common as formulas
from attncli.formula.common import after_cache
from attncli.formula.parser import letters_of, relettered
from attncli.formula.parser import written as resolved

# ---- gradients, by the names that they had for what they read

D_VALUES = "dV[b,g,j,e] = sum[i](a[b,h,i,j] * b[b,h,i,e])"
D_KEYS = D_VALUES.replace("dV", "dK").replace("e]", "d]")
D_WEIGHTS = "dA[b,h,i,j] = sum[e](q[b,h,i,e] * k[b,g,j,e])"
D_QUERIES = "dQ[b,h,i,d] = sum[j](a[b,h,i,j] * v[b,g,j,d])"
D_CONCAT = "dH[b,i,m] = sum[n](q[b,i,n] * k[m,n])"
D_HEADS = "dO[b,h,i,e] = x[b,i,h·e]"
D_OF_W = {
    "q": "dW[m,h·d] = sum[b,i](x[b,i,m] * d[b,h,i,d])",
    "k": "dW[m,g·d] = sum[b,i](x[b,i,m] * d[b,g,i,d])",
    "o": "dW[m,n] = sum[b,i](x[b,i,m] * d[b,i,n])",
}
D_OF_B = {
    "q": "db[h·d] = sum[b,i](d[b,h,i,d])",
    "k": "db[g·d] = sum[b,i](d[b,g,i,d])",
    "o": "db[n] = sum[b,i](d[b,i,n])",
}


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


def shared(text: str, n_heads: int, n_kv_heads: int, order: str) -> str:
    """A formula of query heads h and key heads g: where they are as many, g is h.

    Else r query heads are side by side on each key head, or take the key heads in turn.

    >>> shared("dV[g,j,e] = sum[i](a[h,i,j] * b[h,i,e])", 6, 3, "blocks")
    'dV[g,j,e] = sum[r](sum[i](a[g·r,i,j] * b[g·r,i,e]))'
    """
    if n_heads == n_kv_heads:
        return relettered(text, g="h")
    symbol, _, right = text.partition(" = ")
    if not letters_of(text) >= {"g", "h"}:
        return text
    if "g" in letters_of(symbol):  # of a key head: the sum over its query heads
        text = f"{symbol} = sum[r]({right})"
    return relettered(text, h="g·r" if order == "blocks" else "r·g")


def written(text: str, *reads: str, **letters: str) -> str:
    """A formula without its optional parts, and with other letters."""
    return relettered(resolved(text, frozenset(reads)), **letters)


# ---- rules


def with_formulas(
    document: dict[str, Any], outer: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """A document of version 1, in blocks of these `outer` sizes, with a formula for each stage."""
    steps, convention = document.get("steps"), document.get("convention")
    if not isinstance(steps, list):
        return document
    order = convention.get("head_order") if isinstance(convention, dict) else None
    stages = [_known(step) for step in steps]
    sizes = {**(outer or {}), **{axis: n for stage in stages for axis, n in _sizes(stage)}}
    heads = sizes.get("head", 1), sizes.get("kv_head", sizes.get("head", 1)), str(order)
    masked = [stage["params"].get("value") for stage in stages if stage["name"] == "masked"]
    scores = tuple(sizes[x] for x in ("batch", "head", "query", "key") if x in sizes)
    new: list[Any] = []
    for step, stage in zip(steps, stages, strict=True):
        if not isinstance(step, dict) or step.get("kind") == "trace":
            new.append(with_formulas(step, sizes) if isinstance(step, dict) else step)
            continue
        rest = {name: value for name, value in step.items() if name != "work"}
        stage["mask"] = ["mask"] * (masked == ["-Infinity"])
        if stage["work"].startswith("[x] / √d_k"):
            rest |= {"expression": page.SCALED_BY_ROOT, "sizes": {"d": sizes.get("d_k", 1)}}
        elif stage["work"] == "d_of_mask":
            rest["expression"] = page.d_of_mask(scores, tuple(n for _, n in _sizes(stage)))
        elif stage["work"] in _RULES:
            text = _RULES[stage["work"]](stage)
            rest["expression"] = shared(written(text, *stage["reads"]), *heads)
        new.append(rest)
    return {**document, "steps": new}


def _known(step: Any) -> dict[str, Any]:
    """What a step says of itself, each of its fields of the right type."""
    types = {"name": str, "work": str, "axes": list, "shape": list, "reads": dict, "params": dict}
    fields = step if isinstance(step, dict) else {}
    values = {name: fields.get(name) for name in types}
    return {name: x if isinstance(x, types[name]) else types[name]() for name, x in values.items()}


def _sizes(stage: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The sizes of the axes of a stage."""
    pairs = zip(stage["axes"], stage["shape"], strict=False)
    return [(str(axis), n) for axis, n in pairs if isinstance(n, int)]


def _products(stage: Mapping[str, Any]) -> str:
    name, reads = stage["name"], stage["reads"]
    other = page.PROJECTED if "w" in reads else page.OUTPUT
    other = D_QUERIES if name.startswith("d_") else other
    return {**page.PROJECTED_ROWS, "feed_forward": page.FEED_FORWARD}.get(name, other)


def _of_softmax(stage: Mapping[str, Any]) -> str:
    letters = {"s": "j", "t": "i"} if stage["params"].get("axis") == -2 else {"s": "i", "t": "j"}
    text = page.DELTA if stage["work"] == "delta" else page.D_WEIGHTS
    return written(text.replace("y[", "a["), *stage["mask"], **letters)


def _merged(which: int) -> Callable[[Mapping[str, Any]], str]:
    """The formula of merged parts: of the lse, of their weights, or of the output."""

    def rule(stage: Mapping[str, Any]) -> str:
        n_parts = sum(name[-1].isdecimal() for name in stage["reads"])
        return tiles.merging(n_parts, _base(stage), has_sinks="sinks" in stage["reads"])[which]

    return rule


def _base(stage: Mapping[str, Any]) -> str:
    return "2" if stage["params"].get("base") == "2" else "e"


def _exponent(stage: Mapping[str, Any]) -> str:
    return "article" if stage["params"].get("exponent") == "article" else "paper"


def _start(stage: Mapping[str, Any]) -> str:
    """What a tile begins with: a sink, or what the tile before has."""
    return next((name for name in ("before", "sinks") if name in stage["reads"]), "")


def _weights_of(stage: Mapping[str, Any]) -> str:
    """Which of the weights of an attention a gradient is of."""
    return {"q": "q", "o": "o"}.get(stage["name"][-1:], "k")


_TEXTS = {
    "bias": page.BIASED, "merge": page.CONCAT, "deviation": page.DEVIATION,
    "relu": page.HIDDEN, "norm": page.NORM, "d_of_sinks": page.D_SINKS,
    "d_hidden": page.D_MASKED, "power": tiles.POWERS, "by sum": tiles.BY_SUM,
    "angle": formulas.POSITION_ANGLES, "slope": formulas.SLOPES.replace("heads", "n"),
    "rotary angle": formulas.ROTARY_ANGLES, "length": formulas.LENGTHS, "pairs": formulas.DOTS,
    "cosine": formulas.COSINES, "row cosine": formulas.ROW_COSINES, "arc": formulas.WORD_ANGLES,
    "difference": formulas.DIFFERENCE, "analogy": formulas.ANALOGY,
    "cos({angles})": formulas.COS, "sin({angles})": formulas.SIN,
    "c · tanh([x] / c) = {cap} · tanh({x} / {cap})": page.CAPPED,
    "[d] · (1 - ([b] / c)²) = {d} · (1 - ({b} / {cap})²)": page.D_CAPPED.replace("y[", "b["),
    "[x] · {factor} = {x} · {factor}": page.SCALED,
    "[x] - [mean] = {x} - {mean}": formulas.CENTRED,
    "[x] + [y] = {x} + {y}": page.RESIDUAL,
}  # fmt: skip
_ROW_PRODUCTS = {"d_concat": D_CONCAT, "coordinates": formulas.COORDINATES}
_RULES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    **{work: lambda _, text=text: text for work, text in _TEXTS.items()},  # type: ignore[misc]
    **dict.fromkeys(
        ("column products", "summed column products"),
        lambda x: D_KEYS if x["name"] == "d_k" else D_VALUES,
    ),
    "mask": lambda x: page.masked(is_biased=False, is_sum=x["params"].get("rule") == "add"),
    "hide": lambda x: page.masked(is_biased=True, is_sum=x["params"].get("rule") == "add"),
    **dict.fromkeys(("delta", "d_softmax"), _of_softmax),
    "products": _products,
    "cached products": lambda x: after_cache(written(_products(x), *x["reads"])),
    "row products": lambda x: _ROW_PRODUCTS.get(
        x["name"], D_WEIGHTS if x["name"].startswith("d_") else page.SCORES
    ),
    "copy": lambda x: page.SPLIT_ROWS.get(x["name"], D_HEADS),
    "softmax": lambda x: (
        page.WEIGHTS.replace("softmax[j]", "softmax[i]")
        if x["params"].get("axis") == -2
        else page.WEIGHTS
    ),
    "lse": lambda x: page.LSE[_base(x)],
    "lse of parts": lambda x: tiles.LSE_OF_PARTS[_base(x)],
    "dropout": lambda x: page.DROPPED if "key" in x["axes"] else page.DROPPED_ROWS,
    "mean": lambda x: page.MEAN if "query" in x["axes"] else formulas.CENTRE,
    "divisor": lambda x: formulas.DIVISORS[_exponent(x)],
    "wave": lambda x: (
        formulas.WAVES_ALONE[_exponent(x)] if "base" in x["params"] else formulas.WAVES
    ),
    "turned": lambda x: formulas.TURNED.get(x["params"].get("layout"), ""),
    "distance": lambda x: formulas.DISTANCES[bool(x["params"].get("causal"))],
    "d_of_weights": lambda x: D_OF_W[_weights_of(x)],
    "d_of_bias": lambda x: D_OF_B[_weights_of(x)],
    "d_of_rows": lambda x: d_of_rows(x["reads"]),
    "running max": lambda x: tiles.RUNNING_MAX[_start(x)],
    "rescale": lambda x: tiles.RESCALING[_start(x)],
    "running sum": lambda x: tiles.summed(x["reads"]),
    "running values": lambda x: tiles.summed(x["reads"], page.OUTPUT),
    "merged lse": _merged(0),
    "merge weight": _merged(1),
    "merged": _merged(2),
}
