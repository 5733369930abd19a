"""check on what the backward pass alone reads at another place, and on sinks of other heads."""

from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from attncli.convention import Convention
from attncli.tolerance.setup import setup_of
from tests import plain

RNG = np.random.default_rng(3)
Q, D = (RNG.normal(size=(2, 3, 5, n)) for n in (7, 4))
K, V = (RNG.normal(size=(2, 3, 11, n)) for n in (7, 4))
SINKS = RNG.normal(size=3)
BLOCKS = np.arange(11) // 4 * 4


def gradients(q: Any = Q, k: Any = K, v: Any = V, lse: Any = None) -> dict[str, Any]:
    """As kernels do: weights again by exp(score − log-sum-exp), of what is read; delta of O, dO."""
    saved = plain.attention({"q": Q, "k": K, "v": V}, {})
    lse = saved["lse"] if lse is None else lse
    result = {"d_q": np.zeros_like(Q), "d_k": np.zeros_like(K), "d_v": np.zeros_like(V)}
    for b, h, i in np.ndindex(2, 3, 5):
        delta = D[b, h, i] @ saved["output"][b, h, i]
        for j in range(11):
            weight = np.exp(q[b, h, i] @ k[b, h, j] / np.sqrt(7) - lse[b, h, i])
            slope = weight * (D[b, h, i] @ v[b, h, j] - delta) / np.sqrt(7)
            result["d_q"][b, h, i] += slope * k[b, h, j]
            result["d_k"][b, h, j] += slope * q[b, h, i]
            result["d_v"][b, h, j] += weight * D[b, h, i]
    return result


def cause(observed: Any, **more: Any) -> str:
    verdict = check(observed, Q, K, V, pairs=False, **more)
    return verdict.explanations[0].name if verdict.explanations else ""


def lse() -> Any:
    return plain.attention({"q": Q, "k": K, "v": V}, {})["lse"]


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({"k": K[:, :, BLOCKS]}, "k of each key is that of the first of its block of 4"),
        ({"v": V[:, :, BLOCKS]}, "v of each key is that of the first of its block of 4"),
        ({"q": Q[:, ::-1]}, "q of head 1 is that of head 3, of head 3 is that of head 1"),
        (
            {"lse": lse()[:, :, [0, 0, 2, 2, 4]]},
            "the log-sum-exp of each query is that of the first",
        ),
        ({"lse": lse()[[0, 0]]}, "the log-sum-exp of batch item 2 is that of batch item 1"),
    ],
)
def test_an_operand_that_the_backward_pass_alone_reads_elsewhere(read: Any, words: str) -> None:
    assert check(gradients(), Q, K, V, d_output=D).matches
    assert cause(gradients(**read), d_output=D).startswith(f"the backward pass alone: {words}")


def test_what_is_read_elsewhere_beside_rows_that_were_not_written() -> None:
    observed = gradients(v=V[:, :, BLOCKS])
    observed["d_q"][:, :, -1] = 0
    words = "v of each key is that of the first of its block of 4"
    assert cause(observed, d_output=D).startswith(f"the backward pass alone: {words} and query 5")


@pytest.mark.parametrize(
    ("name", "at", "rows"),
    [
        ("d_k", np.s_[:, 1, -2:], "keys 10 and 11 of key head 2 of d_k are 0"),
        ("d_v", np.s_[1, 2], "key head 3 of batch item 2 of d_v is 0"),
        ("d_q", np.s_[0, 4], "head 5 of batch item 1 of d_q is 0"),
    ],
)
def test_rows_that_were_not_written_of_shared_key_heads(name: str, at: Any, rows: str) -> None:
    read, words = READS["key heads"]
    observed = of_wide({}, read, 1.0)
    observed[name][at] = 0
    verdict = check(observed, WIDE_Q, WIDE_K, WIDE_V, pairs=False, d_output=WIDE_D)
    expected = f"the backward pass alone: {words} and {rows}: not written"
    assert verdict.explanations[0].name == expected


# ---- beside what is done to q, k and the weights, and with shared key heads

WIDE_Q, WIDE_K = (np.random.default_rng(5).normal(size=(2, n, m, 6)) for n, m in ((6, 5), (3, 11)))
WIDE_V, WIDE_D = (np.random.default_rng(7).normal(size=(2, n, m, 7)) for n, m in ((3, 11), (6, 5)))
FLAGS: dict[str, dict[str, Any]] = {
    "positions": {"positions": "rope-halves"},
    "norm": {"qk_norm": True},
    "dropout": {"dropout": 0.4, "seed": 3},
    "softcap": {"softcap": 1.5},
    "shared": {},
    "tiled": {"head_order": "tiled"},
    "all": {"positions": "rope-halves", "qk_norm": True, "softcap": 1.5, "head_order": "tiled"},
}


def turned(x: Any, sign: int = 1) -> Any:
    """Rotary positions in halves: pair i of token n is turned by n · 10000^(−2i/6)."""
    angles = sign * np.arange(x.shape[2])[:, None] * 10000.0 ** (-np.arange(3) / 3)
    a, b = x[..., :3], x[..., 3:]
    first, second = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
    return np.concatenate([first, second], axis=-1)


def rms(x: Any) -> Any:
    return np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)


