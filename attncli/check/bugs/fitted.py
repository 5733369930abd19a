"""Bugs with a number that only the observed values can tell: it is fitted, then named.

They are tried where no other bug fits. The number is fitted to a few rows and judged on all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.numbers import factor_of
from attncli.check.bugs.patch import Patch, Variants
from attncli.check.bugs.rewrite import Rewrite
from attncli.check.comparison import Comparison
from attncli.check.fitting import ALIKE, EXPLAINED, NEAR, minimum, misfit, polished, roots, simplest
from attncli.check.run import Indices
from attncli.check.setup import Setup
from attncli.stages import OUTPUT

OCTAVES = 8
"""A factor of the scores is searched from 2⁻⁸ to 2⁸ times the expected one."""

SEVERAL = 3
"""So many numbers at least confirm each one that is fitted."""

TINY = 1e-24
"""A mean square below this one is that of rounding in float64."""

MOST_SHOWN = 8
"""So many fitted numbers are said, one for each head or batch item."""


def fitted_numbers(
    make: Callable[[Array], Setup],
    comparison: Comparison,
    of: Callable[[Array], Array],
    between: tuple[float, float],
    numbers: Indices | None = None,
) -> Array | None:
    """The numbers with which a setup fits best, or None where it does not explain the errors.

    make     the setup with these numbers
    of       what is searched → the numbers, such as a power of 2
    numbers  for each head which of the numbers it uses; None: there is one for all
    """
    n = 1 if numbers is None else int(numbers.max()) + 1
    if numbers is not None:
        # without gradients that are sums over several heads, if there are others
        each = {n: x for n, x in comparison.errors.items() if x.expected.shape[1] == len(numbers)}
        comparison = replace(comparison, errors=each or comparison.errors)

    def loss(x: Array) -> Array:
        by_head = misfit(make(of(x)), comparison).mean(axis=0)
        if numbers is None:
            return np.array([by_head.mean()])
        return np.bincount(numbers, weights=by_head) / np.bincount(numbers)

    plain = float(misfit(comparison.setup, comparison).mean())
    at, least = minimum(loss, *between, n, most=plain / 2)
    if not explains(least, comparison.setup, comparison):
        return None
    return polished(of(at), make, comparison, numbers)


def explains(least: Array, setup: Setup, comparison: Comparison) -> bool:
    """Whether the misfits left by fitted numbers (`least`) are small, and others confirm each."""
    is_confirmed = comparison.n_different >= SEVERAL * least.size
    return is_confirmed and bool(least.mean() < EXPLAINED * misfit(setup, comparison).mean())


LARGEST = float(np.finfo(np.float64).max)


def _another_scale(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    sample, given = evidence.sample, setup.how.scale_factor(setup.d_k)
    if sample is None or given <= 0:
        return

    def make(x: Array) -> Setup:
        return setup.with_how(scale=float(np.clip(x[0], -LARGEST, LARGEST)))

    def loss(x: float) -> float:
        return float(misfit(make(np.array([x])), sample).mean())

    if loss(0.0) < EXPLAINED * misfit(setup, sample).mean() / 100:
        yield make(np.zeros(1)).with_detail("the scores are multiplied by 0: all weights are equal")
        return
    found = fitted_numbers(make, sample, lambda x: given * 2.0**x, (-OCTAVES, OCTAVES))
    if found is None:
        return
    value, words = simplest(float(found[0]), loss, given, setup.d_k)
    form = f" = {words}" if words else ""
    detail = f"the scores are multiplied by {value:.6g}{form}, not by {given:.6g}"
    yield setup.with_how(scale=value).with_detail(f"{detail} (d_k is {setup.d_k})")


def _another_softcap(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if (sample := evidence.sample) is None:
        return

    def make(x: Array) -> Setup:
        return setup.with_how(softcap=float(x[0]))

    found = fitted_numbers(make, sample, lambda x: 2.0**x, (-1, 9))
    if found is not None:
        near = np.array([float(f"{found[0]:.2g}")])
        best, rounded = (float(misfit(make(x), sample).mean()) for x in (found, near))
        cap = near if rounded <= ALIKE * best + TINY else found
        yield make(cap).with_detail(f"softcap {cap[0]:.6g}")


def _another_mask_value(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if (sample := evidence.sample) is None or not setup.may_mask():
        return

    def make(x: Array) -> Setup:
        return setup.with_how(mask_value=float(x[0]), mask_value_rule="replace")

    found = fitted_numbers(make, sample, lambda x: x, (-60, 20))
    if found is not None:
        yield make(found).with_detail(f"masked scores become {found[0]:.6g}")


def _sinks(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    wide = evidence.wide
    if wide is None or "sinks" in setup.inputs or setup.how.softmax_over != "keys":
        return

    def make(x: Array) -> Setup:
        return setup.with_inputs(sinks=x)

    found = fitted_numbers(make, wide, lambda x: x, (-12, 12), np.arange(setup.shape[1]))
    if found is not None:
        yield make(found).with_detail(f"sinks {listed(found)}")


def _mask_times(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    mask, sample, wide = setup.inputs.get("given_mask"), evidence.sample, evidence.wide
    if mask is None or mask.dtype == bool or sample is None or wide is None:
        return
    if not (np.isfinite(mask) & (mask != 0)).any():
        return

    def make(x: Array) -> Setup:
        whole = mask if mask.ndim > 2 or len(x) == 1 else mask[None]
        times = x.reshape(-1, 1, 1) if len(x) > 1 else x[0]
        with np.errstate(invalid="ignore"):
            changed = np.where(np.isneginf(whole), -np.inf, whole * times)
        return setup.with_inputs(given_mask=changed)

    given, n_heads = setup.how.scale_factor(setup.d_k), setup.shape[1]
    one = fitted_numbers(make, sample, lambda x: x, (-4, 4))
    if one is not None:
        best = float(misfit(make(one), sample).mean())
        forms = {-1.0: "their sign is reversed", 2.0: "twice", 0.5: "half", 0.0: "left out"}
        if given != 0:
            forms |= {given: "scaled with the scores", 1 / given: "divided by the scale"}
        for form, words in forms.items():
            if abs(form - one[0]) < NEAR * max(1, abs(form)):
                named = make(np.array([form]))
                if misfit(named, sample).mean() <= ALIKE * best + TINY:
                    yield named.with_detail(f"times {form:.6g}: {words}")
                    return
        yield make(one).with_detail(f"times {one[0]:.6g}")
    if n_heads > 1 and mask.ndim > 2:
        powers = (-OCTAVES, OCTAVES)
        each = fitted_numbers(make, wide, lambda x: 2.0**x, powers, np.arange(n_heads))
        if each is not None:
            yield make(each).with_detail(f"times {listed(each)}, head by head")


def _keys_times(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    wide, k = evidence.wide, setup.inputs["k"]
    if wide is None or k.shape[1] == 1 or setup.positions is not None:
        return

    def make(x: Array) -> Setup:
        return setup.with_inputs(k=k * x[:, None, None])

    powers = (-OCTAVES, OCTAVES)
    times = fitted_numbers(make, wide, lambda x: 2.0**x, powers, setup.key_heads)
    if times is not None and np.ptp(times) > 1e-3 * times.max():
        yield make(times).with_detail(f"times {listed(times)}, head by head")


def _output_times(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """One factor, one a head, one a channel: the least that fit."""
    observed, expected = (x.get(OUTPUT) for x in (evidence.observed, evidence.expected))
    if observed is None or expected is None or observed.shape != expected.shape:
        return
    if not (np.isfinite(observed) & np.isfinite(expected)).all():
        return
    fits = []
    axes = {"all of it": (0, 1, 2, 3), "head by head": (0, 2, 3), "channel by channel": (0, 2)}
    for words, over in axes.items():
        if math.prod(expected.shape[i] for i in over) < SEVERAL:
            continue
        squares = np.square(expected).sum(axis=over, keepdims=True)
        times = (observed * expected).sum(axis=over, keepdims=True) / np.maximum(squares, 1e-300)
        left = float(np.square(observed - times * expected).mean())
        fits.append((left, times, words))
    if not fits:
        return
    least = min(left for left, _, _ in fits)
    best = [(x, words) for left, x, words in fits if left <= 2 * least + TINY]
    if not best or (best[0][0] == 0).any():
        return
    times, words = best[0]
    if times.size == 1:
        changed = setup.with_result(OUTPUT, partial(np.multiply, float(times.item())))
    else:
        changed = setup.with_relayout(lambda x: x / times, OUTPUT)
    yield changed.with_detail(f"times {listed(times.ravel())}, {words}")


def listed(x: Array) -> str:
    more = len(x) - MOST_SHOWN
    shown = ", ".join(f"{value:.6g}" for value in x[:MOST_SHOWN])
    return shown + (f" and {more} more" if more > 0 else "")


LITTLE = 1e-3
"""A scale that differs by so little changes the output in proportion."""

FAR_CAP = 1000.0
"""A softcap of a number far beyond the scores changes them by a share of its square."""

SMALL_SINK = -6.0
"""A sink this small takes weight in proportion to its exponential."""


def _little_scale(setup: Setup) -> tuple[Setup, Callable[[float], Setup | None]]:
    given = setup.how.scale_factor(setup.d_k)

    def much(times: float) -> Setup:
        scale = given * (1 + LITTLE * times)
        detail = f"the scores are multiplied by {scale:.5g}, not by {given:.6g}"
        return setup.with_how(scale=scale).with_detail(f"{detail} (d_k is {setup.d_k})")

    return setup.with_how(scale=given * (1 + LITTLE)), much


def _little_softcap(setup: Setup) -> tuple[Setup, Callable[[float], Setup | None]] | None:
    def much(times: float) -> Setup | None:
        if times <= 0:
            return None
        cap = float(f"{FAR_CAP / math.sqrt(times):.2g}")
        return setup.with_how(softcap=cap).with_detail(f"softcap about {cap:g}")

    return (setup.with_how(softcap=FAR_CAP), much) if setup.how.softcap is None else None


def _little_leak(setup: Setup) -> tuple[Setup, Callable[[float], Setup | None]] | None:
    if not setup.may_mask() or setup.how.mask_value != -math.inf:
        return None
    masked = setup.with_how(mask_value_rule="replace")
    return _by_exponential(lambda x: masked.with_how(mask_value=x), "masked scores become {:.2g}")


def _little_sink(setup: Setup) -> tuple[Setup, Callable[[float], Setup | None]] | None:
    if "sinks" in setup.inputs or setup.how.softmax_over != "keys":
        return None
    sinks = np.ones(setup.shape[1])
    return _by_exponential(lambda x: setup.with_inputs(sinks=x * sinks), "a sink of about {:.2g}")


def _by_exponential(
    make: Callable[[float], Setup], detail: str
) -> tuple[Setup, Callable[[float], Setup | None]]:
    """The setup with a number that takes weight in proportion to its exponential."""

    def much(times: float) -> Setup | None:
        if times <= 0:
            return None
        value = SMALL_SINK + math.log(times)
        return make(value).with_detail(detail.format(value))

    return make(SMALL_SINK), much


FORM = 0.01
"""A fitted factor is that of a width where it is as near."""


def _other_scale(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """The scale of another width in the gradient of the scores, or the one that fits."""
    (_, n_heads, _, n_k), d_k = setup.shape, setup.d_k
    given, d_v = factor_of(setup) or None, setup.inputs["v"].shape[-1]
    known = {"1/√d_v": d_v**-0.5, "1/d_k": 1 / d_k, "1/√(heads · d_k)": (d_k * n_heads) ** -0.5}
    known |= {"1/√(number of keys)": n_k**-0.5, "√d_k": d_k**0.5}
    if given is None:
        return
    for words, factor in known.items():
        if not any(math.isclose(factor, x, rel_tol=1e-6) for x in (given, given * given)):
            yield Patch({"d_scores": Rewrite("", f"right * {factor / given!r}")}, words)
    stages = {} if evidence.sample is None else evidence.sample.errors
    for stage in (stages[name] for name in ("d_q", "d_k") if name in stages):
        fine = np.isfinite(stage.observed) & np.isfinite(stage.expected)
        size = float(np.square(stage.expected[fine]).sum())
        if size and (ratio := float((stage.observed * stage.expected)[fine].sum()) / size):
            x = ratio * given
            forms = [f" = {words}" for form, words, _ in roots(x) if abs(form / x - 1) < FORM]
            yield Patch(
                {"d_scores": Rewrite("", f"right * {ratio!r}")},
                f"{x:.6g}{forms[0] if forms else ''}",
            )


FITTED: dict[str, Variants] = {
    "another scale in dS": _other_scale,
    "another scale": _another_scale,
    "another softcap": _another_softcap,
    "another finite mask value": _another_mask_value,
    "extra term in the softmax's denominator (attention sink)": _sinks,
    "numbers of the mask times a factor": _mask_times,
    "keys times a factor": _keys_times,
    "output times a factor": _output_times,
}

PROBES = {
    "another scale": _little_scale,
    "another softcap": _little_softcap,
    "another finite mask value": _little_leak,
    "extra term in the softmax's denominator (attention sink)": _little_sink,
}
