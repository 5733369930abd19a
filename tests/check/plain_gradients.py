"""Attention and its gradients in plain NumPy, stage by stage, and wrong ways back.

Nothing here uses attncli. Arrays are [batch, head, token, d]; `kv_of[h]` is the key head of head h.
Source: Dao et al., "FlashAttention" (2022), appendix B.2 and B.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Stages = dict[str, Any]
Step = Callable[[Stages], Any]


def swap(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def of_groups(x: Any, s: Stages, of: str = "kv_of") -> Any:
    """The sum over the query heads that share each key head."""
    total = np.zeros((x.shape[0], s["k"].shape[1], *x.shape[2:]))
    at: Any = (slice(None), s[of])
    np.add.at(total, at, x)
    return total


def lse_and_weights(x: Any, sinks: Any) -> tuple[Any, Any]:
    """log Σ exp of each row, and its softmax: 0 in a row with nothing to attend to."""
    wide = x
    if sinks is not None:
        own = np.broadcast_to(sinks[:, None, None], (*x.shape[:-1], 1))
        wide = np.concatenate([x, own], axis=-1)
    top = wide.max(axis=-1, keepdims=True)
    top = np.where(np.isneginf(top), 0, top)
    powers = np.exp(wide - top)
    total = powers.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(total == 0, 0, powers / total)
        return np.log(total) + top, weights[..., : x.shape[-1]]


def forward(
    q: Any,
    k: Any,
    v: Any,
    d_output: Any,
    *,
    bias: Any = 0.0,
    keep: Any = True,
    softcap: float | None = None,
    sinks: Any = None,
    kept: Any = True,
    p: float = 0.0,
) -> Stages:
    """Every stage of the forward pass by name. keep: may attend; kept: not dropped."""
    n_heads, n_keys = q.shape[1], k.shape[1]
    s: Stages = {"q": q, "k": k, "v": v, "d_output": d_output, "softcap": softcap, "p": p}
    s |= {"sinks": sinks, "kept": kept, "keep": keep}
    s["kv_of"] = np.arange(n_heads) // (n_heads // n_keys)
    s["other_kv_of"] = np.arange(n_heads) % n_keys
    s["scale"] = 1 / math.sqrt(q.shape[-1])
    scaled = q @ swap(k[:, s["kv_of"]]) * s["scale"]
    s["capped"] = scaled if softcap is None else softcap * np.tanh(scaled / softcap)
    s["shown"] = s["capped"] + bias
    s["masked"] = np.where(keep, s["shown"], -np.inf)
    s["lse"], s["weights"] = lse_and_weights(s["masked"], sinks)
    s["dropped"] = s["weights"] * kept / (1 - p)
    s["output"] = s["dropped"] @ v[:, s["kv_of"]]
    return s


def d_sinks(s: Stages) -> Any:
    if s["sinks"] is None:
        return None
    return -(np.exp(s["sinks"][:, None, None] - s["lse"]) * s["delta"]).sum(axis=(0, 2, 3))


def d_scaled(s: Stages, of_cap: Callable[[Any], Any] = np.square) -> Any:
    if s["softcap"] is None:
        return s["d_masked"]
    return s["d_masked"] * (1 - of_cap(s["capped"] / s["softcap"]))


STEPS: dict[str, Step] = {
    "d_v": lambda s: of_groups(swap(s["dropped"]) @ s["d_output"], s),
    "d_dropped": lambda s: s["d_output"] @ swap(s["v"][:, s["kv_of"]]),
    "d_weights": lambda s: s["d_dropped"] * s["kept"] / (1 - s["p"]),
    "delta": lambda s: (s["weights"] * s["d_weights"]).sum(axis=-1, keepdims=True),
    "d_masked": lambda s: s["weights"] * (s["d_weights"] - s["delta"]),
    "d_sinks": d_sinks,
    "d_scaled": d_scaled,
    "d_scores": lambda s: s["d_scaled"] * s["scale"],
    "d_q": lambda s: s["d_scores"] @ s["k"][:, s["kv_of"]],
    "d_k": lambda s: of_groups(swap(s["d_scores"]) @ s["q"], s),
}


def backward(s: Stages, change: Mapping[str, Step] | None = None) -> Stages:
    """The stages of the way back added; `change` replaces steps, or stages before them."""
    s, change = dict(s), change or {}
    for name in (name for name in change if name not in STEPS):
        s[name] = change[name](s)
    for name, compute in STEPS.items():
        s[name] = change.get(name, compute)(s)
    return s


def one_of_group(x: Any, s: Stages, which: int) -> Any:
    each = [np.flatnonzero(s["kv_of"] == head)[which] for head in range(s["k"].shape[1])]
    return x[:, each]


def rows_kept(x: Any, rows: Any) -> Any:
    return np.where(rows(np.arange(x.shape[-2]))[:, None], x, 0)


def again(weights: Step) -> dict[str, Step]:
    """Other weights on the way back, δ and all."""
    return {"weights": weights, "dropped": lambda s: s["weights"] * s["kept"] / (1 - s["p"])}


def by_lse(lse: Step) -> dict[str, Step]:
    def weights(s: Stages) -> Any:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.nan_to_num(np.exp(s["masked"] - lse(s)), nan=0.0)

    return again(weights)


def unmasked(s: Stages) -> Any:
    return np.exp(s["shown"] - np.where(np.isneginf(s["lse"]), np.inf, s["lse"]))


def in_groups(change: Callable[[Any, Stages], Any]) -> dict[str, Step]:
    return {
        "d_k": lambda s: change(swap(s["d_scores"]) @ s["q"], s),
        "d_v": lambda s: change(swap(s["dropped"]) @ s["d_output"], s),
    }


def with_rows(rows: Any) -> dict[str, Step]:
    return {
        "d_k": lambda s: of_groups(swap(rows_kept(s["d_scores"], rows)) @ s["q"], s),
        "d_v": lambda s: of_groups(swap(rows_kept(s["dropped"], rows)) @ s["d_output"], s),
    }


def with_keys(keys: Any) -> dict[str, Step]:
    return {"d_q": lambda s: swap(rows_kept(swap(s["d_scores"]), keys)) @ s["k"][:, s["kv_of"]]}


def times(name: str, factor: Step) -> dict[str, Step]:
    return {name: lambda s: STEPS[name](s) * factor(s)}


def of_another_query(s: Stages) -> Any:
    return (s["output"] * np.roll(s["d_output"], 1, axis=-2)).sum(axis=-1, keepdims=True)


WRONG: dict[str, Mapping[str, Step]] = {
    "δ left out (dS = A ∘ dA)": {"delta": lambda s: np.zeros_like(STEPS["delta"](s))},
    "δ from the gradient of another query (dO shifted by a row)": {"delta": of_another_query},
    "δ added, not subtracted": {"d_masked": lambda s: s["weights"] * (s["d_weights"] + s["delta"])},
    "softmax taken element by element (dS = A(1−A) ∘ dA)": {
        "d_masked": lambda s: s["weights"] * (1 - s["weights"]) * s["d_weights"]
    },
    "scale left out of dQ": times("d_q", lambda s: 1 / s["scale"]),
    "scale left out of dK": times("d_k", lambda s: 1 / s["scale"]),
    "scale left out of dS (dQ and dK)": {"d_scores": lambda s: s["d_scaled"]},
    "scale applied twice in dS": times("d_scores", lambda s: s["scale"]),
    "scale applied twice in dQ": times("d_q", lambda s: s["scale"]),
    "scale applied twice in dK": times("d_k", lambda s: s["scale"]),
    "base 2 of the exponent left in the gradient": times("d_q", lambda _: math.log(2)),
    "grouped heads not summed in dK, dV (the last one wins)": in_groups(
        lambda x, s: one_of_group(x, s, -1)
    ),
    "grouped heads not summed in dK, dV (the first one alone)": in_groups(
        lambda x, s: one_of_group(x, s, 0)
    ),
    "grouped heads averaged in dK, dV": in_groups(
        lambda x, s: of_groups(x, s) * s["k"].shape[1] / s["q"].shape[1]
    ),
    "grouped heads summed in the other order": in_groups(
        lambda x, s: of_groups(x, s, "other_kv_of")
    ),
    "dropout mask not applied again to dA": {"d_weights": lambda s: s["d_dropped"]},
    "dropout mask not applied again in dV": {
        "d_v": lambda s: of_groups(swap(s["weights"]) @ s["d_output"], s)
    },
    "dropout's 1/(1−p) left out of dA": {"d_weights": lambda s: s["d_dropped"] * s["kept"]},
    "δ before dropout": {
        "delta": lambda s: (s["weights"] * s["d_dropped"]).sum(axis=-1, keepdims=True)
    },
    "dropped weights used for A in dS": {
        "d_masked": lambda s: s["dropped"] * (s["d_weights"] - s["delta"])
    },
    "softcap's derivative left out": {"d_scaled": lambda s: s["d_masked"]},
    "softcap's derivative of C, not C/c": {
        "d_scaled": lambda s: s["d_masked"] * (1 - s["capped"] ** 2)
    },
    "softcap's derivative without its square": {"d_scaled": lambda s: d_scaled(s, np.abs)},
    "mask left out of the recomputed weights": again(unmasked),
    "log-sum-exp in base 2 read as natural": by_lse(lambda s: s["lse"] / math.log(2)),
    "log-sum-exp natural read as base 2": by_lse(lambda s: s["lse"] * math.log(2)),
    "row maximum used for the log-sum-exp (weights not normalised)": by_lse(
        lambda s: s["masked"].max(axis=-1, keepdims=True)
    ),
    "log-sum-exp of another query": by_lse(lambda s: np.roll(s["lse"], 1, axis=-2)),
    "sink left out of the recomputed weights": by_lse(
        lambda s: lse_and_weights(s["masked"], None)[0]
    ),
    "last block of queries lost in dK, dV": with_rows(lambda i: i < 4),
    "only the last block of queries in dK, dV": with_rows(lambda i: i >= 4),
    "last block of keys lost in dQ": with_keys(lambda j: j < 8),
    "only the last block of keys in dQ": with_keys(lambda j: j >= 8),
}
"""Name in the catalogue → the steps that are wrong."""