def of_wide(flags: dict[str, Any], read: Any, kept: Any) -> dict[str, Any]:
    """d_q, d_k, d_v: the weights by the saved log-sum-exp, of q, k and v as `read` gives them."""
    heads = np.tile(np.arange(3), 2) if "head_order" in flags else np.arange(6) // 2
    q, k, v = WIDE_Q, WIDE_K[:, heads], WIDE_V[:, heads]
    has_norm, has_positions = "qk_norm" in flags, "positions" in flags
    placed = [x / rms(x) if has_norm else x for x in (q, k)]
    placed = [turned(x) if has_positions else x for x in placed]
    cap = flags.get("softcap", np.inf)

    def capped(q: Any, k: Any) -> tuple[Any, Any]:
        scaled = q @ k.swapaxes(2, 3) / np.sqrt(6)
        bounded = np.tanh(scaled / cap) if np.isfinite(cap) else scaled
        return (cap * bounded, 1 - bounded**2) if np.isfinite(cap) else (scaled, 1.0)

    logits, _ = capped(*placed)
    lse = np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    output = np.exp(logits - lse) * kept @ v
    delta = (output * WIDE_D).sum(axis=-1, keepdims=True)
    shared = [
        np.stack([x[:, list(heads).index(g)] for g in range(3)], axis=1) for x in (placed[1], v)
    ]
    q, k, v = read(placed[0], *shared)
    k, v = k[:, heads], v[:, heads]
    logits, slope = capped(q, k)
    weights = np.exp(logits - lse)
    d_scores = weights * (kept * (WIDE_D @ v.swapaxes(2, 3)) - delta) * slope / np.sqrt(6)
    d_q, d_k = d_scores @ k, d_scores.swapaxes(2, 3) @ q
    d_v = (weights * kept).swapaxes(2, 3) @ WIDE_D
    if has_positions:
        d_q, d_k = turned(d_q, -1), turned(d_k, -1)
    d_k, d_v = (
        np.stack([x[:, heads == g].sum(axis=1) for g in range(3)], axis=1) for x in (d_k, d_v)
    )
    if has_norm:
        d_q, d_k = (
            d / rms(x) - x * (d * x).sum(axis=-1, keepdims=True) / (6 * rms(x) ** 3)
            for d, x in ((d_q, WIDE_Q), (d_k, WIDE_K))
        )
    return {"d_q": d_q, "d_k": d_k, "d_v": d_v}


PAGES = np.arange(11) // 4 * 4
READS: dict[str, tuple[Any, str]] = {
    "k": (lambda q, k, v: (q, k[:, :, PAGES], v), "k of each key is that of the first of its block of 4"),
    "v": (lambda q, k, v: (q, k, v[:, :, PAGES]), "v of each key is that of the first of its block of 4"),
    "both": (
        lambda q, k, v: (q, k[:, :, PAGES], v[:, :, PAGES]),
        "k and v of each key are those of the first of its block of 4",
    ),
    "key heads": (lambda q, k, v: (q, k[:, [0, 0, 1]], v), "k of key head 2 is that of key head 1, of key head 3 is that of key head 2"),
    "both of heads": (
        lambda q, k, v: (q, k[:, ::-1], v[:, ::-1]),
        "k and v of key head 1 are those of key head 3, of key head 3 are those of key head 1",
    ),
    "q": (lambda q, k, v: (q[:, :, [0, 0, 2, 2, 4]], k, v), "q of each query is that of the first of its block of 2"),
    "q of heads": (lambda q, k, v: (q[:, ::-1], k, v), "q of each head is that of the one at its place in reverse order"),
    "items": (lambda q, k, v: (q, k[[1, 1]], v), "k of batch item 1 is that of batch item 2"),
}  # fmt: skip


BESIDE = [
    ("positions", "q"),
    ("norm", "v"),
    ("dropout", "both"),
    ("softcap", "k"),
    ("shared", "q of heads"),
    ("tiled", "key heads"),
    ("tiled", "items"),
    ("all", "both of heads"),
]
"""Each option once, and each of what is read elsewhere."""
OTHERS_BESIDE = [
    ("positions", "k"),
    ("positions", "both"),
    ("norm", "both"),
    ("softcap", "both of heads"),
    ("shared", "key heads"),
    ("all", "both"),
]


@pytest.mark.parametrize(
    ("flags", "what"),
    [*BESIDE, *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in OTHERS_BESIDE)],
)
def test_beside_positions_norms_and_shared_key_heads(flags: str, what: str) -> None:
    read, words = READS[what]
    more: dict[str, Any] = {"d_output": WIDE_D, **FLAGS[flags]}
    kept: Any = 1.0
    if flags == "dropout":
        setup = setup_of(WIDE_Q, WIDE_K, WIDE_V, convention=Convention(dropout=0.4, seed=3))
        kept = setup.inputs["kept"] / 0.6
    right = of_wide(FLAGS[flags], lambda *x: x, kept)
    assert check(right, WIDE_Q, WIDE_K, WIDE_V, **more).matches
    observed = of_wide(FLAGS[flags], read, kept)
    verdict = check(observed, WIDE_Q, WIDE_K, WIDE_V, pairs=False, **more)
    assert verdict.explanations[0].name.startswith(f"the backward pass alone: {words}")


@pytest.mark.parametrize("stage", ["output", "lse"])
def test_sinks_of_other_heads(stage: str) -> None:
    right, wrong = (
        plain.attention({"q": Q, "k": K, "v": V, "sinks": sinks}, {})
        for sinks in (SINKS, SINKS[::-1])
    )
    observed = {"output": right["output"], stage: wrong[stage]}
    words = "the sink of head 1 is that of head 3, of head 3 is that of head 1"
    assert cause(observed, sinks=SINKS).startswith(words)


def test_a_log_sum_exp_is_looked_up_in_other_heads() -> None:
    words = "right rows at another place: head 2 has the numbers of head 1"
    assert cause({"lse": lse()[:, [0, 0, 2]]}) == words
