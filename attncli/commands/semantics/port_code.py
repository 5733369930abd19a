"""The code that gives one library's numbers by another, statement by statement.

    enter (layout, heads, widths) ── mask ── causal ── call ── rows with no key ── leave (layout)

The source is all that its Convention means; what is not needed is not written. Every statement
and argument keeps what it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from textwrap import indent
from typing import Literal, NamedTuple

from attncli.commands.semantics.dialects import AXES, FLAT, LANGUAGES, TARGETS, Argument, moves
from attncli.convention import Convention, EmptyRows
from attncli.presets import MaskKind, Preset, features_of

About = Literal[
    "boolean mask",
    "numbers in a mask",
    "causal",
    "mask and causal",
    "rows with no key",
    "rows with no key, by −inf",
    "heads",
    "d_v",
    "scale",
    "layout",
    "window",
]
Tag = About | Literal[""]
"""What a statement is about, "" for what every call has."""
LONGEST = 100  # characters in a line of code, as formatters of Python are often set
_INF = 'float("-inf")'
_EMPTY_WORDS = {"zero": "zeros", "nan": "NaN", "uniform": "the mean of v"}
_SENSE_WORDS = {"keep": "True may attend", "ignore": "True hides a key", "add": "True adds 1"}
_NUMBER_WORDS = {"add": "numbers to add", "truth": "what is not 0 may attend"}


class Call(NamedTuple):
    """What the call that is moved has."""

    mask: MaskKind | None = None  # the kind of its mask
    causal: bool = False  # whether it asks for causal
    grouped: bool = False  # whether there are fewer key heads than query heads
    d_v: bool = False  # whether values are of another width than keys

    @property
    def words(self) -> str:
        """What it has, in words."""
        mask = {"boolean": "a boolean mask", "number": "a mask of numbers"}
        parts = [mask[self.mask]] if self.mask else []
        parts += ["causal"] * self.causal + ["fewer key heads"] * self.grouped
        parts += ["values of another width"] * self.d_v
        return ", and ".join(parts) or "a call without a mask"

    def refusal(self, row: Preset) -> str | None:
        """Why the library does not take it; None where it does."""
        heads, widths = (1 + self.grouped, 1), (1, 1 + self.d_v)
        features = features_of(mask=self.mask, causal=self.causal, heads=heads, widths=widths)
        return row.refusal([*features])


class Line(NamedTuple):
    """A statement or an argument, what it is about, a comment."""

    text: str
    about: Tag = ""
    comment: str = ""


class Written(NamedTuple):
    """The code, its statements and arguments, and where it holds."""

    code: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def about(self, about: About) -> list[str]:
        """Its statements and arguments about this."""
        return [line.text for line in self.lines if line.about == about]


class NoWayError(Exception):
    """Why the target cannot give the source's numbers."""


def written(source: Preset, target: Preset, call: Call) -> Written:
    """The code for a call that the source takes. NoWayError where the target has no way."""
    writer = _Writer(source, target, call)
    writer.enter()
    writer.mask()
    writer.causal()
    writer.unmask()
    writer.call_target()
    writer.fill_rows()
    writer.leave()
    lines = (*writer.lines, *writer.arguments, *writer.attributes)
    return Written(writer.code(), lines, tuple(writer.notes))


def layout_of(row: Preset) -> str:
    """The layout of its arrays; "one head" is [batch, token, d]."""
    return "one head" if row.name == "keras-attention" else row.layout


def empty_rule(convention: Convention, *, is_added: bool) -> EmptyRows:
    """What a row with no key gets: by −inf among numbers that are added, or by true and false."""
    if convention.mask_value_rule == "add" and not is_added:
        return "unmasked"  # one number lowers all scores of the row alike
    return convention.empty_rule(is_added)


