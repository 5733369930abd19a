"""Every choice on which two correct-looking attentions can differ: one field of Convention each.

A field declares all that is known of its choice: `Convention.scale` has a default, a help text, a
flag and how it is parsed, the words that a headline has for it, and which values it takes. The
options of the command line, the headline, the flags that `check` suggests, the schema of a saved
trace and the table of the README are read from here. `attend` takes a Convention, a trace records
it, and `check` varies it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, TypedDict, get_args, get_type_hints

from attncli.errors import ConventionError
from attncli.knobs import Knob, Write, knob

SoftmaxOver = Literal["keys", "queries"]
CausalAlign = Literal["top-left", "bottom-right", "open-last"]
MaskAndCausal = Literal["both", "mask", "causal", "refused"]
MaskMeans = Literal["keep", "ignore", "add"]
MaskNumbers = Literal["add", "truth"]
MaskValueRule = Literal["replace", "add"]
EmptyRows = Literal["zero", "nan", "uniform", "unmasked"]
WindowCounts = Literal["others", "own"]
SoftcapPlace = Literal["before-mask", "after-bias", "after-mask"]
HeadOrder = Literal["blocks", "tiled"]
LseBase = Literal["e", "2"]
DType = Literal["float64", "float32", "float16", "bfloat16"]
ScaleRule = Literal["1/sqrt(d_k)", "none"]
Layout = Literal["hsd", "shd", "bsd", "bhsd", "bshd"]
LAYOUTS: tuple[str, ...] = get_args(Layout)


_masking, _scores = partial(knob, "Masking"), partial(knob, "Scores")
_kernels, _libraries = partial(knob, "Kernels"), partial(knob, "Libraries")


_NUMBERS = (int, float)


def _is_finite(value: Any) -> bool:
    return type(value) in _NUMBERS and math.isfinite(value)


def _is_window(value: object) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2
    return is_pair and all(isinstance(bound, int) and bound >= -1 for bound in value)  # type: ignore[attr-defined]


def _number(text: str) -> float:
    from attncli.formula.numerals import number as read

    value = read(text)
    if math.isnan(number := float(text) if value is None else value):
        raise ValueError
    return number


def _window(text: str) -> tuple[int, int]:
    left, right = map(int, text.split(","))
    if min(left, right) < -1:
        raise ValueError
    return left, right


def _window_words(value: tuple[int, int], convention: Convention, _: Write) -> str:
    before, after = ("all" if size < 0 else str(size) for size in value)
    noun = "key" if before == "1" else "keys"
    limit = "up to its own" if convention.window_counts == "own" else "before"
    return f"window of {before} {noun} {limit} and {after} after"


MASK, LOG_SUM = "mask", "the stage lse (--stage lse)"
NUMBERS, ADDED = "a mask of numbers", "a mask whose numbers are added"
SHARED = "fewer key heads than query heads"
REPLACED = "masked scores that it sets: --empty-rows-inf keeps them at -inf"
"""What an input may have to have for a field to have an effect."""

_FLOAT: dict[str, Any] = {"metavar": "FLOAT", "parse": _number}
_YES_OR_NO: dict[str, Any] = {"valid": lambda x: isinstance(x, bool), "use": "True or False"}
_ONE_ONLY = {
    "mask": "where there are a mask and causal, the mask alone",
    "causal": "where there are a mask and causal, causal alone",
}
_ALIGNED = {
    "bottom-right": ", the last query at the last key",
    "open-last": ", but for the last query",
}
_SOFTCAP_PLACES = {"after-bias": " after the mask's numbers", "after-mask": " after the mask"}


@dataclass(frozen=True, kw_only=True)
class Convention:
    """How attention is computed, where implementations differ. `KNOBS` explains every field.

    A NumPy number, or an array of one number, is kept as a plain Python number.
    Raises ConventionError for a value that a field does not take.

    >>> Convention(causal=True).scale
    '1/sqrt(d_k)'
    >>> Convention(dtype="float8")
    Traceback (most recent call last):
        ...
    attncli.errors.ConventionError: dtype is 'float8'; use float64, float32, float16 or bfloat16
    """

    causal: bool = _masking(
        False,
        "No query attends to a key after its own position.",
        **_YES_OR_NO,
        words=lambda _, convention, __: f"causal{_ALIGNED.get(convention.causal_align, '')}",
    )
    causal_align: CausalAlign = _libraries(
        "top-left",
        "Where the queries are if queries and keys differ in number. top-left (the default): query "
        "1 is at the position of key 1, or after the past if there is one. bottom-right: the last "
        "query is at the position of the last valid key. open-last: as top-left, but if there are "
        "more keys than queries, the last query attends to all keys.",
        needs=("causal", "window"),
    )
    mask_and_causal: MaskAndCausal = _libraries(
        "both",
        "What applies if both a mask and --causal are given: both (the default), the mask alone "
        "(mask), --causal alone (causal), or neither, as the call is refused (refused).",
        words=lambda value, *_: _ONE_ONLY.get(value, ""),
        needs=("causal",),
        input=MASK,
    )
    window: tuple[int, int] | None = _masking(
        None,
        "Attend to at most LEFT keys before the query and RIGHT keys after it; -1 = no limit.",
        metavar="LEFT,RIGHT",
        parse=_window,
        form="LEFT,RIGHT, such as 3,0; -1 = no limit",
        valid=lambda value: value is None or _is_window(value),
        use="two whole numbers (left, right), each −1 or more",
        words=_window_words,
    )
    window_counts: WindowCounts = _libraries(
        "others",
        "Which keys the LEFT of --window counts: those before the query (others, the default), or "
        "also the query's own key (own).",
        needs=("window",),
    )
    scale: float | ScaleRule = _scores(
        "1/sqrt(d_k)",
        "Factor on the scores (default: 1/√d_k).",
        metavar="FLOAT|none",
        parse=lambda text: text if text == "none" else _number(text),
        form="a factor such as 0.125, or none",
        valid=lambda value: value in get_args(ScaleRule) or _is_finite(value),
        use='a finite number, "none" or "1/sqrt(d_k)"',
        words=lambda value, _, write: (
            "not scaled" if value == "none" else f"scaled by {write(value)}"
        ),
    )
    temperature: float = _scores(
        1.0,
        "Divide the scaled scores by T (default: 1): above 1 the weights are more alike.",
        metavar="T",
        parse=_number,
        form="a number above 0, such as 2",
        valid=lambda value: _is_finite(value) and value > 0,
        use="a number above 0",
        words=lambda value, _, write: f"temperature {write(value)}",
    )
    qk_norm: bool = _scores(
        False,
        "Divide each query and each key by its root mean square before the scores (ε 1e-6).",
        **_YES_OR_NO,
        words=lambda *_: "queries and keys normalised",
    )
    softcap: float | None = _scores(
        None,
        "Bound the scores smoothly to (−c, c): c·tanh(S/c).",
        **_FLOAT,
        form="a number above 0, such as 50",
        valid=lambda value: value is None or (_is_finite(value) and value > 0),
        use="a number above 0",
        words=lambda value, convention, write: (
            f"softcap {write(value)}{_SOFTCAP_PLACES.get(convention.softcap_place, '')}"
        ),
    )
    softcap_place: SoftcapPlace = _kernels(
        "before-mask",
        "Apply the softcap before the mask (before-mask, the default), after the numbers that the "
        "mask adds but before keys are hidden (after-bias), or after the whole mask (after-mask).",
        needs=("softcap",),
    )
    softmax_over: SoftmaxOver = _scores(
        "keys",
        "Which weights sum to 1: each row (keys, the default) or each column (queries).",
        words=lambda value, *_: f"softmax over {value}",
    )
    mask_means: MaskMeans = _masking(
        "keep",
        "What true (or 1) in the mask means: the key may be attended to (keep, the default), the "
        "key is masked (ignore), or 1 is added to the score (add).",
        words=lambda value, *_: "true in the mask = ignored" if value == "ignore" else "",
        input=MASK,
    )
    mask_numbers: MaskNumbers | None = _libraries(
        None,
        "What a mask of numbers means: they are added to the scores (add), or numbers other than 0 "
        "are true (truth). Default: add; but a mask of only 0 and 1 needs --mask-means.",
        words=lambda value, *_: "numbers in the mask = true or false" if value == "truth" else "",
        input=NUMBERS,
    )
    mask_value: float = _masking(
        -math.inf,
        "Score of a masked key: -inf (the default) or a finite number.",
        **_FLOAT,
        form="a number such as -1e9, or -inf",
        valid=lambda value: type(value) in _NUMBERS and float(value) < math.inf,
        use="-inf or a finite number",
        words=lambda value, convention, write: (
            f"mask value {write(value)}{' added' * (convention.mask_value_rule == 'add')}"
        ),
        input=REPLACED,
    )
    mask_value_rule: MaskValueRule = _kernels(
        "replace",
        "Whether --mask-value replaces the score of a masked key (the default) or is added to it. "
        "The numbers of a mask are not added to the scores of masked keys.",
        needs=("mask_value",),
    )
    empty_rows: EmptyRows = _kernels(
        "zero",
        "Weights of a query whose keys are all masked (default: zero); unmasked: those that it has "
        "without mask and padding.",
        words=lambda value, *_: f"empty rows {'NaN' if value == 'nan' else value}",
    )
    empty_rows_inf: EmptyRows | None = _kernels(
        None,
        "The same if the numbers of a mask are added: every masked score is then -inf, whatever "
        "--mask-value says (default: as --empty-rows).",
        words=lambda value, *_: f"empty rows by -inf {'NaN' if value == 'nan' else value}",
        input=ADDED,
    )
    head_order: HeadOrder = _libraries(
        "blocks",
        "Grouped-query attention: query heads 0 and 1 use key head 0 (blocks, the default), or 0 "
        "and 2 do (tiled).",
        words=lambda value, *_: "key heads shared in turn (tiled)",
        input=SHARED,
    )
    lse_base: LseBase = _kernels(
        "e",
        "Base of the logarithm in --stage lse: e (the default) or 2.",
        words=lambda *_: "log-sum-exp in base 2",
        input=LOG_SUM,
    )
    dropout: float = _scores(
        0.0,
        "Probability with which each weight is set to 0 (default: 0); in a block, also each number "
        "of a sub-layer's output.",
        **_FLOAT,
        form="a probability such as 0.1",
        valid=lambda value: type(value) in _NUMBERS and 0 <= value < 1,
        use="a probability from 0 up to, but not including, 1",
        words=lambda value, convention, write: f"dropout {write(value)} (seed {convention.seed})",
    )
    seed: int = _scores(
        0,
        "Seed of all random numbers (default: 0).",
        metavar="N",
        parse=int,
        form="a whole number from 0",
        valid=lambda value: isinstance(value, int) and value >= 0,
        use="a whole number from 0",
        needs=("dropout",),
    )
    dtype: DType = _scores(
        "float64", "Number type to which every stage is rounded (default: float64)."
    )

    def __post_init__(self) -> None:
        for name, row in KNOBS.items():
            value, choices = getattr(self, name), CHOICES.get(name, ())
            if value is getattr(Convention, name):  # the default is valid
                continue
            parts = value if isinstance(value, tuple) else (value,)  # NumPy's numbers as Python's
            plain = [x if getattr(x, "ndim", 1) else x.item() for x in parts]
            value = tuple(plain) if isinstance(value, tuple) else plain[0]
            object.__setattr__(self, name, value)
            try:
                is_valid = row.valid(value) if row.valid else value in choices
            except OverflowError as problem:
                message = f"{name} is a number beyond float64"
                raise ConventionError(message, "the limit is 1.8e308") from problem
            except ValueError:  # of an array
                is_valid = False
            if not is_valid:
                use = row.use or " or ".join([", ".join(choices[:-1]), choices[-1]])
                raise ConventionError(f"{name} is {value!r}", f"use {use}")
        if self.window is not None and self.window[0] == 0 and self.window_counts == "own":
            message = "a window that counts the query's own key has none of them"
            raise ConventionError(message, "use LEFT from 1, or -1 for no limit")

    def scale_factor(self, d_k: int) -> float:
        """The factor the scores are multiplied by; 1/√d_k unless the convention says otherwise,
        divided by the temperature.

        Source: "Attention Is All You Need", section 3.2.1.

        >>> Convention().scale_factor(4), Convention(temperature=2.0).scale_factor(4)
        (0.5, 0.25)
        """
        if self.scale == "1/sqrt(d_k)":
            return 1.0 / math.sqrt(d_k) / self.temperature
        return (1.0 if self.scale == "none" else float(self.scale)) / self.temperature

    @property
    def is_scaled(self) -> bool:
        """Whether the scores are multiplied by anything."""
        return self.scale != "none" or self.temperature != 1

    @property
    def reach(self) -> tuple[int, int] | None:
        """How many keys before and after its own the window shows a query; −1 = no limit.

        None without a window.

        >>> Convention(window=(3, 0)).reach, Convention(window=(3, 0), window_counts="own").reach
        ((3, 0), (2, 0))
        """
        if self.window is None:
            return None
        left, right = self.window
        return left - (self.window_counts == "own" and left > 0), right

    def refuses(self, has_mask: bool) -> bool:
        """Whether there are a mask and causal, which are refused together."""
        return has_mask and self.causal and self.mask_and_causal == "refused"

    def restricting(self, has_mask: bool) -> tuple[bool, bool]:
        """Whether causality, and whether a given mask, has an effect.

        ConventionError where the two are refused together.

        >>> Convention(causal=True, mask_and_causal="mask").restricting(has_mask=True)
        (False, True)
        """
        alone = self.mask_and_causal if has_mask and self.causal else "both"
        if alone == "refused":
            message = "there are a mask and causal, which this convention refuses together"
            raise ConventionError(message, "leave one of them out, or set mask_and_causal")
        return self.causal and alone != "mask", has_mask and alone != "causal"

    def empty_rule(self, adds: bool) -> EmptyRows:
        """What becomes of a row with nothing to attend to; adds: its mask is of numbers to add."""
        return (self.empty_rows_inf if adds else None) or self.empty_rows

    def hidden_value(self, adds: bool) -> float:
        """The score of a masked key; −∞ where the −inf of a mask that is added stays that."""
        return -math.inf if adds and self.empty_rows_inf else self.mask_value

    def without_mask_fields(self) -> Convention:
        """The same without what the additive mask of an attention holds already."""
        names = (
            "causal", "causal_align", "mask_and_causal", "window", "window_counts", "mask_means",
            "mask_numbers", "empty_rows_inf",
        )  # fmt: skip
        return replace(self, **{name: getattr(Convention, name) for name in names})

    def changes(self) -> dict[str, Any]:
        """The fields that differ from the default, by name.

        >>> Convention(causal=True, scale=0.5).changes()
        {'causal': True, 'scale': 0.5}
        """
        values = {name: getattr(self, name) for name in KNOBS}
        return {name: x for name, x in values.items() if x != getattr(Convention, name)}

    @classmethod
    def of(cls, name: str, n_queries: int = 2) -> Convention:
        """What a library means by attention; `attncli semantics` lists them.

        n_queries  how many there are in a call: a single one may be masked in another way
        ConventionError for a name that none has.

        >>> Convention.of("jax").changes()
        {'mask_numbers': 'add', 'empty_rows': 'uniform', 'empty_rows_inf': 'nan'}
        """
        from attncli.presets import preset

        return cls(**preset(name).fields_for(n_queries))

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> Convention:
        """The convention with these fields, from JSON.

        ConventionError for a field that does not exist, or a value that no field has.

        >>> Convention.from_mapping({"causal": True, "window": [2, 0]}).window
        (2, 0)
        """
        if unknown := sorted(set(mapping) - set(KNOBS)):
            hint = f"known are {', '.join(sorted(KNOBS))}"
            raise ConventionError(f"a convention has no field {unknown[0]!r}", hint)
        values: dict[str, Any] = {
            n: tuple(x) if isinstance(x, list) else x for n, x in mapping.items()
        }
        return cls(**values)


class Fields(TypedDict, total=False):
    """The fields of Convention as keywords, beside `convention=` or instead of it."""

    causal: bool
    causal_align: CausalAlign
    mask_and_causal: MaskAndCausal
    window: tuple[int, int] | None
    window_counts: WindowCounts
    scale: float | ScaleRule
    temperature: float
    qk_norm: bool
    softcap: float | None
    softcap_place: SoftcapPlace
    softmax_over: SoftmaxOver
    mask_means: MaskMeans
    mask_numbers: MaskNumbers | None
    mask_value: float
    mask_value_rule: MaskValueRule
    empty_rows: EmptyRows
    empty_rows_inf: EmptyRows | None
    head_order: HeadOrder
    lse_base: LseBase
    dropout: float
    seed: int
    dtype: DType


def convention_of(base: Convention | None, keywords: Mapping[str, Any]) -> Convention:
    """A convention with the fields that are given as keywords.

    Raises ConventionError where one contradicts what the convention has chosen, TypeError for a
    keyword that no field has.
    """
    if unknown := sorted(set(keywords) - set(KNOBS)):
        from difflib import get_close_matches

        close = get_close_matches(unknown[0], KNOBS, n=1)
        question = f"; did you mean {close[0]}?" if close else ""
        raise TypeError(f"there is no keyword {unknown[0]!r}{question}")
    base = base or Convention()
    convention, changes = replace(base, **keywords), base.changes()
    for name in keywords:
        value = getattr(convention, name)
        if name in changes and value != changes[name]:
            message = f"{name} is {value!r}, but {changes[name]!r} in the convention"
            raise ConventionError(message, "give it once")
    return convention


def flag_of(name: str) -> str:
    """The flag of a field: --mask-value of mask_value."""
    return f"--{name.replace('_', '-')}"


def flag_text(name: str, value: Any) -> str:
    """What to add to a call, or to leave out of it, so that a field has this value.

    >>> flag_text("window", (3, 0)), flag_text("softcap", None), flag_text("softmax_over", "keys")
    ('--window 3,0', 'without --softcap', '--softmax-over keys')
    """
    flag = flag_of(name)
    if value is True:
        return flag
    if value is None or (value == getattr(Convention, name) and name not in CHOICES):
        return f"without {flag}"
    if isinstance(value, tuple):
        return f"{flag} {','.join(map(str, value))}"
    return f"{flag} {value:.10g}" if isinstance(value, float) else f"{flag} {value}"


KNOBS: dict[str, Knob] = {field.name: field.metadata["knob"] for field in fields(Convention)}
"""Every field of Convention, and what is known of it, in the order in which headlines name them."""

CHOICES: dict[str, tuple[Any, ...]] = {
    name: get_args(get_args(hint)[0]) if type(None) in get_args(hint) else get_args(hint)
    for name, hint in get_type_hints(Convention).items()
    if KNOBS[name].valid is None
}
"""The values of the fields that take one of a few; None besides them is no choice."""
