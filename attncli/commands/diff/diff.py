"""diff: two traces beside each other: which stages differ, where, and by how much.

    a, b ── stages of one name ── shapes ── within rounding? ──> Comparison

Every number of every head and batch entry is compared, whatever is shown of them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.attention.heads import shape_text
from attncli.commands.diff.comparison import Comparison, Names, StageDifference
from attncli.commands.diff.rounding import Noise, dtype_of, in_four, is_given, rule_as_printed
from attncli.convention import KNOBS, flag_text
from attncli.errors import InputError, joined
from attncli.files.messages import listing
from attncli.stages import MAPS
from attncli.tolerance.number_types import EPS, fitting_type, narrower
from attncli.tolerance.rule import Inside, Rule, StageErrors, rms, rule_of
from attncli.tolerance.shapes import fitting_layouts
from attncli.trace import Stage, Trace

SMALLEST = 2.0**-24
"""The distance of float16 numbers from 0 to the next: of those below 2⁻¹⁴ it is not relative."""

MANY = {"query": "queries", "key": "keys", "head": "heads", "token": "tokens"}


@np.errstate(all="ignore")  # the numbers may be any, also infinite
def diff(
    a: Trace,
    b: Trace,
    *,
    names: Names = ("a", "b"),
    decimals: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    inside: Inside | None = None,
    by_name: bool = False,
) -> Comparison:
    """Two traces compared stage by stage, by dotted name.

    names     what they are called in sentences
    decimals  the numbers were printed with so many; or rtol and atol: |b − a| ≤ atol + rtol · |a|;
              else as far as rounding in their number type explains: from the inputs, as in
              `check`, where those are the same in both, else a few units of its last place
    inside    accepts this less exact arithmetic inside: "float32", "tf32", "float16", "bfloat16"
    by_name   entries of an axis that has the same names in another order in b are matched by name;
              the stage `tokens`, which is that order, is left out

    NaN beside NaN and an infinity beside itself are the same. Axes of one entry before the others
    do not count. Raises InputError where the two have no stage in common.

    >>> import attncli
    >>> q, k, v = [[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]]
    >>> found = diff(attncli.attend(q, k, v), attncli.attend(q, k, v, scale="none"))
    >>> found.same, found.first.name, round(found.first.largest, 4)
    (False, 'scaled', 0.2929)
    """
    without = "tokens" if by_name else ""
    stages_a, stages_b = (
        {n: x for n, x in t.stages() if x.value.dtype.kind in "biuf" and x.name != without}
        for t in (a, b)
    )
    if by_name:
        stages_b = {n: _in_order_of(stages_a.get(n), x) for n, x in stages_b.items()}
    order = _merged([*stages_a], [*stages_b])
    pairs: dict[str, tuple[Stage, Stage]] = {}
    for name in order:
        own_a = stages_a.get(name) or _in_its_place(name, stages_a, order)
        own_b = stages_b.get(name) or _in_its_place(name, stages_b, order)
        if own_a is not None and own_b is not None:
            pairs[name] = own_a, own_b
    only_a, only_b = (tuple(n for n in group if n not in pairs) for group in (stages_a, stages_b))
    only = only_a, only_b
    _check_common(pairs, only, names)
    rule = rule_of(decimals, rtol, atol, dtype_of(pairs.values(), (a, b)), inside)
    noise = Noise(a, b, pairs, rule)
    stages = tuple(_compared(name, *pair, noise, names) for name, pair in pairs.items())
    labels = tuple(_labels(pairs.values(), names))
    return Comparison(a, b, names, stages, only, tuple(_conventions(a, b, names)), labels)


def _in_order_of(a: Stage | None, b: Stage) -> Stage:
    """The stage b with each axis in the order of a, where both have the same names along it."""
    for at, axis in enumerate(b.axes):
        order_of_a, names = (() if x is None else x.labels.get(axis, ()) for x in (a, b))
        if order_of_a == names or sorted(order_of_a) != sorted(names):
            continue
        by_name = np.argsort(np.array(names), kind="stable")
        order = by_name[np.argsort(np.argsort(np.array(order_of_a), kind="stable"), kind="stable")]
        b = replace(
            b, value=np.take(b.value, order, axis=at), labels={**b.labels, axis: order_of_a}
        )
    return b


def _merged(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The names of both in one order: those of the second alone after the one before them."""
    order, of_first, at = list(first), set(first), 0
    for name in second:
        if name in of_first:
            at = order.index(name) + 1
        else:
            order.insert(at, name)
            at += 1
    return order


