"""Every attention of a PyTorch module, watched while it runs.

A call is seen where it is most itself:

    the registry of transformers        q, k, v, mask, scale, softcap, sinks … as the model asks
    scaled_dot_product_attention        q, k, v, mask, is_causal, scale, enable_gqa
    a softmax between two products      q, k and v, and the operations between

What an outer one has seen is not recorded again by an inner one. The model's own functions run;
they are only watched.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from numbers import Integral
from typing import Any

import torch

from attncli.commands.model.call import Calls
from attncli.commands.model.pytorch.gradients import Hooks
from attncli.commands.model.pytorch.recorder import Recorder
from attncli.commands.model.pytorch.registry import looked_up, registries
from attncli.commands.model.pytorch.sdpa import OfFunctions
from attncli.commands.model.pytorch.softmax import OfSoftmax
from attncli.errors import InputError


@contextmanager
def watched(
    model: Any,
    calls: Calls,
    layers: Collection[int] | None,
    heads: Collection[int] | None,
    *,
    gradients: bool = False,
) -> Iterator[None]:
    """Adds the calls of a model's attentions in the block, as `capture` describes them.

    Raises InputError for what is no module, and for layers or heads that are no list of numbers.
    """
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"{type(model).__name__} is no torch.nn.Module", "give the model itself")
    for name, numbers in (("layers", layers), ("heads", heads)):
        is_some = isinstance(numbers, Collection) and len(numbers) > 0
        if numbers is not None and not (is_some and all(isinstance(x, Integral) for x in numbers)):
            raise InputError(f"{name} is {numbers!r}", f"give some numbers: {name}=[0, 3]")
    recorder = Recorder(model, calls, layers, heads, Hooks() if gradients else None)
    with ExitStack() as stack:
        stack.enter_context(_of_process(recorder))
        recorder.follow(stack)
        stack.enter_context(OfFunctions(recorder))
        stack.enter_context(OfSoftmax(recorder))
        yield
    if recorder.hooks is not None:
        recorder.hooks.settle()
    calls.unseen = recorder.unseen()


_LOCK, _UNDO = threading.Lock(), ExitStack()
_OPEN: list[Recorder] = []
"""The captures that are open, in all threads: they need not end in the order that nests them."""


@contextmanager
def _of_process(recorder: Recorder) -> Iterator[None]:
    """Registries watched, and PyTorch without its compiler, until no capture is open any more."""
    with _LOCK:
        if not _OPEN:
            _UNDO.enter_context(torch.compiler.set_stance("force_eager"))
        for registry in registries(recorder.model):
            _UNDO.enter_context(looked_up(registry, _OPEN))
        _OPEN.append(recorder)
    try:
        yield
    finally:
        with _LOCK:
            _OPEN.remove(recorder)
            if not _OPEN:
                _UNDO.close()
