"""Wrong ways back, each a method or two of the right kernel replaced (kernel.py).

They are taken from the threads named beside them, and written without attncli. `name` is what
`check` calls it, `says` what the sentence of an answer has in it, as a regular expression; neither
where nothing explains it.
"""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attncli.commands.check.verdict import Verdict
from tests.commands.check.planted.parts import Array
from tests.commands.check.planted_backward import kernel
from tests.commands.check.planted_backward.kernel import BLOCK, WINDOW, Call, Kernel, rotated, swap

LN2 = math.log(2)


class Wrong(NamedTuple):
    """A wrong implementation: what is wrong, its name, in which worlds, methods, a thread."""

    what: str
    name: str
    worlds: tuple[str, ...]
    methods: dict[str, Callable[..., Any]]
    thread: str = ""
    says: str = ""

    @property
    def is_explained(self) -> bool:
        return bool(self.name or self.says)

    def is_called(self, name: str) -> bool:
        """Whether this is what it is to be called."""
        return bool(re.search(self.says, name)) if self.says else name == self.name

    def run(self, call: Call) -> dict[str, Array]:
        return kernel.run_with(call, **self.methods)


WRONG: list[Wrong] = []
USUAL = ("plain", "causal", "all")


def wrong(
    what: str,
    name: str,
    worlds: str = "",
    thread: str = "",
    says: str = "",
    **methods: Callable[..., Any],
) -> None:
    """Adds one; worlds are separated by |."""
    at = tuple(x.strip() for x in worlds.split("|")) if worlds else USUAL
    WRONG.append(Wrong(what, name, at, methods, thread, says))


def outcome(verdict: Verdict, row: Wrong) -> str:
    """What a verdict on a wrong one counts as; each of several explanations has a name."""
    names = [explanation.name for explanation in verdict.explanations]
    if verdict.status in {"found", "ambiguous"}:
        is_named = any(row.is_called(name) for name in names)
        return "misnamed" if not is_named else "among several" if names[1:] else "named"
    return "passed" if verdict.status == "match" else str(verdict.status)


# a table, one row a line
# fmt: off
# ---- δ and the softmax
wrong("δ left out", "δ left out (dS = A ∘ dA)", thread="triton#919", delta=lambda s: np.zeros_like(Kernel.delta(s)))
wrong("δ from dO of the row before", "δ from the gradient of another query (dO shifted by a row)", thread="flash-attention#2555", delta=lambda s: (s.o * np.roll(s.d_o, 1, axis=-2)).sum(axis=-1, keepdims=True))
wrong("δ read with the next row", "δ of another query", thread="flash-attention#2555", delta=lambda s: np.roll(Kernel.delta(s), -1, axis=-2))
wrong("δ of the head before", "δ of another head", "plain | grouped | all", "native-sparse-attention-triton#27", delta=lambda s: np.roll(Kernel.delta(s), 1, axis=1))
wrong("δ of an O that is not yet divided by its sum", "δ from an unnormalised O", thread="flash-attention#2555", delta=lambda s: Kernel.delta(s) * s.total)
wrong("δ added", "δ added, not subtracted", softmax=lambda s, p, d, delta: p * (d + delta))
wrong("δ of the first block of queries for every block", "δ of another query", thread="triton#5660", delta=lambda s: Kernel.delta(s)[..., np.arange(s.n_q) % BLOCK, :])
wrong("softmax element by element", "softmax taken element by element (dS = A(1−A) ∘ dA)", thread="cs231n#10", softmax=lambda s, p, d, delta: p * (1 - p) * d)
wrong("A left out of the softmax's gradient", "A left out of the gradient of softmax", "plain | causal", softmax=lambda s, p, d, delta: np.where(p == 0, 0, d - delta))
wrong("softmax's gradient by columns", "softmax's gradient summed over the queries", "plain | causal", "candle#3724", softmax=lambda s, p, d, delta: p * (d - (s.a * (s.d_o @ swap(s.v))).sum(axis=-2, keepdims=True)))
wrong("mean in place of the sum in δ", "δ is a mean, not a sum", thread="TorchCode#10", delta=lambda s: Kernel.delta(s) / s.n_k)

