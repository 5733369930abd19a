"""What the names in a file mean: which array is q, k, v, the mask or the cache; which is a field.

A field is what a file says of its attention besides the arrays: its convention, key lengths and
layout. Each is a field of JSON, an array of one entry in an npz, or text in the metadata of
safetensors; `convention` holds several, as a JSON object or as the text of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, overload

from attncli.convention import CHOICES, KNOBS, LAYOUTS, Convention, Layout, ScaleRule
from attncli.errors import ConventionError, InputError
from attncli.files.messages import (
    ask_for,
    attentions,
    count,
    lacking,
    listing,
    location,
    quote,
    several,
)
from attncli.stages import GRADIENTS, stages_called

if TYPE_CHECKING:  # --help reads ROLES, without NumPy
    from attncli.arrays import Array
    from attncli.files.load import FileContents

Role = str
"""A key of ROLES."""


class Names(NamedTuple):
    """How an array of one role is recognised and given, and what it may be.

    form      what to give, where the dimensions are wrong
    """

    aliases: tuple[str, ...]  # its names in files, in lowercase
    help: str  # of the flag that gives it, --past-k for past_k, and the panel of --help
    panel: str = "Inputs"
    fewest: int = 2  # dimensions it has at least, and at most
    most: int = 4
    form: str = "2-D is (tokens, d), 3-D (heads, tokens, d), 4-D (batch, heads, tokens, d)"
    booleans: bool = False  # whether it may hold true and false


_OWN = ("{}", "{}_states", "{}_layer", "{}_tensor")
_PAST = ("past_{}", "{}_cache", "cache_{}", "cached_{}")
_Q, _K, _V = ("q", "query", "queries"), ("k", "key", "keys"), ("v", "value", "values")
_MASKS = "mask attn_mask attention_mask attn_bias attention_bias additive_mask masks"
_WORDS = ("input", "embedding", "word", "encoding")
_X = "2-D is (tokens, d), 3-D (batch, tokens, d)"


ROLES: dict[Role, Names] = {
    "q": Names(
        ("xq", *(form.format(word) for word in _Q for form in _OWN)),
        "Queries: a file that names q, k and v, a saved trace, or one matrix. A SOURCE is a path, "
        "path::name, - (standard input), or the numbers themselves: JSON, 1 0; 0 1 or LaTeX.",
    ),
    "k": Names(
        ("xk", *(form.format(word) for word in _K for form in _OWN)),
        "Keys (default: from the file of --q, else K = Q).",
    ),
    "v": Names(
        ("xv", *(form.format(word) for word in _V for form in _OWN)),
        "Values (default: from the file of --q, else V = K).",
    ),
    "x": Names(
        ("x", "xs", *_WORDS, *(f"{word}s" for word in _WORDS), "input_embeddings", "inputs_embeds"),
        "Embeddings, (tokens, d) or (batch, tokens, d), from which Q, K and V are computed with "
        "--weights or with weights in the same file.",
        most=3,
        form=_X,
    ),
    "x_kv": Names(
        ("x_kv", "x_k", "context", "memory", "encoder_hidden_states", "encoder_output"),
        "Cross-attention: the embeddings from which K and V are computed.",
        most=3,
        form=_X,
    ),
    "x_v": Names(("x_v",), "Separate embeddings for V (default: those of K).", most=3, form=_X),
    "past_k": Names(
        tuple(form.format(word) for word in _K for form in _PAST),
        "Cached keys, put before the keys; with one axis more than q, they are split into heads.",
    ),
    "past_v": Names(
        tuple(form.format(word) for word in _V for form in _PAST),
        "Cached values, put before the values; they have the same axes as the cached keys.",
    ),
    "mask": Names(
        tuple(_MASKS.split()),
        "True/false, or numbers that are added to the scores. A mask broadcasts from the right.",
        panel="Masking",
        fewest=1,
        booleans=True,
    ),
    "sinks": Names(
        ("sinks", "sink", "attn_sinks", "attention_sinks", "s_aux"),
        "A learned score per head that joins the softmax and has no value.",
        fewest=1,
        most=1,
        form="give one number for each head",
    ),
    "d_output": Names(
        ("d_output", "do", "grad_output", "grad_out", "dout"),
        "The gradient of a loss with respect to the output, from which the gradients of all inputs "
        "follow: ones (the loss is the sum of the output), random, or a SOURCE.",
    ),
}
"""Every role that an array can have, each with a flag of its own: to add one is to add a row."""

D_OUTPUT = "d_output"
"""The role of the gradient that all others follow from; ONES and RANDOM stand for numbers of it."""
ONES, RANDOM = "ones", "random"

EMBEDDINGS = ("x", "x_kv", "x_v")
"""Those of which q, k and v are made; they are not given beside these."""

ATTENDED = tuple(role for role in ROLES if role not in EMBEDDINGS)
"""Those that go into an attention as they are: q, k, v, a mask, a cache …"""

_ROLE_OF = {alias: role for role, names in ROLES.items() for alias in names.aliases}


def role_of(name: str) -> Role | None:
    """The role of the arrays called so, in any case of letters.

    >>> role_of("Query"), role_of("key_states"), role_of("k_cache"), role_of("y")
    ('q', 'k', 'past_k', None)
    """
    return _ROLE_OF.get(name.lower().replace("-", "_").replace(" ", "_"))


_GRADIENTS = ("d{}", "d_{}", "grad_{}", "{}_grad", "grad{}", "{}grad", "{}.grad", "{}/grad")
_GRADIENT_OF = {
    form.format(word): stage
    for stage, words in {
        "d_q": (*_Q, "xq"),
        "d_k": (*_K, "xk"),
        "d_v": (*_V, "xv"),
        "d_sinks": ("sinks", "sink"),
        "d_bias": ("bias", "attn_bias", "mask", "attn_mask"),
        "d_scores": ("s", "scores"),
        "d_weights": ("weights", "attn_weights", "p", "probs"),
        "d_masked": ("masked",),
        "d_scaled": ("scaled",),
        **{f"d_{kind}_{x}": (f"{kind}_{x}", f"{kind}{x}") for kind in "wb" for x in "qkvo"},
        **{f"d_{name}": (name,) for name in EMBEDDINGS},
    }.items()
    for word in words
    for form in _GRADIENTS
}


WIDTHS = tuple(f"d_{name}" for name in "qkv")
"""Names of gradients under which a single number is something else: the width of a head."""


def gradient_named(name: str) -> str:
    """The stage of a gradient that arrays called so hold, in any case of letters; else the name.

    >>> gradient_named("dQ"), gradient_named("k.grad"), gradient_named("grad_value")
    ('d_q', 'd_k', 'd_v')
    >>> gradient_named("output")
    'output'
    """
    return _GRADIENT_OF.get(name.lower().replace("-", "_").replace(" ", "_"), name)


def stages_named(name: str) -> tuple[str, ...]:
    """The stages that an array of this name may hold, gradients among them: see `stages_called`.

    >>> stages_named("attn_weights"), stages_named("k.grad"), stages_named("layer")
    (('weights',), ('d_k',), ())
    """
    gradient = gradient_named(name)
    return (gradient,) if gradient in GRADIENTS else stages_called(name)


def is_attended(name: str) -> bool:
    """Whether arrays called so go into an attention as they are: q, k, v, a mask, a cache …"""
    return role_of(name) not in (None, *EMBEDDINGS)


def similar_role(name: str) -> str:
    """The role that a name may mean, misspelt, or "".

    >>> similar_role("maks"), similar_role("layer")
    ('mask', '')
    """
    from difflib import get_close_matches

    # short names are all alike, and of those in parts the common part would count
    words = [alias for alias in _ROLE_OF if len(alias) > 3 and "_" not in alias]
    close = get_close_matches(name.lower(), words, n=1, cutoff=0.75)
    return _ROLE_OF[close[0]] if close else ""


def attention_prefix(names: list[str], origin: str, part: str = "") -> str | None:
    """The dotted prefix of the outermost attention of a trace, which its file calls `part`."""
    queries = [name for name in names if name.split(".")[-1] == "q"]
    depth = min((name.count(".") for name in queries), default=0)
    prefixes = [name.removesuffix("q") for name in queries if name.count(".") == depth]
    if len(prefixes) > 1:
        start = f"{part}." if part else ""
        raise several(origin, [start + prefix.removesuffix(".") for prefix in prefixes], part)
    return prefixes[0] if prefixes else None


@overload
def pick(loaded: FileContents, role: Literal["q"]) -> Array: ...


@overload
def pick(loaded: FileContents, role: Role) -> Array | None: ...


def pick(loaded: FileContents, role: Role) -> Array | None:
    """The array that a source given for everything (`--q SOURCE`) holds for one role.

    By its name; in a trace, the stage of the outermost attention. An array that `::name` asked for,
    or the only one, is q, and there is no other then. None where there is none, except for q.
    """
    name = loaded.member if loaded.member in loaded.arrays else name_of(loaded, role)
    if role != "q" and (name is None or name == loaded.member):
        return None
    if name is None and (loaded.trace is not None or any(map(is_attended, _names(loaded)))):
        raise _absent(loaded, role)
    return only(loaded, role)


def only(loaded: FileContents, role: Role) -> Array:
    """The array of a source given for one role alone, such as `--k SOURCE`.

    The one that `::name` asked for, else the one that the role's name names, else the only one.
    """
    name = loaded.member if loaded.member in loaded.arrays else name_of(loaded, role)
    if name is None and len(loaded.arrays) == 1 and not loaded.unread:
        (name,) = loaded.arrays
    if name is None:
        raise _absent(loaded, role)
    array, row, where = loaded.arrays[name], ROLES[role], location(loaded.origin, name)
    if array.size == 0:
        raise InputError(f"{where} is empty: its shape is {array.shape}", "give it numbers")
    if not row.fewest <= array.ndim <= row.most:
        most = f" to {row.most}" if row.most > row.fewest else ""
        what = f"{where} has {count(array.ndim, 'dimension')}, {role} needs {row.fewest}{most}"
        is_row = row.fewest == 2 and array.ndim == 1
        raise InputError(what, "write [[1, 2]] for one row" if is_row else row.form)
    if array.dtype.kind == "b" and not row.booleans:
        raise InputError(f"{where} holds true and false, {role} needs numbers", "write 1 and 0")
    return array


def outermost(loaded: FileContents) -> str | None:
    """The dotted prefix of the outermost attention of a saved trace: see `attention_prefix`."""
    return attention_prefix([*loaded.arrays], loaded.origin, loaded.member or "")


def name_of(loaded: FileContents, role: Role) -> str | None:
    """The name of the array with this role, or of its stage in a trace; None where none has it."""
    if loaded.trace is not None:
        prefix = outermost(loaded)
        name = f"{prefix}{role}"
        return name if prefix is not None and name in loaded.arrays else None
    names = [name for name in loaded.arrays if role_of(name) == role]
    if len(names) > 1:
        what = f"{loaded.origin} holds {len(names)} arrays that could be {role}: {listing(names)}"
        raise InputError(what, f"say which: {ask_for(loaded.origin, names[0])}")
    return names[0] if names else None


def _names(loaded: FileContents) -> list[str]:
    """Those of all its arrays, read or not."""
    return [*loaded.arrays, *loaded.unread]


def _absent(loaded: FileContents, role: Role) -> InputError:
    names = _names(loaded)
    if (parts := attentions(names)) and loaded.member is None:
        return several(loaded.origin, parts)
    return lacking(loaded.origin, role, names)


# ---- fields

KV_LEN, LAYOUT, NESTED = "kv_len", "layout", "convention"
FIELDS = {*KNOBS, KV_LEN, LAYOUT, NESTED} - {"scale"}
"""Their names, in lowercase. `scale` is read from every file, whoever asks."""

_TRUTH = {"true": True, "false": False, "1": True, "0": False}


def is_field(name: str) -> bool:
    """Whether a file may say something of its attention by this name: in any case, with - or _."""
    return name.lower().replace("-", "_") in FIELDS


def fields_of(loaded: FileContents) -> dict[str, Any]:
    """The fields of Convention that a file names, and their values."""
    nested = loaded.fields.get(NESTED) or {}
    if isinstance(nested, str):
        from attncli.files.json import parse

        nested = parse(nested.encode(), location(loaded.origin, NESTED))
    if not isinstance(nested, Mapping):
        hint = 'write {"causal": true, "scale": 0.125}'
        raise InputError(f"{location(loaded.origin, NESTED)} is not an object", hint)
    nested = {str(name).lower().replace("-", "_"): value for name, value in nested.items()}
    if unknown := sorted(set(nested) - set(KNOBS)):
        message = f"{location(loaded.origin, NESTED)} has no field {quote(str(unknown[0]))}"
        raise InputError(message, f"known are {', '.join(sorted(KNOBS))}")
    values = {name: _value(name, x) for name, x in nested.items() if x is not None}
    own = {name: x for name, x in loaded.fields.items() if name in KNOBS and x is not None}
    own |= {} if loaded.scale is None else {"scale": loaded.scale}
    for name, x in own.items():
        value = _value(name, x)
        if name in values and values[name] != value:
            message = f"{loaded.origin} has {name} twice, and they differ"
            raise InputError(message, "keep one of them")
        values[name] = value
    try:
        convention = Convention(**values)
    except ConventionError as error:
        raise InputError(f"{loaded.origin}, {error.message}", error.hint) from error
    return {name: getattr(convention, name) for name in values}


def kv_len_of(loaded: FileContents) -> list[int] | None:
    """The key lengths that a file names, one for each batch item, or None."""
    value: Any = loaded.fields.get(KV_LEN)
    if value is None:
        return None
    if isinstance(value, str):
        value = [int(part) if part.strip().isdecimal() else part for part in value.split(",")]
    lengths = [*map(_whole, value if isinstance(value, list) else [value])]
    if not lengths or not all(type(n) is int for n in lengths):
        hint = "give one whole number for each batch item"
        raise InputError(f"{location(loaded.origin, KV_LEN)} holds no lengths", hint)
    return lengths


def layout_of(loaded: FileContents) -> Layout | None:
    """The order of the axes that a file names, or None; InputError for another name."""
    layout: Any = loaded.fields.get(LAYOUT)
    if isinstance(layout, list) and len(layout) == 1:
        (layout,) = layout
    layout = layout.lower() if isinstance(layout, str) else layout
    if layout is not None and layout not in LAYOUTS:
        message = f"{location(loaded.origin, LAYOUT)} is {quote(str(layout))}"
        raise InputError(message, f"use {listing(LAYOUTS)}")
    known: Layout | None = layout
    return known


def _value(name: str, value: Any) -> Any:
    """A value as a field has it: text is read as that of a flag, a list is a pair."""
    knob, default = KNOBS[name], getattr(Convention, name)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    word = str(value).lower()
    if name == "scale" and word in get_args(ScaleRule):
        return word
    if word == "none":
        return None
    if name in CHOICES:
        word = word.removeprefix("torch.").replace("_", "-")
        return word if word in CHOICES[name] else value
    if isinstance(default, bool):
        return _TRUTH.get(word, value)
    if isinstance(value, str) and value != default:
        try:
            return knob.parse(value) if knob.parse else value
        except (ValueError, OverflowError):
            return value
    if isinstance(value, list):
        return tuple(map(_whole, value))
    return _whole(value) if name == "seed" else value


def _whole(number: Any) -> Any:
    """A float that is a whole number, as an array of floats holds it, as that."""
    return int(number) if isinstance(number, float) and number.is_integer() else number
