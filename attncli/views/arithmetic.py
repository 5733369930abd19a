"""The arithmetic of one cell in real numbers: S[q1,k1] = 1·1 + 0·1 = 1, and so for every stage.

A stage says itself how it was computed: `reads`, `params` and `work`, which is a template, such as
"[x] / √d_k = {x} / {1.4142}", or the name of a rule in `RULES`. In a template [x] is the name of
the cell read as x, {x} its number, {cap} a parameter, {1.4142} a number. All numbers are those of
the trace, so what is written is what was computed.

Here are the rules of attention and of layers; those of gradients are in arithmetic_gradients.py,
those of positions and of words in arithmetic_tables.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from attncli.arrays import Array
from attncli.trace import Stage
from attncli.views.arithmetic_gradients import GRADIENT_RULES
from attncli.views.arithmetic_tables import TABLE_RULES
from attncli.views.cell import Entry, Words, between, bracketed
from attncli.views.parts import Equation
from attncli.views.select import HEADS, KEY_HEADS
from attncli.views.text import sentence

LARGE_SCORE = 20  # beyond it softmax is shown as it is computed: with the maximum subtracted
_PACKED = {"h": HEADS, "h_kv": KEY_HEADS}  # the weights of all heads in one axis, such as "h·d_k"
_IN_TEMPLATE = re.compile(r"\[(\w+)\]|\{([^}]+)\}")


def equation(entry: Entry) -> Equation | None:
    """How a stage came to its number in this entry.

    None where the stage does not say, or where what it was computed from is not in the trace.
    """
    stage = entry.stage
    if not stage.work or any(entry.block.read(stage, name) is None for name in stage.reads):
        return None
    rule = RULES.get(stage.work)
    return rule(entry) if rule else _filled(entry, stage.work)


def packed_axis(stage: Stage, at: int = -1) -> str | None:
    """The axis whose entries, such as heads, are side by side in a stage's last one, or None."""
    return _PACKED.get(stage.axes[at].partition("·")[0])


# ---- the rules


def _filled(entry: Entry, template: str) -> Equation:
    """The equation of a template."""

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return entry.of(found[1]).name
        name, params = found[2], entry.stage.params
        x = entry.of(name).value if name in entry.stage.reads else float(params.get(name, name))
        is_after_operator = found.string[: found.start()].rstrip().endswith(("·", "+", "-", "/"))
        return entry.factor(x) if is_after_operator else entry.write(x)

    forms = sentence(template).split(" = ")  # a trace from a file may hold any text
    return entry.equals(*(_IN_TEMPLATE.sub(fill, form) for form in forms))


def _products(entry: Entry, n_cached: int = 0) -> Equation:
    """A row times a column, and a bias: Σ a_ik b_kj + b_j; row i is the one after the cached."""
    a, b, *bias = (entry.of(name) for name in entry.stage.reads)
    column = entry.column
    if axis := packed_axis(b.stage):
        head = entry.block.entry(axis, entry.where) or 0
        column += head * entry.stage.value.shape[-1]
    words = entry.product(a.matrix[entry.row - n_cached], b.matrix[:, column])
    words += tuple(f"+ {entry.factor(b.matrix[0, column])}" for b in bias)
    return entry.equals(words)


def _cached(entry: Entry) -> Equation:
    """A row of the cache, or one that was made of x and comes after it."""
    n_cached = int(entry.stage.params["n_cached"])
    if entry.row < n_cached:
        return entry.equals(remark="from the cache")
    return _products(entry, n_cached)


def _copy(entry: Entry) -> Equation:
    """The vectors themselves, each head a part of them."""
    width = entry.stage.value.shape[-1]
    x = entry.of("x")._replace(column=entry.head * width + entry.column)
    return entry.equals(x.name)


def _merge(entry: Entry) -> Equation:
    """A number of one of the heads, which are side by side."""
    x = entry.of("x")
    head, column = divmod(entry.column, x.stage.value.shape[-1])
    x = x._replace(where={**x.where, HEADS: head}, column=column)
    several = HEADS in x.stage.axes and x.block.sizes[HEADS] > 1
    return entry.equals(x.name, remark=f"head {head + 1}" if several else "")


