"""Which module of a model is running, and the attention calls that were seen of it so far."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from attncli.arrays import Array
from attncli.attention.shapes import on_host, type_name
from attncli.commands.model.call import Call, Calls, in_heads, layer_of
from attncli.commands.model.inferred_convention import InferredConvention, convention_of_mask
from attncli.commands.model.pytorch.gradients import Hooks
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError
from attncli.stages import OUTPUT, QKV, gradient_of

ADDED = -1e30
"""Stands for the least number of a type where that is added to scores: it absorbs them, too."""


class _Thread(threading.local):
    """The modules that are running in a thread, and whether a call is being recorded there."""

    def __init__(self) -> None:
        self.running: list[Any] = []
        self.is_recording = False


class Recorder:
    """Which module is running, and the calls seen so far."""

    def __init__(
        self,
        model: Any,
        calls: Calls,
        layers: Collection[int] | None,
        heads: Collection[int] | None,
        hooks: Hooks | None = None,
    ) -> None:
        self.model, self.hooks = model, hooks
        self.names = {module: name for name, module in model.named_modules()}
        self.layers, self.heads = layers, None if heads is None else sorted(heads)
        self.calls, self.lock, self.here = calls, threading.Lock(), _Thread()
        self.thread = threading.get_ident()
        self.ran: dict[str, None] = {}
        self.seen: set[str] = set()
        self.n_calls: Counter[str] = Counter()
        self.masks: tuple[Any, Array, dict[Any, InferredConvention]] | None = None
        self.problems: dict[str, str] = {}

    def follow(self, stack: ExitStack) -> None:
        """Knows from now on which module is running in this thread, until the stack is closed."""

        def enter(module: Any, _: Any) -> None:
            self.here.running.append(module)

        def leave(module: Any, *_: Any) -> None:
            if self.here.running[-1:] == [module]:  # else a hook before `enter` raised
                self.here.running.pop()
            self.ran[self.names[module]] = None
            if self.hooks is not None:
                self.hooks.settle()

        for module in self.names:
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave, always_call=True).remove)

    @property
    def where(self) -> str:
        """The name of the module that is running."""
        return self.names[self.here.running[-1]] if self.here.running else ""

    @property
    def is_busy(self) -> bool:
        """Whether nothing is to be recorded: within a recorded call, and outside of the model."""
        return self.here.is_recording or not self.here.running

    def unseen(self) -> tuple[str, ...]:
        """The outermost modules called attention that ran and in which none was seen."""
        unseen = [f"{name}: {why}" for name, why in self.problems.items()]
        for module, name in self.names.items():
            kind = type(module).__name__.lower()
            is_one = name in self.ran and ("attention" in kind or "attn" in kind)
            if not is_one or any(_is_within(name, other) for other in unseen):
                continue
            names = (*self.seen, *self.problems)
            if not any(_is_within(s, name) or _is_within(name, s) for s in names):
                unseen.append(name)
        return tuple(unseen)

    def misunderstood(self, why: str) -> None:
        """Notes that the attention of the running module is not understood, and why."""
        self.problems.setdefault(self.where, why)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """What runs in the block is part of a call that is recorded as a whole."""
        before, self.here.is_recording = self.here.is_recording, True
        try:
            yield
        finally:
            self.here.is_recording = before

    def add(
        self,
        origin: str,
        tensors: dict[str, Any],
        fields: dict[str, Any],
        *,
        name: str | None = None,
        mask: Any = None,
        window_left: int | None = None,
        empty: str = "zero",
        replaces: bool = False,
        tracked: Mapping[str, Any] | None = None,
        placed: Callable[[str, Any], Any] = lambda name, x: x,
        **more: Any,
    ) -> None:
        """Records a call.

        tensors  q, k, v, output, and weights and sinks where there are any
        fields   of Convention; those of the mask are added
        mask     what is added to the scores, or true = may attend; see `convention_of_mask`
        replaces whether what forbids is put in the place of scores, and not added: no gradient
                 passes then, where else every key is forbidden
        tracked  the tensors whose gradients are those of q, k, v and the output, where they are not
                 those of `tensors`; placed: gives a gradient of one its axes

        Where no Convention has what is asked for, it is noted as not understood.
        """
        name = self.where if name is None else name
        with self.lock:
            self.seen.add(name)
            step = self.n_calls[name]
            self.n_calls[name] += 1
        if self.layers is not None and layer_of(name) not in self.layers:
            return
        if tensors["q"].device.type == "meta":
            message = "the model is on the meta device: it has no numbers"
            raise InputError(message, "load its weights")
        tracked = {n: tensors[n] for n in (*QKV, OUTPUT)} if tracked is None else tracked
        dtype = type_name(tensors[OUTPUT])  # q and k may be wider
        tensors |= {n: _cast(tensors[n]) for n in ("q", "k", "v")}
        arrays = {n: _copied(x) for n, x in tensors.items() if x is not None}
        lead = np.broadcast_shapes(*(arrays[n].shape[:-3] for n in ("q", "k", "v")))
        for n, x in arrays.items():
            whole = x.ravel() if n == "sinks" else np.broadcast_to(x, (*lead, *x.shape[-3:]))
            arrays[n] = whole if n == "sinks" else in_heads(whole, n)
        if mask is not None:
            shape = (*arrays["q"].shape[:-1], arrays["k"].shape[-2])
            mask_convention = self.mask_convention(mask, lead, shape, window_left, empty)
            fields = {**fields, **mask_convention.fields}
            if self.hooks is not None and fields.get("empty_rows") == "uniform" and not replaces:
                del fields["empty_rows"]
                fields |= {"mask_value": ADDED, "mask_value_rule": "add"}
            if mask_convention.mask is not None:
                arrays["mask"] = mask_convention.mask
        n_heads = arrays["q"].shape[-3] if arrays["q"].ndim > 2 else 1
        if "sinks" in arrays and arrays["sinks"].size != n_heads:
            self.problems.setdefault(name, "its sinks are not one number for each head")
            return
        if self.heads is not None:
            arrays = _of_heads(arrays, self.heads)
        if fields.get("scale") == 1:
            fields["scale"] = "none"
        try:
            convention = Convention(**fields)
        except ConventionError as problem:
            self.problems.setdefault(name, problem.message)
            return
        asks = self.hooks is not None
        self.calls.append(
            Call(name, arrays, convention, dtype, origin, step, asks_gradients=asks, **more)
        )
        if self.hooks is not None:
            shapes, at = {n: arrays[n].shape for n in (*QKV, OUTPUT)}, len(self.calls) - 1

            def arrived(n: str, gradient: Any) -> None:
                x = in_heads(_copied(placed(n, gradient)), n)
                if self.heads is not None:
                    of_call = {n: x, "q": np.empty((n_heads, 1, 1))}
                    x = _of_heads(of_call if n != "q" else {n: x}, self.heads)[n]
                if x.shape == shapes[n]:  # else one tensor served several batch items
                    self.calls.add_gradient(at, gradient_of(n), x)

            self.hooks.add(tracked, arrived)

    def mask_convention(
        self,
        mask: Any,
        lead: tuple[int, ...],
        shape: tuple[int, ...],
        window_left: int | None,
        empty: str,
    ) -> InferredConvention:
        """What a mask asks for, of the keys that there are; layers with one mask share it.

        lead  the axes of q before its heads: where there are several, they become one
        """
        numbers = np.asarray(on_host(mask))[..., : shape[-1]]
        if len(lead) > 1 and numbers.ndim > 3:
            numbers = np.broadcast_to(numbers, (*lead, *numbers.shape[-3:]))
            numbers = numbers.reshape(-1, *numbers.shape[-3:])
        last = self.masks
        if last is None or last[0] is not mask or not np.array_equal(last[1], numbers):
            self.masks = last = mask, numbers.copy(), {}
        _, numbers, cache = last
        key = shape[-2:], window_left, empty
        if key not in cache:
            cache[key] = convention_of_mask(numbers, shape, window_left, empty)
        return cache[key]


def _is_within(name: str, outer: str) -> bool:
    return not outer or name == outer or name.startswith(f"{outer}.")


def _cast(x: Any) -> Any:
    """A tensor in the type to which autocast casts it in a product."""
    kind = x.device.type
    is_wide = x.dtype == torch.float32 and torch.is_autocast_enabled(kind)
    return x.to(torch.get_autocast_dtype(kind)) if is_wide else x


def _copied(x: Any) -> Array:
    """The numbers of a tensor, which may change later: a copy."""
    return np.asarray(np.asarray(on_host(x)).copy())  # np.array(tensor) warns of an old __array__


def _of_heads(arrays: dict[str, Array], heads: list[int]) -> dict[str, Array]:
    """The arrays of some query heads; those of key heads once for each query head."""
    n_heads = arrays["q"].shape[-3] if arrays["q"].ndim > 2 else 1
    if not set(heads) <= set(range(n_heads)):
        raise InputError(f"there are {n_heads} heads", f"name some from 0 to {n_heads - 1}")
    result = {}
    for name, x in arrays.items():
        axis = 0 if name == "sinks" else -3
        size = x.shape[axis] if x.ndim >= -axis else 1
        at = heads if size == n_heads else [head * size // n_heads for head in heads]
        result[name] = x if size == 1 and name == "mask" else np.take(x, at, axis)
    return result