@dataclass
class _Writer:
    """The statements so far; each method adds those that are needed.

    sense      what `mask` means: "keep", "ignore", "truth" or "add"; None where there is none
    is_added   whether the target gets numbers to add
    argument   by which it gets a mask
    rule       what a row with no key gets from the source
    is_filled  whether that must be written, as the target gives something else: by what comes
               after the call, or, where is_unmasked, by a row of the mask
    is_native  whether the target is asked for causal; else it is part of the mask
    """

    source: Preset
    target: Preset
    call: Call
    lines: list[Line] = field(default_factory=list)
    arguments: list[Line] = field(default_factory=list)
    attributes: list[Line] = field(default_factory=list)
    inputs: str = ""
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.convention = Convention.of(self.source.name)
        self.there = Convention.of(self.target.name)
        self.row = TARGETS[self.target.name]
        self.language = LANGUAGES[self.row.language]
        self.layout = layout_of(self.source)
        self.to = self.row.takes or layout_of(self.target)
        if self.layout == layout_of(self.target):
            self.to = self.layout
        counterpart = TARGETS.get(self.source.name)
        self.returns = (counterpart.returns if counterpart else "") or self.layout
        is_both = self.call.mask is not None and self.call.causal
        together = self.convention.mask_and_causal if is_both else "both"
        is_number = self.call.mask == "number"
        self.sense: str | None = self.convention.mask_means if self.call.mask else None
        if is_number:
            self.sense = "truth" if self.convention.mask_numbers == "truth" else "add"
        self.sense = None if together == "causal" else self.sense
        self.about_causal: About = "mask and causal" if self.sense else "causal"
        self.about_mask: About = "numbers in a mask" if is_number else "boolean mask"
        is_inf = self.sense == "add"
        self.about_empty: About = "rows with no key, by −inf" if is_inf else "rows with no key"
        self.is_causal = (self.call.causal or self.convention.causal) and together != "mask"
        self.is_added = not self.row.boolean or (self.sense == "add" and bool(self.row.number))
        self.argument = self.row.number if self.is_added else self.row.boolean
        self.rule = empty_rule(self.convention, is_added=self.sense == "add")
        is_usual = not self.is_added or self.there.mask_numbers != "truth"
        rule_there = empty_rule(self.there, is_added=self.is_added) if is_usual else "unknown"
        # a row may have no key; true and false that are added hide none
        is_hiding = self.sense is not None and (self.sense != "add" or is_number)
        is_late = self.is_causal and self.convention.causal_align == "bottom-right"
        self.is_filled = self.rule != rule_there and (is_hiding or is_late)
        self.is_unmasked = self.is_filled and self.rule == "unmasked"
        self.is_native = self.is_causal and self.takes_causal()
        self.scale = "1.0" if self.convention.scale == "none" else ""

    # ---- what is known before anything is written

    def takes_causal(self) -> bool:
        """Whether the target's own causal, beside the mask if there is one, is the source's."""
        if not self.row.causal or self.is_filled:
            return False
        if self.there.causal_align != self.convention.causal_align:
            return False
        if self.sense is None:
            return not self.target.refusal(["causal", "causal alone"])
        is_joined = bool(self.row.joins) and self.source is not self.target
        if is_joined or self.there.mask_and_causal != "both":
            return False
        return not self.target.refusal(["mask and causal"])

    @property
    def why_no_mask(self) -> str:
        """Why the target takes no mask."""
        return self.target.refusal(["boolean mask", "number mask"]) or "it has no such mask"

    # ---- how a statement is written

    def say(self, idiom: str, **fields: str) -> str:
        """An idiom of the language."""
        return str(getattr(self.language, idiom)).format(m=self.language.module, **fields)

    def add(self, text: str, about: Tag = "", comment: str = "") -> None:
        self.lines.append(Line(text, about, comment))

    def through(
        self, names: Sequence[str], idioms: Iterable[str], about: About, **fields: str
    ) -> None:
        """Statements that bring arrays through idioms, or through templates of {x}."""
        single, many = (names[0] if len(names) == 1 else "x"), ", ".join(names)
        steps = [single]
        for idiom in idioms:
            template = str(getattr(self.language, idiom, idiom))
            if template.count("{x}") > 1 and steps[-1] != single:
                steps.append(single)
            steps[-1] = template.format(x=steps[-1], m=self.language.module, **fields)
        for step in steps:
            if step != single:
                loop = f"{many} = ({step} for x in ({many}))"
                self.add(f"{single} = {step}" if single == many else loop, about)

    def sizes(self, about: Tag) -> None:
        """The statement that names n_q and n_k, where there is none yet."""
        at = self.layout.index("s")
        text = f"n_q, n_k = q.shape[{at}], k.shape[{at}]"
        if text not in (line.text for line in self.lines):
            self.add(text, about)

    def add_causal(self, name: str, about: About) -> None:
        """The source's causal mask by this name, [n_q, n_k]."""
        self.sizes(about)
        align = self.convention.causal_align
        diagonal = "n_k - n_q" if align == "bottom-right" else ""
        comment = "the last query is at the last key" if diagonal else ""
        tri = self.say("tri", d=diagonal, _d=f", {diagonal}" if diagonal else "")
        self.add(f"{name} = {tri}", about, comment)
        if align == "open-last":
            whole = f"{name} | ({self.say('last')})"
            self.add(f"{name} = {whole}", about, "the last query sees every key")

    def has_key(self) -> str:
        """True for the queries that have a key: [n_q, 1]."""
        keep = f"mask > {_INF}" if self.sense == "add" else "mask"
        is_method = self.language.any.startswith("{x}.") and self.sense == "add"
        return self.say("any", x=f"({keep})" if is_method else keep)

    # ---- the statements, in their order

    def enter(self) -> None:
        """q, k and v as the target has them."""
        to, groups = self.to, [(["q", "k", "v"], "n_heads")]
        if self.convention.scale == "none" and not self.row.scale:
            width = "(q.shape[-1] // n_heads)" if self.layout in FLAT else "q.shape[-1]"
            why = f"{self.target.name} multiplies the scores by 1/sqrt(d_k)"
            self.add(f"q = q * {width} ** 0.5", "scale", why)
        if self.repeats_heads() and to in FLAT:
            self.repeat_heads()
        elif self.call.grouped and self.layout in FLAT:
            groups = [(["q"], "n_heads"), (["k", "v"], "n_kv_heads")]
        if layout_of(self.target) == "shd" and self.layout != "shd":
            self.notes.append(f"{self.target.name} has no batch: the code takes its first item")
        for names, n in groups:
            self.through(names, moves(self.layout, to), "layout", n=n)
        self.layout = to
        if self.repeats_heads() and to not in FLAT:
            self.repeat_heads()
        self.pad_widths()

    def repeats_heads(self) -> bool:
        """Whether the key heads are repeated for the query heads that share them."""
        return self.call.grouped and bool(self.target.refusal(["grouped heads"]))

    def repeat_heads(self) -> None:
        """A key head for every query head, in the present layout."""
        if self.layout in FLAT:
            self.through(["k", "v"], ["split"], "heads", n="n_kv_heads")
            n = "n_heads // n_kv_heads"
            self.through(["k", "v"], ["repeat", "merge"], "heads", n=n, axis="2")
        else:
            self.through(["k", "v"], ["repeat"], "heads", **self.shares())

    def shares(self) -> dict[str, str]:
        """The axis of the heads, and how many query heads share a key head."""
        axis = str(self.layout.index("h"))
        return {"axis": axis, "n": f"q.shape[{axis}] // k.shape[{axis}]"}

    def pad_widths(self) -> None:
        """Keys and values of one width: zeros add nothing to a score, nor to an output."""
        why = self.target.refusal(["d_v"])
        if not self.call.d_v or not why:
            return
        if not self.row.scale:
            raise NoWayError(why)
        self.add("d_k, d_v = q.shape[-1], v.shape[-1]", "d_v")
        n = "max(d_k, d_v) - x.shape[-1]"
        self.through(["q", "k", "v"], ["pad"], "d_v", n=n)
        self.scale = self.scale or "d_k**-0.5"

    def mask(self) -> None:
        """`mask` in a sense that the target, or what follows, can read."""
        if self.sense is None:
            return
        if not self.argument:
            raise NoWayError(self.why_no_mask)
        name, there = self.source.name, self.there
        is_read = self.is_filled or (self.is_causal and not self.is_native)
        if self.sense == "truth" and (is_read or there.mask_numbers != "truth"):
            self.turn("mask != 0", f"{name} reads numbers as true or false")
        elif self.sense == "ignore" and (is_read or there.mask_means != "ignore"):
            self.turn("~mask", f"True in {name} hides a key")
        elif self.sense == "add" and not self.is_added:  # −inf is false
            if self.call.mask == "boolean":
                raise NoWayError("it adds nothing to the scores")
            self.turn(f"mask > {_INF}", "for masks of 0 and -inf alone")
            problem = f"{self.target.name} adds no numbers to the scores"
            self.notes += [
                f"{problem}: the code is for masks of 0 and −inf; use {self.row.instead}"
            ]
        elif self.sense == "add" and self.call.mask == "boolean" and there.mask_means != "add":
            cast = self.say("cast", x="mask")
            self.add(f"mask = {cast}", self.about_mask, f"{name} adds True as 1")

    def turn(self, text: str, comment: str) -> None:
        self.add(f"mask = {text}", self.about_mask, comment)
        self.sense = "keep"

    def causal(self) -> None:
        """Causal as part of the mask, where it is not the target's own."""
        if not self.is_causal or self.is_native:
            return
        about, is_top_left = self.about_causal, self.convention.causal_align == "top-left"
        if not self.argument:
            problem = "its causal differs unless there are as many queries as keys"
            raise NoWayError(f"{problem}, and {self.why_no_mask}")
        if self.sense is None:
            self.add_causal("mask", about)
            self.sense = "keep"
        elif self.sense == "keep" and is_top_left and not self.is_unmasked:
            self.add(f"mask = {self.say('tril', x='mask')}", about, "causal")
            self.notes += [self.row.joins] * bool(self.row.joins)
        else:
            self.add_causal("causal", about)
            lowered = self.say("where", c="causal", x="mask", y=_INF)
            self.add(f"mask = {lowered if self.sense == 'add' else 'mask & causal'}", about)

    def unmask(self) -> None:
        """Rows with no key as they are without the mask, where the source has them so."""
        if self.is_unmasked:
            around = "causal" if self.is_causal else "True"
            visible = self.say("where", c=self.has_key(), x="mask", y=around)
            comment = f"a row with no key: unmasked, as in {self.source.name}"
            self.add(f"mask = {visible}", self.about_empty, comment)

    def give(self, argument: Argument, about: Tag, mask: str = "") -> None:
        """An argument of the call, or an attribute and an input of its node."""
        if argument.before:
            self.sizes(about)
            self.add(argument.before.format(mask=mask), about)
        is_attribute = self.row.before and not mask
        line = Line(argument.text.format(mask=mask), about)
        (self.attributes if is_attribute else self.arguments).append(line)
        self.inputs += argument.node

    def pass_mask(self) -> None:
        """The mask as an argument, in the sense that the target gives it."""
        about, name = self.about_mask if self.call.mask else self.about_causal, "mask"
        if not self.sense or not self.argument:
            return
        if self.sense != "add" and self.is_added:
            self.add(f"mask = {self.say('where', c='mask', x='0.0', y=_INF)}", about)
            self.sense = "add"
        elif self.sense == "keep" and self.there.mask_means == "ignore":
            name = "~mask"
        is_bias = self.is_added and self.there.mask_numbers == "truth"  # not by its mask argument
        self.give(self.argument, about if name != "mask" or is_bias else "", name)

    def call_target(self) -> None:
        """The call, with the arguments that it needs."""
        row = self.row
        self.pass_mask()
        if row.causal and self.is_native:
            self.give(row.causal, self.about_causal)
        elif row.unmasked and not self.sense:
            self.arguments.append(Line(row.unmasked))
        if row.scale and (self.scale or row.needs_scale):
            factor = self.scale or "q.shape[-1] ** -0.5"
            about: Tag = "d_v" if "d_k" in factor else "scale" if self.scale else ""
            self.give(Argument(row.scale.format(scale=factor)), about)
        if row.grouped and self.call.grouped and not self.repeats_heads():
            self.arguments.append(Line(row.grouped, "heads"))
        if row.before:
            attributes = "".join(f", {line.text}" for line in self.attributes)
            self.add(row.before.format(inputs=self.inputs, attributes=attributes))
        more = "".join(f", {line.text}" for line in self.arguments)
        call = row.call if self.layout == (row.takes or self.layout) else row.own_call
        self.add(wrapped(f"out = {call.format(more=more)}"))
        self.out_layout = row.returns or self.layout

    def fill_rows(self) -> None:
        """What the source gives to a query with no key, after the call."""
        if not self.is_filled or self.is_unmasked:
            return
        filler = {"zero": "0.0", "nan": 'float("nan")'}.get(self.rule) or self.mean_of_v()
        has_key = self.has_key() + "[..., None]" * self.out_layout.endswith("shd")
        if self.sense == "add":
            self.add(f"has_key = {has_key}", self.about_empty)
            has_key = "has_key"
        filled = self.say("where", c=has_key, x="out", y=filler)
        if self.row.is_layer:
            problem = f"the output projection of {self.target.name} comes before"
            self.notes.append(f"{problem} what is written for rows with no key")
        comment = f"a row with no key: {_EMPTY_WORDS[self.rule]}, as in {self.source.name}"
        self.add(f"out = {filled}", self.about_empty, comment)

    def mean_of_v(self) -> str:
        """The mean of the values, for an output in the layout of v."""
        self.through(["out"], moves(self.out_layout, self.layout), "layout")
        self.out_layout = self.layout
        mean = self.say("mean", x="v", axis=str(self.layout.index("s")))
        if not self.call.grouped or self.repeats_heads():
            return mean
        self.add(f"mean = {self.say('repeat', x=mean, **self.shares())}", self.about_empty)
        return "mean"

    def leave(self) -> None:
        """The output as the source has it."""
        if any(line.text.startswith("d_k, d_v = ") for line in self.lines):
            self.add("out = out[..., :d_v]", "d_v")
        ops = moves(self.out_layout, self.returns)
        self.through(["out"], ops, "layout", n="n_heads")
        last = self.lines.pop()
        self.lines.append(last._replace(text=last.text.replace("out =", "return", 1)))
        layout = layout_of(self.source)
        if self.uses("n_heads") and layout not in FLAT:
            n_heads = "1" if layout == "one head" else f"q.shape[{layout.index('h')}]"
            self.lines.insert(0, Line(f"n_heads = {n_heads}", "layout"))

    # ---- the whole

    def uses(self, name: str) -> bool:
        """Whether a statement has this name."""
        return any(name in line.text for line in self.lines)

    def docstring(self) -> str:
        """What the function takes: in one line, or in one for each where that is too long."""
        parts = [f"q, k, v: {AXES[layout_of(self.source)]}"]
        if self.call.mask == "boolean":
            parts.append(f"mask: [n_q, n_k], {_SENSE_WORDS[self.convention.mask_means]}")
        elif self.call.mask == "number":
            parts.append(
                f"mask: [n_q, n_k], {_NUMBER_WORDS[self.convention.mask_numbers or 'add']}"
            )
        if self.returns != layout_of(self.source):
            parts.append(f"output: {AXES[self.returns]}")
        parts += [": ".join(self.row.first)] if self.row.first[0] else []
        line = f'"""As {self.source.name}. {"; ".join(parts)}."""'
        if len(line) + 4 <= LONGEST:
            return line
        return "\n".join([f'"""As {self.source.name}.', "", *parts, '"""'])

    def code(self) -> str:
        """Imports and the function."""
        first = self.row.first[0]
        parameters = [first] * bool(first) + ["q", "k", "v"] + ["mask"] * bool(self.call.mask)
        if layout_of(self.source) in FLAT:
            parameters += [name for name in ("n_heads", "n_kv_heads") if self.uses(name)]
        statements = "\n".join(map(as_text, self.lines))
        body = indent(f"{self.docstring()}\n{statements}", "    ")
        function = f"def attention({', '.join(parameters)}):\n{body}\n"
        needed = {**self.language.imports, **self.row.imports}
        imports = [line for name, line in needed.items() if name in statements]
        return "\n".join([*imports, "", "", function])


def as_text(line: Line) -> str:
    """A statement with its comment: beside it, or above it where the line would be too long."""
    beside = f"{line.text}  # {line.comment}"
    if not line.comment:
        return line.text
    return beside if len(beside) + 4 <= LONGEST else f"# {line.comment}\n{line.text}"


def wrapped(statement: str) -> str:
    """A statement of one call: its arguments on a line of their own where it would be too long."""
    if len(statement) + 4 <= LONGEST:
        return statement
    head, _, rest = statement.partition("(")
    arguments, _, tail = rest.rpartition(")")
    return f"{head}(\n    {arguments}\n){tail}"