def _row_products(entry: Entry) -> Equation:
    """A row times a row: Σ a_ik b_jk; of a head its own rows of b, where it has them packed."""
    a, b = (entry.of(name) for name in entry.stage.reads)
    row = entry.column
    if packed_axis(b.stage, -2):
        row += entry.head * entry.stage.value.shape[-1]
    return entry.equals(entry.product(a.matrix[entry.row], b.matrix[row]))


def _relu(entry: Entry) -> Equation:
    inner = _products(entry)
    return inner._replace(forms=(between("max(0, ", inner.forms[0], ")"), inner.forms[-1]))


def _of_row(entry: Entry) -> Array:
    """The row of x of which a vector holds one number."""
    in_batch = {"batch": entry.row} if entry.stage.value.ndim > 1 else {}
    x = entry.of("x")._replace(where={**entry.where, **in_batch})
    return np.asarray(x.matrix[entry.column])


def _mean(entry: Entry) -> Equation:
    """The mean of a row, or of a column where the numbers of a column have one mean."""
    by_row = entry.stage.axes[-1] != entry.of("x").stage.axes[-1]
    numbers = _of_row(entry) if by_row else entry.of("x").matrix[:, entry.column]
    words = entry.sum(numbers, lambda i: [entry.write, entry.factor][i > 0](numbers[i]))
    return entry.equals((*between("(", words, ")"), f"/ {len(numbers)}"))


def _deviation(entry: Entry) -> Equation:
    """The root of the mean of the squares of what a row has more or less than its mean."""
    x, mean = _of_row(entry), entry.of("mean").value
    squares = entry.sum(
        (x.astype(np.float64) - mean) ** 2,
        lambda i: f"({entry.write(x[i])} - {entry.factor(mean)})²",
    )
    return entry.equals((*between("√((", squares, ")"), f"/ {len(x)})"))


def _norm(entry: Entry) -> Equation:
    """γ (x − μ) / √(σ² + ε) + β, by name and in numbers."""
    x, mean, deviation = entry.of("x"), entry.of_row("mean"), entry.of_row("deviation")
    epsilon = entry.write(entry.stage.params["epsilon"])
    gain, bias = (
        entry.of(name) if name in entry.stage.reads else None for name in ("gamma", "beta")
    )
    named = f"({x.name} - {mean.name}) / √({deviation.name}² + ε)"
    centred = f"({entry.write(x.value)} - {entry.factor(mean.value)})"
    filled = f"{centred} / √({entry.factor(deviation.value)}² + {epsilon})"
    if gain:
        named, filled = f"{gain.name}·{named}", f"{entry.write(gain.value)}·{filled}"
    if bias:
        named, filled = f"{named} + {bias.name}", f"{filled} + {entry.factor(bias.value)}"
    return entry.equals(named, filled)


def _mask(entry: Entry) -> Equation:
    """Z + M; a key that may not be attended to has no sum."""
    if np.isneginf(entry.of("mask").value):
        return _masked(entry)
    return _filled(entry, "[x] + [mask] = {x} + {mask}")


def _bias(entry: Entry) -> Equation:
    """Z + M; what may not be attended to has nothing added here."""
    if np.isneginf(entry.of("mask").value):
        return entry.equals(entry.of("x").name)
    return _filled(entry, "[x] + [mask] = {x} + {mask}")


def _hide(entry: Entry) -> Equation:
    """P, the numbers of the mask in it already; of a key that may not be attended to nothing."""
    if np.isneginf(entry.of("mask").value):
        return _masked(entry)
    return entry.equals(entry.of("x").name)


def _masked(entry: Entry) -> Equation:
    """What a masked score becomes: replaced, or with the mask value added."""
    if entry.stage.params.get("rule") == "add":
        return _filled(entry, "[x] + {value} = {x} + {value}")
    return entry.equals(remark="masked: may not attend")


