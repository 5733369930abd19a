"""The variants as their papers say them, in plain loops over NumPy rows; nothing here is of attncli.

Each takes the inputs by name, [batch, head, token, d] for q, k and v, and gives the last stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Inputs = Mapping[str, Any]


def softmax(x: Any) -> Any:
    powers = np.exp(x - np.max(x))
    return powers / powers.sum()


def by_rows(weights: Callable[[Inputs, int, int, int], Any]) -> Callable[[Inputs], Any]:
    """The output, from the weights of one query: a function of inputs, batch entry, head, query."""

    def output(x: Inputs) -> Any:
        v = x["v"]
        n_b, n_h, n_q = x["q"].shape[:3]
        result = np.zeros((n_b, n_h, n_q, v.shape[-1]))
        for b, h, i in np.ndindex(n_b, n_h, n_q):
            for j, weight in enumerate(weights(x, b, h, i)):
                result[b, h, i] += weight * v[b, h, j]
        return result

    return output


def scores(x: Inputs, b: int, h: int, i: int) -> Any:
    q, k = x["q"][b, h, i], x["k"][b, h]
    return np.array([q @ key for key in k]) / np.sqrt(len(q))


def seen(z: Any, may: Callable[[int], bool]) -> Any:
    """A softmax of the keys that may be seen, 0 for the others."""
    keys = [j for j in range(len(z)) if may(j)]
    result = np.zeros(len(z))
    result[keys] = softmax(z[keys])
    return result


def alibi(x: Inputs, b: int, h: int, i: int) -> Any:
    n_h = x["q"].shape[1]
    slope = 2 ** (-8 * (h + 1) / n_h)
    z = scores(x, b, h, i) - slope * (i - np.arange(x["k"].shape[2]))
    return seen(z, lambda j: j <= i)


def cosine(x: Inputs, b: int, h: int, i: int) -> Any:
    q, k = x["q"][b, h, i], x["k"][b, h]
    cosines = [q @ key / np.linalg.norm(q) / np.linalg.norm(key) for key in k]
    return softmax(np.array(cosines) / x["tau"][h])


def forgetting(x: Inputs, b: int, h: int, i: int) -> Any:
    z = scores(x, b, h, i)
    for j in range(i + 1):
        z[j] += np.log(np.prod(x["f"][b, h, j + 1 : i + 1]))
    return seen(z, lambda j: j <= i)


def stick_breaking(x: Inputs, b: int, h: int, i: int) -> Any:
    beta, rest = 1 / (1 + np.exp(-scores(x, b, h, i))), 1.0
    weights = np.zeros(len(beta))
    for j in range(i - 1, -1, -1):  # the nearest token takes its share first
        weights[j], rest = beta[j] * rest, rest * (1 - beta[j])
    return weights


def softpick(x: Inputs, b: int, h: int, i: int) -> Any:
    powers = np.expm1(scores(x, b, h, i)[: i + 1])
    weights = np.maximum(powers, 0) / (np.abs(powers).sum() + 1e-8)
    return np.append(weights, np.zeros(x["k"].shape[2] - i - 1))


def selective(x: Inputs, b: int, h: int, i: int) -> Any:
    masking = np.zeros(x["k"].shape[2])
    for before in range(i):  # what each earlier token took away
        for j in range(1, before):
            masking[j] += max(0.0, scores(x, b, 0, before)[j])
    return seen(scores(x, b, h, i) - masking, lambda j: j <= i)


def simplex_bisected(z: Any, power: float) -> Any:
    """max(0, z − τ) ** power with the τ at which they sum to 1, by bisection."""
    low, high = z.min() - 2, z.max()
    for _ in range(200):
        middle = (low + high) / 2
        is_large = (np.maximum(0, z - middle) ** power).sum() > 1
        low, high = (middle, high) if is_large else (low, middle)
    return np.maximum(0, z - low) ** power


def t5(x: Inputs, b: int, h: int, i: int) -> Any:
    z = []
    for j in range(x["k"].shape[2]):  # as T5's relative_position_bucket has it, bidirectional
        gap, bucket = j - i, 0
        if gap > 0:
            bucket += 4
        gap = abs(gap)
        if gap < 2:
            bucket += gap
        else:
            bucket += min(3, 2 + int(np.log(gap / 2) / np.log(10 / 2) * 2))
        z.append(x["q"][b, h, i] @ x["k"][b, h, j] + x["table"][bucket, h])
    return softmax(np.array(z))


def rope(x: Inputs, b: int, h: int, i: int) -> Any:
    def turned(row: Any, place: int) -> Any:
        half = len(row) // 2
        pairs = [complex(row[c], row[c + half]) for c in range(half)]
        pairs = [
            p * np.exp(1j * place * 10000.0 ** (-2 * c / len(row))) for c, p in enumerate(pairs)
        ]
        return np.array([p.real for p in pairs] + [p.imag for p in pairs])

    q = turned(x["q"][b, h, i], i)
    z = np.array([q @ turned(key, j) for j, key in enumerate(x["k"][b, h])]) / np.sqrt(len(q))
    return seen(z, lambda j: j <= i)


def multi_token(x: Inputs, b: int, h: int, i: int) -> Any:
    n_p, n_c = x["kernel"].shape[1:]
    n = x["k"].shape[2]
    plain = [np.where(np.arange(n) <= at, scores(x, b, h, at), 0) for at in range(n)]
    padded = np.pad(np.array(plain), ((n_p - 1, 0), (n_c // 2, n_c // 2)))
    z = np.zeros(n)
    for j in range(n):
        for p in range(n_p):
            for c in range(n_c):  # a convolution: the kernel runs backwards
                z[j] += x["kernel"][h, p, c] * padded[i + n_p - 1 - p, j + n_c - 1 - c]
    return seen(z, lambda j: j <= i)


def cope(x: Inputs, b: int, h: int, i: int) -> Any:
    q, k, table = x["q"][b, h, i], x["k"][b, h], x["positions"]
    dots, z = k @ q / np.sqrt(len(q)), []
    for j in range(len(k)):
        place = min((1 / (1 + np.exp(-dots[j : i + 1]))).sum(), len(table) - 1)
        below = int(place)
        above = min(below + 1, len(table) - 1)
        row = (1 - (place - below)) * table[below] + (place - below) * table[above]
        z.append(dots[j] + q @ row)
    return seen(np.array(z), lambda j: j <= i)


def ssd(x: Inputs) -> Any:
    """By its recurrence: a state is carried from token to token."""
    q, k, v = x["q"], x["k"], x["v"]
    result = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h in np.ndindex(*q.shape[:2]):
        state = np.zeros((q.shape[-1], v.shape[-1]))
        for i in range(q.shape[2]):
            state = x["a"][b, h, i] * state + np.outer(k[b, h, i], v[b, h, i])
            result[b, h, i] = q[b, h, i] @ state
    return result


def retention(x: Inputs) -> Any:
    gamma = 1 - 2.0 ** (-5 - np.arange(x["q"].shape[1]))
    decays = np.broadcast_to(gamma[None, :, None], x["q"].shape[:3])
    return ssd({**x, "a": decays})


def linear(x: Inputs) -> Any:
    def phi(row: Any) -> Any:
        return np.where(row > 0, row + 1, np.exp(row))

    q, k, v = phi(x["q"]), phi(x["k"]), x["v"]
    result = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h in np.ndindex(*q.shape[:2]):
        state, norm = np.zeros((q.shape[-1], v.shape[-1])), np.zeros(q.shape[-1])
        for i in range(q.shape[2]):
            state, norm = state + np.outer(k[b, h, i], v[b, h, i]), norm + k[b, h, i]
            result[b, h, i] = q[b, h, i] @ state / (q[b, h, i] @ norm)
    return result


def differential(x: Inputs) -> Any:
    start = 0.8 - 0.6 * np.exp(-0.3)
    factor = np.exp(x["l_q1"] @ x["l_k1"]) - np.exp(x["l_q2"] @ x["l_k2"]) + start
    result = np.zeros_like(x["v"])
    for b, h, i in np.ndindex(*x["q1"].shape[:3]):
        one, two = (softmax(scores({"q": x[f"q{n}"], "k": x[f"k{n}"]}, b, h, i)) for n in (1, 2))
        row = (one - factor * two) @ x["v"][b, h]
        result[b, h, i] = (1 - start) * x["gain"] * row / np.sqrt((row**2).mean() + 1e-5)
    return result


def talking_heads(x: Inputs) -> Any:
    n_b, n_h, n_q = x["q"].shape[:3]
    result = np.zeros((n_b, n_h, n_q, x["v"].shape[-1]))
    for b, i in np.ndindex(n_b, n_q):
        plain = [scores(x, b, g, i) for g in range(n_h)]
        mixed = [sum(plain[g] * x["w_l"][g, h] for g in range(n_h)) for h in range(n_h)]
        shares = [softmax(row) for row in mixed]
        for h in range(n_h):
            weights = sum(shares[g] * x["w_w"][g, h] for g in range(n_h))
            result[b, h, i] = weights @ x["v"][b, h]
    return result


def in_heads(rows: Any, n_heads: int) -> Any:
    return np.stack(np.split(rows, n_heads, axis=-1), axis=1)  # [b, n, h·d] -> [b, h, n, d]


def causal(x: Inputs, b: int, h: int, i: int) -> Any:
    return seen(scores(x, b, h, i), lambda j: j <= i)


def gated(x: Inputs) -> Any:
    q, k, v = (in_heads(x["x"] @ x[f"w_{n}"], 3) for n in "qkv")
    heads = by_rows(causal)({"q": q, "k": k, "v": v})
    gate = 1 / (1 + np.exp(-in_heads(x["x"] @ x["w_g"], 3)))
    return np.concatenate([*np.moveaxis(heads * gate, 1, 0)], axis=-1) @ x["w_o"]


def mla(x: Inputs) -> Any:
    latent = x["x"] @ x["w_dkv"]
    q, k, v = x["x"] @ x["w_q"], latent @ x["w_uk"], latent @ x["w_uv"]
    heads = by_rows(causal)({n: in_heads(y, 3) for n, y in zip("qkv", (q, k, v), strict=True)})
    return np.concatenate([*np.moveaxis(heads, 1, 0)], axis=-1) @ x["w_o"]


def additive(x: Inputs) -> Any:
    rows = []
    for s in x["s"]:
        energies = [x["v_a"] @ np.tanh(x["w_a"] @ s + x["u_a"] @ key) for key in x["hs"]]
        rows.append(softmax(np.array(energies)) @ x["hs"])
    return np.array(rows)


def qk_norm(x: Inputs, b: int, h: int, i: int) -> Any:
    def normed(row: Any, gain: Any) -> Any:
        return gain * row / np.sqrt((row**2).mean() + 1e-6)

    q = normed(x["q"][b, h, i], x["g_q"])
    dots = [q @ normed(key, x["g_k"]) for key in x["k"][b, h]]
    return softmax(np.array(dots) / np.sqrt(len(q)))


def sunk(x: Inputs, b: int, h: int, i: int, sink: float) -> Any:
    powers = np.exp(scores(x, b, h, i))
    return powers / (powers.sum() + np.exp(sink))


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def distance(x: Inputs, b: int, h: int, i: int) -> Any:
    gaps = [((x["q"][b, h, i] - key) ** 2).sum() for key in x["k"][b, h]]
    return softmax(-np.array(gaps) / np.sqrt(x["q"].shape[-1]))


def n_keys(x: Inputs) -> int:
    return int(x["k"].shape[2])


REFERENCES: dict[str, Callable[[Inputs], Any]] = {
    "additive": additive,
    "alibi": by_rows(alibi),
    "cope": by_rows(cope),
    "cosine": by_rows(cosine),
    "differential": differential,
    "dilated-window": by_rows(
        lambda x, b, h, i: seen(scores(x, b, h, i), lambda j: j - i in (-4, -2, 0, 2, 4))
    ),
    "documents": by_rows(
        lambda x, b, h, i: seen(
            scores(x, b, h, i), lambda j: j <= i and x["doc"][b, i] == x["doc"][b, j]
        )
    ),
    "entmax": by_rows(lambda x, b, h, i: simplex_bisected(scores(x, b, h, i) / 2, 2)),
    "forgetting": by_rows(forgetting),
    "gated": gated,
    "l2-distance": by_rows(distance),
    "linear": linear,
    "mla": mla,
    "multi-token": by_rows(multi_token),
    "prefix-lm": by_rows(
        lambda x, b, h, i: seen(scores(x, b, h, i), lambda j: j <= i or j < x["prefix"][b])
    ),
    "qk-norm": by_rows(qk_norm),
    "relu": by_rows(lambda x, b, h, i: np.maximum(0, scores(x, b, h, i)) / n_keys(x)),
    "retention": retention,
    "rope": by_rows(rope),
    "selective": by_rows(selective),
    "sigmoid": by_rows(lambda x, b, h, i: sigmoid(scores(x, b, h, i) - np.log(n_keys(x)))),
    "sinks": by_rows(lambda x, b, h, i: sunk(x, b, h, i, x["sinks"][h])),
    "softcap": by_rows(
        lambda x, b, h, i: seen(1.5 * np.tanh(scores(x, b, h, i) / 1.5), lambda j: j <= i)
    ),
    "softmax1": by_rows(lambda x, b, h, i: sunk(x, b, h, i, 0.0)),
    "softpick": by_rows(softpick),
    "sparsemax": by_rows(lambda x, b, h, i: simplex_bisected(scores(x, b, h, i), 1)),
    "ssd": ssd,
    "ssmax": by_rows(
        lambda x, b, h, i: seen(x["s"][h] * np.log(i + 1) * scores(x, b, h, i), lambda j: j <= i)
    ),
    "stick-breaking": by_rows(stick_breaking),
    "t5-bias": by_rows(t5),
    "talking-heads": talking_heads,
}


def inputs_of(name: str, seed: int = 0, n: int = 5) -> dict[str, Any]:
    """Inputs for a variant, of sizes that are distinct primes as far as it allows."""
    rng = np.random.default_rng(seed)
    b, h, d, e, m = 2, 3, 7, 11, 13
    d = 6 if name == "rope" else d

    def draw(*shape: int) -> Any:
        return rng.normal(size=shape)

    x = {name: draw(b, h, n, d) for name in ("q", "k", "q1", "k1", "q2", "k2")}
    x |= {"v": draw(b, h, n, e), "doc": np.sort(rng.integers(0, 3, (b, n)), axis=1)}
    x |= {"prefix": np.array([2, 3]), "tau": rng.random(h) + 0.5, "sinks": draw(h)}
    x |= {"f": rng.random((b, h, n)) * 0.5 + 0.4, "a": rng.random((b, h, n)) * 0.5 + 0.4}
    x |= {"kernel": draw(h, 2, 3), "w_l": draw(h, h), "w_w": draw(h, h), "table": draw(8, h)}
    x |= {"positions": draw(4, d), "g_q": draw(d), "g_k": draw(d), "gain": draw(e)}
    x |= {name: draw(d) / 5 for name in ("l_q1", "l_k1", "l_q2", "l_k2")}
    x |= {"x": draw(b, n, m), "w_o": draw(h * e, m), "w_q": draw(m, h * d), "w_dkv": draw(m, 5)}
    x |= {"w_k": draw(m, h * d), "w_v": draw(m, h * e), "w_g": draw(m, h * e)}
    x |= {"w_uk": draw(5, h * d), "w_uv": draw(5, h * e)}
    x |= {"v_a": draw(3), "w_a": draw(3, 2), "u_a": draw(3, 5), "hs": draw(7, 5)}
    x["s"] = draw(n, 2) if name == "additive" else rng.random(h) + 0.5
    return x
