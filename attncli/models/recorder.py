"""Every attention of a PyTorch module, watched while it runs.

A call is seen where it is most itself:

    the registry of transformers        q, k, v, mask, scale, softcap, sinks … as the model asks
    scaled_dot_product_attention        q, k, v, mask, is_causal, scale, enable_gqa
    a softmax between two products      q, k and v, and the operations between (softmax.py)

What an outer one has seen is not recorded again by an inner one. The model's own functions run;
they are only watched.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody has it
from torch.overrides import TorchFunctionMode

from attncli.arrays import Array
from attncli.attention.numbers import on_host, type_name
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError
from attncli.models.asked import Asked, asked_by_flags, asked_by_mask
from attncli.models.call import Call, Calls, in_heads, layer_of

_KNOWN = {"scaling", "dropout", "is_causal", "sliding_window", "softcap", "s_aux", "position_bias"}
"""The keywords of an attention function of transformers that say how attention is computed."""

_SDPA = F.scaled_dot_product_attention
_SDPA_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")


@contextmanager
def watched(
    model: Any, calls: Calls, layers: Collection[int] | None, heads: Collection[int] | None
) -> Iterator[None]:
    """Adds the calls of a model's attentions in the block, as `capture` describes them.

    Raises InputError for what is no module, and for layers or heads that are no list of numbers.
    """
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"{type(model).__name__} is no torch.nn.Module", "give the model itself")
    for name, given in (("layers", layers), ("heads", heads)):
        if given is not None and (not isinstance(given, Collection) or not len(given)):
            raise InputError(f"{name} is {given!r}", f"give some numbers: {name}=[0, 3]")
    from attncli.models.softmax import softmaxes

    recorder = Recorder(model, calls, layers, heads)
    with ExitStack() as stack:
        for registry in _registries(model):
            stack.enter_context(_looked_up(registry, recorder))
        recorder.follow(stack)
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_OfFunctions(recorder))
        stack.enter_context(softmaxes(recorder))
        yield
    calls.unseen = recorder.unseen()


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
    ) -> None:
        self.model = model
        self.names = {module: name for name, module in model.named_modules()}
        self.layers, self.heads = layers, None if heads is None else sorted(heads)
        self.calls, self.lock, self.here = calls, threading.Lock(), _Thread()
        self.ran: dict[str, None] = {}
        self.seen: set[str] = set()
        self.n_calls: Counter[str] = Counter()
        self.masks: tuple[Any, Array, dict[Any, Asked]] | None = None
        self.problems: dict[str, str] = {}

    def follow(self, stack: ExitStack) -> None:
        """Knows from now on which module is running in this thread, until the stack is closed."""

        def enter(module: Any, _: Any) -> None:
            self.here.running.append(module)

        def leave(module: Any, *_: Any) -> None:
            if self.here.running[-1:] == [module]:  # else a hook before `enter` raised
                self.here.running.pop()
            self.ran[self.names[module]] = None

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
        found: list[str] = [f"{name}: {why}" for name, why in self.problems.items()]
        for module, name in self.names.items():
            kind = type(module).__name__.lower()
            is_one = name in self.ran and ("attention" in kind or "attn" in kind)
            if not is_one or any(_is_within(name, other) for other in found):
                continue
            seen = (*self.seen, *self.problems)
            if not any(_is_within(s, name) or _is_within(name, s) for s in seen):
                found.append(name)
        return tuple(found)

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
        seen: str,
        tensors: dict[str, Any],
        fields: dict[str, Any],
        *,
        name: str | None = None,
        mask: Any = None,
        left: int | None = None,
        empty: str = "zero",
        **more: Any,
    ) -> None:
        """Records a call.

        tensors  q, k, v, output, and weights and sinks where there are any
        fields   of Convention; those of the mask are added
        mask     what is added to the scores, or true = may attend; left: see `asked_by_mask`

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
            raise InputError(
                "the model is on the meta device: it has no numbers", "load its weights"
            )
        dtype = type_name(tensors["output"])  # q and k may be wider
        tensors |= {n: _cast(tensors[n]) for n in ("q", "k", "v")}
        arrays = {n: _copied(x) for n, x in tensors.items() if x is not None}
        lead = np.broadcast_shapes(*(arrays[n].shape[:-3] for n in ("q", "k", "v")))
        for n, x in arrays.items():
            own = x.ravel() if n == "sinks" else np.broadcast_to(x, (*lead, *x.shape[-3:]))
            arrays[n] = own if n == "sinks" else in_heads(own, n)
        if mask is not None:
            shape = (*arrays["q"].shape[:-1], arrays["k"].shape[-2])
            asked = self.asked(mask, lead, shape, left, empty)
            fields = {**fields, **asked.fields}
            if asked.mask is not None:
                arrays["mask"] = asked.mask
        if self.heads is not None:
            arrays = _of_heads(arrays, self.heads)
        if fields.get("scale") == 1:
            fields["scale"] = "none"
        try:
            how = Convention(**fields)
        except ConventionError as problem:
            self.problems.setdefault(name, problem.message)
            return
        self.calls.append(Call(name, arrays, how, dtype, seen, step, **more))

    def asked(
        self,
        mask: Any,
        lead: tuple[int, ...],
        shape: tuple[int, ...],
        left: int | None,
        empty: str,
    ) -> Asked:
        """What a mask asks for, of the keys that there are; layers with one mask share it.

        lead  the axes of q before its heads: where there are several, they become one
        """
        found = np.asarray(on_host(mask))[..., : shape[-1]]
        if len(lead) > 1 and found.ndim > 3:
            found = np.broadcast_to(found, (*lead, *found.shape[-3:]))
            found = found.reshape(-1, *found.shape[-3:])
        if self.masks is None or self.masks[0] is not mask or not _same(self.masks[1], found):
            self.masks = mask, found.copy(), {}
        _, own, known = self.masks
        key = shape[-2:], left, empty
        if key not in known:
            known[key] = asked_by_mask(own, shape, left, empty)
        return known[key]


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.array_equal(a, b))


