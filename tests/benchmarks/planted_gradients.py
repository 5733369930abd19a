"""How `attncli check` does on wrong backward passes, by hand: a kernel in plain NumPy, and its bugs.

python tests/benchmarks/planted_gradients.py [--type float16] [--only TEXT] [--seeds 1] [--jobs 2]

The kernel goes over blocks of queries and keys, with a saved log-sum-exp and δ = Σ O ∘ dO, as
FlashAttention's does; `wrong` is its one deviation, each from a thread about a real backward pass.
In 16 bits it rounds what goes into products and what comes out, and sums in float32, as kernels do.
A wrong one counts where its gradients differ from the right ones by more than three times what
rounding does to those (else no tool could tell), and it is named where one of its words is in the
name of the one bug that check gives. What must be 0 is in capitals.

Nothing of attncli computes here: it is only asked.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs use the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from attncli.check.diagnose import check

TYPES = ("float64", "float32", "bfloat16", "float16")
BLOCK = 16
LN_2 = float(np.log(2))
Numbers = Any
Round = Callable[[Numbers], Numbers]


def rounding(dtype: str) -> Round:
    """To the number type, as float64 or, of smaller types, float32."""
    if dtype == "bfloat16":

        def to_bfloat16(x: Numbers) -> Numbers:
            bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
            odd = (bits >> np.uint32(16)) & np.uint32(1)
            kept = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
            return np.where(np.isnan(x), x, kept.view(np.float32)).astype(np.float32)

        return to_bfloat16
    wide = np.float64 if dtype == "float64" else np.float32
    return lambda x: np.asarray(x).astype(dtype).astype(wide)


@dataclass(frozen=True)
class World:
    """What the attention is of, [batch, head, token, d], and what is asked of it."""

    q: Numbers
    k: Numbers
    v: Numbers
    d: Numbers
    causal: bool = False
    left: int | None = None
    keep: Numbers = None
    bias: Numbers = None
    cap: float | None = None
    sinks: Numbers = None
    p: float = 0.0
    rotates: bool = False
    with_more: tuple[str, ...] = field(default=())

    @property
    def group(self) -> int:
        return int(self.q.shape[1] // self.k.shape[1])

    @property
    def kept(self) -> Numbers:
        """Which weights dropout keeps: NumPy's PCG64 with seed 0, as attncli documents it."""
        shape = (*self.q.shape[:3], self.k.shape[2])
        return np.random.default_rng(0).random(shape) >= self.p

    def allowed(self, wrong: str = "") -> Numbers:
        """Which keys each query attends to, [n_q, n_k]; wrong: on the way back alone."""
        n_q, n_k = self.q.shape[2], self.k.shape[2]
        ahead = np.arange(n_k) - np.arange(n_q)[:, None]
        found = np.ones((n_q, n_k), bool) if self.keep is None else self.keep.copy()
        if wrong == "mask left out":
            return np.ones((n_q, n_k), bool)
        if self.causal and wrong != "causal left out":
            shift = {"causal by one": 1, "causal by minus one": -1}.get(wrong, 0)
            found &= ahead <= (n_k - n_q if wrong == "causal of the other corner" else shift)
        if self.left is not None and wrong != "window left out":
            found &= ahead >= -self.left - (wrong == "window by one")
        return found


def rotated(x: Numbers, *, back: bool = False) -> Numbers:
    """RoPE in halves, positions from 0, base 10000."""
    n, d = x.shape[-2:]
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    c, s = np.cos(angles), np.sin(angles) * (-1 if back else 1)
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def swap(x: Numbers) -> Numbers:
    return np.swapaxes(x, -1, -2)


def scores(
    w: World, q: Numbers, k: Numbers, scale: float, wrong: str = ""
) -> tuple[Numbers, Numbers]:
    """The capped scores, and those that softmax sees but for the mask."""
    s = q @ swap(k) * (1.0 if wrong == "recomputed without scale" else scale)
    if w.cap is not None and wrong != "recomputed without softcap":
        s = w.cap * np.tanh(s / w.cap)
    return s, s if w.bias is None or wrong == "recomputed without bias" else s + w.bias