def _softmax(entry: Entry) -> Equation:
    """exp over the sum of exps, of the scores of a row that are not −inf."""
    matrix, at = entry.of("x").matrix.astype(np.float64), entry.column
    scores, other = matrix[entry.row], "key"
    if entry.stage.params.get("axis") == -2:
        scores, at, other = matrix[:, entry.column], entry.row, "query"
    allowed = ~np.isneginf(scores)
    if not allowed.any():
        return entry.equals(remark=f"every {other} is masked")
    if not allowed[at]:
        return entry.equals(remark="masked: exp(-inf) = 0")
    n_masked = len(scores) - int(allowed.sum())
    remark = f"and exp(-inf) = 0 for {n_masked} masked" if n_masked else ""
    scores, at = scores[allowed], int(allowed[:at].sum())
    if "sinks" in entry.stage.reads:  # the last term of the sum
        scores = np.append(scores, entry.of("sinks").matrix[0, entry.where.get(HEADS, 0)])
    shift = float(scores.max()) if np.abs(scores).max() > LARGE_SCORE else 0.0
    minus = f" - {entry.factor(shift)}" if shift else ""
    with np.errstate(all="ignore"):
        exps = np.exp(scores - shift)
    own, whole = entry.write(exps[at]), entry.write(exps.sum())
    powers = entry.sum(exps, lambda i: f"exp({entry.write(scores[i])}{minus})")
    forms = [(f"exp({entry.write(scores[at])}{minus}) /", *bracketed(powers))]
    if entry.at_length:
        terms = entry.sum(exps, lambda i: entry.write(exps[i]))
        forms.append((f"{own} /", *bracketed(terms)))
    return entry.equals(*forms, f"{own} / {whole}", remark=remark)


def _lse(entry: Entry) -> Equation:
    """The log of a sum of powers, of the scores of a row that are not −inf."""
    scores = entry.of("x").matrix[entry.row].astype(np.float64)
    if "sinks" in entry.stage.reads:
        scores = np.append(scores, _sink_of(entry))
    scores = scores[~np.isneginf(scores)]
    if not len(scores):
        return entry.equals(remark="every key is masked: ln 0")
    shift = float(scores.max()) if np.abs(scores).max() > LARGE_SCORE else 0.0
    minus, log = f" - {entry.factor(shift)}" if shift else "", "ln "
    before = f"{entry.write(shift)} + " if shift else ""
    with np.errstate(all="ignore"):
        exps = np.exp(scores - shift)
    powers = entry.sum(exps, lambda i: f"exp({entry.write(scores[i])}{minus})")
    after = ""
    if entry.stage.params.get("base") == "2":
        before, after = f"({before}" if shift else "", ") / ln 2" if shift else " / ln 2"
    forms = [(*between(f"{before}{log}", between("(", powers, ")"), after),)]
    return entry.equals(*forms, f"{before}{log}{entry.write(exps.sum())}{after}")


def _sink_of(entry: Entry) -> float:
    """The sink of the head that a number of a row belongs to."""
    return float(entry.of("sinks").matrix[0, entry.where.get(HEADS, 0)])


def _running_max(entry: Entry) -> Equation:
    """The largest of what was so before and of the scores of a row."""
    numbers = [float(x) for x in entry.of("x").matrix[entry.row]]
    if "before" in entry.stage.reads:
        numbers.insert(0, entry.of("before").value)
    elif "sinks" in entry.stage.reads:
        numbers.insert(0, _sink_of(entry))
    if len(numbers) > entry.terms:
        half = entry.terms // 2
        words = [*map(entry.write, numbers[:half]), "…", *map(entry.write, numbers[-half:])]
    else:
        words = [*map(entry.write, numbers)]
    return entry.equals(f"max({', '.join(words)})")


def _rescale(entry: Entry) -> Equation:
    """exp of how much the maximum grew, as a negative number."""
    m = entry.of("m").value
    if np.isneginf(m):
        return entry.equals(remark="no key so far")
    before = entry.of("before").value if "before" in entry.stage.reads else _sink_of(entry)
    return entry.equals(f"exp({entry.write(before)} - {entry.factor(m)})")


def _power(entry: Entry) -> Equation:
    """exp of a score less the maximum of its row."""
    score = entry.of("x").value
    if np.isneginf(score):
        return entry.equals(remark="masked: exp(-inf) = 0")
    return entry.equals(f"exp({entry.write(score)} - {entry.factor(entry.of_vector('m'))})")


def _rescaled(entry: Entry, alpha: float | None, before: float | None, more: Words) -> Equation:
    """What was summed before, times α, and more."""
    if alpha is not None:
        own = "" if before is None else f" · {entry.factor(before)}"
        more = (f"{entry.write(alpha)}{own}", f"+ {more[0]}", *more[1:])
    return entry.equals(more)


