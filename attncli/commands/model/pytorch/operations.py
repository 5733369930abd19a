"""The operations between a product and its softmax, understood: L = F·(Q Kᵀ) + B, or with a cap.

They are tried on numbers: B is what becomes of 0, and F the slope to a number beside which B is
nothing. Those that only move numbers move the places of the scores, too. An operation that makes
anything else of a score is not guessed at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad
from torch.utils._pytree import tree_map_only

from attncli.attention.masks import is_masked

_RESHAPES = {"_reshape_alias", "_unsafe_view", "reshape", "view"}
_TURNS = {"expand", "permute", "select", "slice", "squeeze", "t", "transpose", "unsqueeze"}
_MOVES = _RESHAPES | _TURNS | {"alias", "clone", "detach"}
_COPIES = {"_to_copy", "lift_fresh", "same"}
_PRODUCTS = {"baddbmm", "addmm"}
_WHOLE = {"cat", "index_put", "masked_scatter", "tril", "triu"}  # of a tensor with all its axes
_OF_EACH = _PRODUCTS | _WHOLE | {"masked_fill", "where"}  # pointwise, without PyTorch's tag for it

_LARGE = 2.0**1000  # beside it every number is nothing, the least of float32 too: (p + b) − b = p
_TRIED = (-1e30, -0.3)  # large and small, and not whole: abs, clamp, round and the like show
_CORNER = 8  # of an operation's numbers along each axis, on which that is tried


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
        return self.own not in _MOVES | _COPIES

    @property
    def own(self) -> str:
        """Its name, without the underscore of one in place."""
        return self.name if self.name.startswith("_") else self.name.removesuffix("_")

    @property
    def keeps_order(self) -> bool:
        """Whether numbers follow each other as before; an expand to the shape there was does so."""
        is_full = self.own == "expand" and tuple(self.args[1]) == tuple(self.shape)
        return is_full or self.own not in _TURNS

    @property
    def is_shift(self) -> bool:
        """Whether it adds one number to all scores of a query: no weight changes by it."""
        other = self.args[1 - self.at] if self.own in ("add", "sub", "rsub") else None
        if not isinstance(other, torch.Tensor):
            return False
        return bool(other.numel() == 1 or other.shape[-1:] == (1,) != self.shape[-1:])

    def lean(self, output: Any) -> Operation:
        """Without the tensor it was done to; "same" where it changed no number of it."""
        x = self.args[self.at]
        usual = {"add", "sub", "rsub", "mul", "div", "tanh", "masked_fill", "where"}
        is_other = self.own not in usual | _MOVES | _COPIES and x is not output
        is_same = is_other and x.shape == output.shape and bool(torch.equal(x, output))
        args = (*self.args[: self.at], None, *self.args[self.at + 1 :])
        return self._replace(name="same" if is_same else self.name, args=args)

    def on(self, converted: Callable[[Any], Any]) -> Operation:
        """The same with its other tensors converted."""
        args, kwargs = tree_map_only(torch.Tensor, converted, (self.args, self.kwargs))
        return self._replace(args=args, kwargs=kwargs)

    def applied(self, x: Any) -> Any:
        """What it makes of other numbers, which stay as they are; of one that stands for all."""
        if x.ndim == 0 and self.own in _MOVES:
            return x
        x = x.expand(self.shape) if self.own in _MOVES | _WHOLE else x
        if self.own in _RESHAPES:
            return x.reshape(self.args[1])  # however the numbers lie in memory
        if self.own in _PRODUCTS:
            return self.kwargs.get("alpha", 1) * x + self.kwargs.get("beta", 1) * self.args[0]
        args = (*self.args[: self.at], x, *self.args[self.at + 1 :])
        args = (list(args[:2]), *args[2:]) if self.own == "cat" else args
        return getattr(torch.ops.aten, self.own)(*args, **self.kwargs)


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
    # What is added to all scores of a query changes no weight, where nothing is done to them after.
    lasting = [
        i for i, operation in enumerate(operations) if operation.counts and not operation.is_shift
    ]
    last = max(lasting, default=-1) + 1
    operations = [
        *operations[:last],
        *(operation.on(torch.zeros_like) for operation in operations[last:]),
    ]
    names = [operation.own for operation in operations]
    cap = names.index("tanh") if "tanh" in names else -1
    factor, added = _line(operations[cap + 1 :])
    sinks = None
    if "cat" in names:
        factor, added = factor.expand(tuple(shape)), added.expand(tuple(shape))
        sinks, factor, added = _sinks(factor, added), factor[..., :-1], added[..., :-1]
    q, k, is_first = factors(product, operations, shape)
    of_heads = _of_heads(factor, added, (*q.shape[:-1], k.shape[-2]))
    is_plain = of_heads.ndim == 0
    fields = {"scale": float(of_heads) if is_plain else 1.0}
    if cap >= 0:
        inner, before = _line(operations[:cap])
        if bool(before.any()) or inner.ndim or not is_plain:
            raise NotUnderstoodError("tanh of scores that are masked")
        fields = {"softcap": fields["scale"], "scale": fields["scale"] * float(inner)}
    if not is_plain:
        q = q * of_heads.to(q)
    mask, of_mask, replaces = _mask(factor, added, k)
    width = torch.promote_types(q.dtype, torch.float32)
    mask, sinks = (x if x is None or x.dtype == torch.bool else x.to(width) for x in (mask, sinks))
    return Understood(q, k, mask, fields | of_mask, sinks, is_first, is_plain, replaces)


def factors(
    product: tuple[Any, Any], operations: Sequence[Operation], shape: Sequence[int]
) -> tuple[Any, Any, bool]:
    """q and k as the scores at the softmax have their axes; whether q is the first factor."""
    a, b = (x[None] if x.ndim == 2 else x for x in product)
    k, (rows, columns) = b.transpose(-1, -2), (a.shape[1], b.shape[2])
    if all(operation.keeps_order for operation in operations) and shape[-2:] == (rows, columns):
        return _led(a, shape[:-2]), _led(k, shape[:-2]), True
    index = _places((a.shape[0], rows, columns)[-product[0].ndim :], operations)
    if bool((index[..., -1] < 0).all()):  # of sinks
        index = index[..., :-1]
    batch, row, column = index // (rows * columns), index // columns % rows, index % columns
    first_batch = batch[..., :1, 0]
    for q, keys, i, j in ((a, k, row, column), (k, a, column, row)):
        is_one = (i == i[..., :1]) & (j == j[..., :1, :]) & (batch == first_batch[..., None])
        if index.shape[:-1] == tuple(shape[:-1]) and bool(is_one.all()):
            return q[first_batch, i[..., 0]], keys[first_batch, j[..., 0, :]], q is a
    raise NotUnderstoodError("the scores are moved out of the rows of their queries")


def _places(shape: Sequence[int], operations: Sequence[Operation]) -> Any:
    """The place that each number had before the operations moved it; −1 of a sink."""
    index = torch.arange(math.prod(shape)).reshape(tuple(shape))
    for operation in operations:
        if operation.own == "cat":
            index = pad(index, (0, 1), value=-1)
        elif operation.own in _MOVES:
            index = operation.applied(index)
    return index


def _line(operations: Sequence[Operation]) -> tuple[Any, Any]:
    """F and B of what operations make of scores."""
    trials = [done.on(_in_float64) for done in operations if done.own not in _COPIES]
    for trial in trials:
        if trial.counts and not _is_line(trial):
            raise NotUnderstoodError(f"{trial.own} of the scores")
    return _probed(trials)


def _is_line(trial: Operation) -> bool:
    """Whether it may run again, and makes y = f·x + b of each number x alone."""
    is_foreign = getattr(trial.func, "namespace", None) != "aten"
    if is_foreign or (trial.at and trial.name.endswith("_")):  # written into another tensor
        return False
    if torch.Tag.pointwise not in trial.func.tags:
        return trial.own in _OF_EACH
    corner = trial.on(lambda x: x[(slice(_CORNER),) * x.ndim])
    f, b = _probed([corner])
    tried = torch.tensor(_TRIED, dtype=torch.float64)
    pairs = ((corner.applied(x).double(), torch.where(f == 0, b, f * x + b)) for x in tried)
    return all(torch.allclose(y, expected, atol=0.0) for y, expected in pairs)


def _probed(trials: Sequence[Operation]) -> tuple[Any, Any]:
    """F, one number where it is the same, and B; of no more axes than the others' tensors have."""
    zero, large = torch.tensor([0.0, _LARGE], dtype=torch.float64)
    for trial in trials:
        zero, large = trial.applied(zero), trial.applied(large)
    factor = (large.double() - zero.double()).div_(_LARGE).masked_fill_(large == zero, 0.0)
    least, most = factor.aminmax()
    return (most if bool(least == most) else factor), zero


