"""From sources and flags to the arguments of `attend`: reading, roles, layout, labels, mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.heads import heads_first, shape_text, split_heads
from attncli.cli.choices import Choices
from attncli.cli.masks import checked_mask
from attncli.cli.options import Inputs
from attncli.cli.parsing import whole_numbers
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.load import Loaded, load
from attncli.files.roles import Role, attention_prefix, only, pick

Array = npt.NDArray[Any]
Labels = tuple[str, ...] | None


@dataclass
class Gathered:
    """Everything that one attention is computed from, and the remarks on where it came from."""

    q: Array
    k: Array
    v: Array
    mask: Array | None = None
    past_k: Array | None = None
    past_v: Array | None = None
    kv_len: list[int] | None = None
    query_labels: Labels = None
    key_labels: Labels = None
    convention: Convention = field(default_factory=Convention)
    in_heads: bool = False
    stdin_used: bool = False
    remarks: list[str] = field(default_factory=list)

    @property
    def score_shape(self) -> tuple[int, ...]:
        """The shape the scores will have."""
        past = 0 if self.past_k is None else self.past_k.shape[-2]
        return (*self.q.shape[:-1], self.k.shape[-2] + past)

    @property
    def arguments(self) -> dict[str, Any]:
        """What `attend`, `stream` and `check` all take, by name."""
        names = ("q", "k", "v", "mask", "past_k", "past_v", "kv_len", "convention")
        return {name: getattr(self, name) for name in names}

    @property
    def token_names(self) -> dict[str, Labels]:
        """Axis → the names of its tokens."""
        return {"query": self.query_labels, "key": self.key_labels}

    @property
    def labels(self) -> dict[str, Any]:
        """What `attend` and `check` take besides, by name."""
        return {"query_labels": self.query_labels, "key_labels": self.key_labels}


def gather(inputs: Inputs, choices: Choices) -> Gathered:
    """Reads every source once and makes one set of arguments of them.

    Raises InputError, ShapeError or ConventionError where they cannot be read or do not fit.
    """
    sources = _Sources(inputs)
    gathered = sources.arrays()
    gathered.convention = choices.over(sources.base())
    gathered.mask = sources.mask(choices.given.get("mask_means"))
    _arrange(gathered, inputs)
    gathered.query_labels, gathered.key_labels = sources.labels(gathered)
    if inputs.kv_len is not None:
        gathered.kv_len = whole_numbers(inputs.kv_len, "--kv-len", "N[,N…], one per batch item")
    gathered.remarks += sources.remarks
    gathered.stdin_used = sources.stdin_used
    return gathered


class _Sources:
    """The sources of one call, each read once."""

    def __init__(self, inputs: Inputs) -> None:
        named: dict[Role, str | None] = {
            "q": inputs.q,
            "k": inputs.k,
            "v": inputs.v,
            "mask": inputs.mask,
            "past_k": inputs.past_k,
            "past_v": inputs.past_v,
        }
        given: dict[Role, str] = {
            role: source for role, source in named.items() if source is not None
        }
        _check_standard_input(given)
        self.remarks: list[str] = []
        self.loaded: dict[Role, Loaded] = {}
        read: dict[str, Loaded] = {}
        for role, source in given.items():
            if source not in read:
                read[source] = load(source, role=role)
                self.remarks += read[source].warnings
            self.loaded[role] = read[source]
        self.main = self.loaded["q"]
        self.stdin_used = any(_is_stdin(source) for source in given.values())

    def arrays(self) -> Gathered:
        """q, k, v and the cache, from their own flags or from the file of --q."""
        q = pick(self.main, "q")
        k = self._one("k")
        if k is None:
            k = q
            self.remarks.append(f"{self.main.origin} names no keys: K = Q")
        v = self._one("v")
        if v is None:
            v = k
            self.remarks.append(f"{self.main.origin} names no values: V = K")
        past_k, past_v = self._one("past_k"), self._one("past_v")
        if (past_k is None) != (past_v is None):
            has, lacks = ("k", "v") if past_v is None else ("v", "k")
            raise ConventionError(f"there is a past_{has} but no past_{lacks}", "give both")
        return Gathered(q, k, v, past_k=past_k, past_v=past_v)

    def _one(self, role: Role) -> Array | None:
        if role in self.loaded:
            return only(self.loaded[role], role)
        return pick(self.main, role)

    def base(self) -> Convention:
        """The convention that the input itself brings: a saved trace's, or a file's scale."""
        trace = self.main.trace
        if trace is None or trace.convention is None:
            scale = self.main.scale
            return Convention() if scale is None else Convention(scale=scale)
        # What masked the trace is in its stage `mask`; it is not laid over that once more.
        prefix = attention_prefix(list(trace), self.main.origin) or ""
        own = trace.part(prefix.removesuffix(".")).convention or trace.convention
        base = replace(own, causal=False, window=None, causal_align="top-left", mask_means="keep")
        changed = ", ".join(f"{name} {value}" for name, value in base.changes().items())
        if changed:
            self.remarks.append(f"{self.main.origin} is a trace with {changed}: kept")
        return base

    def mask(self, means: str | None) -> Array | None:
        """The mask as booleans or as numbers to add."""
        mask = self._one("mask")
        if mask is None:
            if means is not None:
                raise ConventionError("--mask-means is given, but no mask", "add --mask SOURCE")
            return None
        origin = self.loaded.get("mask", self.main).origin
        if self.main.trace is not None and "mask" not in self.loaded:
            return mask.astype(np.float64)
        return checked_mask(mask, means, origin)

    def labels(self, gathered: Gathered) -> tuple[Labels, Labels]:
        """Names of the queries and of all keys, the cached ones included."""
        n_q, n_k = gathered.q.shape[-2], gathered.k.shape[-2]
        own = self.loaded.get("k", self.main)
        queries = self.main.query_labels or self.main.row_labels
        keys = own.key_labels or own.row_labels
        if keys is None and own is self.main and n_k == n_q:
            keys = queries
        if queries is not None and len(queries) != n_q and self.main.key_labels == queries:
            queries = None if len(queries) == n_k else queries
        if keys is not None and len(keys) != n_k and keys == queries and len(keys) == n_q:
            keys = None
        _check_labels(queries, n_q, "queries", self.main.origin)
        _check_labels(keys, n_k, "keys", own.origin)
        n_past = gathered.score_shape[-1] - n_k
        if keys is not None and n_past:
            keys = (*(f"past {index + 1}" for index in range(n_past)), *keys)
        return queries, keys


def _check_standard_input(given: Mapping[Role, str]) -> None:
    named = sorted({source for source in given.values() if _is_stdin(source)})
    if len(named) > 1:
        raise ConventionError(
            f"standard input can be read only once, not as {' and '.join(named)}",
            "save it to a file, then name parts of that with ::",
        )


def _is_stdin(source: str) -> bool:
    return source == "-" or source.startswith("-::")


def _check_labels(labels: Labels, n: int, what: str, origin: str) -> None:
    if labels is not None and len(labels) != n:
        raise InputError(
            f"{origin} has {len(labels)} tokens for {n} {what}",
            'give one name each, or {"queries": […], "keys": […]}',
        )


def _arrange(gathered: Gathered, inputs: Inputs) -> None:
    """Brings every array into the order (batch, head, token, d), split into heads if asked."""
    n_heads, shared = inputs.heads, inputs.kv_heads or inputs.heads
    if inputs.kv_heads is not None and n_heads is None:
        raise ConventionError("--kv-heads is given without --heads", "give both")
    if n_heads and shared and n_heads % shared:
        raise ConventionError(
            f"{n_heads} query heads cannot evenly share {shared} key heads",
            "--heads must be a multiple of --kv-heads",
        )
    for name, heads in (
        ("q", n_heads),
        ("k", shared),
        ("v", shared),
        ("past_k", shared),
        ("past_v", shared),
    ):
        array = getattr(gathered, name)
        if array is not None:
            setattr(gathered, name, _heads_first(array, name, inputs.layout, heads))
    gathered.in_heads = n_heads is not None or inputs.layout == "bsd"


def _heads_first(array: Array, name: str, layout: Any, n_heads: int | None) -> Array:
    try:
        if layout is not None:
            if n_heads and layout != "bsd":
                raise ConventionError(
                    f"--heads splits (tokens, d) or bsd, but --layout is {layout}",
                    "leave one of the two out",
                )
            return heads_first(array, layout, n_heads)
        if n_heads is None:
            return array
        if array.ndim != 2:
            raise ShapeError(
                f"--heads splits (tokens, d) or bsd, this is {shape_text(array)}",
                "if it is (batch, tokens, d), add --layout bsd",
            )
        return split_heads(array, n_heads)
    except ShapeError as error:
        raise ShapeError(f"{name}: {error.message}", error.hint) from None
