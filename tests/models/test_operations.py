"""Attention that is written out: which convention its operations are, or why there is none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import attncli

torch = pytest.importorskip("torch", reason="needs attncli[models]")

BATCH, HEADS, N, D = 2, 7, 5, 3
KEEP = torch.ones(N, N, dtype=torch.bool).tril()
BIAS = torch.arange(float(HEADS))[:, None, None] * torch.arange(float(N))
Written = Callable[[Any, Any, Any], Any]


class Own(torch.nn.Module):  # type: ignore[name-defined, misc]
    """q, k, v [batch, head, token, d] of x, then attention as it is written."""

    def __init__(self, written: Written) -> None:
        super().__init__()
        self.written = written
        self.maps = torch.nn.ModuleList(torch.nn.Linear(11, HEADS * D) for _ in range(3))

    def forward(self, x: Any) -> Any:
        each = (own(x).unflatten(-1, (HEADS, D)).transpose(1, 2) * 3 for own in self.maps)
        return self.written(*each)


def captured(written: Written) -> Any:
    torch.manual_seed(2)
    model = Own(written)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that none was seen
        with torch.no_grad(), attncli.capture(model) as calls:
            model(torch.randn(BATCH, N, 11))
    return calls


def softmax(scores: Any) -> Any:
    return torch.softmax(scores, -1)


def put(scores: Any) -> Any:
    scores[..., ~KEEP] = -torch.inf
    return scores


def shifted(scores: Any) -> Any:
    return softmax(scores - scores.amax(-1, keepdim=True))


def sink(scores: Any) -> Any:
    column = torch.arange(float(HEADS))[:, None, None].expand(BATCH, HEADS, N, 1)
    both = torch.cat([scores, column], -1)
    return softmax(both - both.max(-1, keepdim=True).values)[..., :-1]


LEAST = torch.finfo(torch.float32).min

CASES: dict[str, tuple[Written, dict[str, Any], tuple[str, ...]]] = {
    "nothing": (lambda q, k, v: softmax(q @ k.mT) @ v, {"scale": "none"}, ()),
    "a factor": (lambda q, k, v: softmax(q @ k.mT * 0.25) @ v, {"scale": 0.25}, ("mul(0.25)",)),
    "two": (
        lambda q, k, v: softmax((q @ k.mT).mul_(0.25) / 2) @ v,
        {"scale": 0.125},
        ("mul(0.25)", "div(2)"),
    ),
    "negative, subtracted": (
        lambda q, k, v: softmax(BIAS - q @ k.mT) @ v,
        {"scale": -1.0, "mask_means": "add"},
        ("sub",),
    ),
    "a bias, then a factor": (
        lambda q, k, v: softmax((q @ k.mT + BIAS) * 0.5) @ v,
        {"scale": 0.5, "mask_means": "add"},
        ("add", "mul(0.5)"),
    ),
    "baddbmm": (
        lambda q, k, v: (
            softmax(
                torch.baddbmm(
                    BIAS.repeat(BATCH, N, 1), *map(flat, (q, k.mT)), beta=0.5, alpha=0.25
                ).view(BATCH, HEADS, N, N)
            )
            @ v
        ),
        {"scale": 0.25, "mask_means": "add"},
        ("baddbmm",),
    ),
    "masked_fill": (
        lambda q, k, v: softmax((q @ k.mT).masked_fill(~KEEP, -torch.inf)) @ v,
        {"scale": "none", "causal": True},
        ("masked_fill(-inf)",),
    ),
    "where": (
        lambda q, k, v: softmax(torch.where(KEEP, q @ k.mT, LEAST)) @ v,
        {"scale": "none", "causal": True},
        ("where",),
    ),
    "where, the other way round": (
        lambda q, k, v: softmax(torch.where(~KEEP, -torch.inf, q @ k.mT)) @ v,
        {"scale": "none", "causal": True},
        ("where",),
    ),
    "by index": (
        lambda q, k, v: softmax(put(q @ k.mT)) @ v,
        {"scale": "none", "causal": True},
        ("index_put",),
    ),
    "a finite number": (
        lambda q, k, v: softmax((q @ k.mT).masked_fill(~KEEP, -3.0) * 2) @ v,
        {"scale": 2.0, "causal": True, "mask_value": -6.0},
        ("masked_fill(-3)", "mul(2)"),
    ),
    "times a mask of 0 and 1": (
        lambda q, k, v: softmax(q @ k.mT / 2 * KEEP.float() - 1e4 * (1 - KEEP.float())) @ v,
        {"scale": 0.5, "causal": True, "mask_value": -1e4},
        ("div(2)", "mul", "sub"),
    ),
    "over queries": (
        lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v,
        {"scale": "none", "softmax_over": "queries"},
        (),
    ),
    "a cap": (
        lambda q, k, v: (
            softmax(torch.where(KEEP, 5 * torch.tanh(q @ k.mT / 2 / 5), -torch.inf)) @ v
        ),
        {"scale": 0.5, "softcap": 5.0, "causal": True},
        ("div(2)", "div(5)", "tanh", "mul(5)", "where"),
    ),
    "sinks": (
        lambda q, k, v: sink(q @ k.mT) @ v,
        {"scale": "none"},
        ("cat(-1)", "sub"),
    ),
    "a factor for each head": (
        lambda q, k, v: softmax(q @ k.mT * torch.arange(1.0, 1 + HEADS)[:, None, None]) @ v,
        {"scale": "none"},
        ("mul",),
    ),
    "less the largest": (
        lambda q, k, v: shifted(q @ k.mT) @ v,
        {"scale": "none"},
        ("sub",),
    ),
    "keys times queries": (
        lambda q, k, v: softmax((k @ q.mT).mT * 0.5) @ v,
        {"scale": 0.5},
        ("mul(0.5)",),
    ),
    "values first": (lambda q, k, v: (v.mT @ softmax(q @ k.mT).mT).mT, {"scale": "none"}, ()),
    "einsum, tokens before heads": (
        lambda q, k, v: torch.einsum(
            "bhqk,bkhd->bqhd",
            softmax(torch.einsum("bqhd,bkhd->bhqk", *(x.transpose(1, 2) for x in (q, k))) * 0.5),
            v.transpose(1, 2),
        ),
        {"scale": 0.5},
        ("mul(0.5)",),
    ),
    "a clamp that changes nothing": (
        lambda q, k, v: softmax((q @ k.mT).clamp(-1e9, 1e9)) @ v,
        {"scale": "none"},
        (),
    ),
    "shared keys": (
        lambda q, k, v: softmax(q @ k[:, :1].mT) @ v[:, :1],
        {"scale": "none"},
        (),
    ),
}


def flat(x: Any) -> Any:
    return x.reshape(-1, *x.shape[-2:])


@pytest.mark.parametrize("name", CASES)
def test_operations_are_understood(name: str) -> None:
    written, fields, operations = CASES[name]
    (call,) = captured(written)
    assert call.convention.changes() == pytest.approx(fields)
    assert call.operations == operations
    assert call.check().matches
    assert call.seen == "softmax"
    note = f"Between Q Kᵀ and softmax: {' → '.join(operations)}."
    assert (note in call.trace().notes) == bool(operations)


def part(scores: Any) -> Any:
    scores[..., 0].zero_()
    return scores


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (lambda q, k, v: softmax((q @ k.mT).cumsum(-1)) @ v, "cumsum of the scores"),
        (lambda q, k, v: softmax(part(q @ k.mT)) @ v, "writing to a part of the scores"),
        (
            lambda q, k, v: softmax(q @ k.mT * torch.arange(1.0, 1 + N)) @ v,
            "every score has a factor of its own",
        ),
        (
            lambda q, k, v: softmax(torch.tanh((q @ k.mT).masked_fill(~KEEP, -1e9))) @ v,
            "tanh of scores that are masked",
        ),
        (
            lambda q, k, v: softmax((q @ k.mT).masked_fill(~KEEP, -3.0) + BIAS) @ v,
            "scores replaced by a number, and added to",
        ),
        (
            lambda q, k, v: torch.softmax(k @ q.mT, -2).mT @ v,
            "the weights are moved before they meet the values",
        ),
        (
            lambda q, k, v: softmax(q @ k.mT * KEEP.float() + BIAS) @ v,
            "scores times a mask, plus numbers that differ",
        ),
        (lambda q, k, v: softmax(1 / (q @ k.mT)) @ v, "reciprocal of the scores"),
        (lambda q, k, v: softmax((q @ k.mT).flip(-1)) @ v, "flip of the scores"),
    ],
)
def test_what_is_not_understood_is_said(written: Written, why: str) -> None:
    calls = captured(written)
    assert len(calls) == 0
    (said,) = calls.unseen
    assert why in said
    assert said.endswith("softmax)")


def test_a_router_and_a_classifier_are_no_attention() -> None:
    def routed(q: Any, k: Any, v: Any) -> Any:
        experts = torch.stack([v, k], -2)  # [batch, head, token, expert, d]
        gates = softmax(router(q))
        return torch.einsum("bhne,bhned->bhnd", gates, experts)

    router = torch.nn.Linear(D, 2)
    model = Own(routed)
    model.router = router
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with torch.no_grad(), attncli.capture(model) as calls:
            model(torch.randn(BATCH, N, 11))
    assert (len(calls), calls.unseen) == (0, ())


def test_nothing_is_kept_of_a_model_without_attention() -> None:
    """A chain of products does not hold its tensors in memory."""
    import weakref

    held: list[Any] = []

    class Chain(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any) -> Any:
            for _ in range(3):
                held.append(weakref.ref(x))
                x = (x @ x.mT @ x).relu()
            return x.sum()

    model = Chain()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with torch.no_grad(), attncli.capture(model):
            model(torch.randn(N, N))
            assert [ref() for ref in held] == [None, None, None]