# ---- the scale
def _factor(of: Callable[[Kernel], float], *at: int) -> dict[str, Any]:
    """d_q, d_k, d_v (0, 1, 2) times a factor that they should not have."""
    return {"factors": lambda s: tuple(f * (of(s) if n in at else 1) for n, f in enumerate(Kernel.factors(s)))}

wrong("scale left out of dQ", "scale left out of dQ", thread="triton#2059", **_factor(lambda s: 1 / s.scale, 0))
wrong("scale left out of dK", "scale left out of dK", thread="flash-attention#2657", **_factor(lambda s: 1 / s.scale, 1))
wrong("scale left out of dQ and dK", "scale left out of dS (dQ and dK)", thread="triton#2059", **_factor(lambda s: 1 / s.scale, 0, 1))
wrong("scale twice in dQ and dK", "scale applied twice in dS", thread="triton#2059", **_factor(lambda s: s.scale, 0, 1))
wrong("scale twice in dQ: from a K that was scaled before", "scale applied twice in dQ", thread="FastVideo#1730", **_factor(lambda s: s.scale, 0))
wrong("scale twice in dK: from a Q that was scaled before", "scale applied twice in dK", thread="flash-attention#2657", **_factor(lambda s: s.scale, 1))
wrong("scale on dV", "scale applied to dV", **_factor(lambda s: s.scale, 2))
wrong("the scale of v's width", "another scale in dS", "plain | grouped | all", "native-sparse-attention-triton#27", **_factor(lambda s: (s.q.shape[-1] / s.v.shape[-1]) ** 0.5, 0, 1))
wrong("the scale of a head that was padded to 16", "another scale in dS", "plain | grouped", "TransformerEngine#3216", **_factor(lambda s: (s.q.shape[-1] / 16) ** 0.5, 0, 1))
wrong("log₂ e left in dQ and dK", "base 2 of the exponent left in the gradient", thread="FastVideo#1730", **_factor(lambda s: 1 / LN2, 0, 1))
wrong("ln 2 left in dQ", "base 2 of the exponent left in the gradient", thread="FastVideo#1730", **_factor(lambda s: LN2, 0))
wrong("dQ from a K that was scaled by scale · log₂ e", "base 2 of the exponent left in the gradient", thread="FastVideo#1730", **_factor(lambda s: float(s.scale) / LN2, 0))
wrong("scale left out of the recomputed scores", "scale left out of the recomputed weights", "plain | causal", "triton#2059", scored=lambda s: s.q @ swap(s.k))

# ---- grouped heads
def _one_of_group(pick: int, *of: str) -> dict[str, Any]:
    def grouped(s: Kernel, x: Array, name: str) -> Array:
        if name not in of:
            return Kernel.grouped(s, x, name)
        return np.stack([x[:, np.flatnonzero(s.kv_of == n)[pick]] for n in range(s.n_kv)], axis=1)

    return {"grouped": grouped}

def _grouped_by(index: Callable[[Kernel, Array], Array]) -> dict[str, Any]:
    def grouped(s: Kernel, x: Array, name: str) -> Array:
        of = index(s, np.arange(x.shape[1]))
        return np.stack([x[:, of == n].sum(axis=1) for n in range(s.n_kv)], axis=1)

    return {"grouped": grouped}

