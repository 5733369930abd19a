"""Traces of version 1, whose stages named a rule for their arithmetic (`work`), not a formula.

The rule, and what a stage says of itself besides, tell which formula it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attncli import formulas
from attncli.formulas import after_cache, merging, shared, summed, written


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
            rest |= {"expression": formulas.SCALED_BY_ROOT, "sizes": {"d": sizes.get("d_k", 1)}}
        elif stage["work"] == "d_of_mask":
            rest["expression"] = formulas.d_of_mask(scores, tuple(n for _, n in _sizes(stage)))
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
    other = formulas.PROJECTED if "w" in reads else formulas.OUTPUT
    other = formulas.D_QUERIES if name.startswith("d_") else other
    return {**formulas.PROJECTED_ROWS, "feed_forward": formulas.FEED_FORWARD}.get(name, other)


def _of_softmax(stage: Mapping[str, Any]) -> str:
    letters = formulas.SUMS_TO_1[-2 if stage["params"].get("axis") == -2 else -1]
    text = formulas.DELTA if stage["work"] == "delta" else formulas.D_SOFTMAX
    return written(text, *stage["mask"], **letters)


def _merged(which: int) -> Callable[[Mapping[str, Any]], str]:
    """The formula of merged parts: of the lse, of their weights, or of the output."""

    def rule(stage: Mapping[str, Any]) -> str:
        n_parts = sum(name[-1].isdecimal() for name in stage["reads"])
        return merging(n_parts, _base(stage), has_sinks="sinks" in stage["reads"])[which]

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
    "bias": formulas.BIASED, "merge": formulas.CONCAT, "deviation": formulas.DEVIATION,
    "relu": formulas.HIDDEN, "norm": formulas.NORM, "d_of_sinks": formulas.D_SINKS,
    "d_hidden": formulas.D_HIDDEN, "power": formulas.POWERS, "by sum": formulas.BY_SUM,
    "angle": formulas.POSITION_ANGLES, "slope": formulas.SLOPES.replace("heads", "n"),
    "rotary angle": formulas.ROTARY_ANGLES, "length": formulas.LENGTHS, "pairs": formulas.DOTS,
    "cosine": formulas.COSINES, "row cosine": formulas.ROW_COSINES, "arc": formulas.WORD_ANGLES,
    "difference": formulas.DIFFERENCE, "analogy": formulas.ANALOGY,
    "cos({angles})": formulas.COS, "sin({angles})": formulas.SIN,
    "c · tanh([x] / c) = {cap} · tanh({x} / {cap})": formulas.CAPPED,
    "[d] · (1 - ([b] / c)²) = {d} · (1 - ({b} / {cap})²)": formulas.D_CAPPED,
    "[x] · {factor} = {x} · {factor}": formulas.SCALED,
    "[x] - [mean] = {x} - {mean}": formulas.CENTRED,
    "[x] + [y] = {x} + {y}": formulas.RESIDUAL,
}  # fmt: skip
_ROW_PRODUCTS = {"d_concat": formulas.D_CONCAT, "coordinates": formulas.COORDINATES}
_RULES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    **{work: lambda _, text=text: text for work, text in _TEXTS.items()},  # type: ignore[misc]
    **dict.fromkeys(
        ("column products", "summed column products"),
        lambda x: formulas.D_KEYS if x["name"] == "d_k" else formulas.D_VALUES,
    ),
    "mask": lambda x: formulas.masked(is_biased=False, is_sum=x["params"].get("rule") == "add"),
    "hide": lambda x: formulas.masked(is_biased=True, is_sum=x["params"].get("rule") == "add"),
    **dict.fromkeys(("delta", "d_softmax"), _of_softmax),
    "products": _products,
    "cached products": lambda x: after_cache(written(_products(x), *x["reads"])),
    "row products": lambda x: _ROW_PRODUCTS.get(
        x["name"], formulas.D_WEIGHTS if x["name"].startswith("d_") else formulas.SCORES
    ),
    "copy": lambda x: formulas.SPLIT_ROWS.get(x["name"], formulas.D_HEADS),
    "softmax": lambda x: (
        formulas.WEIGHTS_OF_KEYS if x["params"].get("axis") == -2 else formulas.WEIGHTS
    ),
    "lse": lambda x: formulas.LSE[_base(x)],
    "lse of parts": lambda x: formulas.LSE_OF_PARTS[_base(x)],
    "dropout": lambda x: formulas.DROPPED if "key" in x["axes"] else formulas.DROPPED_ROWS,
    "mean": lambda x: formulas.MEAN if "query" in x["axes"] else formulas.CENTRE,
    "divisor": lambda x: formulas.DIVISORS[_exponent(x)],
    "wave": lambda x: (
        formulas.WAVES_ALONE[_exponent(x)] if "base" in x["params"] else formulas.WAVES
    ),
    "turned": lambda x: formulas.TURNED.get(x["params"].get("layout"), ""),
    "distance": lambda x: formulas.DISTANCES[bool(x["params"].get("causal"))],
    "d_of_weights": lambda x: formulas.D_OF_W[_weights_of(x)],
    "d_of_bias": lambda x: formulas.D_OF_B[_weights_of(x)],
    "d_of_rows": lambda x: formulas.d_of_rows(x["reads"]),
    "running max": lambda x: formulas.RUNNING_MAX[_start(x)],
    "rescale": lambda x: formulas.RESCALING[_start(x)],
    "running sum": lambda x: summed(x["reads"]),
    "running values": lambda x: summed(x["reads"], formulas.OUTPUT),
    "merged lse": _merged(0),
    "merge weight": _merged(1),
    "merged": _merged(2),
}
