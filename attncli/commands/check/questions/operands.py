"""The operands of a row that may be read at another place: their candidates, and their setups."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.commands.check.bugs.edits import Edit, Patch
from attncli.commands.check.bugs.edits import changed as edited
from attncli.commands.check.bugs.patch import whole_plan
from attncli.commands.check.bugs.rewrite import fit, formula_of
from attncli.commands.check.questions.answer import PlaceMap
from attncli.commands.check.questions.screen import Index, Row, Screen
from attncli.commands.check.search import Search
from attncli.formula.compute import compute
from attncli.formula.expression import Apply, Cell, Expr, Place, line_of, text_of, with_parts
from attncli.formula.parser import parsed
from attncli.stages import SCORES, spec_of
from attncli.tolerance.run import Indices, Subset, all_of
from attncli.tolerance.setup import Setup

KINDS = {"b": "batch", "h": "head", "g": "kv_head", "i": "query", "j": "key"}
"""The axis of a letter."""

EVERY = slice(None)


class Operand(NamedTuple):
    """What is read at another place.

    words    what it is called
    letters  along which axes
    arrays   the inputs that it is; none for scores and limits
    fields   what of a row is read by a map of keys
    """

    words: str
    letters: str
    arrays: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


LENGTHS = "the key length", "the first query's position", "the key length and first position"
"""What a key length is read for: how many keys there are, and where the queries begin."""


LIMITS = ("limits",)
"""The field of a row by which causality and the window are read."""


START = Operand("the window's start", "i", (), LIMITS)
"""The first key of a window, beside other limits, which are right."""


SINKS = Operand("the sink", "h", ("sinks",))


def operands_of(setup: Setup) -> list[Operand]:
    """The operands that an attention has, the simplest first."""
    convention = setup.convention
    has_limits = convention.causal or convention.window is not None
    has_lengths = "kv_len" in setup.inputs
    is_aligned = has_limits and convention.causal_align == "bottom-right"
    result = list[Operand]()
    if "given_mask" in setup.inputs:
        result.append(Operand("the given mask", "bhij", ("given_mask",), ("added",)))
    if has_limits:
        result.append(Operand(limits_words(setup), "ij", (), LIMITS))
    if convention.causal and convention.window is not None and convention.window[0] >= 0:
        result.append(START)
    if has_lengths:
        result += [Operand(words, "b") for words in (LENGTHS if is_aligned else LENGTHS[:1])]
    if "sinks" in setup.inputs:
        result.append(SINKS)
    return [
        *result,
        Operand("k", "bgj", ("k",), ("scores",)),
        Operand("v", "bgj", ("v",), ("values",)),
        Operand("k and v", "bgj", ("k", "v"), ("scores", "values")),
        Operand("q", "bhi", ("q",)),
        Operand("the scores", "bhi"),
    ]


def limits_words(setup: Setup) -> str:
    """What limits the keys of a query, but for a given mask and the key lengths."""
    convention = setup.convention
    parts = ["the causal limit"] * convention.causal + ["the window"] * bool(convention.window)
    return " and ".join(parts)


# ---- candidates: a row whose operand is that of each place of an axis


def at_each_place(screen: Screen, operand: Operand, letter: str, row: Row) -> Row:
    """A row with a candidate for each place of an axis, from which the operand is read."""
    b, h, i = row.at
    inputs, setup = screen.setup.inputs, screen.setup
    g = int(setup.key_heads[h])
    match operand.words, letter:
        case "the given mask", _:
            assert screen.given_mask is not None  # noqa: S101 - there is one
            n = screen.given_mask.shape["bhi".index(letter)]
            places = np.broadcast_to(row.at, (n, 3)).copy()
            places[:, "bhi".index(letter)] = np.arange(n)
            return row._replace(added=np.stack([screen.given_row(*x) for x in places.tolist()]))
        case _ if operand.words in LENGTHS:
            return row._replace(limits=_by_lengths(screen, operand, row))
        case _ if operand == START:
            return row._replace(limits=_by_starts(screen, row))
        case _ if operand.fields == LIMITS:
            limits = screen.limits_past_the_end
            return row._replace(limits=limits[min(b, len(limits) - 1), 0])
        case "the sink", _:
            return row._replace(sink=inputs["sinks"])
    keys = screen.seen(row)
    row, k = row.of_keys(keys), inputs["k"][..., keys, :]
    at: tuple[Index, Index] = (EVERY, g) if letter == "b" else (b, EVERY)
    match operand.words, letter:
        case "q", "b":
            return row._replace(scores=screen.scores_of(inputs["q"][:, h, i], k[[b], g]))
        case "q", "h":
            return row._replace(scores=screen.scores_of(inputs["q"][b, :, i], k[[b], g]))
        case (("q" | "the scores"), "i"):
            return row._replace(scores=screen.scores_of(inputs["q"][b, h], k[[b], g]))
        case "the scores", _:
            axis = "bh".index(letter)
            over = Subset(*(np.array([x]) for x in row.at))
            over = over.with_axis(axis, all_of(setup.shape)[axis])
            scores = screen.scores(screen.bare, over)
            return row._replace(scores=scores.reshape(-1, scores.shape[-1])[:, keys])
    if "k" in operand.arrays:
        row = row._replace(scores=screen.scores_of(inputs["q"][[b], h, i], k[at]))
    if "v" in operand.arrays:
        row = row._replace(values=screen.values(at, row.channels)[..., keys, :])
    return row


def _by_starts(screen: Screen, row: Row) -> BoolArray:
    """[place, key]: what may be seen of a row if its window starts as that of each place does."""
    b, _, i = row.at
    setup = screen.limits_only
    assert setup.convention.window is not None  # noqa: S101 - there is a window
    before, after = setup.convention.window
    rest = screen.limits(np.array([i]), setup.with_convention(window=(-1, after)))
    alone = setup.with_convention(window=(before, -1), causal=False)
    starts = screen.limits(np.arange(2 * setup.shape[2]), alone)
    return np.asarray(rest[min(b, len(rest) - 1), 0] & starts[min(b, len(starts) - 1), 0])


def _by_lengths(screen: Screen, operand: Operand, row: Row) -> BoolArray:
    """[batch item, key]: what may be seen of a row by the length of each batch item."""
    b, _, i = row.at
    setup = screen.limits_only
    lengths = setup.inputs["kv_len"]
    text = text_of(with_lengths(mask_body(setup), operand.words))
    letters = f"M[b,i,j] = {text}"
    values = {
        "rows": np.array([i]),
        "kv_len": np.full(len(lengths), lengths[b]),
        "other_kv_len": lengths,
    }
    sizes = {"b": len(lengths), "i": 1, "j": setup.shape[3]}
    return np.asarray(compute(letters, values, sizes)[:, 0] != -np.inf)


# ---- the mask's formula, with other places in it


def mask_body(setup: Setup) -> Expr:
    """The right side of the formula of everything that masks."""
    step = next(step for step in whole_plan(setup) if step.name == "mask")
    return formula_of(step, setup.inputs).body


def outside_given(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every node changed that is not in the index of the given mask."""
    if isinstance(node, Cell) and node.name == "given_mask":
        return node
    return change(with_parts(node, lambda x: outside_given(x, change)))


