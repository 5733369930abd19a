"""Call: one attention that a model computed, as numbers and what they were meant to be.

q, k, v, mask, sinks, Convention ── trace ──> Trace
weights, output ── check ──> Verdict
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from attncli.arrays import Array
from attncli.convention import Convention
from attncli.errors import ConventionError, OutputError, ShapeError
from attncli.files.write import write_dump
from attncli.stages import OUTPUT, QKV, WEIGHTS, gradient_of

if TYPE_CHECKING:
    from attncli.commands.check.verdict import Verdict
    from attncli.trace import Trace

GRADIENTS = tuple(gradient_of(name) for name in QKV)
OBSERVED = (WEIGHTS, OUTPUT, *GRADIENTS)
"""The arrays of a call that the model computed; the others went in."""


_NO_GRADIENTS = "there are no gradients yet: run loss.backward(), outside of torch.no_grad()"


@dataclass(frozen=True, eq=False, repr=False)
class Call:
    """One attention of a model, recorded while it ran.

    name        the module's dotted name, such as "model.layers.3.self_attn"
    arrays      q [batch, head, n_q, d_k], k and v [batch, kv_head, n_k, d], as attention reads
                them: after rotary positions, normalization and cache; mask and sinks, where there
                are any; output [batch, head, n_q, d_v], and weights, where the model computes them;
                d_output, d_q, d_k and d_v, the gradients, once the backward pass has run
    convention  what the model asks for: scale, causal, window, softcap …
    dtype       the number type the model computed in; bfloat16 is kept as float32
    seen        how the call was seen: "attention interface (sdpa)", "scaled_dot_product_attention",
                "softmax"
    step        how often the module had been called before, as in generating token by token
    operations  where the softmax was seen: what the model does to Q Kᵀ before it, in this order
    notes       what else was asked for that is not computed here, one sentence each
    shape       the shape that the scores have, [batch, head, n_q, n_k]
    asks_gradients  whether gradients were asked for
    """

    name: str
    arrays: Mapping[str, Array]
    convention: Convention = field(default_factory=Convention)
    dtype: str = "float32"
    seen: str = ""
    step: int = 0
    operations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    asks_gradients: bool = False

    def __post_init__(self) -> None:
        if not self.shape:
            shape = (*self.arrays["q"].shape[:-1], self.arrays["k"].shape[-2])
            object.__setattr__(self, "shape", shape)

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.shape))
        return f"<Call {self.key}: {shape} scores, {self.dtype}, by {self.seen}>"

    @property
    def layer(self) -> int | None:
        """The first number in the name, counted from 0, or None."""
        return layer_of(self.name)

    @property
    def key(self) -> str:
        """What a file calls it: the module's name, before it the step where it is not the first."""
        name = self.name or "attention"
        return f"steps.{self.step}.{name}" if self.step else name

    def trace(
        self,
        *,
        tokens: Sequence[str] | None = None,
        query_labels: Sequence[str] | None = None,
        key_labels: Sequence[str] | None = None,
    ) -> Trace:
        """Every stage, computed from the captured q, k and v, in float64.

        tokens    names of the keys; the queries are the last of them
        *_labels  names of the queries or of the keys alone, such as those of cross-attention

        The axis of a batch of one is left out. Raises ShapeError where labels do not fit, and what
        `attend` does.
        """
        from attncli.attention.attend import attend

        inputs = self._inputs()
        if tokens is not None:
            n_q, n_k = inputs["q"].shape[-2], inputs["k"].shape[-2]
            if len(tokens) != n_k:
                message = f"there are {len(tokens)} tokens for {n_k} keys of {self.name}"
                raise ShapeError(message, "give one for each key, or query_labels and key_labels")
            key_labels = tokens if key_labels is None else key_labels
            query_labels = tokens[n_k - n_q :] if query_labels is None else query_labels
        labels: dict[str, Any] = {"query_labels": query_labels, "key_labels": key_labels}
        trace = attend(**inputs, convention=self.convention, **labels)
        title = f"{self.name}: {trace.title}" if self.name else trace.title
        notes = list(trace.notes)
        if self.operations:
            notes.append(f"Between Q Kᵀ and softmax: {' → '.join(self.operations)}.")
        return replace(trace, title=title, notes=(*notes, *self.notes))

    def check(self, **options: Any) -> Verdict:
        """Do the model's own weights and output agree with exact attention of its q, k and v?

        And its gradients, where they were asked for and have come.
        The reference is computed from what went in and from what the model asks for, never by the
        function that the model called. options: further keywords of `attncli.check`.
        """
        from attncli.commands.check.diagnose import check

        has_gradients = gradient_of(OUTPUT) in self.arrays
        names = [name for name in OBSERVED if has_gradients or name not in GRADIENTS]
        observed = {name: self._one(name) for name in names if name in self.arrays}
        is_bfloat16 = self.dtype == "bfloat16"  # which the arrays do not tell
        typed = replace(self.convention, dtype="bfloat16" if is_bfloat16 else "float64")
        verdict = check(observed, **self._inputs(), convention=typed, **options)
        missing = (_NO_GRADIENTS,) if self.asks_gradients and not has_gradients else ()
        return replace(verdict, notes=(*verdict.notes, *self.notes, *missing))

    def _one(self, name: str) -> Array:
        """An array, without the axis of a batch of one."""
        x = self.arrays[name]
        is_one = self.arrays["q"].ndim == 4 and self.arrays["q"].shape[0] == 1
        return x[0] if is_one and x.ndim == 4 else x

    def _inputs(self) -> dict[str, Any]:
        return {name: self._one(name) for name in self.arrays if name not in OBSERVED}

    def entries(self) -> dict[str, Array | str]:
        """What a file keeps of it: the arrays, and the convention as JSON."""
        from attncli.files.write import json_text

        is_boolean = self.arrays.get("mask", np.ones(0)).dtype == bool
        fields = ({"mask_means": "keep"} if is_boolean else {}) | self.convention.changes()
        arrays = {name: self._one(name) for name in self.arrays}
        return {**arrays, "convention": json_text(fields), "title": self.name}