def _is_within(name: str, outer: str) -> bool:
    return not outer or name == outer or name.startswith(f"{outer}.")


def _cast(x: Any) -> Any:
    """A tensor in the type to which autocast casts it in a product."""
    kind = x.device.type
    is_wide = x.dtype == torch.float32 and torch.is_autocast_enabled(kind)
    return x.to(torch.get_autocast_dtype(kind)) if is_wide else x


def _copied(x: Any) -> Array:
    """The numbers of a tensor, which may change later: a copy."""
    found: Array = np.asarray(on_host(x)).copy()  # np.array(tensor) warns of an old __array__
    return found


def _of_heads(arrays: dict[str, Array], heads: list[int]) -> dict[str, Array]:
    """The arrays of some query heads; those of key heads once for each query head."""
    n_heads = arrays["q"].shape[-3] if arrays["q"].ndim > 2 else 1
    if not set(heads) <= set(range(n_heads)):
        raise InputError(f"there are {n_heads} heads", f"name some from 0 to {n_heads - 1}")
    found = {}
    for name, x in arrays.items():
        axis = 0 if name == "sinks" else -3
        size = x.shape[axis] if x.ndim >= -axis else 1
        at = heads if size == n_heads else [head * size // n_heads for head in heads]
        found[name] = x if size == 1 and name == "mask" else np.take(x, at, axis)
    return found


# ---- the registry of transformers


def _registries(model: Any) -> list[Any]:
    """The registries of attention functions that the classes of the model's modules look into."""
    library = sys.modules.get("transformers.modeling_utils")
    kind: Any = getattr(library, "AttentionInterface", None)
    names = {cls.__module__ for module in model.modules() for cls in type(module).__mro__}
    found = {}
    for name in names if kind is not None else ():
        for x in vars(sys.modules.get(name) or object).values():
            if kind in type(x).__mro__:
                found[id(x)] = x
    return list(found.values())


@contextmanager
def _looked_up(registry: Any, recorder: Recorder) -> Iterator[None]:
    """What is looked up in the registry, and the model's own function where that is used."""
    own = type(registry)

    class Watched(own):  # type: ignore[misc, valid-type]
        def __getitem__(self, key: str) -> Any:
            return _watching(super().__getitem__(key), recorder, key)

        def get_interface(self, attn_implementation: str, default: Any) -> Any:
            found = super().get_interface(attn_implementation, default)
            return _watching(found, recorder, attn_implementation or "eager")

    registry.__class__ = Watched
    try:
        yield
    finally:
        registry.__class__ = own


def _watching(function: Any, recorder: Recorder, implementation: str) -> Any:
    """An attention function that is recorded where a module of the model calls it."""
    if _is_watching(function) and function.args[1] is recorder:
        return function
    return partial(_recorded, function, recorder, implementation)


def _is_watching(function: Any) -> bool:
    return isinstance(function, partial) and function.func is _recorded


def _recorded(
    function: Any,
    recorder: Recorder,
    implementation: str,
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Calls an attention function of transformers; records what went in and what came out."""
    call = partial(function, module, query, key, value, attention_mask, *args, **kwargs)
    if module not in recorder.names or recorder.is_busy:
        return call()
    with recorder.busy():
        output, weights = found = call()
    if attention_mask is not None and not isinstance(attention_mask, torch.Tensor):
        why = f"its mask is a {type(attention_mask).__name__}"
        recorder.misunderstood(f'{why}; load the model with attn_implementation="sdpa"')
        return found
    while _is_watching(function):  # by another capture
        function = function.args[0]
    names = list(signature(function).parameters)[5:]
    said = {**dict(zip(names, args, strict=False)), **kwargs}
    n_q, n_k = query.shape[-2], key.shape[-2]
    left = int(said["sliding_window"]) - 1 if said.get("sliding_window") else None
    causal = said.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", implementation != "eager")
    mask = _with_bias(attention_mask, said.get("position_bias"), n_q, n_k)
    fields = {"scale": said.get("scaling"), "softcap": said.get("softcap")}
    fields = {name: float(x) for name, x in fields.items() if x is not None}
    if attention_mask is None or attention_mask.ndim == 2:  # of valid keys alone
        flags = asked_by_flags(bool(causal), left, n_q, n_k)
        if implementation == "sdpa":  # which counts from the first key, as in a static cache
            flags.pop("causal_align", None)
        fields |= flags
    tensors = {"q": query, "k": key, "v": value, "sinks": said.get("s_aux")}
    tensors |= {"weights": weights, "output": output.transpose(1, 2)}
    notes = [f"dropout {said['dropout']:g} was on"] if said.get("dropout") else []
    others = [n for n, x in said.items() if n not in _KNOWN and isinstance(x, torch.Tensor)]
    others = [n for n in others if not n.endswith(("ids", "position", "positions", "lens"))]
    notes += [f"the model passed {n} too, which is not used here" for n in others]
    recorder.add(
        f"attention interface ({implementation})",
        tensors,
        fields,
        name=recorder.names[module],
        mask=mask,
        left=left,
        empty="nan" if implementation == "eager" else "zero",
        notes=tuple(notes),
    )
    return found


def _with_bias(mask: Any, bias: Any, n_q: int, n_k: int) -> Any:
    """A mask and a bias of positions as one that is added."""
    if mask is not None and mask.ndim == 2:  # valid keys of each batch item
        mask = mask[:, None, None, -n_k:].bool()
    if bias is None or mask is None:
        return mask if bias is None else bias
    mask, bias = mask[..., :n_k], bias.detach().float()
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, torch.finfo(torch.float32).min)
    return torch.maximum(bias + mask.float(), torch.tensor(torch.finfo(torch.float32).min))


# ---- scaled_dot_product_attention, whoever calls it


class _OfFunctions(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not _SDPA or self.recorder.is_busy:
            return func(*args, **kwargs)
        with self.recorder.busy():
            output = func(*args, **kwargs)
        given = dict(zip(_SDPA_NAMES, args, strict=False)) | kwargs
        record_sdpa(self.recorder, given, output)
        return output


def record_sdpa(recorder: Recorder, given: dict[str, Any], output: Any) -> None:
    """Records a call of scaled_dot_product_attention by its arguments."""
    tensors = {"q": given["query"], "k": given["key"], "v": given["value"], "output": output}
    fields: dict[str, Any] = {"causal": True} if given.get("is_causal") else {}
    if given.get("scale") is not None:
        fields["scale"] = float(given["scale"])
    dropout = given.get("dropout_p")
    notes = (f"dropout {dropout:g} was on",) if dropout else ()
    name = "scaled_dot_product_attention"
    recorder.add(name, tensors, fields, mask=given.get("attn_mask"), notes=notes)