def with_lengths(body: Expr, words: str) -> Expr:
    """The mask's formula with other key lengths: for the first position, or for the keys."""
    length, other = parsed("kv_len[b]"), parsed("other_kv_len[b]")
    start = parsed("kv_len[b] - N")

    def change(x: Expr) -> Expr:
        is_start = fit(start, x) is not None
        if words == LENGTHS[1]:
            return with_parts(x, lambda y: other if y == length else y) if is_start else x
        return other if x == length else x

    new = outside_given(body, change)
    if words == LENGTHS[0]:  # the positions keep theirs

        def back(x: Expr) -> Expr:
            is_start = fit(parsed("other_kv_len[b] - N"), x) is not None
            return with_parts(x, lambda y: length if y == other else y) if is_start else x

        new = outside_given(new, back)
    return new


def with_limits(body: Expr, query: str = "rows[i]", key: str = "j") -> Expr:
    """The mask's formula whose limits are those of another query and key."""
    rows, other_query, other_key = parsed("rows[i]"), parsed(query), parsed(key)

    def change(x: Expr) -> Expr:
        return other_query if x == rows else other_key if x == Place("j") else x

    return outside_given(body, change)


def with_start(body: Expr, query: str) -> Expr:
    """The mask's formula whose window starts as that of another query."""
    rows, other_query = parsed("rows[i]"), parsed(query)

    def change(x: Expr) -> Expr:
        if isinstance(x, Apply) and x.function == ">=":
            return outside_given(x, lambda y: other_query if y == rows else y)
        return x

    return outside_given(body, change)


