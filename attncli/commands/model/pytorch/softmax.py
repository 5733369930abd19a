"""Attention that is written out: a softmax between two products, whoever wrote it.

    product of q and k ── operations ── softmax ── operations ── product with v

Every operation of PyTorch within the block is looked at. What comes of a product of two
activations is followed, operation by operation; where a softmax takes it, and a second product
takes that, it is an attention. A product with a parameter of the model is a linear layer, and not
followed: nor does a router or a classifier count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from attncli.commands.model.pytorch.operations import (
    NotUnderstoodError,
    Operation,
    factors,
    placed,
    understood,
)
from attncli.commands.model.pytorch.recorder import Recorder
from attncli.commands.model.pytorch.sdpa import record_sdpa
from attncli.stages import OUTPUT, WEIGHTS

_PRODUCTS = {"mm", "bmm", "baddbmm", "addmm"}
_SOFTMAXES = {"_softmax": "nan", "_safe_softmax": "zero"}
"""Operation → the weights of a row in which every score is −∞."""

_LONGEST = 40
"""Operations that are followed, at most: attention has fewer than 20 between its products."""


class _History(NamedTuple):
    """How a tensor was made of the first product, or of a softmax.

    product     the two factors [n, i, d] and [n, d, j] of the scores
    operations  what was done since, in order
    weights     the softmax it comes from, if it does: its result, what was done before it, the
                weights of a row in which every score is −∞, and whether it is over keys or queries
    """

    product: tuple[Any, Any]
    operations: tuple[Operation, ...] = ()
    weights: tuple[Any, tuple[Operation, ...], str, str] | None = None


class OfSoftmax(TorchDispatchMode):  # type: ignore[misc]
    """Records attentions that are written out, and fused ones called from within PyTorch."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self.histories: Any = WeakTensorKeyDictionary()
        parameters = recorder.model.parameters()
        stored = (x.untyped_storage() for x in parameters if x.device.type != "meta")
        self.stored = {storage.data_ptr() for storage in stored}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, "overloadpacket", None)  # an operator of a higher order has none
        if packet is not None and torch.is_inference_mode_enabled():
            with self:  # what autograd would take apart arrives whole here
                output = func.decompose(*args, **kwargs)
            if output is not NotImplemented:
                return output
        output = func(*args, **kwargs)
        if packet is not None and not self.recorder.is_busy:
            name = packet.__name__
            if "scaled_dot_product" in name and "backward" not in name:
                names = (argument.name for argument in func._schema.arguments)
                arguments = dict(zip(names, args, strict=False)) | kwargs
                arguments["attn_mask"] = arguments.get("attn_mask", arguments.get("attn_bias"))
                record_sdpa(self.recorder, arguments, output[0])
                return output
            if func._schema.is_mutable:
                self.written(args[0])
            tensor = output[0] if name == "native_dropout" else output
            if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                self.follow(func, name, args, kwargs, tensor)
        return output

    def written(self, target: Any) -> None:
        """Notes that others see numbers change which are written in place through this tensor."""
        store = target.untyped_storage().data_ptr() if isinstance(target, torch.Tensor) else None
        for other in [x for x in self.histories if x is not target]:
            if other.untyped_storage().data_ptr() == store:
                history = self.histories[other]
                write = Operation(None, "writing to a part", 0, (), {}, other.shape)
                self.histories[other] = history._replace(operations=(*history.operations, write))

    def follow(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Notes how a tensor was made, where it comes from a product of activations."""
        if name in _PRODUCTS:
            self.multiplied(func, name, args, kwargs, output)
            return
        if name == "cat" and len(args[0]) == 2 and args[0][1].shape[-1:] == (1,):
            args = *args[0], *args[1:]  # the scores, and a sink beside them
        at = next((i for i, x in enumerate(args) if self.history_of(x) is not None), None)
        if at is None:
            return
        history = self.history_of(args[at])
        if name in _SOFTMAXES and history.weights is None:
            axis = args[1] - output.ndim if args[1] >= 0 else args[1]
            over = {-1: "keys", -2: "queries"}.get(axis)
            if over is not None:
                weights = output, history.operations, _SOFTMAXES[name], over
                self.histories[output] = _History(history.product, weights=weights)
            return
        if len(history.operations) < _LONGEST:
            done = Operation(func, name, at, args, kwargs, args[at].shape)
            self.histories[output] = history._replace(
                operations=(*history.operations, done.lean(output))
            )

    def history_of(self, x: Any) -> Any:
        return self.histories.get(x) if isinstance(x, torch.Tensor) else None

    def multiplied(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """A product: of q and k, or of weights and v."""
        a, b = args[-2:]
        for weights, values, turned in ((a, b, False), (b, a, True)):
            history = self.history_of(weights)
            if history is not None and history.weights is not None:
                self.record(history, values, output, turned)
                return
        if any(x.untyped_storage().data_ptr() in self.stored for x in (a, b)):
            return
        history = _History((a, b))
        if name in ("baddbmm", "addmm"):
            done = Operation(func, name, 1, args, kwargs, output.shape)
            history = history._replace(operations=(done,))
        self.histories[output] = history

    def record(self, history: _History, values: Any, output: Any, turned: bool) -> None:
        """Records an attention, or notes why it is not understood."""
        assert history.weights is not None  # noqa: S101 - it comes from a softmax
        weights, before, empty, over = history.weights
        names = tuple(str(done) for done in before if done.counts)
        with self.recorder.busy():
            try:
                inputs = understood(history.product, before, weights.shape)
                v, out, after = placed(values, output, history.operations, weights.shape, turned)
            except (NotUnderstoodError, RuntimeError, IndexError, TypeError) as problem:
                self.recorder.misunderstood(f"{problem} ({' → '.join((*names, 'softmax'))})")
                return
            (a, b), moves, shape = history.product, history.operations, weights.shape
            if inputs.sinks is not None:
                weights = weights[..., :-1]
            tensors = {"q": inputs.q, "k": inputs.k, "v": v, WEIGHTS: weights, OUTPUT: out}
            tensors["sinks"] = inputs.sinks
            is_first = inputs.is_first
            tracked = {"q": a if is_first else b, "k": b if is_first else a}
            tracked |= {"v": values, OUTPUT: output}

            def placed_gradient(name: str, x: Any) -> Any:
                """A gradient with the axes of q, k, v or the output."""
                sources = {**tracked, name: x}
                if name in ("v", OUTPUT):
                    pair = placed(sources["v"], sources[OUTPUT], moves, shape, turned)[:2]
                    return pair[name == OUTPUT]
                pair = (sources["q"], sources["k"]) if is_first else (sources["k"], sources["q"])
                return factors(pair, before, shape)[name == "k"]

            self.recorder.add(
                "softmax",
                tensors,
                inputs.fields if over == "keys" else {**inputs.fields, "softmax_over": over},
                mask=inputs.mask,
                replaces=inputs.replaces,
                empty=empty,
                operations=names,
                notes=tuple(f"after the softmax: {done}" for done in after),
                tracked=tracked if inputs.is_plain else {},
                placed=placed_gradient,
            )
