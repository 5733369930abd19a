"""Attention part by part over the keys: tiles with a running softmax, and splits that are merged.

    tile 1 ── m, l, acc ──> tile 2 ── m, l, acc ──> … ──> O = acc / l, lse = m + ln l
    split 1 ── O, lse ──┐
    split 2 ── O, lse ──┴── exp(lseᵢ − lse) ──> O

Either gives what one softmax over all keys gives, and no part ever sees the keys of another. The
steps of a part are those of the plan, for its keys alone.

Source: Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018), algorithm 3; Dao
et al., "FlashAttention" (2022), algorithm 1; Dao et al., "Flash-Decoding" (2023).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, BoolArray
from attncli.attention import functional as f
from attncli.attention.attend import Block, prepared, title_of, trace_of
from attncli.attention.plan import Sizes, lse_words, plan
from attncli.attention.run import Step, Values, run, within
from attncli.convention import Convention, EmptyRows, LseBase, convention_of
from attncli.errors import ConventionError, ShapeError
from attncli.stages import LSE, MAPS, OUTPUT, SPLIT, TILE, WEIGHTS, kind_of
from attncli.trace import Trace

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

# ---- the mathematics: one function, one stage; the axes are those after each signature


def keys_of(x: Array, start: int, stop: int) -> Array:  # [n_k, d] -> [n, d]
    """Keys, or values, start … stop − 1."""
    return x[..., start:stop, :]


def columns_of(x: Array, start: int, stop: int) -> Array:  # [n_q, n_k] -> [n_q, n]
    """The same of a mask; one that is alike for all keys stays as it is."""
    return x if x.shape[-1] == 1 else x[..., start:stop]


def running_max(
    x: Array,
    before: Array | None = None,
    sinks: Array | None = None,
    allowed: BoolArray | None = None,
) -> Array:  # [n_q, n], [n_q] -> [n_q]
    """m = max(m before, the largest score of the row): −∞ until there is one to attend to.

    With sinks, a score for each head, it starts with that of the head.

    >>> running_max(np.array([[1.0, 3.0]]), np.array([2.0]))
    array([3.])
    """
    if allowed is not None and np.isnan(x).any():
        x = np.where(allowed, x, x.dtype.type(-np.inf))
    top = x.max(axis=-1)
    started = before if sinks is None else _of_heads(sinks, top)
    return np.asarray(top if started is None else np.maximum(started, top))


def rescaling(m: Array, before: Array | None = None, sinks: Array | None = None) -> Array:
    """α = exp(m before − m): what everything summed so far is multiplied by, as m has grown.

    [n_q], [n_q] -> [n_q]. 0 where there was nothing to attend to before, never exp(−∞ − −∞).

    >>> rescaling(np.array([3.0, -np.inf]), np.array([3.0, -np.inf]))
    array([1., 0.])
    """
    started = _of_heads(sinks, m) if before is None and sinks is not None else before
    return np.asarray(np.exp(started - _finite(m)))


def powers(
    x: Array, m: Array, allowed: BoolArray | None = None
) -> Array:  # [n_q, n], [n_q] -> [n_q, n]
    """p = exp(X − m), 0 for what is not `allowed`."""
    found = np.asarray(np.exp(x - _finite(m)[..., None]))
    return found if allowed is None else np.where(allowed, found, x.dtype.type(0))


def running_sum(
    p: Array, before: Array | None = None, alpha: Array | None = None
) -> Array:  # [n_q, n], [n_q], [n_q] -> [n_q]
    """l = α · (l before) + Σ p; where nothing was summed before, but a sink, l before is 1.

    >>> running_sum(np.array([[0.5, 0.25]]), np.array([2.0]), np.array([0.5]))
    array([1.75])
    """
    total = p.sum(axis=-1)
    if alpha is None:
        return np.asarray(total)
    return np.asarray((alpha if before is None else alpha * before) + total)


def running_values(
    p: Array,
    v: Array,
    before: Array | None = None,
    alpha: Array | None = None,
    allowed: BoolArray | None = None,
) -> Array:  # [n_q, n], [n, d_v], [n_q, d_v], [n_q] -> [n_q, d_v]
    """acc = α · (acc before) + p V: the output so far, but for the division by l."""
    own = f.weighted_sum(p, v, allowed)
    return own if before is None or alpha is None else np.asarray(alpha[..., None] * before + own)


def by_sum(
    acc: Array, total: Array, v: Array | None = None, empty: EmptyRows = "zero"
) -> Array:  # [n_q, d_v], [n_q] -> [n_q, d_v]
    """acc / l, the total; in a row without a key, as `empty` says, 0, NaN, or the mean of all v.

    >>> by_sum(np.array([[6.0], [0.0]]), np.array([2.0, 0.0]))
    array([[3.],
           [0.]])
    """
    is_empty = (total == 0)[..., None]
    found = np.asarray(acc / np.where(is_empty, 1, total[..., None]))
    if empty == "nan":
        found = np.where(is_empty, acc.dtype.type(np.nan), found)
    elif v is not None:
        found = np.where(is_empty, v.mean(axis=-2, keepdims=True), found)
    return found


def lse_of(m: Array, total: Array, base: LseBase = "e") -> Array:  # [n_q], [n_q] -> [n_q]
    """m + ln l, the total: however the keys are cut into tiles, the log-sum-exp of their scores.

    >>> lse_of(np.array([np.log(2.0)]), np.array([4.0]), base="2")
    array([3.])
    """
    found = _finite(m) + np.log(total)
    return np.asarray(found / m.dtype.type(np.log(2)) if base == "2" else found)


def merged_lse(
    sinks: Array | None = None, base: LseBase = "e", **parts: Array
) -> Array:  # [n_q] of each part -> [n_q]
    """ln Σ exp(lseᵢ): the log-sum-exp of all keys from those of parts of them.

    >>> merged_lse(first=np.log([2.0]), second=np.log([6.0])).round(6).tolist()
    [2.079442]
    """
    each = np.stack([*parts.values()])
    unit = each.dtype.type(np.log(2) if base == "2" else 1)
    if sinks is not None:
        each = np.concatenate([each, _of_heads(sinks, each[:1]) / unit])
    top = _finite(each.max(axis=0))
    return np.asarray(top + np.log(np.exp((each - top) * unit).sum(axis=0)) / unit)


def merge_weights(
    lse: Array, base: LseBase = "e", **parts: Array
) -> Array:  # [n_q], [n_q] of each part -> [n_q, parts]
    """exp(lseᵢ − lse): the share of each part of the keys; 0 where it has none to attend to.

    >>> merge_weights(np.log([8.0]), a=np.log([2.0]), b=np.log([6.0])).round(6).tolist()
    [[0.25, 0.75]]
    """
    each = np.stack([*parts.values()], axis=-1)
    apart = each - _finite(lse)[..., None]
    return np.asarray(np.exp2(apart) if base == "2" else np.exp(apart))


def merged(
    w: Array,
    lse: Array,
    v: Array | None = None,
    empty: EmptyRows = "zero",
    **outputs: Array,
) -> Array:  # [n_q, parts], [n_q], [n_q, d_v] of each part -> [n_q, d_v]
    """Σ wᵢ Oᵢ: the outputs of parts of the keys, each by its share; `empty` as in `by_sum`."""
    each = zip(np.moveaxis(w, -1, 0), outputs.values(), strict=True)
    acc = np.sum([share[..., None] * output for share, output in each], axis=0)
    return by_sum(acc, np.where(np.isneginf(lse), lse.dtype.type(0), lse.dtype.type(1)), v, empty)


def _finite(m: Array) -> Array:
    """m, 0 where it is −∞: there is nothing yet to attend to, and −∞ − −∞ would be NaN."""
    return np.where(np.isneginf(m), m.dtype.type(0), m)


def _of_heads(sinks: Array, rows: Array) -> Array:
    """A number for each head, for every row [h, n_q] of it."""
    return np.broadcast_to(sinks.reshape(-1, *[1] * min(rows.ndim, 1)), rows.shape)


# ---- the plans


def check_parts(how: Convention) -> None:
    """ConventionError for a softmax over queries, for dropout and for gradients."""
    if how.softmax_over == "queries":
        what = "a softmax over queries needs whole columns: its keys cannot be cut into parts"
        raise ConventionError(what, "leave out softmax_over")
    if how.dropout:
        what = "dropout is drawn for all weights: keys cannot be cut into parts"
        raise ConventionError(what, "leave out dropout")


def tile_bounds(n_k: int, size: int) -> list[int]:
    """Where tiles of so many keys begin, and where the last ends.

    ShapeError for a size that is no whole number from 1.

    >>> tile_bounds(5, 2)
    [0, 2, 4, 5]
    """
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ShapeError(f"tiles of {size!r} keys", "give a whole number of keys from 1")
    return [*range(0, n_k, int(size)), n_k]


def split_bounds(n_k: int, places: Sequence[int]) -> list[int]:
    """Where the parts that keys are cut into at these places begin, and where the last ends.

    ShapeError where they do not ascend from 1 to n_k − 1.

    >>> split_bounds(5, [2, 3])
    [0, 2, 3, 5]
    """
    bounds = [0, *places, n_k]
    if not places or any(a >= b for a, b in pairwise(bounds)):
        text = ",".join(map(str, places)) or "nothing"
        hint = f"give ascending numbers of keys from 1 to {n_k - 1}, after which to cut"
        raise ShapeError(
            f"{n_k} keys cannot be split at {text}",
            hint if n_k > 1 else "there must be 2 keys at least",
        )
    return [int(at) for at in bounds]


class _Parts(NamedTuple):
    """The steps that all parts share, those of each, and what the softmax and the output read."""

    shared: list[Step]
    own: list[Step]
    x: str
    softmax: Step
    output: Step

    @classmethod
    def of(cls, how: Convention, sizes: Sizes) -> _Parts:
        steps = {step.name: step for step in plan(how, sizes)}
        softmax, output = steps[WEIGHTS], steps[OUTPUT]
        before = [step for step in steps.values() if step.name not in (WEIGHTS, LSE, OUTPUT)]
        own = [step for step in before if step.name in MAPS]
        shared = [step for step in before if step not in own and step.compute is not f.may_attend]
        return cls(shared, own, softmax.reads["x"], softmax, output)

    def keys(self, number: int, bounds: Sequence[int]) -> list[Step]:
        """Keys, values and mask of a part, as steps without a prefix; what they are of keeps its
        name."""
        at = {"start": bounds[number - 1], "stop": bounds[number]}
        sub = _sub(number)
        reads = {"k": self.k, "v": self.output.reads["v"]}
        cut = [Step(n, keys_of, {"x": x}, at, symbol=f"{n.upper()}{sub}") for n, x in reads.items()]
        if any(step.name == "mask" for step in self.shared):
            cut.append(Step("mask", columns_of, {"x": "mask"}, at))
        if "allowed" in self.softmax.reads:
            cut.append(Step("allowed", f.may_attend, {"mask": "mask"}))
        return cut

    @property
    def k(self) -> str:
        """The stage whose rows are the keys."""
        return next(step.reads["k"] for step in self.own if step.compute is f.scores)

    def part(self, kind: str, number: int, bounds: Sequence[int]) -> list[Step]:
        """The steps of a part up to what its softmax reads, by their dotted names."""
        prefix, sub = f"{kind}.{number}.", _sub(number)
        letters = {kind_of(step.name).symbol for step in self.own} | {"K"}
        letter = re.compile(rf"(?<![\w])({'|'.join(sorted(letters))})(?![\w])|(?<!\w)K(?=ᵀ)")
        found = []
        for step in self.keys(number, bounds):
            (own,) = within(prefix, [step])
            outer = {p: read if p == "x" else own.reads[p] for p, read in step.reads.items()}
            found.append(own._replace(reads=outer))
        names = {step.name for step in self.own} | {"mask"}
        for step in self.own:
            reads = {p: prefix + n if n in names else n for p, n in step.reads.items()}
            if "k" in reads:
                reads["k"] = f"{prefix}k"
            symbol = kind_of(step.name).symbol + sub
            formula = letter.sub(lambda hit: hit[0] + sub, step.formula)
            found.append(
                step._replace(name=prefix + step.name, reads=reads, formula=formula, symbol=symbol)
            )
        return found


def tile_steps(how: Convention, sizes: Sizes, bounds: Sequence[int]) -> list[Step]:
    """The steps of a walk through tiles of the keys, which end with the output and lse."""
    parts, dtype = _Parts.of(how, sizes), how.dtype
    steps, last = list(parts.shared), len(bounds) - 1
    for number in range(1, last + 1):
        steps += parts.part(TILE, number, bounds)
        own = [step._replace(dtype=dtype) for step in _running(parts, number)]
        steps += [step._replace(symbol=step.formula.partition(" = ")[0]) for step in own]
    reads, sub = {"acc": f"{TILE}.{last}.acc", "total": f"{TILE}.{last}.l"}, _sub(last)
    params, filler = _empty(parts)
    formula = f"O = acc{sub} / l{sub}"
    steps.append(Step(OUTPUT, by_sum, reads | filler, params, formula, "by sum", dtype))
    log = {"e": f"lse = m{sub} + ln l{sub}", "2": f"lse = (m{sub} + ln l{sub}) / ln 2"}
    reads, base = {"m": f"{TILE}.{last}.m", "total": f"{TILE}.{last}.l"}, how.lse_base
    steps.append(Step(LSE, lse_of, reads, {"base": base}, log[base], "lse of parts", dtype))
    return steps


def _running(parts: _Parts, number: int) -> Iterator[Step]:
    """What a tile adds to the tiles before it: m, α, p, l, acc and what the output would be.

    In the first tile there is nothing before but a sink, if any, of which the sum is 1.
    """
    here, last, sub, old = (
        f"{TILE}.{number}.",
        f"{TILE}.{number - 1}.",
        _sub(number),
        _sub(number - 1),
    )
    x, z = here + parts.x, kind_of(parts.x).symbol + sub
    softmax, is_first = parts.softmax.reads, number == 1
    visible = {"allowed": f"{here}allowed"} if "allowed" in softmax else {}
    sinks = {"sinks": softmax["sinks"]} if "sinks" in softmax else {}
    before = sinks if is_first else {"before": f"{last}m"}
    started = "" if not before else kind_of("sinks").symbol if is_first else f"m{old}"
    alpha = {"alpha": f"{here}alpha"} if before else {}

    top = f"max {z} over each row"
    formula = f"m{sub} = " + (f"max({started}, {top})" if before else top)
    yield Step(f"{here}m", running_max, {"x": x, **before, **visible}, {}, formula, "running max")
    if before:
        formula, reads = f"α{sub} = exp({started} − m{sub})", {"m": f"{here}m", **before}
        yield Step(f"{here}alpha", rescaling, reads, {}, formula, "rescale")
    reads = {"x": x, "m": f"{here}m", **visible}
    yield Step(f"{here}p", powers, reads, {}, f"p{sub} = exp({z} − m{sub})", "power")
    grown = f"α{sub} + " if is_first else f"α{sub} l{old} + "
    reads = {"p": f"{here}p", **({} if is_first else {"before": f"{last}l"}), **alpha}
    formula = f"l{sub} = {grown if before else ''}Σ p{sub}"
    yield Step(f"{here}l", running_sum, reads, {}, formula, "running sum")
    reads = {"p": f"{here}p", "v": f"{here}v", **visible}
    reads |= {} if is_first else {"before": f"{last}acc", **alpha}
    formula = f"acc{sub} = {'' if is_first else f'α{sub} acc{old} + '}p{sub} V{sub}"
    yield Step(f"{here}acc", running_values, reads, {}, formula, "running values")
    reads = {"acc": f"{here}acc", "total": f"{here}l"}
    yield Step(f"{here}so_far", by_sum, reads, {}, f"o{sub} = acc{sub} / l{sub}", "by sum")


def _sub(number: int) -> str:
    """A number as an index: 12 is ₁₂."""
    return f"{number}".translate(_SUBSCRIPTS)


def _empty(parts: _Parts) -> tuple[dict[str, Any], dict[str, str]]:
    """What becomes of rows with nothing to attend to: parameters and reads of the last step."""
    empty = parts.softmax.params["empty"]
    return {"empty": empty}, {"v": parts.output.reads["v"]} if empty == "uniform" else {}


def split_steps(how: Convention, sizes: Sizes, bounds: Sequence[int]) -> list[Step]:
    """The steps of attention over parts of the keys, each by itself, and of merging them."""
    parts, dtype = _Parts.of(how, sizes), how.dtype
    steps, numbers = list(parts.shared), range(1, len(bounds))
    subs = [_sub(number) for number in numbers]
    for number, sub in zip(numbers, subs, strict=True):
        prefix = f"{SPLIT}.{number}."
        x, z = f"{prefix}{parts.x}", f"{kind_of(parts.x).symbol}{sub}"
        visible = {"allowed": f"{prefix}allowed"} if "allowed" in parts.softmax.reads else {}
        steps += parts.part(SPLIT, number, bounds)
        words = lse_words(z, how.lse_base)
        words["formula"] = words["formula"].replace("lse", f"lse{sub}", 1)
        reads, params = {"x": x, **visible}, {**parts.softmax.params, "empty": "zero"}
        formula = f"A{sub} = softmax({z}) over its keys: each row sums to 1"
        own = [
            Step(WEIGHTS, f.softmax, reads, params, formula, "softmax", dtype, symbol=f"A{sub}"),
            Step(LSE, f.log_sum_exp, reads, **words, dtype=dtype, symbol=f"lse{sub}"),
        ]
        steps += [step._replace(name=prefix + step.name) for step in own]
        reads = {"a": f"{prefix}{WEIGHTS}", "v": f"{prefix}v", **visible}
        formula = f"O{sub} = A{sub} V{sub}"
        steps.append(
            Step(f"{prefix}{OUTPUT}", f.weighted_sum, reads, {}, formula, "products", dtype,
                 symbol=f"O{sub}")
        )  # fmt: skip
    each = {f"lse_{number}": f"{SPLIT}.{number}.{LSE}" for number in numbers}
    sinks = {name: read for name, read in parts.softmax.reads.items() if name == "sinks"}
    base = {"base": how.lse_base}
    log, power = {"e": ("ln", "exp({})"), "2": ("log₂", "2^({})")}[how.lse_base]
    terms = [power.format(f"lse{sub}") for sub in subs] + ["exp(s)"] * bool(sinks)
    formula = f"lse = {log} ({' + '.join(terms)})"
    steps.append(Step(LSE, merged_lse, each | sinks, base, formula, "merged lse", dtype))
    shares = ", ".join(power.format(f"lse{sub} − lse") for sub in subs)
    reads = {"lse": LSE, **each}
    steps.append(
        Step("merge_weights", merge_weights, reads, base, f"w = {shares}", "merge weight", dtype)
    )
    params, filler = _empty(parts)
    reads = {"w": "merge_weights", "lse": LSE}
    reads |= {f"output_{number}": f"{SPLIT}.{number}.{OUTPUT}" for number in numbers} | filler
    formula = "O = " + " + ".join(f"w{sub} O{sub}" for sub in subs)
    steps.append(Step(OUTPUT, merged, reads, params, formula, "merged", dtype))
    return steps


# ---- q, k, v in; a trace out


def attend_tiles(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, *, tiles: int, **more: Any
) -> Trace:
    """Attention in one walk through tiles of so many keys, as fused kernels compute it.

    For each tile the trace `tile.1`, `tile.2`, … holds its scores, then what they make of all keys
    so far: the running maximum m, α = exp(m before − m), p = exp(X − m), the running sum l, the
    running values acc, and so_far = acc / l. `output` and `lse` follow.

    tiles  how many keys each tile has; the last may have fewer
    more   what `attend` takes, but gradients

    Raises as `attend` does, ConventionError for a softmax over queries and dropout too, and
    ShapeError where tiles is no whole number from 1.
    Source: Milakov & Gimelshein (2018), algorithm 3; Dao et al. (2022), algorithm 1.

    >>> trace = attend_tiles([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]], tiles=1)
    >>> trace["tile.2.m"].value.round(4), trace["tile.2.l"].value.round(4)
    (array([0.7071]), array([1.4931]))
    >>> trace["output"].value.round(4)
    array([[6.6976, 3.3024]])
    """
    return _attend_parts(TILE, q, k, v, tiles, more)


def attend_split(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, *, split: Sequence[int], **more: Any
) -> Trace:
    """Attention over parts of the keys, each by itself, merged by their log-sum-exps.

    The traces `split.1`, `split.2`, … hold the stages of each part, its output and lse; then come
    `lse` of all, `merge_weights`, exp(lseᵢ − lse), and `output`, the sum of the outputs times them.

    split  after how many keys to cut: [2, 5] is keys 1 and 2, 3 to 5, and the rest
    more   what `attend` takes, but gradients

    Raises as `attend_tiles` does, ShapeError where the places do not ascend within the keys.
    Source: Dao et al., "Flash-Decoding" (2023).

    >>> trace = attend_split([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]], split=[1])
    >>> trace["merge_weights"].value.round(4), trace["output"].value.round(4)
    (array([[0.6698, 0.3302]]), array([[6.6976, 3.3024]]))
    """
    return _attend_parts(SPLIT, q, k, v, split, more)


def _attend_parts(
    kind: str,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    cut: Any,
    more: Mapping[str, Any],
) -> Trace:
    own = ("query_labels", "key_labels", "convention")
    inner = ("mask", "past_k", "past_v", "kv_len", "sinks", "layout", "rows")
    fields: Any = {name: x for name, x in more.items() if name not in (*own, *inner, "d_output")}
    if more.get("d_output") is not None:
        what = "gradients are those of one softmax over all keys"
        raise ConventionError(what, f"leave out the gradient, or the {kind}s")
    how = convention_of(more.get("convention"), fields)
    check_parts(how)
    given = {name: more[name] for name in inner if name in more}
    inputs, sizes = prepared(q, k, v, how, means=fields.get("mask_means"), **given)
    n_k = sizes.scores[-1]
    bounds = tile_bounds(n_k, cut) if kind == TILE else split_bounds(n_k, cut)
    steps = (tile_steps if kind == TILE else split_steps)(how, sizes, bounds)
    values = run(steps, inputs, _wanted(steps))
    note = _beside_whole(how, sizes, inputs, values)
    queries, keys = more.get("query_labels"), more.get("key_labels")
    rows = more.get("rows")
    if rows is not None:
        queries = [queries[row] if queries else f"q{row + 1}" for row in rows]
    keys = [*keys] if keys else [f"k{at + 1}" for at in range(n_k)]
    where = f"in tiles of {cut} keys" if kind == TILE else f"split after key {_and(cut)}"
    where = where.replace("tiles of 1 keys", "tiles of one key")
    title = f"{title_of(sizes, how)}, {where}"
    blocks = {"": Block(title, how, {"query": queries, "key": keys}, (note,))}
    blocks[kind] = blocks[""]._replace(notes=())
    for number, names in enumerate(_cut(keys, bounds), 1):
        span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        labels = {"query": queries, "key": names}
        blocks[f"{kind}.{number}"] = Block(f"{kind.capitalize()} {number}: {span}", how, labels)
    return trace_of(steps, values, blocks)


def _cut(keys: Sequence[str], bounds: Sequence[int]) -> Iterator[Sequence[str]]:
    for start, stop in pairwise(bounds):
        yield keys[start:stop]


def _and(places: Sequence[int]) -> str:
    *most, last = map(str, places)
    return f"{', '.join(most)} and {last}" if most else last


def _wanted(steps: Sequence[Step]) -> list[str]:
    """Every stage that is shown, lse among them."""
    return [step.name for step in steps if kind_of(step.name).role not in ("inner", "aside")]


def _beside_whole(how: Convention, sizes: Sizes, inputs: Values, values: Values) -> str:
    """How far the output is from that of one softmax over all keys."""
    whole = run(plan(how, sizes), inputs, [OUTPUT])[OUTPUT]
    with np.errstate(invalid="ignore"):
        apart = np.abs(values[OUTPUT].astype(np.float64) - whole)
    apart = np.where(
        (whole == values[OUTPUT]) | (np.isnan(whole) & np.isnan(values[OUTPUT])), 0, apart
    )
    largest = float(apart.max(initial=0.0))
    return f"as in one piece: the outputs differ by at most {largest:.2g}"