def with_mask(search: Search, setup: Setup, body: Expr) -> tuple[Setup | None, str]:
    """The setup with another formula of the mask, and that formula."""
    step = next(step for step in whole_plan(setup) if step.name == "mask")
    formula = formula_of(step, setup.inputs)
    text = text_of(body)
    patch = Patch((Edit("", "mask", text),), search.evidence)
    symbol = line_of(formula).partition(" = ")[0].replace("_,", "")
    return patch.on(setup), f"{symbol} = {text.replace('rows[i]', 'i')}"


# ---- setups


def setups_of(
    search: Search, operand: Operand, letter: str, place_map: PlaceMap
) -> tuple[list[Setup], str]:
    """The setups in which an operand is read so, and the formula."""
    setup = search.comparison.setup
    indices, text = place_map.indices, place_map.text(letter) if place_map.formula else ""
    if operand.arrays:
        setups = [gathered(setup, operand.arrays, letter, indices)]
        if setup.positions is not None and {*operand.arrays} & {*"qk"}:
            setups.append(gathered(setup.placed(), operand.arrays, letter, indices))
        if operand == SINKS and text:  # in the log-sum-exp alone
            setups += edited([f"lse: sinks[h] => sinks[{text}]"], setup, search.evidence)
        names = operand.arrays
        axes = {name: LETTERS[name][-setup.inputs[name].ndim :] for name in names}
        formulas = (_read(name, axes[name], letter, text) for name in names) if text else ()
        return setups, ", ".join(formulas)
    if operand.words in LENGTHS:
        lengths = setup.inputs["kv_len"]
        changed = setup.with_inputs(**{"other.kv_len": lengths[indices]})
        other, formula = with_mask(search, changed, with_lengths(mask_body(setup), operand.words))
        numbers = lengths[indices].tolist()
        if len({*numbers}) == 1:
            formula = formula.replace("other_kv_len[b]", str(numbers[0]))
        else:
            formula = f"{formula}, other_kv_len = {', '.join(map(str, numbers))}"
        return [other] if other else [], formula
    if operand.fields == LIMITS:
        query = place_map.text("rows[i]") if letter == "i" else "rows[i]"
        key = text if letter == "j" else "j"
        if not text:
            return [], ""
        body = mask_body(setup)
        body = with_start(body, query) if operand == START else with_limits(body, query, key)
        other, formula = with_mask(search, setup, body)
        return [other] if other else [], formula
    changed = setup
    if not text:  # which are listed
        text = f"other_source[{letter}]"
        changed = setup.with_inputs(**{"other.source": indices})
    index = ",".join(text if x == letter else x for x in "bhij")
    patch = Patch((Edit("", SCORES, f"right[{index}]"),), search.evidence)
    other = patch.on(changed)
    whole = "bhi".index(letter)
    return [other.with_whole(whole)] if other else [], f"S[b,h,i,j] = right[{index}]"


def gathered(setup: Setup, arrays: tuple[str, ...], letter: str, indices: Indices) -> Setup:
    """The setup with these inputs read at other places of an axis."""
    changes = dict[str, Array | None]()
    for name in arrays:
        x = setup.inputs[name]
        axis = spec_of(name).axes_of(x.ndim).index(KINDS[letter])
        changes[name] = np.take(x, indices, axis=axis)
    return setup.with_inputs(**changes)


LETTERS = {"q": "bhid", "k": "bgjd", "v": "bgjd", "given_mask": "bhij", "sinks": "h"}


def _read(name: str, letters: str, letter: str, text: str) -> str:
    """Such as "k[b,g,j,d] = right[b,g,j // 4 * 4,d]"."""
    symbol = "mask" if name == "given_mask" else name
    index = ",".join(text if x == letter else x for x in letters)
    return f"{symbol}[{','.join(letters)}] = right[{index}]"
