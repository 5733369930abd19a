"""Traces of version 1, whose stages named a rule for their arithmetic, not a formula.

The rule and the names of what a stage reads say which formula it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from attncli import formulas
from attncli.formulas import after_cache, shared, written

_TEXTS = {
    "bias": formulas.BIASED, "merge": formulas.CONCAT, "deviation": formulas.DEVIATION,
    "relu": formulas.HIDDEN, "norm": formulas.NORM, "d_of_sinks": formulas.D_SINKS,
    "d_hidden": formulas.D_HIDDEN, "power": formulas.POWERS, "by sum": formulas.BY_SUM,
    "angle": formulas.POSITION_ANGLES, "slope": formulas.SLOPES.replace("heads", "n"),
    "rotary angle": formulas.ROTARY_ANGLES,
    "length": formulas.LENGTHS, "pairs": formulas.DOTS, "cosine": formulas.COSINES,
    "row cosine": formulas.ROW_COSINES, "arc": formulas.WORD_ANGLES,
    "difference": formulas.DIFFERENCE, "analogy": formulas.ANALOGY,
    "c · tanh([x] / c) = {cap} · tanh({x} / {cap})": formulas.CAPPED,
    "[d] · (1 - ([b] / c)²) = {d} · (1 - ({b} / {cap})²)": formulas.D_CAPPED,
    "[x] · {factor} = {x} · {factor}": formulas.SCALED,
    "[x] - [mean] = {x} - {mean}": formulas.CENTRED,
    "cos({angles})": formulas.COS, "sin({angles})": formulas.SIN,
}  # fmt: skip


class _Stage(NamedTuple):
    """What a stage of version 1 says of itself."""

    name: str
    work: str
    axes: list[Any]
    reads: Mapping[str, str]
    params: Mapping[str, Any]
    is_masked: bool

    @property
    def is_gradient(self) -> bool:
        return self.name.startswith("d_")

    @property
    def by_columns(self) -> bool:
        return self.params.get("axis") == -2


def _products(stage: _Stage) -> str:
    if stage.name in formulas.PROJECTED_ROWS:
        return formulas.PROJECTED_ROWS[stage.name]
    if stage.is_gradient:
        return formulas.D_QUERIES
    if stage.name == "feed_forward":
        return formulas.FEED_FORWARD
    return formulas.PROJECTED if "w" in stage.reads else formulas.OUTPUT


def _row_products(stage: _Stage) -> str:
    if "w" in stage.reads:
        return formulas.COORDINATES
    if stage.name == "d_concat":
        return formulas.D_CONCAT
    return formulas.D_WEIGHTS if stage.is_gradient else formulas.SCORES


def _masked(stage: _Stage) -> str:
    text = formulas.MASKED if stage.work == "mask" else formulas.HIDDEN_SCORES
    is_added = stage.params.get("rule") == "add"
    return text.replace("= value", "= x[b,h,i,j] + value") if is_added else text


def _of_softmax(stage: _Stage) -> str:
    letters = {"s": "j", "t": "i"} if stage.by_columns else {"s": "i", "t": "j"}
    text = formulas.DELTA if stage.work == "delta" else formulas.D_SOFTMAX
    return written(text, [*stage.reads, *["mask"] * stage.is_masked], **letters)


def _column_products(stage: _Stage) -> str:
    return formulas.D_VALUES.replace("e]", "d]") if stage.name == "d_k" else formulas.D_VALUES


def _of_projection(name: str) -> str:
    """Which of the weights of an attention a gradient is of."""
    return {"q": "q", "o": "o"}.get(name[-1], "k")


def _start(stage: _Stage) -> str:
    """What a tile begins with: a sink, or what the tile before has."""
    return next((name for name in ("before", "sinks") if name in stage.reads), "")


def _merging(stage: _Stage, parts: str) -> tuple[str, str, str]:
    n_parts = sum(name.startswith(parts) for name in stage.reads)
    return formulas.merging(n_parts, _base(stage), has_sinks="sinks" in stage.reads)


def _exponent(stage: _Stage) -> str:
    return "article" if stage.params.get("exponent") == "article" else "paper"


def _base(stage: _Stage) -> str:
    return "2" if stage.params.get("base") == "2" else "e"


_RULES: Mapping[str, Callable[[_Stage], str]] = {
    "products": _products,
    "cached products": lambda stage: after_cache(written(_products(stage), stage.reads)),
    "row products": _row_products,
    "mask": _masked,
    "hide": _masked,
    "delta": _of_softmax,
    "d_softmax": _of_softmax,
    "copy": lambda stage: formulas.SPLIT_ROWS.get(stage.name, formulas.D_HEADS),
    "softmax": lambda stage: formulas.WEIGHTS_OF_KEYS if stage.by_columns else formulas.WEIGHTS,
    "lse": lambda stage: formulas.LSE[_base(stage)],
    "lse of parts": lambda stage: formulas.LSE_OF_PARTS[_base(stage)],
    "dropout": lambda stage: formulas.DROPPED if "key" in stage.axes else formulas.DROPPED_ROWS,
    "mean": lambda stage: formulas.MEAN if "query" in stage.axes else formulas.CENTRE,
    "divisor": lambda stage: formulas.DIVISORS[_exponent(stage)],
    "wave": lambda stage: (
        formulas.WAVES if "angles" in stage.reads else formulas.WAVES_ALONE[_exponent(stage)]
    ),
    "turned": lambda stage: formulas.TURNED.get(str(stage.params.get("layout")), ""),
    "distance": lambda stage: formulas.DISTANCES[bool(stage.params.get("causal"))],
    "[x] + [y] = {x} + {y}": lambda stage: (
        formulas.RESIDUAL if stage.name == "residual" else formulas.ADDED
    ),
    **dict.fromkeys(("column products", "summed column products"), _column_products),
    "d_of_weights": lambda stage: formulas.D_OF_W[_of_projection(stage.name)],
    "d_of_bias": lambda stage: formulas.D_OF_B[_of_projection(stage.name)],
    "running max": lambda stage: formulas.RUNNING_MAX[_start(stage)],
    "rescale": lambda stage: formulas.RESCALING[_start(stage)],
    "running sum": lambda stage: formulas.summed(stage.reads),
    "running values": lambda stage: formulas.summed(stage.reads, formulas.OUTPUT),
    "merged lse": lambda stage: _merging(stage, "lse_")[0],
    "merge weight": lambda stage: _merging(stage, "lse_")[1],
    "merged": lambda stage: _merging(stage, "output_")[2],
    "d_of_rows": lambda stage: formulas.d_of_rows(stage.reads),
}


def with_formulas(
    document: dict[str, Any], outer: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """A document of version 1 as one of version 2: the same stages, each with its formula.

    outer  the sizes of the axes of the blocks around it
    """
    steps, convention = document.get("steps"), document.get("convention")
    if not isinstance(steps, list):
        return document
    order = convention.get("head_order") if isinstance(convention, dict) else None
    sizes = {**(outer or {}), **{axis: n for step in steps for axis, n in _sizes(step)}}
    heads = sizes.get("head", 1), sizes.get("kv_head", sizes.get("head", 1)), str(order)
    scores = tuple(sizes[x] for x in ("batch", "head", "query", "key") if x in sizes)
    is_masked = any(_hides(step) for step in steps)

    def changed(step: Any) -> Any:
        if not isinstance(step, dict) or step.get("kind") == "trace":
            return with_formulas(step, sizes) if isinstance(step, dict) else step
        rest = {name: value for name, value in step.items() if name != "work"}
        stage = _stage(step, is_masked=is_masked)
        if stage.work.startswith("[x] / √d_k"):
            rest["expression"], rest["sizes"] = formulas.SCALED_BY_ROOT, {"d": sizes.get("d_k", 1)}
        elif stage.work == "d_of_mask":
            rest["expression"] = formulas.d_of_mask(scores, tuple(n for _, n in _sizes(step)))
        elif text := _TEXTS.get(stage.work) or _of_rule(stage):
            rest["expression"] = shared(written(text, stage.reads), *heads)
        return rest

    return {**document, "steps": [changed(step) for step in steps]}


def _hides(step: Any) -> bool:
    """Whether it is the stage of masked scores, and they are −∞."""
    params = step.get("params") if isinstance(step, dict) and step.get("name") == "masked" else None
    return isinstance(params, dict) and params.get("value") == "-Infinity"


def _stage(step: Mapping[str, Any], *, is_masked: bool) -> _Stage:
    axes, reads, params = (step.get(key) for key in ("axes", "reads", "params"))
    return _Stage(
        str(step.get("name")),
        str(step.get("work", "")),
        axes if isinstance(axes, list) else [],
        reads if isinstance(reads, dict) else {},
        params if isinstance(params, dict) else {},
        is_masked,
    )


def _of_rule(stage: _Stage) -> str:
    rule = _RULES.get(stage.work)
    return "" if rule is None else rule(stage)


def _sizes(step: Any) -> list[tuple[str, int]]:
    """The sizes of the axes of a stage."""
    axes, shape = (step.get(x) if isinstance(step, dict) else None for x in ("axes", "shape"))
    if not (isinstance(axes, list) and isinstance(shape, list)):
        return []
    return [(str(axis), n) for axis, n in zip(axes, shape, strict=False) if isinstance(n, int)]
