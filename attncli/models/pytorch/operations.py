"""The operations between a product and its softmax, understood: L = F·(Q Kᵀ) + B, or with a cap.

F and B begin as 1 and 0, and every operation changes them: a division F and B, an addition B; one
that only moves numbers moves those of F and B too. An operation that is none of these is not
guessed at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from attncli.attention.masks import forbids

_MOVES = {
    "_reshape_alias", "_unsafe_view", "alias", "clone", "detach", "expand", "permute", "reshape",
    "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view",
}  # fmt: skip
_KEEPS_ORDER = {"_reshape_alias", "_unsafe_view", "alias", "clone", "detach", "reshape", "view"}
_SAME = {"_to_copy", "lift_fresh"}


class NotUnderstoodError(Exception):
    """Something is done to the scores that cannot be said of attention in general."""


class Operation(NamedTuple):
    """One operation: which, on which argument, and the shape that had."""

    func: Any
    name: str
    at: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """Its name and number: "div(2.828)"."""
        others = (x for i, x in enumerate(self.args) if i != self.at)
        numbers = [f"{x:.4g}" for x in others if isinstance(x, float | int)]
        return self.own + (f"({', '.join(numbers)})" if numbers else "")

    @property
    def counts(self) -> bool:
        """Whether it does more than move numbers, or copy them."""
        return self.own not in _MOVES | _SAME | {"same"}

    @property
    def own(self) -> str:
        """Its name, without the underscore of one in place."""
        return self.name if self.name.startswith("_") else self.name.removesuffix("_")

    def lean(self, output: Any) -> Operation:
        """Without the tensor it was done to; "same" where it changed no number of it."""
        name = self.name
        x = self.args[self.at]
        known = {"add", "sub", "rsub", "mul", "div", "tanh", "masked_fill", "where"}
        if self.own not in known | _MOVES | _SAME and x is not output:
            is_same = x.shape == output.shape and bool(torch.equal(x, output))
            name = "same" if is_same else name
        args = (*self.args[: self.at], None, *self.args[self.at + 1 :])
        return self._replace(name=name, args=args)

    def moved(self, x: Any) -> Any:
        """Numbers moved as this operation moves its own."""
        return self.func(x, *self.args[1:], **self.kwargs)


class Understood(NamedTuple):
    """q and k [..., tokens, d], the mask that is added, fields of Convention, sinks [head].

    is_first  whether q is of the product's first factor
    is_plain  whether q is that factor itself, moved, and not times a number for each head
    replaces  whether scores are replaced where the mask forbids, and not added to
    """

    q: Any
    k: Any
    mask: Any
    fields: dict[str, Any]
    sinks: Any = None
    is_first: bool = True
    is_plain: bool = True
    replaces: bool = False


def understood(
    product: tuple[Any, Any], operations: Sequence[Operation], shape: Sequence[int]
) -> Understood:
    """What was asked of attention by the operations from q and k to the softmax.

    product  q [n, n_q, d] and Kᵀ [n, d, n_k], or their transposes the other way round
    shape    that of the scores as the softmax has them, [..., n_q, n_k]

    Raises NotUnderstoodError.
    """
    a, b = (x[None] if x.ndim == 2 else x for x in product)
    found = _Map(a, b, is_flat=product[0].ndim == 2)
    for done in operations:
        found.change(done)
    sinks = found.sinks()
    found.replaced_by_zero()
    q, k = found.factors((*shape[:-1], found.index.shape[-1]))
    is_plain = True
    fields: dict[str, Any] = {}
    factor, added = found.factor, found.added
    if found.inner is not None:
        fields["softcap"] = _number(factor)
        fields["scale"] = _number(found.inner) * fields["softcap"]
    elif not isinstance(factor, torch.Tensor):
        fields["scale"] = factor
    else:
        factor = factor.expand(tuple(found.index.shape))
        if bool((factor != factor[..., :1, :1]).any()):
            raise NotUnderstoodError("every score has a factor of its own")
        q, fields["scale"] = q * factor[..., :1], 1.0  # one for each head
        is_plain = False
    if found.filled is not None:
        where, value = found.filled
        if _forbids(value):
            added = torch.where(where, value, 0.0 if added is None else added)
        elif added is not None:
            raise NotUnderstoodError(f"numbers are added, and scores replaced by {value:g}")
        else:
            added, fields["mask_value"] = ~where, value
    mask = None if added is None else _narrow(added)
    replaces = found.filled is not None
    return Understood(q, k, mask, fields, sinks, found.is_first, is_plain, replaces)


def placed(
    values: Any, output: Any, operations: Sequence[Operation], shape: Sequence[int], turned: bool
) -> tuple[Any, Any, tuple[Operation, ...]]:
    """v [..., n_k, d_v], the output [..., n_q, d_v], and what was done between but moving.

    values   the factor beside the weights in the product; turned: Vᵀ, before the weights
    shape    that of the weights, [..., n_q, n_k]

    Raises NotUnderstoodError where a weight is no longer at a query and a key.
    """
    if turned:
        values, output = values.transpose(-1, -2), output.transpose(-1, -2)
    values, output = (x[None] if x.ndim == 2 else x for x in (values, output))
    *lead, n_q, n_k = shape
    after = tuple(done for done in operations if done.counts)
    moves = [done for done in operations if done.own in _MOVES]
    if not turned and all(done.own in _KEEPS_ORDER or _is_full(done) for done in moves):
        heads = math.prod(lead)
        if values.shape[:2] == (heads, n_k) and output.shape[:2] == (heads, n_q):
            return _led(values, lead), _led(output, lead), after
    index = torch.arange(math.prod(shape)).reshape(tuple(shape))
    for done in moves:
        index = done.moved(index)
    index = index.transpose(-1, -2) if turned else index
    index = index.reshape(-1, *index.shape[-2:])
    place = index[:, 0, 0] // (n_q * n_k)
    expected = torch.arange(n_q * n_k).reshape(1, n_q, n_k)[..., : values.shape[-2]]
    expected = expected + place[:, None, None] * n_q * n_k
    if index.shape != expected.shape or not torch.equal(index, expected):
        raise NotUnderstoodError("the weights are moved before they meet the values")
    order = torch.argsort(place)
    return _led(values[order], lead), _led(output[order], lead), after


def _led(x: Any, lead: Sequence[int]) -> Any:
    return x.reshape(*lead, *x.shape[-2:])


def _is_full(done: Operation) -> bool:
    """Whether it is an expand to the shape there was."""
    return done.own == "expand" and tuple(done.args[1]) == tuple(done.shape)


class _Map:
    """L = factor · (Q Kᵀ) + added, and where it was replaced by a number.

    inner   the factor before tanh, where there is one
    index   the place in the product of each score, once its numbers have moved
    """

    def __init__(self, a: Any, b: Any, *, is_flat: bool) -> None:
        self.a, self.b = a, b
        self.shape = (a.shape[0], a.shape[1], b.shape[2])
        self.index: Any = torch.arange(math.prod(self.shape), device=a.device).reshape(self.shape)
        self.index = self.index[0] if is_flat else self.index
        self.is_plain = self.is_first = True
        self.factor: Any = 1.0
        self.added: Any = None
        self.inner: Any = None
        self.filled: tuple[Any, float] | None = None
        self.sink: Any = None

    def change(self, done: Operation) -> None:
        """Takes one operation into account."""
        own = done.own
        if own in _MOVES:
            self.move(done)
        elif not done.counts:
            return
        elif own in ("baddbmm", "addmm"):
            self.factor = float(done.kwargs.get("alpha", 1))
            self.add(done.args[0], float(done.kwargs.get("beta", 1)))
        elif own in ("mul", "div"):
            other = _plain(done.args[1 - done.at])
            if own == "div" and (done.at or done.kwargs.get("rounding_mode")):
                raise NotUnderstoodError("a division by the scores")
            self.multiply(other if own == "mul" else 1 / other)
        elif own in ("add", "sub", "rsub"):
            self.sum(done)
        elif own == "tanh":
            if self.added is not None or self.filled is not None or self.inner is not None:
                raise NotUnderstoodError("tanh of scores that are masked")
            self.inner, self.factor = self.factor, 1.0
        elif own == "cat" and done.at == 0 and _is_last(done.args[2:], self.index.ndim):
            self.sink = done.args[1].detach()
            self.index = torch.nn.functional.pad(self.index, (0, 1), value=-1)
            self.is_plain = False
        elif own in ("masked_fill", "index_put", "where"):
            self.fill(*_replaced(done, self.index))
        else:
            raise NotUnderstoodError(f"{own} of the scores")

    def sum(self, done: Operation) -> None:
        """A sum or difference: alpha is the factor on its second operand, in rsub on the first."""
        alpha = float(done.kwargs.get("alpha", 1)) * (1 if done.own == "add" else -1)
        other = _plain(done.args[1 - done.at])
        if done.at == 1 or done.own == "rsub":
            self.multiply(alpha)
            self.add(other, 1.0)
        else:
            self.add(other, alpha)

    def move(self, done: Operation) -> None:
        if done.own not in _KEEPS_ORDER and not _is_full(done):
            self.is_plain = False
        full = tuple(self.index.shape)

        def moved(x: Any) -> Any:
            return done.moved(x.expand(full).contiguous()) if isinstance(x, torch.Tensor) else x

        self.factor, self.added = moved(self.factor), moved(self.added)
        if self.filled is not None:
            self.filled = moved(self.filled[0]), self.filled[1]
        self.index = done.moved(self.index)

    def replaced_by_zero(self) -> None:
        """Takes scores times 0 or 1, plus a number where it is 0, as replaced by that number."""
        full = tuple(self.index.shape)
        if not isinstance(self.factor, torch.Tensor) or self.filled is not None:
            return
        factor = self.factor.expand(full)
        zero = factor == 0
        if not bool(zero.any()) or bool(zero.all()):
            return
        added = (
            torch.zeros(full, device=zero.device) if self.added is None else self.added.expand(full)
        )
        value = added[zero]
        if bool((value != value[0]).any()) or bool((factor[~zero] != factor[~zero][0]).any()):
            raise NotUnderstoodError("scores times a mask, plus numbers that differ")
        rest = torch.where(zero, 0.0, added)
        self.added = rest if bool(rest.any()) else None
        self.filled, self.factor = (zero, float(value[0])), float(factor[~zero][0])

    def sinks(self) -> Any:
        """The score of each head beside those of its keys; None where there is none."""
        if self.sink is None:
            return None
        if bool((self.index[..., -1] != -1).any()) or self.sink.ndim < 3:
            raise NotUnderstoodError("a column beside the scores, and moved")
        heads = self.sink[..., 0].reshape(-1, *self.sink.shape[-3:-1])
        if bool((heads != heads[:1, :, :1]).any()):
            raise NotUnderstoodError("a column beside the scores that differs by query")
        self.index = self.index[..., :-1]
        return heads[0, :, 0]

    def multiply(self, other: Any) -> None:
        if self.sink is not None:
            raise NotUnderstoodError("scores and sinks multiplied")
        self.factor = self.factor * other
        self.added = None if self.added is None else self.added * other
        if self.filled is not None:
            where, value = self.filled
            if isinstance(other, torch.Tensor) and not _forbids(value):
                raise NotUnderstoodError("scores replaced by a number, and multiplied")
            self.filled = where, value if _forbids(value) else value * other

    def add(self, other: Any, sign: float) -> None:
        if isinstance(other, torch.Tensor) and other.shape[-1:] == (1,) != self.index.shape[-1:]:
            return  # the same for all keys: no weight changes by it
        if self.sink is not None:
            raise NotUnderstoodError("numbers added to scores and sinks")
        if self.filled is not None and not _forbids(self.filled[1]):
            raise NotUnderstoodError("scores replaced by a number, and added to")
        if isinstance(other, torch.Tensor):
            other = other.detach()
            other = other.double() if other.dtype == torch.float64 else other.float()
            self.added = sign * other + (0.0 if self.added is None else self.added)

    def fill(self, where: Any, value: float) -> None:
        if self.sink is not None:
            raise NotUnderstoodError("scores and sinks replaced")
        where = where.bool().expand(self.index.shape)
        if self.filled is not None:
            if not (_forbids(value) and _forbids(self.filled[1])):
                raise NotUnderstoodError("scores are replaced twice")
            where, value = where | self.filled[0], max(value, self.filled[1])
        self.filled = where, value

    def factors(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """q and k as the scores at the softmax have their axes."""
        _, rows, columns = self.shape
        k = self.b.transpose(-1, -2)
        if self.is_plain and shape[-2:] == (rows, columns):
            return _led(self.a, shape[:-2]), _led(k, shape[:-2])
        if tuple(self.index.shape) != shape:
            raise NotUnderstoodError("the scores have another shape than their softmax")
        batch, row = self.index // (rows * columns), self.index // columns % rows
        column = self.index % columns
        if bool((batch != batch[..., :1, :1]).any()):
            raise NotUnderstoodError("the scores of one head come from several products")
        batch = batch[..., 0, 0]
        for q, keys, i, j in ((self.a, k, row, column), (k, self.a, column, row)):
            self.is_first = q is self.a
            if bool((i == i[..., :1]).all()) and bool((j == j[..., :1, :]).all()):
                return q[batch[..., None], i[..., 0]], keys[batch[..., None], j[..., 0, :]]
        raise NotUnderstoodError("the scores are moved out of the rows of their queries")


def _replaced(done: Operation, like: Any) -> tuple[Any, float]:
    """Where scores are replaced by a number, and by which."""
    if done.own == "masked_fill":
        return done.args[1], _number(done.args[2])
    if done.own == "where" and done.at:
        where = done.args[0] if done.at == 2 else ~done.args[0]
        return where, _number(done.args[3 - done.at])
    if done.own == "index_put" and len(done.args) == 3:
        where = torch.zeros_like(like, dtype=torch.bool)
        where = done.func(where, done.args[1], torch.tensor(True, device=where.device))
        return where, _number(done.args[2])
    raise NotUnderstoodError(f"{done.own} of the scores")


def _is_last(dims: tuple[Any, ...], ndim: int) -> bool:
    """Whether these arguments after a cat name the last axis."""
    return dims in ((-1,), (ndim - 1,))


def _plain(x: Any) -> Any:
    """A number, or a tensor of several; one of a single number as that."""
    if isinstance(x, torch.Tensor):
        return x.item() if x.numel() == 1 else x.detach()
    return float(x)


def _number(x: Any) -> float:
    found = _plain(x)
    if isinstance(found, torch.Tensor):
        raise NotUnderstoodError("several numbers where one is expected")
    return float(found)


def _forbids(value: float) -> bool:
    return bool(forbids(np.asarray(value)))


def _narrow(added: Any) -> Any:
    """A mask without axes along which it repeats itself: batch and heads."""
    for axis in range(added.ndim - 2):
        first = added.narrow(axis, 0, 1)
        if added.shape[axis] > 1 and torch.equal(added, first.expand_as(added)):
            added = first
    return added
