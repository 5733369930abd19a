"""Slips of those who compute an attention by hand, as the page has them: trees of other formulas.

    a term is left out | cell                      {"name": "a term is left out", "place": "cell",
        output: => … where j != {n}  ── rows ──>    "edits": {"output": {"is": […], …}},
            for n = 0 to 2 -- that of key {n + 1}   "of": [["that of key 1", {"loop_n": 0}], …]}

The page judges what is filled in as `check --by-hand` does, and both read the same rows. A number
that a loop counts is a parameter of the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from attncli.attention.slips import slips
from attncli.formats.html.tree import formula as tree_of_formula
from attncli.formula.compute import compute
from attncli.formula.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    Over,
    Param,
    Place,
    Size,
    cells,
    letters_in,
    rebuilt,
    walk,
    with_letters,
)
from attncli.formula.parser import parsed, written
from attncli.page.arithmetic import bound_formula, formula_of
from attncli.page.select import Block
from attncli.stages import MAPS, MASKED, OUTPUT, QKV, SCORES
from attncli.trace import Stage

MOST_CELLS = 36
"""Of a larger table the quiz asks one row, in which no rows or columns can be swapped."""
_KEYED = {"k": "k", "v": "v", "k_of_head": "k", "v_of_head": "v"}
_LETTERS = {"q": "bhid", "k": "bgjd", "v": "bgje", OUTPUT: "bhie"}


class _Variants(NamedTuple):
    """What stands for the numbers that a line counts, and what is said of each."""

    words: str
    numbers: Mapping[str, float]


def slips_of(block: Block, *, is_sheet: bool) -> list[dict[str, Any]]:
    """The slips of an attention in the order in which they are named; none of another block."""
    if block.weights is None or not {*QKV, SCORES, OUTPUT} <= block.stages.keys():
        return []
    writer = _Writer(block, is_sheet)
    return [row for slip in slips() for row in writer.rows(slip.name, slip.place, slip.edits)]


class _Writer:
    """Writes the rows of one attention.

    asked   the stages that may be filled in: q, k and v on a worksheet alone
    facts   what a line may name of it: how many there are of queries, keys and heads
    sizes   how long the letters are
    texts   text and names of loops → its formula: each is compiled once
    loops   loop, condition and words of a line → its variants, which stages have alike
    """

    def __init__(self, block: Block, is_sheet: bool) -> None:
        self.block, self.is_sheet = block, is_sheet
        self.texts = dict[tuple[str, ...], str]()
        self.loops = dict[tuple[str, str, str], list[list[Any]]]()
        self.stages = {
            name: block.stages[name] for name in (*QKV, *MAPS, OUTPUT) if name in block.stages
        }
        self.asked = {x: stage for x, stage in self.stages.items() if is_sheet or x not in QKV}
        shapes = {name: stage.value.shape for name, stage in self.stages.items()}
        n_q, n_k = shapes[SCORES][-2:]
        x = block.read(self.stages["q"], "x")
        n_heads = shapes[SCORES][-3] if len(shapes[SCORES]) > 2 else 1
        self.facts: dict[str, float] = {
            **{"n_q": n_q, "n_k": n_k, "n_h": n_heads, "square": n_q == n_k > 1},
            **{
                "d_model": x.value.shape[-1] if x is not None else 0,
                "causal": block.convention.causal,
            },
        }
        d_k, d_v = (block.stages[name].value.shape[-1] for name in "qv")
        self.facts["factor"] = block.convention.scale_factor(d_k)
        n_keys = block.sizes["kv_head"] or n_heads
        self.sizes = {"i": n_q, "j": n_k, "d": d_k, "e": d_v, "h": n_heads, "g": n_keys}
        self.sizes |= {"m": int(self.facts["d_model"])}
        self.group = n_heads // max(1, n_keys)

    def rows(self, name: str, place: str, lines: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """The rows of a slip: one for each line and stage that it can be made in."""
        for line in lines:
            for stage in self.places(line):
                if (
                    place == "table"
                    and self.stages[stage].value.size > MOST_CELLS
                    and not self.is_sheet
                ):
                    continue
                text = self.filled(line, stage)
                text, _, detail = text.partition(" -- ")
                text, _, loop = text.partition(" for ")
                text, _, condition = text.partition(" when ")
                edits = self.edits(text)
                if not edits:
                    continue
                key = loop, condition, detail
                if key not in self.loops:
                    self.loops[key] = [
                        [v.words, {f"loop_{n}": x for n, x in v.numbers.items()}]
                        for v in self.variants(*key)
                    ]
                if self.loops[key]:
                    yield {"name": name, "place": place, "edits": edits, "of": self.loops[key]}

    def places(self, line: str) -> list[str]:
        """The stages that a line with `any` or `qkv` is about; of another line the first one."""
        first = re.match(r"\w+", line)
        kind = first[0] if first else ""
        if kind == "any":
            return [x for x, stage in self.asked.items() if x not in QKV or stage.expression]
        if kind == "qkv":
            projected = [
                x for x in QKV if x in self.asked and {"x", "w"} <= self.stages[x].reads.keys()
            ]
            return projected if len({self.stages[x].reads["x"] for x in projected}) == 1 else []
        return [kind if kind in self.stages else SCORES]

    def filled(self, line: str, stage: str) -> str:
        """The line with the letters of a stage in the place of their names in braces."""
        letters = _LETTERS.get(stage, "bhij")
        formula = formula_of(self.stages[stage]) if stage in QKV else None
        if formula:  # its heads may be those of keys, or none
            head = "".join(map(str, formula.index[1])) if len(formula.index) > 3 else ""
            letters = f"b{head or '.'}{letters[2:]}"
        texts = {"outer": ",".join(letters[:2]), "row": letters[2], "column": letters[3]}
        texts["head"] = letters[1]
        for key, letter in texts.items():
            line = line.replace(f"{{{key}}}", letter)
        line = line.replace(".·", "").replace("b,.,", "b,").replace("size[.] * ", "")
        return re.sub("^(any|qkv)", stage, line)

    def edits(self, text: str) -> dict[str, Any]:
        """The trees of the stages that a line edits; empty where one has no place here."""
        edits: dict[str, Any] = {}
        for edit in text.split("; "):
            place, _, change = edit.partition(": ")
            name = place.rstrip("?").removeprefix("input.")
            if name == "mask(causal)":
                continue
            name = "mask" if name == "given_mask" else name
            stage = self.block.mask if name == "mask" else self.stages.get(name)
            tree = self.tree(stage, *change.split("=> ", 1)) if stage else None
            if tree is None and not place.endswith("?"):
                return {}
            if tree is not None and stage is not None:
                edits[stage.name] = tree
        return edits

    def tree(self, stage: Stage, pattern: str, text: str) -> dict[str, Any] | None:
        """A stage by another formula; None where it is the same, or reads what is not there."""
        binding = bound_formula(self.block, stage)
        formula = binding[0].formula if binding else None
        if formula is None and stage is not self.block.mask:
            return None
        if stage is self.block.mask and (self.block.convention.causal != ("rows[" in text)):
            return None  # the mask of a triangle, or one that is given
        index = formula.index if formula else tuple((x,) for x in "bhij")
        read = {cell.name for cell in cells(formula.body, guards=True)} if formula else set[str]()
        reads = {"mask"} & read | {
            *self.stages,
            *_KEYED,
            "right",
            "unmasked",
            "x",
            "w",
            "a",
            "rows",
        }
        reads |= {f"w_{x}" for x in QKV}
        text = re.sub(r"\{(\w)\}", r"loop_\1", text.removeprefix("where "))
        body = parsed(written(text, frozenset(reads | {"sum", "softmax", "max", "size"})))
        if pattern.strip() == "where":
            old, condition = formula.body if formula else body, body
            body = rebuilt(old, lambda x: _also_where(x, condition))
        elif formula is not None:
            body = rebuilt(body, lambda x: formula.body if x == Param("right") else x)
        head = next(
            (axis for axis in index if isinstance(axis, tuple) and {*axis} & {"h", "r"}), ("h",)
        )
        body = with_letters(rebuilt(body, self.of_key_head), {"h": tuple(map(str, head))})
        if formula is not None and body == formula.body:
            return None
        read_cells = dict.fromkeys(cell.name for cell in cells(body, guards=True))
        names = {x: self.read(stage, x) for x in read_cells}
        names = {x: source for x, source in names.items() if x not in ("right", "rows")}
        if None in names.values():
            return None
        body = rebuilt(
            body, lambda x: Place("i") if isinstance(x, Cell) and x.name == "rows" else x
        )
        sizes = dict(self.sizes) | (dict(binding[0].sizes) if binding else {})
        sizes |= {"g": self.sizes["g"], "r": self.group} if "r" in head else {}
        line = tree_of_formula(
            Formula("x", index, body),
            {
                letter: n
                for letter, n in (sizes | {"l": self.sizes["j"]}).items()
                if letter in _letters_of(index, body)
            },
        )
        used = {name: source.name for name, source in names.items() if source}
        return {**{key: line[key] for key in ("is", "at", "sizes")}, "reads": used}

    def of_key_head(self, x: Expr) -> Expr:
        """K and V of a query head as those of its key head."""
        if not isinstance(x, Cell) or x.name not in _KEYED or len(x.index) < 4:
            return x
        head = x.index[1]
        if head == ("h",):
            head = ("g",) if self.group > 1 else ("h",)
        elif not isinstance(head, tuple) and self.group > 1:
            tiled = self.block.convention.head_order == "tiled"
            other = parsed(f"{self.sizes['g'] if tiled else self.group}")
            head = Apply("%" if tiled else "//", (head, other))
        return Cell(_KEYED[x.name], (x.index[0], head, *x.index[2:]))

    def read(self, stage: Stage, name: str) -> Stage | None:
        """The stage that a name in a line means."""
        if name in stage.reads:
            return self.block.read(stage, name)
        if name == "unmasked":
            masked = self.stages.get(MASKED)
            return self.block.read(masked, "x") if masked else None
        if name == "mask":
            return self.block.mask
        result = self.stages.get(name) or self.block.stages.get(name)
        if result is None and re.fullmatch("w_[qkv]", name) and "w" in stage.reads:
            weights, other = (
                self.block.read(stage, "w"),
                self.block.read(self.stages[name[-1]], "w"),
            )
            result = (
                other if weights and other and weights.value.shape == other.value.shape else None
            )
        return result

    def variants(self, loop: str, condition: str, detail: str) -> Iterator[_Variants]:
        """What a line counts, once for each number of which the condition holds."""
        if condition and "{" not in condition and not self.number(condition, {}):
            return
        for words, numbers in self.counted(loop):
            if "{" in condition and not self.number(condition, numbers):
                continue
            used = {
                name: int(x) if x == int(x) else x for name, x in numbers.items() if name != "p"
            }
            yield _Variants(self.words(detail, numbers, words), used)

    def counted(self, loop: str) -> Iterator[tuple[str, dict[str, float]]]:
        """The numbers of a loop, and what is said of them."""
        if not loop:
            yield "", {}
            return
        first, *others = loop.split("; ")
        name, items = re.split(" in | = ", first, maxsplit=1)
        for item in items.split(", "):
            value, _, words = item.partition(" as ")
            start, _, stop = value.partition(" to ")
            for number in range(
                int(self.number(start, {})), int(self.number(stop or start, {})) + 1
            ):
                numbers: dict[str, float] = {name: number}
                for other in others:
                    also, _, text = other.partition(" = ")
                    numbers[also] = self.number(text, numbers)
                yield words or value, numbers

    def number(self, text: str, numbers: Mapping[str, float]) -> float:
        """A number, or the truth of a condition: a formula of loops and facts by name."""
        key = text, *numbers
        if key not in self.texts:
            for name in numbers:
                text = re.sub(rf"\{{{name}\}}|(?<![\w\[])\b{name}\b(?!\[)", f"loop_{name}", text)
            self.texts[key] = f"X[] = {text}"
        values = {f"loop_{name}": x for name, x in numbers.items()}
        return float(compute(self.texts[key], self.facts | values, self.sizes))

    def words(self, detail: str, numbers: Mapping[str, float], words: str) -> str:
        """What a line leaves open, with its numbers."""

        def in_words(braces: re.Match[str]) -> str:
            return words if braces[1] == "words" else f"{self.number(braces[1], numbers):g}"

        return re.sub(r"\{([^{}]+)\}", in_words, detail)


def _letters_of(index: tuple[Any, ...], body: Expr) -> set[str]:
    sizes = {x.letter for x in walk(body, guards=True) if isinstance(x, Size)}
    axes = {str(letter) for axis in index if isinstance(axis, tuple) for letter in axis}
    return {*letters_in(body)} | sizes | axes


def _also_where(x: Expr, condition: Expr) -> Expr:
    """A sum of which only those terms count that the condition holds of, too."""
    if not isinstance(x, Over) or not {*letters_in(condition)} & {*x.letters}:
        return x
    both = condition if x.where is None else Apply("and", (x.where, condition))
    return Over(x.kind, x.letters, x.body, both, x.sink, x.empty)