def _sinks(factor: Any, added: Any) -> Any:
    """The score of each head beside those of its keys."""
    heads = added[None, None, ..., -1].flatten(0, -3)
    if bool(factor[..., -1].any()) or bool((heads != heads[:1, :, :1]).any()):
        raise NotUnderstoodError("a column beside the scores, moved or different by query")
    return heads[0, :, 0]


def _of_heads(factor: Any, added: Any, shape: tuple[int, ...]) -> Any:
    """The factor of all scores, or one for each head [..., 1, 1]."""
    slopes = torch.where(added > -_LARGE, factor, 0.0) if factor.ndim else factor
    some = slopes[slopes != 0]
    single = some[0] if some.numel() else factor.new_ones(())
    if bool((some == single).all()):
        return single
    slopes = slopes.expand(shape)
    least, most = slopes.amin((-2, -1), keepdim=True), slopes.amax((-2, -1), keepdim=True)
    of_heads = torch.where(most > 0, most, least)
    if bool(((slopes != of_heads) & (slopes != 0)).any()):
        raise NotUnderstoodError("every score has a factor of its own")
    return of_heads


def _mask(factor: Any, added: Any, k: Any) -> tuple[Any, dict[str, float], bool]:
    """What is added, or true where scores stay; the number of the others; whether any is set."""
    shape = torch.broadcast_shapes(added.shape, (k.shape[-2],))
    added, replaced = added.expand(shape), (factor == 0).expand(shape)
    values = added[replaced] if bool((factor == 0).any()) else added.new_tensor([-torch.inf])
    highest, least = values.max(), torch.finfo(k.dtype).min
    if highest < least / 4:  # the least of the type, whatever was added to it or multiplied
        highest = highest.new_tensor(least)
    is_set = bool(values.isfinite().any())
    if is_masked(highest.numpy()):
        added = torch.where(replaced & added.isfinite(), highest, added) if is_set else added
        return _narrow(added), {}, is_set
    if bool((values != values[0]).any()) or bool(added[~replaced].any()):
        message = "times a mask, plus numbers, or replaced by a number, and added to"
        raise NotUnderstoodError(f"scores {message}")
    return _narrow(~replaced), {"mask_value": float(values[0])}, True


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
    after = tuple(operation for operation in operations if operation.counts)
    if not turned and all(operation.keeps_order for operation in operations):
        heads = math.prod(lead)
        if values.shape[:2] == (heads, n_k) and output.shape[:2] == (heads, n_q):
            return _led(values, lead), _led(output, lead), after
    index = _places(shape, operations)[None].flatten(0, -3)
    index = index.transpose(-1, -2) if turned else index
    place = index[:, 0, 0] // (n_q * n_k)
    expected = torch.arange(n_q * n_k).reshape(1, n_q, n_k)[..., : values.shape[-2]]
    expected = expected + place[:, None, None] * n_q * n_k
    if index.shape != expected.shape or not torch.equal(index, expected):
        raise NotUnderstoodError("the weights are moved before they meet the values")
    order = torch.argsort(place)
    return _led(values[order], lead), _led(output[order], lead), after


def _led(x: Any, lead: Sequence[int]) -> Any:
    return x.reshape(*lead, *x.shape[-2:])


def _in_float64(x: Any) -> Any:
    """A tensor on the processor, which knows float64, and in that where it is of floats."""
    return x.detach().cpu().to(torch.float64 if x.is_floating_point() else x.dtype)


def _narrow(added: Any) -> Any:
    """A mask without axes along which it repeats itself: batch and heads."""
    for axis in range(added.ndim - 2):
        first = added.narrow(axis, 0, 1)
        if added.shape[axis] > 1 and torch.equal(added, first.expand_as(added)):
            added = first
    return added