def _in_its_place(name: str, stages: Mapping[str, Stage], order: Sequence[str]) -> Stage | None:
    """The stage that takes the place of one that was left out, as it would do nothing.

    That is the one before it, if a later stage has read it: else the stage is only not there.
    """
    prefix, _, last_part = name.rpartition(".")
    prefix += "." * bool(prefix)
    if last_part not in MAPS:
        return None
    at = order.index(name)
    beside = [(i, n) for i, n in enumerate(order) if n in stages and n.startswith(prefix)]
    read = {prefix + x for i, n in beside if i > at for x in stages[n].reads.values()}
    before = (n for i, n in reversed(beside) if i < at and n.removeprefix(prefix) in MAPS)
    last = next(before, None)
    return stages[last] if last in read else None


def _check_common(
    pairs: Mapping[str, Any], only: tuple[Sequence[str], Sequence[str]], names: Names
) -> None:
    """InputError where nothing can be compared, or the inputs alone."""
    if pairs and not (all(is_given(*pair) for pair in pairs.values()) and all(only)):
        return
    shared = f"no stage but inputs in common ({listing(pairs)})" if pairs else "no stage in common"
    contents = (f"{name} holds {listing(x)}" for name, x in zip(names, only, strict=True))
    raise InputError(f"{names[0]} and {names[1]} have {shared}", "; ".join(contents))


def _compared(name: str, a: Stage, b: Stage, noise: Noise, names: Names) -> StageDifference:
    result = StageDifference(name, a, b, is_given(a, b))
    x, y = a.value, b.value
    if _without_ones(x.shape) != _without_ones(y.shape):
        return replace(result, shapes=_shapes(a, b, names))
    axis_of = dict(zip(reversed(b.axes), reversed(a.axes), strict=False))
    words = {
        axis_of[axis]: names for axis, names in b.labels.items() if axis_of.get(axis) in a.axes
    }
    result = replace(result, b=replace(b, value=y.reshape(x.shape), axes=a.axes, labels=words))
    if np.array_equal(x.reshape(-1), y.reshape(-1), equal_nan="f" in x.dtype.kind + y.dtype.kind):
        none = np.broadcast_to(np.False_, x.shape)
        return replace(result, wrong=none, rule=noise.rule.describe())
    four, other = (in_four(value) for value in (x, y))
    rule = rule_as_printed(noise.rule, four, other) if not result.is_given else noise.rule
    errors = StageErrors(other, four, rule)
    if result.is_given and rule.kind == "noise":  # as exact as the numbers that are given
        kind = narrower(fitting_type(four, "float64"), fitting_type(other, "float64"))
        least = SMALLEST if kind == "float16" else 0.0
        errors = replace(errors, rule=Rule("given", rtol=EPS[kind], atol=least))
        tolerance = f"rounding in {kind}"
    else:
        tolerance = rule.describe()
        if rule.kind == "noise" and errors.largest > 0:
            errors = noise.put_in(name, errors)
    size = errors.errors
    at = tuple(map(int, np.unravel_index(int(size.argmax()), x.shape))) if x.size else ()
    typical = errors.typical if np.isfinite(errors.typical) else rms(size, np.isfinite(size))
    wrong = errors.wrong.reshape(x.shape)
    return replace(result, wrong=wrong, largest=errors.largest, at=at, rms=typical, rule=tolerance)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the axes of one entry before the others."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _shapes(a: Stage, b: Stage, names: Names) -> str:
    """How two shapes differ: which axis, and whether a change of layout makes them the same."""
    x, y = a.value, b.value
    words = " and ".join(
        f"{shape_text(value) or 'one number'} in {name}"
        for value, name in zip((x, y), names, strict=True)
    )
    if x.ndim == y.ndim:
        axes = zip(a.axes, x.shape, y.shape, strict=True)
        differing = (
            f"{n} and {m} {MANY[axis]}" if axis in MANY else f"{axis} {n} and {m}"
            for axis, n, m in axes
            if n != m
        )
        words += f" ({', '.join(differing)})"
    if x.size == y.size:
        change = next(fitting_layouts(y, x.shape), None)
        words += f". {change[0]} in {names[1]}" if change else ""
    return words