class Calls(Sequence[Call]):
    """The calls of a model in the order in which they ran.

    folder  where each is written as it comes, to a file of its own; None: they stay in memory
    unseen  names of modules called attention that ran and whose attention was not recorded, and
            why, where that is known
    """

    def __init__(self, calls: Iterable[Call] = (), folder: str | None = None) -> None:
        self._calls = list(calls)
        self.folder = folder
        self.unseen: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Call: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Call]: ...

    def __getitem__(self, index: int | slice) -> Call | Sequence[Call]:
        if isinstance(index, slice):
            return [self._whole(call) for call in self._calls[index]]
        return self._whole(self._calls[index])

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        lines = [f"{number}: {call!r}" for number, call in enumerate(self._calls)]
        lines += [f"not seen: {name}" for name in self.unseen]
        return "\n".join(lines) or "<no calls>"

    def append(self, call: Call) -> None:
        """Adds a call; its arrays go to a file of its own where there is a folder."""
        if self.folder is not None:
            entries, hint = call.entries().items(), "name a new folder"
            write_dump(self._path(call), entries, force=False, hint=hint)
            call = replace(call, arrays={})
        self._calls.append(call)

    def add_gradient(self, index: int, name: str, x: Array) -> None:
        """Adds what the backward pass gave to a call, or puts it in the place of an earlier one."""
        call = self[index]
        call = replace(call, arrays={**call.arrays, name: x})
        if self.folder is not None:
            write_dump(self._path(call), call.entries().items(), force=True)
            call = replace(call, arrays={})
        self._calls[index] = call

    def save(self, path: str, *, force: bool = False) -> None:
        """Writes all calls to an npz or a safetensors file, which compute, check and diff read.

        Each is a part of the file by its `key`: `attncli check --q dump.npz::layers.3` reads the
        one whose key has "layers.3" in it. force replaces a file that is there.

        Raises OutputError where it cannot be written, MissingExtraError for safetensors without
        its package.
        """
        if not self:
            raise OutputError("there are no calls to save", "run the model in the block of capture")
        entries = ((f"{call.key}.{name}", x) for call in self for name, x in call.entries().items())
        write_dump(path, entries, force=force, hint="replace it with force=True")

    def _path(self, call: Call) -> str:
        return os.path.join(self.folder or "", f"{call.key}.npz")

    def _whole(self, call: Call) -> Call:
        """A call with its arrays, from its file where they are there."""
        if self.folder is None:
            return call
        with np.load(self._path(call)) as file:
            arrays = {name: x for name, x in file.items() if x.dtype.kind != "U"}
        if len(call.shape) == 4 and call.shape[0] == 1:  # a batch of one is left out in files
            arrays = {name: x[None] if x.ndim == 3 else x for name, x in arrays.items()}
        return replace(call, arrays=arrays)


def layer_of(name: str) -> int | None:
    """The first number in the name of a module, or None."""
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def in_heads(x: Array, name: str) -> Array:
    """q, k or v as [batch, head, token, d]; ConventionError for fewer than two axes."""
    if x.ndim < 2:
        raise ConventionError(f"{name} has {x.ndim} axes", "attention needs (tokens, d)")
    return x if x.ndim <= 4 else x.reshape(-1, *x.shape[-3:])
