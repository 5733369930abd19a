"""Gradients of captured calls: what PyTorch's backward pass gives q, k, v and the output.

A hook on each tensor is called in the backward pass, be it within the block of a capture or after
it. q, k and v are passed on as views of their own, so that a gradient is that of the attention
alone, whatever else is made of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

Placed = Callable[[str, Any], None]
"""Takes the name of a tensor and its gradient."""


def own_views(*tensors: Any) -> tuple[Any, ...]:
    """Each tensor that tracks gradients as a view of itself; anything else as it is."""
    is_on = torch.is_grad_enabled()
    tracked = [is_on and isinstance(x, torch.Tensor) and x.requires_grad for x in tensors]
    return tuple(x.view_as(x) if is_own else x for x, is_own in zip(tensors, tracked, strict=True))


class Hooks:
    """The hooks to be: what an operation gives tracks its gradient only once it has returned."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, str, Placed]] = []

    def add(self, tensors: Mapping[str, Any], placed: Placed) -> None:
        """Calls `placed` with the gradient of each of these tensors, when it is there."""
        self.waiting += [(x, name, placed) for name, x in tensors.items() if x is not None]

    def settle(self) -> None:
        """Puts hooks on the tensors that track gradients now; drops the others."""
        waiting, self.waiting = self.waiting, []
        for x, name, placed in waiting:
            if x.requires_grad:
                x.register_hook(torch.no_grad()(partial(placed, name)))