def kernel(  # noqa: PLR0912, PLR0915 - one kernel, its deviations where they happen
    w: World, wrong: str, r: Round
) -> dict[str, Numbers]:
    """The gradients of q, k, v, of the sinks and of the bias, where there are such."""
    f: Any = np.float64 if r(np.float32(1)).dtype == np.float64 else np.float32
    q, k, v, d = (r(x) for x in (w.q, w.k, w.v, w.d))
    q, k = (r(rotated(x)) for x in (q, k)) if w.rotates else (q, k)
    n_b, n_h, n_q, d_k = q.shape
    n_k, g, scale = k.shape[2], w.group, f(d_k**-0.5)
    of = np.arange(n_h) // g
    # forward: output, log-sum-exp
    _, x = scores(w, q, k[:, of], scale)
    x = np.where(w.allowed(), x, -np.inf).astype(f)
    top = x.max(-1, keepdims=True)
    if w.sinks is not None:
        top = np.maximum(top, r(w.sinks)[:, None, None])
    safe = np.where(np.isneginf(top), 0, top).astype(f)
    total = np.exp(x - safe).sum(-1, keepdims=True)
    if w.sinks is not None:
        total = total + np.exp(r(w.sinks)[:, None, None] - safe)
    lse = np.where(total == 0, np.inf, safe + np.log(np.where(total == 0, 1, total))).astype(f)
    kept, share = w.kept, f(1 - w.p)
    a = np.exp(x - lse)
    output = r(np.where(kept, a / share, 0).astype(f) @ v[:, of])
    # what the backward pass reads
    d_read, k_read, v_read = d, k, v
    if wrong == "dO of ones":
        d_read = np.ones_like(d)
    if wrong == "dO in another layout":
        d_read = d.reshape(n_b, n_q, n_h, -1).swapaxes(1, 2)
    if wrong == "K, V transposed twice":
        k_read, v_read = (y.reshape(n_b, n_k, n_h // g, -1).swapaxes(1, 2) for y in (k, v))
    if wrong == "first chunk of K, V everywhere":
        half = n_k // 2
        k_read, v_read = (y.copy() for y in (k, v))
        for y in (k_read, v_read):
            y[:, :, half : 2 * half] = y[:, :, :half]
    delta = (output * d_read).sum(-1, keepdims=True)
    if wrong == "δ of the next query":
        delta = (output * np.roll(d_read, -1, 2)).sum(-1, keepdims=True)
    elif wrong == "δ of the next head":
        delta = np.roll(delta, 1, 1)
    elif wrong == "δ left out":
        delta = np.zeros_like(delta)
    elif wrong == "δ added":
        delta = -delta
    elif wrong == "δ of O before its division":
        delta = delta * np.where(total == 0, 1, total)
    elif wrong == "δ without dropout":
        delta = (a * (d_read @ swap(v_read[:, of]))).sum(-1, keepdims=True)
    if wrong == "lse in base 2":
        lse = (lse / f(LN_2)).astype(f)
    elif wrong == "maximum for lse":
        lse = safe
    elif wrong == "lse of the next query":
        lse = np.roll(lse, -1, 2)
    elif wrong == "lse of the next head":
        lse = np.roll(lse, 1, 1)
    elif wrong == "lse without sink":
        lse = (safe + np.log(np.exp(x - safe).sum(-1, keepdims=True))).astype(f)
    if wrong == "dropout drawn again":
        kept = np.random.default_rng(1).random(kept.shape) >= w.p
    # backward, block by block
    ds_all = np.zeros((n_b, n_h, n_q, n_k), f)
    d_q = np.zeros((n_b, n_h, n_q, d_k), f)
    d_k_of = np.zeros((n_b, n_h, n_k, d_k), f)
    d_v_of = np.zeros((n_b, n_h, n_k, v.shape[-1]), f)
    seen = w.allowed(wrong)
    capped, shown = scores(w, q, k_read[:, of], scale, wrong)
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.exp(np.where(seen, shown, -np.inf) - lse).astype(f)
        if wrong == "0 · NaN of an empty row":
            empty = ~w.allowed().any(-1)
            p[:, :, empty] = np.nan
        d_p = (d_read @ swap(v_read[:, of])).astype(f)
        p_dropped = np.where(kept, p / share, 0).astype(f)
        if wrong not in ("dropout left out of dA",):
            d_p = np.where(kept, d_p / share, 0).astype(f)
        if wrong == "1/(1 − p) left out of dA":
            d_p = d_p * share
        own = p * (d_p - delta)
        if wrong == "softmax element by element":
            own = p * (1 - p) * d_p
        elif wrong == "softmax over queries":
            own = p * (d_p - (p * d_p).sum(-2, keepdims=True))
        elif wrong == "dropped weights in dS":
            own = p_dropped * (d_p - delta)
        d_bias, factor = own, scale
        if w.cap is not None:
            c = capped / f(w.cap)
            slope = {"softcap's slope left out": 1, "slope without square": 1 - c}.get(wrong)
            slope = 1 - np.square(capped) if wrong == "slope of C" else slope
            own = own * (1 - np.square(c) if slope is None else slope)
        factor = {
            "scale left out of dS": 1, "scale twice": scale * scale, "1/ln 2 left in": scale / LN_2,
            "ln 2 put in": scale * LN_2, "scale of a wider head": (d_k + 8) ** -0.5,
        }.get(wrong, factor)  # fmt: skip
        ds_all = r((own * f(factor)).astype(f))
        p_v = r({"dropout left out of dV": p, "1/(1 − p) left out of dV": p_dropped * share}.get(
            wrong, p_dropped
        ).astype(f))  # fmt: skip
        for i in range(0, n_q, BLOCK):
            rows = slice(i, i + BLOCK)
            is_last_row = i + BLOCK >= n_q
            for j in range(0, n_k, BLOCK):
                cols = slice(j, j + BLOCK)
                is_last_col = j + BLOCK >= n_k
                ds, pv = ds_all[:, :, rows, cols], p_v[:, :, rows, cols]
                if wrong == "last key block overwrites dQ":
                    d_q[:, :, rows] = ds @ k_read[:, of][:, :, cols]
                elif not (wrong == "last key block lost in dQ" and is_last_col):
                    d_q[:, :, rows] += ds @ k_read[:, of][:, :, cols]
                if wrong == "last query block lost in dK, dV" and is_last_row:
                    continue
                if wrong == "first query block lost in dK, dV" and i == 0:
                    continue
                if wrong == "last key block of dK, dV unwritten" and is_last_col:
                    continue
                if wrong == "last query block overwrites dK, dV":
                    d_k_of[:, :, cols] = swap(ds) @ q[:, :, rows]
                    d_v_of[:, :, cols] = swap(pv) @ d_read[:, :, rows]
                else:
                    d_k_of[:, :, cols] += swap(ds) @ q[:, :, rows]
                    d_v_of[:, :, cols] += swap(pv) @ d_read[:, :, rows]
        if wrong == "dS, not dSᵀ, in dK":
            d_k_of = ds_all @ q
        elif wrong == "A, not Aᵀ, in dV":
            d_v_of = p_v @ d_read

    def summed(y: Numbers) -> Numbers:
        parts = y.reshape(n_b, n_h // g, g, *y.shape[2:])
        if wrong == "groups in turn":
            parts = y.reshape(n_b, g, n_h // g, *y.shape[2:]).swapaxes(1, 2)
        if wrong in ("last head of a group wins", "first head of a group alone"):
            return parts[:, :, -1 if "last" in wrong else 0]
        return parts.mean(2) if wrong == "groups averaged" else parts.sum(2)

    found = {"d_q": d_q, "d_k": summed(d_k_of), "d_v": summed(d_v_of)}
    by = {"scale left out of dQ": ("d_q", 1 / scale), "scale left out of dK": ("d_k", 1 / scale)}
    by |= {"scale twice in dQ": ("d_q", scale), "scale twice in dK": ("d_k", scale)}
    by |= {"dQ not written": ("d_q", 0.0), "scale in dV": ("d_v", scale)}
    if wrong in by:
        name, times = by[wrong]
        found[name] = found[name] * f(times)
    if wrong == "mean over the batch":
        found = {name: y / n_b for name, y in found.items()}
    if wrong == "dK and dV swapped":
        found["d_k"], found["d_v"] = found["d_v"], found["d_k"]
    if wrong == "gradients in another layout":
        found = {
            name: np.ascontiguousarray(y.swapaxes(1, 2)).reshape(y.shape)
            for name, y in found.items()
        }
    if w.rotates and wrong != "left in the rotated frame":
        found |= {name: rotated(found[name], back=True) for name in ("d_q", "d_k")}
    if w.sinks is not None:
        with np.errstate(over="ignore"):
            part = -np.exp(r(w.sinks)[:, None, None] - lse) * delta
        part = (
            -part if wrong == "sink's sign" else -delta if wrong == "sink without share" else part
        )
        found["d_sinks"] = part.sum((0, 2, 3)) * (LN_2 if wrong == "sink in base 2" else 1)
    if w.bias is not None:
        total_bias = d_bias * (scale if wrong == "bias after the scale" else 1)
        axes = (0,) if w.bias.ndim == 3 and w.bias.shape[0] > 1 else (0, 1)
        found["d_bias"] = total_bias.sum(axes, keepdims=False).reshape(w.bias.shape)
        if wrong == "bias of one head":
            found["d_bias"] = total_bias[:, -1].sum(0).reshape(w.bias.shape)
    return {name: r(np.asarray(y).astype(f)) for name, y in found.items()}


def world(name: str, seed: int) -> World:
    """An attention with one feature, or with all that go together; sizes are primes."""
    rng = np.random.default_rng([seed, *name.encode()])
    n_kv = 3 if name in ("grouped", "all") else 6
    n_q, n_k = (41, 41) if name in ("causal", "square", "rotary", "window") else (37, 53)
    d_v = 8 if name in ("square", "rotary") else 11
    shapes = (6, n_q, 8), (n_kv, n_k, 8), (n_kv, n_k, d_v), (6, n_q, d_v)
    q, k, v, d = (rng.standard_normal((2, *shape)) for shape in shapes)
    w = World(1.5 * q, k, v, d)
    keep = rng.random((n_q, n_k)) < 0.7
    keep[5] = False
    more: dict[str, dict[str, Any]] = {
        "causal": {"causal": True},
        "causal oblong": {"causal": True},
        "window": {"left": 7, "causal": True},
        "mask": {"keep": keep},
        "bias": {"bias": rng.standard_normal((1, n_q, n_k))},
        "softcap": {"cap": 2.0},
        "sinks": {"sinks": rng.standard_normal(6) + 1},
        "dropout": {"p": 0.3},
        "rotary": {"rotates": True},
        "all": {"keep": keep, "cap": 2.0, "sinks": rng.standard_normal(6), "p": 0.2},
    }
    return replace(w, **more.get(name, {}))


PLANTED: dict[str, tuple[str, tuple[str, ...], str]] = {
    # wrong: the world, words of the name it should get, where it was met
    "δ left out": ("plain", ("δ left out",), "triton#919"),
    "δ of the next query": ("plain", ("δ from the gradient of another query",), "flash-attention#2555"),
    "δ of the next head": ("plain", ("δ of another head",), "native-sparse-attention-triton#27"),
    "δ added": ("plain", ("δ added",), "cs231n#10"),
    "δ of O before its division": ("plain", ("δ from an unnormalised O",), "flash-attention#2555"),
    "δ without dropout": ("dropout", ("δ before dropout",), "flash-attention#1251"),
    "softmax element by element": ("plain", ("element by element",), "cs231n#10"),
    "softmax over queries": ("plain", ("summed over the queries",), "candle#3724"),
    "scale left out of dS": ("plain", ("scale left out of dS",), "triton#2059"),
    "scale left out of dQ": ("plain", ("scale left out of dQ",), "triton#2059"),
    "scale left out of dK": ("plain", ("scale left out of dK",), "flash-attention#2657"),
    "scale twice": ("plain", ("scale applied twice in dS",), "triton#2059"),
    "scale twice in dQ": ("plain", ("scale applied twice in dQ",), "FastVideo#1730"),
    "scale twice in dK": ("plain", ("scale applied twice in dK",), "FastVideo#1730"),
    "scale in dV": ("plain", ("scale applied to dV",), "triton#2059"),
    "scale of a wider head": ("plain", ("another scale in dS",), "TransformerEngine#3216"),
    "1/ln 2 left in": ("plain", ("base 2 of the exponent",), "attention-gym#200"),
    "ln 2 put in": ("plain", ("base 2 of the exponent",), "triton_docs_tutorials#6"),
    "recomputed without scale": ("plain", ("scale left out of the recomputed",), "triton#2059"),
    "last head of a group wins": ("grouped", ("the last one wins",), "levanter#449"),
    "first head of a group alone": ("grouped", ("the first one alone",), "levanter#449"),
    "groups averaged": ("grouped", ("grouped heads averaged",), "levanter#449"),
    "groups in turn": ("grouped", ("summed in the other order",), "native-sparse-attention-triton#27"),
    "dropout left out of dA": ("dropout", ("dropout mask not applied again to dA",), "flash-attention#1251"),
    "dropout left out of dV": ("dropout", ("dropout mask not applied again in dV",), "flash-attention#612"),
    "1/(1 − p) left out of dA": ("dropout", ("1/(1−p) left out of dA",), "flash-attention#1251"),
    "1/(1 − p) left out of dV": ("dropout", ("1/(1−p) left out of dV",), "flash-attention#612"),
    "dropped weights in dS": ("dropout", ("dropped weights used for A in dS",), "flash-attention#1251"),
    "dropout drawn again": ("dropout", ("drop",), "pytorch#190717"),
    "softcap's slope left out": ("softcap", ("softcap's derivative left out",), "flash-attention#1033"),
    "slope of C": ("softcap", ("derivative of C, not C/c",), "flash-attention#1033"),
    "slope without square": ("softcap", ("derivative without its square",), "TorchCode#10"),
    "recomputed without softcap": ("softcap", ("softcap left out of the recomputed",), "tokamax#1121"),
    "mask left out": ("mask", ("mask left out of the recomputed",), "triton#7216"),
    "causal left out": ("causal", ("mask left out of the recomputed",), "triton#7216"),
    "causal by one": ("causal", ("another mask on the recomputed",), "flash-attention#1915"),
    "causal by minus one": ("causal", ("another mask on the recomputed",), "flash-attention#1915"),
    "causal of the other corner": ("causal oblong", ("another mask on the recomputed",), "triton#5660"),
    "window by one": ("window", ("another mask on the recomputed",), "triton#4174"),
    "window left out": ("window", ("mask",), "triton#4174"),
    "recomputed without bias": ("bias", ("numbers of the mask left out of the recomputed",), "ffpa-attn#301"),
    "lse in base 2": ("plain", ("base 2 read as natural",), "attention-gym#200"),
    "maximum for lse": ("plain", ("row maximum used for the log-sum-exp",), "flash-attention#404"),
    "lse of the next query": ("plain", ("log-sum-exp of another query",), "flash-attention#404"),
    "lse of the next head": ("plain", ("log-sum-exp of another head",), "native-sparse-attention-triton#27"),
    "lse without sink": ("sinks", ("sink left out of the recomputed",), "aiter#1576"),
    "sink's sign": ("sinks", ("sink's gradient with the wrong sign",), "flash-linear-attention#831"),
    "sink without share": ("sinks", ("sink's gradient without its share",), "flash-linear-attention#831"),
    "sink in base 2": ("sinks", ("sink's gradient in base 2",), "aiter#1576"),
    "last query block lost in dK, dV": ("plain", ("last block of queries lost",), "FlagGems#898"),
    "first query block lost in dK, dV": ("plain", ("block of queries lost",), "FlagGems#898"),
    "last query block overwrites dK, dV": ("plain", ("only the last block of queries",), "tilelang#930"),
    "last key block lost in dQ": ("plain", ("last block of keys lost in dQ",), "FlagGems#898"),
    "last key block overwrites dQ": ("plain", ("only the last block of keys in dQ",), "tilelang#930"),
    "last key block of dK, dV unwritten": ("plain", ("last block of keys not written",), "flash-attention#1990"),
    "dK and dV swapped": ("square", ("dK and dV swapped",), "flash-linear-attention#632"),
    "A, not Aᵀ, in dV": ("square", ("A instead of Aᵀ",), "ai.stackexchange 25055"),
    "dS, not dSᵀ, in dK": ("square", ("dS instead of dSᵀ",), "ai.stackexchange 25055"),
    "gradients in another layout": ("plain", ("gradients in another layout",), "diffusers#14338"),
    "dO in another layout": ("plain", ("dO of another place, or in another layout",), "diffusers#14338"),
    "K, V transposed twice": ("plain", ("K, V read otherwise",), "diffusers#14338"),
    "first chunk of K, V everywhere": ("plain", ("K, V read otherwise",), "diffusers#14265"),
    "left in the rotated frame": ("rotary", ("left in the rotated frame",), "Automodel#3157"),
    "mean over the batch": ("plain", ("mean, not sum",), "TransformerLens#1750"),
    "dO of ones": ("plain", ("ones in place of dO",), "RL-Kernel#188"),
    "dQ not written": ("plain", ("a gradient is 0",), "aprender#2203"),
    "0 · NaN of an empty row": ("mask", ("0 · NaN",), "pytorch#41508"),
    "bias after the scale": ("bias", ("taken after the scale",), "ffpa-attn#301"),
    "bias of one head": ("bias", ("not summed over what it was broadcast over",), "ffpa-attn#301"),
}  # fmt: skip

WORLDS = (
    "plain", "causal", "causal oblong", "window", "mask", "bias", "grouped", "softcap", "sinks",
    "dropout", "square", "rotary", "all",
)  # fmt: skip


def asked(w: World, observed: dict[str, Numbers]) -> Any:
    """The verdict of check on these gradients of the world."""
    mask = w.keep if w.bias is None else w.bias
    more: dict[str, Any] = {} if mask is None else {"mask": mask}
    more |= {} if w.sinks is None else {"sinks": w.sinks}
    more |= {"causal": True} if w.causal else {}
    more |= {} if w.left is None else {"window": (w.left, -1)}
    more |= {} if w.cap is None else {"softcap": w.cap}
    more |= {"dropout": w.p} if w.p else {}
    more |= {"positions": "rope-halves"} if w.rotates else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check(observed, w.q, w.k, w.v, d_output=w.d, **more)


def of_type(w: World, r: Round) -> World:
    """The world with inputs that the number type holds."""
    own = {n: r(x).astype(np.float64) for n in ("q", "k", "v", "d") for x in (getattr(w, n),)}
    for n in ("sinks", "bias"):
        if getattr(w, n) is not None:
            own[n] = r(getattr(w, n)).astype(np.float64)
    return replace(w, **own)


def distance(a: dict[str, Numbers], b: dict[str, Numbers]) -> dict[str, float]:
    with np.errstate(invalid="ignore"):
        return {n: float(np.sqrt(np.mean(np.square(a[n].astype(np.float64) - b[n])))) for n in a}


def outcome(wrong: str, name: str, dtype: str, seed: int) -> str:
    """What check says of a wrong kernel (of a right one where `wrong` is "")."""
    r = rounding(dtype)
    w = of_type(world(name, seed), r)
    exact, right = kernel(w, "", rounding("float64")), kernel(w, "", r)
    found = kernel(w, wrong, r)
    verdict = asked(w, {n: x.astype(dtype) if dtype == "float16" else x for n, x in found.items()})
    if not wrong:
        return "quiet" if verdict.matches else "ALARM"
    noise, off = distance(right, exact), distance(found, exact)
    is_far = any(not off[n] <= 3 * noise[n] + 1e-12 for n in off)
    if verdict.matches:
        return "MATCHED" if is_far else "not decided"
    names = [explanation.name for explanation in verdict.explanations]
    words = PLANTED[wrong][1]
    is_it = [any(word in one for word in words) for one in names]
    if not names:
        return "no match"
    if is_it == [True]:
        return "named"
    if any(is_it):
        return "among several"
    return f"WRONG NAME ({'; '.join(names)})"


Job = tuple[str, str, str, int]


def job(args: Job) -> tuple[Job, str]:
    try:
        return args, outcome(*args)
    except Exception as problem:
        return args, f"FAULT ({type(problem).__name__}: {problem})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--type", choices=TYPES)
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    types = [args.type] if args.type else list(TYPES)
    wrong = [(n, row[0]) for n, row in PLANTED.items() if args.only in n]
    right = [("", name) for name in WORLDS] if not args.only else []
    jobs = [(*one, t, s) for t in types for s in range(args.seeds) for one in (*wrong, *right)]
    start = time.perf_counter()
    counts: dict[str, Counter[str]] = {t: Counter() for t in types}
    with ProcessPoolExecutor(args.jobs) as pool:
        for (name, where, dtype, seed), said in pool.map(job, jobs, chunksize=4):
            kind = said.partition(" (")[0]
            counts[dtype][kind] += 1
            if kind not in ("named", "quiet"):
                print(f"{dtype:9} {where:14} {name or 'right':34} seed {seed}: {said}", flush=True)
    print(
        f"\n{len(PLANTED)} wrong ones, {len(WORLDS)} right ones, {time.perf_counter() - start:.0f} s"
    )
    for dtype, found in counts.items():
        print(f"{dtype:9}", " · ".join(f"{kind} {n}" for kind, n in found.most_common()))


if __name__ == "__main__":
    main()
