"""What the names in a file mean: which array is q, k, v, the mask or the cache; which is a field.

lookup.py finds them in what a file holds. Names alone are read here, without NumPy: --help does.
"""

from __future__ import annotations

from typing import NamedTuple

from attncli.convention import KNOBS
from attncli.files.messages import several
from attncli.stages import GRADIENTS, stages_called

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
    "x_v": Names(
        ("x_v",), "Separate embeddings for V (default: those of K).", "Kernels", most=3, form=_X
    ),
    "past_k": Names(
        tuple(form.format(word) for word in _K for form in _PAST),
        "Cached keys, put before the keys; with one axis more than q, they are split into heads.",
        panel="Kernels",
    ),
    "past_v": Names(
        tuple(form.format(word) for word in _V for form in _PAST),
        "Cached values, put before the values; they have the same axes as the cached keys.",
        panel="Kernels",
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
        panel="Kernels",
        fewest=1,
        most=1,
        form="give one number for each head",
    ),
    "q_gain": Names(
        ("q_gain",),
        "Gains of the norm of the queries (--qk-norm): d_k numbers that they are multiplied by.",
        panel="Scores",
        fewest=1,
        most=1,
        form="give one number for each entry of a query",
    ),
    "k_gain": Names(
        ("k_gain",),
        "Gains of the norm of the keys, as --q-gain.",
        panel="Scores",
        fewest=1,
        most=1,
        form="give one number for each entry of a key",
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
ONES_SHOW = (
    "--d-output ones is the gradient of output.sum(): mix-ups of queries, heads or dimensions stay "
    "hidden; --d-output random shows them"
)
"""What is said of `--d-output ones`."""

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
        "d_q_gain": ("q_gain",),
        "d_k_gain": ("k_gain",),
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


# ---- fields

KV_LEN, LAYOUT, NESTED = "kv_len", "layout", "convention"
FIELDS = {*KNOBS, KV_LEN, LAYOUT, NESTED} - {"scale"}
"""Their names, in lowercase. `scale` is read from every file, whoever asks."""


def is_field(name: str) -> bool:
    """Whether a file may say something of its attention by this name: in any case, with - or _."""
    return name.lower().replace("-", "_") in FIELDS
