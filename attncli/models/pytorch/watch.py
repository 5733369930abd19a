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
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from numbers import Integral
from typing import Any

import torch

from attncli.errors import InputError
from attncli.models.call import Calls
from attncli.models.pytorch.gradients import Hooks
from attncli.models.pytorch.recorder import Recorder
from attncli.models.pytorch.registry import looked_up, registries
from attncli.models.pytorch.sdpa import OfFunctions
from attncli.models.pytorch.softmax import OfSoftmax


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
    for name, given in (("layers", layers), ("heads", heads)):
        is_some = isinstance(given, Collection) and len(given) > 0
        if given is not None and not (is_some and all(isinstance(x, Integral) for x in given)):
            raise InputError(f"{name} is {given!r}", f"give some numbers: {name}=[0, 3]")
    recorder = Recorder(model, calls, layers, heads, Hooks() if gradients else None)
    with ExitStack() as stack:
        for registry in registries(model):
            stack.enter_context(_shared(registry, partial(looked_up, registry), recorder))
        recorder.follow(stack)
        stack.enter_context(_shared(torch.compiler, _uncompiled, recorder))
        stack.enter_context(OfFunctions(recorder))
        stack.enter_context(OfSoftmax(recorder))
        yield
    if recorder.hooks is not None:
        recorder.hooks.settle()
    calls.unseen = recorder.unseen()


_LOCK = threading.Lock()
_OPEN: dict[int, tuple[ExitStack, list[Recorder]]] = {}
"""What captures at once have in common, by its id: how it is undone, and their recorders."""


@contextmanager
def _shared(
    what: Any,
    changed: Callable[[list[Recorder]], AbstractContextManager[Any]],
    recorder: Recorder,
) -> Iterator[None]:
    """Something of the whole process, `changed` from the first capture's start to the last's end.

    Captures in several threads need not end in the reverse order in which they began.
    """
    with _LOCK:
        if id(what) not in _OPEN:
            recorders: list[Recorder] = []
            undo = ExitStack()
            undo.enter_context(changed(recorders))
            _OPEN[id(what)] = undo, recorders
        undo, recorders = _OPEN[id(what)]
        recorders.append(recorder)
    try:
        yield
    finally:
        with _LOCK:
            recorders.remove(recorder)
            if not recorders:
                del _OPEN[id(what)]
                undo.close()


def _uncompiled(_: object) -> AbstractContextManager[Any]:
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