_GROUPED, _LAST = "grouped | all", "grouped heads not summed in dK, dV (the last one wins)"
wrong("the last head of a group wins", _LAST, _GROUPED, "levanter#449", **_one_of_group(-1, "d_k", "d_v"))
wrong("the last head of a group wins in dV", _LAST, _GROUPED, "nki-samples#109", **_one_of_group(-1, "d_v"))
wrong("the first head of a group alone", "grouped heads not summed in dK, dV (the first one alone)", _GROUPED, "levanter#449", **_one_of_group(0, "d_k", "d_v"))
wrong("the heads of a group averaged", "grouped heads averaged in dK, dV", _GROUPED, "levanter#449", grouped=lambda s, x, name: Kernel.grouped(s, x, name) * s.n_kv / x.shape[1])
wrong("the heads averaged in dK alone", "grouped heads averaged in dK, dV", _GROUPED, "ffpa-attn#301", grouped=lambda s, x, name: Kernel.grouped(s, x, name) * (s.n_kv / x.shape[1] if name == "d_k" else 1))
wrong("heads grouped in the other order", "grouped heads summed in the other order", _GROUPED, "native-sparse-attention-triton#27", **_grouped_by(lambda s, h: h % s.n_kv))
wrong("heads divided by the number of key heads", "query heads divided by the number of key heads, not by the group, in dK, dV", _GROUPED, "native-sparse-attention-triton#27", **_grouped_by(lambda s, h: h // s.n_kv))
wrong("dK, dV indexed with query heads", "dK, dV indexed with query heads", _GROUPED, "flash-linear-attention#384", grouped=lambda s, x, name: x[:, : s.n_kv])

# ---- dropout
_DROPOUT = "dropout | all"

def _redrawn(s: Kernel, seed: int) -> Array:
    return np.asarray(np.random.default_rng(seed).random((*s.q.shape[:-1], s.n_k)) >= kernel.P)

def _d_dropped(change: Callable[..., Array]) -> dict[str, Any]:
    return {"d_dropped": lambda s, d: change(s, d, s.c.kept)}

def _for_values(change: Callable[..., Array]) -> dict[str, Any]:
    return {"for_values": lambda s, p: change(s, p, s.c.kept)}

wrong("dropout's mask not applied to dA", "dropout mask not applied again to dA", _DROPOUT, "flash-attention#1251", **_d_dropped(lambda s, d, kept: d))
wrong("undropped weights in dV", "dropout mask not applied again in dV", _DROPOUT, "flash-attention#612", **_for_values(lambda s, p, kept: p))
wrong("1/(1−p) left out of dA", "dropout's 1/(1−p) left out of dA", _DROPOUT, "flash-attention#1251", **_d_dropped(lambda s, d, kept: np.where(kept, d, 0)))
wrong("1/(1−p) twice in dA", "dropout's 1/(1−p) applied twice", _DROPOUT, "flash-attention#1251", **_d_dropped(lambda s, d, kept: np.where(kept, d / s.one_minus_p**2, 0)))
wrong("1/(1−p) left out of dV", "dropout's 1/(1−p) left out of dV", _DROPOUT, "flash-attention#612", **_for_values(lambda s, p, kept: np.where(kept, p, 0)))
wrong("dA divided by 1−p and not masked", "dropout's mask left out of dA, 1/(1−p) kept", _DROPOUT, "flash-attention#2439", **_d_dropped(lambda s, d, kept: d / s.one_minus_p))
wrong("dropped weights in dS", "dropped weights used for A in dS", _DROPOUT, "flash-attention#1251", softmax=lambda s, p, d, delta: s.dropped(p) * (d - delta))
wrong("dropout drawn again", "dropout drawn again in the backward pass", _DROPOUT, "pytorch#190717", dropped=lambda s, p: np.where(_redrawn(s, 6), p / s.one_minus_p, 0), d_dropped=lambda s, p: np.where(_redrawn(s, 6), p / s.one_minus_p, 0))
wrong("δ of A and the undropped dA", "δ before dropout", _DROPOUT, "flash-attention#612", delta=lambda s: (s.a * (s.d_o @ swap(s.v))).sum(axis=-1, keepdims=True))

# ---- softcap
_SOFTCAP = "softcap | all"

def _cap(change: Callable[..., Array]) -> dict[str, Any]:
    return {"d_cap": lambda s, d, z, c: change(d, z, c, s.cap)}

wrong("softcap's derivative left out", "softcap's derivative left out", _SOFTCAP, "flash-attention#1033", **_cap(lambda d, z, c, cap: d))
wrong("1 − C² for softcap's derivative", "softcap's derivative of C, not C/c", _SOFTCAP, "flash-attention#1033", **_cap(lambda d, z, c, cap: d * (1 - c * c)))
wrong("1 − tanh²(Z) for softcap's derivative", "softcap's derivative of the score before it", _SOFTCAP, "meganeura#60", **_cap(lambda d, z, c, cap: d * (1 - np.tanh(z) ** 2)))
wrong("1 − |C/c| for softcap's derivative", "softcap's derivative without its square", _SOFTCAP, "TorchCode#10", **_cap(lambda d, z, c, cap: d * (1 - np.abs(c / cap))))
wrong("softcap's derivative twice", "softcap's derivative applied twice", _SOFTCAP, "tokamax#1121", **_cap(lambda d, z, c, cap: d * (1 - (c / cap) ** 2) ** 2))
wrong("tanh of the capped score in softcap's derivative", "softcap's derivative with tanh taken twice", _SOFTCAP, "tokamax#1121", **_cap(lambda d, z, c, cap: d * (1 - np.tanh(c / cap) ** 2)))
wrong("softcap's derivative over c", "another scale in dS", _SOFTCAP, "tokamax#1121", **_cap(lambda d, z, c, cap: d * (1 - (c / cap) ** 2) / cap))
wrong("no softcap in the backward pass", "softcap left out of the recomputed weights", _SOFTCAP, "flash-attention#1033", capped=lambda s, z: z, d_cap=lambda s, d, z, c: d)

# ---- masks
def _hidden(change: Callable[[Kernel, Array], Array]) -> dict[str, Any]:
    """Another set of hidden keys, of the distance key − query."""
    return {"hidden": lambda s: change(s, np.arange(s.n_k) - np.arange(s.n_q)[:, None])}

_OTHER = "another mask on the recomputed weights"
_NONE = "mask left out of the recomputed weights"
wrong("no causal mask in the backward pass", _NONE, "causal | causal, n_q ≠ n_k", "triton#7216", **_hidden(lambda s, far: far > s.n_k))
wrong("no window in the backward pass", _NONE, "window", "triton#7216", **_hidden(lambda s, far: far > s.n_k))
wrong("no mask in the backward pass", _NONE, "empty row | all", "flash-attention#1228", **_hidden(lambda s, far: far > s.n_k))
wrong("the diagonal hidden in the backward pass", _OTHER, "causal", "flash-attention#1915", **_hidden(lambda s, far: far >= 0))
wrong("one key too many in the causal mask", _OTHER, "causal", "flash-attention#1915", **_hidden(lambda s, far: far > 1))
wrong("causal mask aligned at the end in the backward pass", _OTHER, "causal, n_q ≠ n_k", "triton#4174", **_hidden(lambda s, far: far > s.n_k - s.n_q))
wrong("causal mask where there is none", _OTHER, "square", "triton#5660", **_hidden(lambda s, far: far > 0))
wrong("window of one key fewer before", _OTHER, "window", "flash-attention#1915", **_hidden(lambda s, far: (far < 1 - WINDOW[0]) | (far > WINDOW[1])))
wrong("window of one key more after", _OTHER, "window", "flash-attention#1915", **_hidden(lambda s, far: (far < -WINDOW[0]) | (far > WINDOW[1] + 1)))
wrong("mask inverted in the backward pass", "another mask on the recomputed weights", "empty row", "flash-attention#1228", hidden=lambda s: s.c.keep)
wrong("no bias in the backward pass", "numbers of the mask left out of the recomputed weights", "bias | all", "ffpa-attn#301", biased=lambda s, x: x)
wrong("0 · NaN of an empty row", "0 · NaN from an empty row", "empty row", "pytorch#41508", saved=lambda s: np.where(s.is_empty, -np.inf, s.lse))

# ---- log-sum-exp
def _lse_of_last(s: Kernel) -> Array:
    z = Kernel.scored(s)[..., s.n_k // BLOCK * BLOCK :]
    return np.asarray(np.log(np.exp(z).sum(axis=-1, keepdims=True)))

_MAX = "row maximum used for the log-sum-exp (weights not normalised)"
wrong("lse in base 2 read as natural", "log-sum-exp in base 2 read as natural", thread="attention-gym#200", saved=lambda s: s.lse / LN2)
wrong("natural lse read as base 2", "log-sum-exp natural read as base 2", thread="attention-gym#200", saved=lambda s: s.lse * LN2)
wrong("the row's largest score for lse", _MAX, thread="flash-attention#404", saved=lambda s: np.where(s.is_empty, np.inf, s.top))
wrong("the log of the sum alone for lse", "maximum left out of the log-sum-exp", thread="flash-attention#404", saved=lambda s: s.lse - s.top)
wrong("lse of the row before", "log-sum-exp of another query", "plain | causal", "flash-attention#404", saved=lambda s: np.roll(s.lse, 1, axis=-2))
wrong("lse of the head before", "log-sum-exp of another head", "plain | grouped", "native-sparse-attention-triton#27", saved=lambda s: np.roll(s.lse, 1, axis=1))
wrong("lse of the last block of keys alone", "log-sum-exp of the last block of keys", "plain | sinks", "long-context-attention#149", saved=_lse_of_last)
wrong("lse without the sink", "sink left out of the recomputed weights", "sinks | all", "aiter#1576", saved=lambda s: np.where(s.is_empty, np.inf, np.log(_keys_total(s)) + s.top), d_sinks=lambda s, delta: -(np.exp(s.sinks - s.lse) * delta).sum(axis=(0, 2, 3)))
wrong("weights of dV not normalised", "weights not normalised in dV", thread="flash-attention#404", for_values=lambda s, p: s.dropped(p * s.total))

def _keys_total(s: Kernel) -> Array:
    total = s.total - np.exp(s.sinks - s.top)
    return np.where(total <= 0, np.inf, total)  # a row that sees the sink alone

# ---- blocks
def _where(*names: str, of: str, use: Callable[[Array], Array]) -> dict[str, Any]:
    """Sums over some of the blocks of queries (i) or keys (j), by their numbers."""
    def method(name: str) -> Callable[..., Array]:
        def product(s: Kernel, x: Array) -> Array:
            used = use(np.arange(s.n_q if of == "i" else s.n_k) // BLOCK)
            y: Array = getattr(Kernel, name)(s, x * (used[:, None] if of == "i" else used))
            return y

        return product

    return {name: method(name) for name in names}

wrong("the last block of queries lost", "", thread="FlagGems#898", says="in d_v and d_k the queries from 33 on count 0 times, the last block of 16", **_where("of_k", "of_v", of="i", use=lambda n: n != n[-1]))
wrong("the last block of queries lost in dV", "", thread="FlagGems#898", says="in d_v the queries from 33 on count 0 times, the last block of 16", **_where("of_v", of="i", use=lambda n: n != n[-1]))
wrong("the first block of queries lost", "", thread="triton#5660", says="in d_v and d_k the first 16 queries count 0 times", **_where("of_k", "of_v", of="i", use=lambda n: n > 0))
wrong("the last block of queries overwrites", "", thread="tilelang#930", says="in d_v and d_k the first 32 queries count 0 times", **_where("of_k", "of_v", of="i", use=lambda n: n == n[-1]))
wrong("the last block of queries overwrites dK", "", thread="tilelang#930", says="in d_k the first 32 queries count 0 times", **_where("of_k", of="i", use=lambda n: n == n[-1]))
wrong("the last block of keys lost in dQ", "", "plain | square | all", "FlagGems#898", r"in d_q the keys from \d+ on count 0 times, the last block of 16", **_where("of_q", of="j", use=lambda n: n != n[-1]))
wrong("the first block of keys lost in dQ", "", "plain | causal", "triton#5660", "in d_q the first 16 keys count 0 times", **_where("of_q", of="j", use=lambda n: n > 0))
wrong("the last block of keys overwrites dQ", "", "plain | square | all", "tilelang#930", r"in d_q the first \d+ keys count 0 times", **_where("of_q", of="j", use=lambda n: n == n[-1]))
wrong("the last block of keys not written", "", "plain | square | all", "flash-attention#1990", r"keys \d+ to \d+ of d_v and d_k are 0: not written, the last block of 16", **_where("of_k", "of_v", of="j", use=lambda n: n != n[-1]))
wrong("the last block of queries not written in dQ", "", "plain | causal", "pytorch#196678", r"queries 33 to \d+ of d_q are 0: not written, the last block of 16", **_where("of_q", of="i", use=lambda n: n != n[-1]))
wrong("the rows past the end read as the last one", "", "plain | grouped", "FastVideo#1180", r"in d_v and d_k query \d+ counts \d+ times", of_k=lambda s, d: swap(_filled(d)) @ _filled(s.q), of_v=lambda s, p: swap(_filled(p)) @ _filled(s.d_o))

def _filled(x: Array) -> Array:
    """The last block of queries filled up with copies of its last row, which then count."""
    return np.pad(x, [(0, 0), (0, 0), (0, -x.shape[2] % BLOCK), (0, 0)], mode="edge")

# ---- layouts and other data
def _written(change: Callable[[Kernel, dict[str, Array]], dict[str, Array]]) -> dict[str, Any]:
    return {"written": lambda s, own: {**own, **change(s, own)}}

def _as_tokens(x: Array) -> Array:
    return np.swapaxes(x, 1, 2).reshape(x.shape)

def _as_heads(x: Array) -> Array:
    b, h, n, d = x.shape
    return np.swapaxes(x.reshape(b, n, h, d), 1, 2)

def _read_kv(change: Callable[[Array], Array], *names: str) -> dict[str, Any]:
    def read(s: Kernel) -> None:
        for name in names:
            setattr(s, name, change(getattr(s, name)))

    return {"read": read}

_OTHERWISE = "K, V read otherwise in the backward pass"
_LAYOUT, _OF_D_O = "gradients in another layout", "dO of another place, or in another layout"
wrong("dK and dV swapped", "dK and dV swapped", "square | causal", **_written(lambda s, f: {"d_k": f["d_v"], "d_v": f["d_k"]}))
wrong("dQ and dK swapped", "dQ and dK swapped", "square | causal", **_written(lambda s, f: {"d_q": f["d_k"], "d_k": f["d_q"]}))
wrong("A for Aᵀ in dV", "A instead of Aᵀ in dV", "square | causal", of_v=lambda s, p: p @ s.d_o)
wrong("dS for dSᵀ in dK", "dS instead of dSᵀ in dK", "square | causal", of_k=lambda s, d: d @ s.q)
wrong("dSᵀ for dS in dQ", "dSᵀ instead of dS in dQ", "square | causal", of_q=lambda s, d: swap(d) @ s.k)
wrong("K and V transposed twice", _OTHERWISE, "plain | causal", "diffusers#14338", **_read_kv(_as_tokens, "k", "v"))
wrong("V alone transposed twice", _OTHERWISE, "plain | causal", "diffusers#14341", **_read_kv(_as_tokens, "v"))
wrong("the first half of K and V for both halves", _OTHERWISE, "square | causal", "diffusers#14265, Automodel#3157", **_read_kv(lambda x: x[..., np.arange(x.shape[-2]) % (x.shape[-2] // 2), :], "k", "v"))
wrong("K and V of the first batch item", "K, V read otherwise in the backward pass", "plain | causal", "long-context-attention#121", **_read_kv(lambda x: np.repeat(x[:1], len(x), axis=0), "k", "v"))
wrong("dO in the other layout", _OF_D_O, "plain | square", "flash-linear-attention#632", **_read_kv(_as_heads, "d_o"))
wrong("dO of the row before", _OF_D_O, "plain | causal", "flash-attention#2555", **_read_kv(lambda x: np.roll(x, 1, axis=-2), "d_o"))
wrong("the sum's gradient for dO", "ones in place of dO", "plain | causal", "RL-Kernel#188", **_read_kv(np.ones_like, "d_o"))
wrong("gradients written in the other layout", _LAYOUT, "plain | causal", "diffusers#14338", **_written(lambda s, f: {n: _as_tokens(f[n]) for n in ("d_q", "d_k", "d_v")}))
wrong("dQ alone written in the other layout", _LAYOUT, "plain | causal", "diffusers#14338", **_written(lambda s, f: {"d_q": _as_heads(f["d_q"])}))
wrong("gradients left rotated", "gradient left in the rotated frame", "rope", "Automodel#3157", unrotated=lambda s, x: x)
wrong("gradients rotated once more", "gradient rotated once more, not back", "rope", "Automodel#3157", unrotated=lambda s, x: rotated(x))
wrong("mean over the batch", "mean, not sum, of the loss", "plain | all", **_factor(lambda s: 1 / len(s.q), 0, 1, 2))
wrong("dQ is 0", "a gradient is 0", "plain | causal", "aprender#2203", **_factor(lambda s: 0.0, 0))
wrong("dK and dV are 0", "a gradient is 0", "plain | causal", "aprender#2203", **_factor(lambda s: 0.0, 1, 2))
wrong("dK with the wrong sign", "a gradient with the wrong sign", "plain | causal", "leetgpu-challenges#302", **_factor(lambda s: -1.0, 1))

# ---- sinks and bias
_SINKS = "sinks | all"
wrong("the sink's gradient without its share", "sink's gradient without its share", _SINKS, "flash-linear-attention#831", d_sinks=lambda s, delta: -delta.sum(axis=(0, 2, 3)))
wrong("the sink's gradient with the other sign", "sink's gradient with the wrong sign", _SINKS, "flash-linear-attention#831", d_sinks=lambda s, delta: -Kernel.d_sinks(s, delta))
wrong("the sink's gradient times log₂ e", "sink's gradient in base 2", _SINKS, "aiter#1576", d_sinks=lambda s, delta: Kernel.d_sinks(s, delta) / LN2)
wrong("the sink's gradient of the last batch item", "sink's gradient not summed over the batch", _SINKS, "aiter#1576", d_sinks=lambda s, delta: -(np.exp(s.sinks - s.lse) * delta)[-1].sum(axis=(1, 2)))
wrong("dBias after the scale", "gradient of the mask taken after the scale", "bias", "ffpa-attn#301", d_bias=lambda s, x: x.sum(axis=0) * s.scale)
wrong("dBias of the last batch item", "gradient of the mask not summed over what it was broadcast over", "bias | all", "ffpa-attn#301", d_bias=lambda s, x: x[-1])
wrong("dBias of the last head", "gradient of the mask not summed over what it was broadcast over", "bias of all heads", "ffpa-attn#301", d_bias=lambda s, x: x.sum(axis=0)[-1:])
wrong("dBias averaged over the batch", "gradient of the mask not summed over what it was broadcast over", "bias | all", "ffpa-attn#301", d_bias=lambda s, x: x.mean(axis=0))

# ---- no known bug: nothing may be named
_SEEN = "plain | grouped"
wrong("no known bug: squared weights in dS", "", _SEEN, softmax=lambda s, p, d, delta: p * p * (d - delta))
wrong("no known bug: flattened weights in dV", "", _SEEN, for_values=lambda s, p: np.sqrt(p))
wrong("no known bug: δ grows with the head", "", _SEEN, delta=lambda s: Kernel.delta(s) * (1 + np.arange(s.q.shape[1])[:, None, None]))
wrong("no known bug: dQ smoothed over neighbours", "", _SEEN, **_written(lambda s, f: {"d_q": (f["d_q"] + np.roll(f["d_q"], 1, axis=-2)) / 2}))
wrong("every third query twice in dK", "", _SEEN, of_k=lambda s, d: Kernel.of_k(s, d * np.where(np.arange(s.n_q) % 3, 1, 2)[:, None]), says="in d_k the first of every 3 queries counts 2 times")
# fmt: on

OUTCOMES = {("scale left out of the recomputed scores", "causal", "float16"): "no match"}
"""Of (what, world, type) that is not simply named."""