def _running_sum(entry: Entry) -> Equation:
    powers, reads = entry.of("p").matrix[entry.row], entry.stage.reads
    alpha = entry.of("alpha").value if "alpha" in reads else None
    before = entry.of("before").value if "before" in reads else None
    return _rescaled(entry, alpha, before, entry.sum(powers, lambda i: entry.write(powers[i])))


def _running_values(entry: Entry) -> Equation:
    p, v, reads = entry.of("p"), entry.of("v"), entry.stage.reads
    words = entry.product(p.matrix[entry.row], v.matrix[:, entry.column])
    alpha = entry.of_vector("alpha") if "alpha" in reads else None
    return _rescaled(entry, alpha, entry.of("before").value if alpha is not None else None, words)


def _by_sum(entry: Entry) -> Equation:
    """A sum of values by the sum of its weights."""
    total = entry.of_vector("total")
    if total == 0:
        return entry.equals(remark="no key to attend to")
    return entry.equals(f"{entry.write(entry.of('acc').value)} / {entry.factor(total)}")


def _of_parts(entry: Entry) -> Equation:
    """m + ln l."""
    total = entry.of("total").value
    if total == 0:
        return entry.equals(remark="every key is masked: ln 0")
    words = f"{entry.write(entry.of('m').value)} + ln {entry.write(total)}"
    if entry.stage.params.get("base") == "2":
        words = f"({words}) / ln 2"
    return entry.equals(words)


def _merge_weight(entry: Entry) -> Equation:
    """exp of how much less the log-sum-exp of a part is than that of all."""
    own = entry.of_vector(f"lse_{entry.column + 1}")
    whole = entry.of_vector("lse")
    if np.isneginf(own):
        return entry.equals(remark="no key of this part")
    base = "2^" if entry.stage.params.get("base") == "2" else "exp"
    return entry.equals(f"{base}({entry.write(own)} - {entry.factor(whole)})")


def _merged_lse(entry: Entry) -> Equation:
    """The log of the sum of the powers of the log-sum-exps of parts."""
    names = [name for name in entry.stage.reads if name != "sinks"]
    numbers = [entry.of(name).value for name in names]
    if "sinks" in entry.stage.reads:
        numbers.append(_sink_of(entry))
    if np.isneginf(numbers).all():
        return entry.equals(remark="every key is masked: ln 0")
    log, power = ("log₂ ", "2^") if entry.stage.params.get("base") == "2" else ("ln ", "exp")
    with np.errstate(all="ignore"):
        sizes = np.exp2(numbers) if power == "2^" else np.exp(numbers)
    words = entry.sum(sizes, lambda i: f"{power}({entry.write(numbers[i])})")
    return entry.equals((*between(f"{log}", between("(", words, ")"), ""),))


def _merged(entry: Entry) -> Equation:
    """The outputs of parts, each times its weight."""
    w, reads = entry.of("w"), entry.stage.reads
    weights = w.matrix[entry.row]
    outputs = np.array([entry.of(name).value for name in reads if name.startswith("output_")])
    return entry.equals(entry.product(weights, outputs))


def _dropout(entry: Entry) -> Equation:
    x, kept = entry.of("x"), entry.write(1 - entry.stage.params["p"])
    if entry.value == 0 and x.value != 0:
        return entry.equals(remark="set to 0 by dropout")
    return entry.equals(f"{x.name} / {kept}", f"{entry.write(x.value)} / {kept}")


RULES: dict[str, Callable[[Entry], Equation | None]] = {
    "products": _products,
    "cached products": _cached,
    "copy": _copy,
    "merge": _merge,
    "row products": _row_products,
    "relu": _relu,
    "mean": _mean,
    "deviation": _deviation,
    "norm": _norm,
    "mask": _mask,
    "bias": _bias,
    "hide": _hide,
    "softmax": _softmax,
    "lse": _lse,
    "running max": _running_max,
    "rescale": _rescale,
    "power": _power,
    "running sum": _running_sum,
    "running values": _running_values,
    "by sum": _by_sum,
    "lse of parts": _of_parts,
    "merged lse": _merged_lse,
    "merge weight": _merge_weight,
    "merged": _merged,
    "dropout": _dropout,
    **GRADIENT_RULES,
    **TABLE_RULES,
}
