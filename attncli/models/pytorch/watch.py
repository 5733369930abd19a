"""Every attention of a PyTorch module, watched while it runs.

A call is seen where it is most itself:

    the registry of transformers        q, k, v, mask, scale, softcap, sinks … as the model asks
    scaled_dot_product_attention        q, k, v, mask, is_causal, scale, enable_gqa
    a softmax between two products      q, k and v, and the operations between

What an outer one has seen is not recorded again by an inner one. The model's own functions run;
they are only watched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
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
        is_some = isinstance(given, Collection) and not isinstance(given, str) and len(given)
        if given is not None and not is_some:
            raise InputError(f"{name} is {given!r}", f"give some numbers: {name}=[0, 3]")
    recorder = Recorder(model, calls, layers, heads, Hooks() if gradients else None)
    with ExitStack() as stack:
        for registry in registries(model):
            stack.enter_context(looked_up(registry, recorder))
        recorder.follow(stack)
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(OfFunctions(recorder))
        stack.enter_context(OfSoftmax(recorder))
        yield
    if recorder.hooks is not None:
        recorder.hooks.settle()
    calls.unseen = recorder.unseen()
