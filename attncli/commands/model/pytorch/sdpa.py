"""Calls of scaled_dot_product_attention, whoever makes them."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F  # noqa: N812 - as everybody has it
from torch.overrides import TorchFunctionMode

from attncli.commands.model.pytorch.gradients import own_views
from attncli.commands.model.pytorch.recorder import Recorder
from attncli.stages import OUTPUT

_SDPA = F.scaled_dot_product_attention
_SDPA_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")


class OfFunctions(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not _SDPA or self.recorder.is_busy:
            return func(*args, **kwargs)
        arguments = dict(zip(_SDPA_NAMES, args, strict=False)) | kwargs
        if self.recorder.hooks is not None:
            views = own_views(*(arguments[name] for name in _SDPA_NAMES[:3]))
            arguments |= dict(zip(_SDPA_NAMES[:3], views, strict=True))
            args, kwargs = (), arguments
        with self.recorder.busy():
            output = func(*args, **kwargs)
        record_sdpa(self.recorder, arguments, output)
        return output


def record_sdpa(recorder: Recorder, arguments: dict[str, Any], output: Any) -> None:
    """Records a call of scaled_dot_product_attention by its arguments."""
    tensors = {
        "q": arguments["query"],
        "k": arguments["key"],
        "v": arguments["value"],
        OUTPUT: output,
    }
    fields: dict[str, Any] = {"causal": True} if arguments.get("is_causal") else {}
    if arguments.get("scale") is not None:
        fields["scale"] = float(arguments["scale"])
    dropout = arguments.get("dropout_p")
    notes = (f"dropout {dropout:g} was on",) if dropout else ()
    name = "scaled_dot_product_attention"
    recorder.add(name, tensors, fields, mask=arguments.get("attn_mask"), notes=notes)