def _conventions(a: Trace, b: Trace, names: Names) -> Iterator[str]:
    """Where the conventions of two traces differ, or those of a part in both."""
    earlier: set[str] = set()
    for prefix, first, second in _parts(a, b, ""):
        if first.convention is None or second.convention is None:
            continue
        pairs = [
            (flag_text(name, value), flag_text(name, other))
            for name in KNOBS
            if (value := getattr(first.convention, name))
            != (other := getattr(second.convention, name))
        ]
        texts = [_with_and_without(flags) for flags in zip(*pairs, strict=True)]
        if texts and " ".join(texts) not in earlier:
            earlier.add(" ".join(texts))
            place = f" of {prefix}" if prefix else ""
            both = (f"{name} {text}" for name, text in zip(names, texts, strict=True))
            yield f"the conventions{place} differ: {', '.join(both)}"


def _with_and_without(flags: Sequence[str]) -> str:
    """with --causal and without --scale"""
    absent = [text.partition(" ")[2] for text in flags if text.startswith("without ")]
    present = [text for text in flags if not text.startswith("without ")]
    both = (("with", present), ("without", absent))
    return " and ".join(f"{word} {joined(group)}" for word, group in both if group)


def _parts(a: Trace, b: Trace, prefix: str) -> Iterator[tuple[str, Trace, Trace]]:
    """The blocks of both of one dotted name."""
    yield prefix, a, b
    others = {step.name: step for step in b.steps if isinstance(step, Trace)}
    for step in a.steps:
        if isinstance(step, Trace) and step.name in others:
            yield from _parts(step, others[step.name], f"{prefix}.{step.name}".strip("."))


def _labels(pairs: Iterable[tuple[Stage, Stage]], names: Names) -> Iterator[str]:
    """Where the names along axes of one length differ, a sentence for those that do alike."""
    axes_of: dict[str, set[str]] = {}
    for a, b in pairs:
        for axis in {*a.labels, *b.labels} & {*a.axes} & {*b.axes}:
            if words := _differing_names(a, b, axis, names):
                axes_of.setdefault(words, set()).add(axis)
    for words, axes in axes_of.items():
        are_tokens = axes <= {"query", "key", "token", "other"}
        yield f"the names of {'tokens' if are_tokens else ', '.join(sorted(axes))} {words}"


def _differing_names(a: Stage, b: Stage, axis: str, names: Names) -> str:
    names_of_a, names_of_b = a.labels.get(axis), b.labels.get(axis)
    if names_of_a is None or names_of_b is None:
        return f"are in {names[0] if names_of_b is None else names[1]} alone"
    differing = [(x, y) for x, y in zip(names_of_a, names_of_b, strict=False) if x != y]
    if len(names_of_a) != len(names_of_b) or not differing:
        return ""
    x, y = differing[0]
    count = f"{len(differing)} of {len(names_of_a)}"
    return f'differ ({count}; first "{x}" in {names[0]}, "{y}" in {names[1]})'
