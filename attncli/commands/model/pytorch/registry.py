"""Attention functions of the registry of transformers, watched where a model calls them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch

from attncli.commands.model.inferred_convention import fields_of_flags
from attncli.commands.model.pytorch.gradients import own_views
from attncli.commands.model.pytorch.recorder import Recorder
from attncli.stages import OUTPUT, WEIGHTS

_KNOWN = {"scaling", "dropout", "is_causal", "sliding_window", "softcap", "s_aux", "position_bias"}
"""The keywords of an attention function of transformers that say how attention is computed."""


def registries(model: Any) -> list[Any]:
    """The registries of attention functions into which the model looks, but for those watched."""
    library = sys.modules.get("transformers.modeling_utils")
    kind: Any = getattr(library, "AttentionInterface", None)
    names = {cls.__module__ for module in model.modules() for cls in type(module).__mro__}
    modules = [vars(sys.modules.get(name) or object) for name in names if kind is not None]
    members = (x for module in modules for x in module.values() if kind in type(x).__mro__)
    return list({id(x): x for x in members if not hasattr(x, "is_watched")}.values())


@contextmanager
def looked_up(registry: Any, recorders: Sequence[Recorder]) -> Iterator[None]:
    """What is looked up in the registry, and the model's own function where that is used."""
    base = type(registry)

    class Watched(base):  # type: ignore[misc, valid-type]
        is_watched = True

        def __getitem__(self, key: str) -> Any:  # base, not super(): the class may go meanwhile
            return _watching(base.__getitem__(self, key), recorders, key)

        def get_interface(self, attn_implementation: str, default: Any) -> Any:
            function = base.get_interface(self, attn_implementation, default)
            return _watching(function, recorders, attn_implementation or "eager")

    registry.__class__ = Watched
    try:
        yield
    finally:
        registry.__class__ = base


def _watching(function: Any, recorders: Sequence[Recorder], implementation: str) -> Any:
    """A function recorded by the captures of this thread, or of all threads where it has none."""
    if _is_watching(function):
        return function
    thread = threading.get_ident()
    for recorder in [x for x in recorders if x.thread == thread] or list(recorders):
        function = partial(_recorded, function, recorder, implementation)
    return function


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
    is_watched = module in recorder.names and not recorder.is_busy
    if is_watched and recorder.hooks is not None:
        query, key, value = own_views(query, key, value)
    call = partial(function, module, query, key, value, attention_mask, *args, **kwargs)
    if not is_watched:
        return call()
    with recorder.busy():
        output, weights = result = call()
    if attention_mask is not None and not isinstance(attention_mask, torch.Tensor):
        why = f"its mask is a {type(attention_mask).__name__}"
        recorder.misunderstood(f'{why}; load the model with attn_implementation="sdpa"')
        return result
    while _is_watching(function):  # by another capture
        function = function.args[0]
    names = list(signature(function).parameters)[5:]
    keywords = {**dict(zip(names, args, strict=False)), **kwargs}
    n_q, n_k = query.shape[-2], key.shape[-2]
    window_left = int(keywords["sliding_window"]) - 1 if keywords.get("sliding_window") else None
    causal = keywords.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", implementation != "eager")
    mask = _with_bias(attention_mask, keywords.get("position_bias"), n_q, n_k)
    fields = {"scale": keywords.get("scaling"), "softcap": keywords.get("softcap")}
    fields = {name: float(x) for name, x in fields.items() if x is not None}
    if attention_mask is None or attention_mask.ndim == 2:  # of valid keys alone
        flags = fields_of_flags(bool(causal), window_left, n_q, n_k)
        if implementation == "sdpa":  # which counts from the first key, as in a static cache
            flags.pop("causal_align", None)
        fields |= flags
    tensors = {"q": query, "k": key, "v": value, "sinks": keywords.get("s_aux")}
    tensors |= {WEIGHTS: weights, OUTPUT: output.transpose(1, 2)}
    tracked = {"q": query, "k": key, "v": value, OUTPUT: output}
    notes = [f"dropout {keywords['dropout']:g} was on"] if keywords.get("dropout") else []
    others = [n for n, x in keywords.items() if n not in _KNOWN and isinstance(x, torch.Tensor)]
    others = [n for n in others if not n.endswith(("ids", "position", "positions", "lens"))]
    notes += [f"the model passed {n} too, which is not used here" for n in others]
    recorder.add(
        f"attention interface ({implementation})",
        tensors,
        fields,
        name=recorder.names[module],
        mask=mask,
        window_left=window_left,
        empty="nan" if implementation == "eager" else "zero",
        tracked=tracked,
        placed=lambda name, x: x.transpose(1, 2) if name == OUTPUT else x,
        notes=tuple(notes),
    )
    return result


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
