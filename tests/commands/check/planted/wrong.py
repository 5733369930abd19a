"""Wrong attentions: of scores, weights and masks; of layouts and kernels; of inputs and positions;
two bugs at once; and what no bug of the catalogue is."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.commands.check.planted import parts as p
from tests.commands.check.planted import worlds as w
from tests.commands.check.planted.rows import Row
from tests.commands.check.planted.worlds import shift

# ---- scale, factors, softmax, softcap, sinks

NARROW = p.World("more channels than keys", b=1, h=2, n_q=19, n_k=13, d_k=16, d_v=32)


def summed_over(axis: int, s: p.Array) -> p.Array:
    e = p.exponentials(s)
    return np.asarray(e / e.sum(axis, keepdims=True))


def capped(s: p.Array, c: float) -> p.Array:
    return np.asarray(c * np.tanh(s / c))


def dropped(x: p.Inputs, weights: p.Array) -> p.Array:
    kept = np.random.default_rng(5).random(weights.shape) >= 0.2
    return np.asarray(np.where(kept, weights / 0.8, 0).astype(x.wide))


SCORES = (
    Row("no scale", ("scale left out",), lambda x: p.attend(x, scale=1.0), (w.PRIMES, w.KERNEL, w.CAUSAL, w.LARGE, w.TWO), "cntkx#10"),
    Row("width of the model", ("√d_model instead of √d_k",), lambda x: p.attend(x, scale=(x.h * x.d_k) ** -0.5), (w.PRIMES, w.KERNEL), "Graylab/DL4Proteins-notebooks#12"),
    Row("divided by d_k", ("divided by d_k, not √d_k", "scale applied twice"), lambda x: p.attend(x, scale=1 / x.d_k), (w.PRIMES, w.KERNEL, w.LARGE_KERNEL), "esceptico/perceiver-io#9"),
    Row("times the root", ("multiplied by √d_k",), lambda x: p.attend(x, scale=x.d_k**0.5), (w.PRIMES, w.ODD), "maxtext#3138"),
    Row("scaled twice", ("scale applied twice",), lambda x: p.attend(x, scale=0.3 * 0.3), (w.SCALED,), "transformers PR 38290"),
    Row("default scale", ("default scale, not the one given",), lambda x: p.attend(x, scale=x.d_k**-0.5), (w.SCALED,)),
    Row("padded width of 72", ("another scale",), lambda x: p.attend(x, scale=72**-0.5), (w.KERNEL, w.ODD), "ipex-llm PR 12619"),
    Row("float16 scores overflow", ("scores overflow in float16",), lambda x: p.normalised(p.exponentials(p.scores(x.q, x.k).astype(np.float16).astype(x.wide) * x.scale)) @ x.v, (w.HUGE,), "ultralytics PR 24990"),
    Row("scale after softmax", ("scale after softmax",), lambda x: p.attend(x, weigh=lambda s: p.softmax(s / x.scale) * x.scale), (w.PRIMES, w.KERNEL)),
    Row("output times 0.95", ("output times a factor",), lambda x: p.attend(x) * 0.95, (w.PRIMES, w.KERNEL, w.LARGE_KERNEL, w.TWO)),
    Row("scale of V forgotten, per head", ("output times a factor",), lambda x: p.attend(x, v=x.v / np.linspace(0.5, 2, x.h)[:, None, None].astype(x.wide)), (w.ODD, w.LARGE), "sgl-kernel-xpu PR 252"),
    Row("last head not written", (), lambda x: p.attend(x) * (np.arange(x.h) < x.h - 1)[:, None, None], (w.ODD,), says=r"head \d+ is 0: not written"),
    Row("scale of K forgotten, per head", ("keys times a factor",), lambda x: p.attend(x, k=x.k / np.linspace(0.4, 1.7, x.h)[:, None, None].astype(x.wide)), (w.ODD, w.THREE, w.LARGE), "sgl-kernel-xpu PR 252"),
    Row("scale of K forgotten, per channel", ("channels of the keys times factors", "keys times a factor"), lambda x: p.attend(x, k=x.k * np.random.default_rng(3).uniform(0.5, 2, size=x.d_k).astype(x.wide)), (w.ODD,)),
    Row("over queries", ("softmax over queries, not keys",), lambda x: p.attend(x, weigh=lambda s: p.softmax(s, axis=-2)), (w.PRIMES, w.KERNEL, w.LARGE), "labmlai/annotated_deep_learning_paper_implementations#146"),
    Row("over queries, as weights", ("softmax over queries, not keys",), lambda x: p.softmax(p.scores(x.q, x.k) * x.scale, axis=-2), (w.SQUARE,), "PyTorch-NLP#2", stage="weights"),
    Row("over keys", ("softmax over keys, not queries",), lambda x: p.attend(x, weigh=p.softmax), (w.OVER_QUERIES,)),
    Row("over heads", ("softmax over heads",), lambda x: p.attend(x, weigh=lambda s: p.softmax(s, axis=1)), (w.PRIMES, w.ODD, w.LARGE), "labmlai/annotated_deep_learning_paper_implementations#282"),
    Row("over the batch", ("softmax over the batch",), lambda x: p.attend(x, weigh=lambda s: p.softmax(s, axis=0)), (w.PRIMES,)),
    Row("no sum, no maximum", ("softmax not normalised",), lambda x: p.attend(x, weigh=np.exp), (w.PRIMES,)),
    Row("no sum", ("softmax not normalised",), lambda x: p.attend(x, weigh=p.exponentials), (w.PRIMES, w.KERNEL, w.CAUSAL, w.LARGE)),
    Row("sum over queries", ("sum over queries, maximum over keys",), lambda x: p.attend(x, weigh=lambda s: summed_over(-2, s)), (w.SQUARE, w.KERNEL)),
    Row("sigmoid", ("sigmoid, not softmax",), lambda x: p.attend(x, weigh=lambda s: 1 / (1 + np.exp(-s))), (w.PRIMES, w.CAUSAL, w.LARGE)),
    Row("no softmax", ("softmax left out",), lambda x: p.attend(x, weigh=lambda s: np.where(np.isneginf(s), 0, s)), (w.PRIMES, w.CAUSAL), "onnxruntime#21687"),
    Row("softmax1", ("softmax with 1 added to the sum", "extra term in the softmax's denominator (attention sink)"), lambda x: p.attend(x, weigh=lambda s: np.exp(s) / (1 + np.exp(s).sum(-1, keepdims=True))), (w.PRIMES, w.ODD), but=(("odd", "among several"),)),
    Row("no softcap", ("softcap left out",), lambda x: p.attend(x, cap=0.0), (w.CAPPED, w.CAPPED_CAUSAL), "onnxruntime PR 28370"),
    Row("softcap of 4", ("another softcap",), lambda x: p.attend(x, cap=4.0), (w.CAPPED_CAUSAL,)),
    Row("softcap after the mask", ("softcap on the other side of the mask",), lambda x: p.attend(x, cap=0.0, weigh=lambda s: p.softmax(capped(s, x.convention["softcap"]))), (w.CAPPED_CAUSAL,), "onnx#7865"),
    Row("no sinks", ("sinks left out",), lambda x: p.attend(x, sinks=np.zeros(0)), (w.SINKS,), "radixark/miles#1500"),
    Row("dropout, from the output", ("dropout left on",), lambda x: p.attend(x, weigh=lambda s: dropped(x, p.softmax(s))), (NARROW,), "pytorch#124464"),
    Row("dropout, from the weights", ("dropout left on",), lambda x: dropped(x, p.weights_of(x)), (w.PRIMES,), "timm PR 1978", stage="weights"),
    Row("weights turned", ("rows and columns exchanged",), lambda x: p.weights_of(x).swapaxes(-1, -2), (w.SQUARE,), stage="weights"),
    Row("scaled scores", ("the observed scores are scaled already",), lambda x: p.scores(x.q, x.k) * x.scale, (w.PRIMES, w.THREE), stage="scores"),
    Row("scale 1/√(d + ¼)", ("another scale",), lambda x: p.attend(x, scale=(x.d_k + 0.25) ** -0.5), (w.QUIET,), kind="quiet", always=True),
    Row("softcap 50 too many", ("another softcap",), lambda x: p.attend(x, cap=50.0), (w.QUIET,), kind="quiet"),
    Row("a sink of −6", ("extra term in the softmax's denominator (attention sink)",), lambda x: p.attend(x, sinks=np.full(x.h, -6.0)), (w.QUIET,), kind="quiet"),
    Row("window of 255 of 256", ("window one too narrow", "another window"), lambda x: p.attend(x, hide=(x.j > x.i) | (x.j < x.i - 254)), (w.QUIET_WINDOW,), kind="quiet"),
    Row("sum over heads", ("sum over queries, maximum over keys",), lambda x: p.attend(x, weigh=lambda s: summed_over(1, s)), (w.PRIMES,)),
    Row("sigmoid less the logarithm of the keys", ("sigmoid, not softmax",), lambda x: p.attend(x, weigh=lambda s: 1 / (1 + x.n_k * np.exp(-s))), (w.PRIMES,)),
    Row("numbers in the softcap", ("numbers of the mask inside the softcap",), lambda x: p.attend(x, cap=0.0, weigh=lambda s: p.softmax(np.where(x.hidden, s, capped(s, 2.0)))), (w.CAPPED_BIAS,)),
    Row("numbers after the softcap", ("numbers of the mask outside the softcap",), lambda x: p.attend(x, cap=0.0, add=np.zeros(1), weigh=lambda s: p.softmax(np.where(x.hidden, s, capped(s, 2.0) + x.bias))), (w.CAPPED_AFTER,)),
)  # fmt: skip


# ---- causality, windows, masks, padding, caches, the arithmetic of masking


def lengths(change: Callable[[p.Array], Any]) -> Callable[[p.Inputs], p.Array]:
    """An attention with other valid lengths."""
    return lambda x: p.attend(x, hide=p.padded(x, change(np.array(x.lengths))))


def keys(x: p.Inputs, at: list[int] | p.Array) -> p.Array:
    """Only the keys of these places."""
    return p.attend(x, k=x.k[:, :, at], v=x.v[:, :, at], hide=p.OPEN)


def unmasked(x: p.Inputs, **more: Any) -> p.Array:
    return p.attend(x, hide=p.OPEN, **more)


def lowered(x: p.Inputs, by: float) -> p.Array:
    """A number is added to what is hidden."""
    return p.attend(x, hide=p.OPEN, add=np.where(x.hidden, x.wide(-by), x.wide(0)))


BOTH = ("causal mask where none is wanted", "causal mask where none is wanted, bottom-right")
FINITE = ("finite mask value", "another finite mask value")
MASKS = (
    Row("mask inverted", ("boolean mask read the other way round",), lambda x: p.attend(x, hide=~x.masked), (w.MASKED, w.MASKED_HEADS, w.TRUTH), "pytorch PR 170415"),
    Row("mask added as 0 and 1", ("boolean mask added as numbers",), lambda x: unmasked(x, add=(~x.masked).astype(x.wide)), (w.MASKED,)),
    Row("no mask", ("mask left out",), unmasked, (w.MASKED, w.MASKED_ALL)),
    Row("no causal beside a mask", ("causal mask left out",), lambda x: p.attend(x, hide=x.masked), (w.MASKED_CAUSAL,), "Mikyx-1/TinyLLM#17"),
    Row("no added numbers", ("mask left out", "numbers of the mask times a factor"), lambda x: p.attend(x, add=np.zeros(1)), (w.BIAS,)),
    Row("mask turned", ("mask transposed",), lambda x: p.attend(x, hide=x.masked.T), (w.MASKED_SQUARE,)),
    Row("added numbers turned", ("mask transposed",), lambda x: p.attend(x, add=x.bias.swapaxes(-1, -2)), (w.BIAS_SQUARE,)),
    Row("mask of the first item for all", ("mask of another batch item",), lambda x: p.attend(x, hide=x.masked[:1]), (w.MASKED,)),
    Row("after softmax", ("mask applied after softmax, not renormalised",), lambda x: unmasked(x, weigh=lambda s: p.softmax(s) * ~x.hidden), (w.MASKED, w.CAUSAL), "timm PR 2236"),
    Row("multiplied into the scores", ("mask multiplied into the scores", "finite mask value"), lambda x: p.attend(x, value=0.0), (w.MASKED, w.CAUSAL), "timm PR 2236"),
    Row("mask value −5", FINITE[::-1], lambda x: p.attend(x, value=-5.0), (w.MASKED,)),
    Row("mask value −100, reached", FINITE, lambda x: p.attend(x, value=-100.0), (w.MASKED_LARGE,), "TransformerLens#385"),
    Row("−100 added, reached", FINITE, lambda x: lowered(x, 100), (w.MASKED_FAR,), "fairseq#3575"),
    Row("−∞ for the finite value", ("mask value −∞, not the finite one given",), lambda x: p.attend(x, value=-p.INF), (w.FINITE,), gives="among several"),
    Row("empty row: NaN", ("rows with nothing to attend to become NaN",), lambda x: p.attend(x, weigh=lambda s: p.normalised(p.exponentials(s))), (w.EMPTY,), "pytorch#103749"),
    Row("empty row: zeros", ("rows with nothing to attend to become zero",), p.attend, (w.EMPTY_NAN,)),
    Row("empty row: mean", ("rows with nothing to attend to get the mean of V", "finite mask value"), lambda x: p.attend(x, value=-30000.0), (w.EMPTY,), "mlx#2395", gives="among several"),
    Row("empty row: as if unmasked", ("finite mask value", "rows with nothing to attend to as if unmasked"), lambda x: lowered(x, 10000), (w.EMPTY,), "onnxruntime#28904", but=(("float16", "synonym"),)),
    Row("0 · −∞", ("0 · −∞ in the mask",), lambda x: unmasked(x, add=x.hidden.astype(x.wide) * -p.INF, weigh=lambda s: p.normalised(p.exponentials(s))), (w.MASKED,), "onnx PR 8068"),
    Row("NaN of a masked key", ("NaN leaks from masked keys",), lambda x: unmasked(x, add=np.where(x.hidden, -p.INF, 0)), (w.NAN_KEY,), "pytorch#101967"),
    Row("NaN of a masked value", ("NaN leaks from masked values",), p.attend, (w.NAN_VALUE,), "pytorch#101967"),
    Row("numbers twice", ("numbers of the mask times a factor",), lambda x: p.attend(x, add=x.bias * x.wide(2)), (w.BIAS,)),
    Row("slopes of the heads reversed", ("numbers of the mask times a factor",), lambda x: p.attend(x, add=np.where(np.isinf(x.bias), x.bias, np.maximum(x.bias, -1e9)[::-1])), (w.ALIBI,)),
    Row("no causal", ("causal mask left out",), unmasked, (w.CAUSAL, w.CAUSAL_KERNEL, w.CAUSAL_WIDE)),
    Row("causal, unasked", BOTH, lambda x: p.attend(x, hide=x.j > x.i), (w.SQUARE, w.KERNEL, w.LARGE_KERNEL)),
    Row("causal, unasked, bottom-right", BOTH[1:], lambda x: p.attend(x, hide=x.j > x.i + x.n_k - x.n_q), (w.WIDER,)),
    Row("bottom-right", ("causal mask aligned bottom-right, not top-left",), lambda x: p.attend(x, hide=x.j > x.i + x.n_k - x.n_q), (w.CAUSAL_WIDE,), "pytorch#108108"),
    Row("top-left", ("causal mask aligned top-left, not bottom-right",), lambda x: p.attend(x, hide=x.j > x.i), (w.BOTTOM,), "flash-attention#1778"),
    Row("own position hidden", ("causal mask hides each query's own position",), lambda x: p.attend(x, hide=x.j >= x.i), (w.CAUSAL,)),
    Row("next position visible", ("causal mask shows the next position",), lambda x: p.attend(x, hide=x.j > x.i + 1), (w.CAUSAL, w.CAUSAL_KERNEL)),
    Row("causal, the wrong way round", ("causal the wrong way round",), lambda x: p.attend(x, hide=x.j < x.i), (w.CAUSAL, w.CAUSAL_KERNEL)),
    Row("window one wider", ("window one too wide", "another window"), lambda x: p.attend(x, hide=(x.j > x.i) | (x.j < x.i - 8)), (w.WINDOW,), "transformers#39408"),
    Row("window one narrower", ("window one too narrow", "another window"), lambda x: p.attend(x, hide=(x.j > x.i) | (x.j < x.i - 6)), (w.WINDOW,), "transformers#29623"),
    Row("no window", ("window left out",), lambda x: p.attend(x, hide=x.j > x.i), (w.WINDOW,), "nanochat#452"),
    Row("half the window", ("another window",), lambda x: p.attend(x, hide=(x.j > x.i) | (x.j < x.i - 3)), (w.WINDOW,)),
    Row("chunks", ("chunks, not a sliding window",), lambda x: p.attend(x, hide=(x.j > x.i) | (x.j // 8 != x.i // 8)), (w.WINDOW,)),
    Row("no padding mask", ("padding left out", "other key lengths"), unmasked, (w.PADDED,)),
    Row("padding on queries", ("padding mask on queries, not keys",), lambda x: p.attend(x, hide=x.padded.swapaxes(-1, -2)), (w.PADDED_SQUARE,), "hyunwoongko/transformer PR 40"),
    Row("one key more", ("key lengths off by one", "other key lengths"), lengths(lambda n: n + 1), (w.PADDED,)),
    Row("length of the first", ("one batch item's key length for all", "other key lengths"), lengths(lambda n: n[[0, 0, 0]]), (w.PADDED,)),
    Row("lengths of other items", ("mask of another batch item", "other key lengths"), lengths(lambda n: n[[1, 2, 0]]), (w.PADDED,)),
    Row("lengths rounded up to 16", ("other key lengths",), lengths(lambda n: -(-n // 16) * 16), (w.PADDED,)),
    Row("left for right", ("padding on the left taken for right",), lambda x: p.attend(x, hide=~p.padded(x, x.n_k - np.array(x.lengths))), (w.PADDED,)),
    Row("right for left", ("padding on the left taken for right",), lambda x: p.attend(x, hide=p.padded(x, (~x.masked).sum(-1).ravel())), (w.LEFT,)),
    Row("mask not added as 0 and 1", ("boolean mask not added as numbers",), lambda x: p.attend(x, hide=~np.asarray(x.mask), add=np.zeros(1)), (w.MASK_ADDED,)),
    Row("numbers taken for truth", ("numbers of the mask read as true or false",), lambda x: p.attend(x, hide=np.asarray(x.mask == 0), add=np.zeros(1)), (w.LOWERED,)),
    Row("truth added", ("numbers of the mask added, not read as true or false",), lambda x: unmasked(x, add=x.mask), (w.TRUTH,)),
    Row("mask and causal, one alone wanted", ("mask and causal both applied, not one alone",), lambda x: p.attend(x, hide=x.banned | x.masked), (w.MASK_ALONE, w.CAUSAL_ALONE)),
    Row("the last query sees every key", ("causal mask leaves the last query all keys",), lambda x: p.attend(x, hide=(x.j > x.i) & (x.i < x.n_q - 1)), (w.CAUSAL_WIDE,)),
    Row("the last query causal, too", ("causal mask for the last query too",), lambda x: p.attend(x, hide=x.j > x.i), (w.OPEN_LAST,)),
    Row("causal, the wrong way round, own position hidden", ("causal the wrong way round",), lambda x: p.attend(x, hide=x.j <= x.i), (w.CAUSAL,), always=True),
    Row("sinks of other heads", ("other sinks",), lambda x: p.attend(x, sinks=np.linspace(2.9, 0.7, x.h)), (w.SINKS,)),
    Row("weights for scores", ("the observed scores are weights",), p.weights_of, (w.PRIMES, w.CAUSAL), stage="scores"),
    Row("masked scores", ("the observed scores are masked already",), lambda x: np.where(x.hidden, -p.INF, p.scores(x.q, x.k) * x.scale), (w.CAUSAL,), stage="scores"),
    Row("empty row: as if unmasked, causal", ("rows with nothing to attend to as if unmasked",), lambda x: p.attend(x, hide=x.banned | (x.masked & ~x.masked.all(-1, keepdims=True))), (w.EMPTY_CAUSAL,)),
    Row("window of own key one wider", ("window one too wide", "another window"), lambda x: p.attend(x, hide=(x.j > x.i) | (x.j < x.i - 7)), (w.OWN_WINDOW,)),
    Row("window of own key one narrower", ("window one too narrow", "another window"), lambda x: p.attend(x, hide=(x.j > x.i) | (x.j < x.i - 5)), (w.OWN_WINDOW,)),
    Row("chunks, own key counts", ("chunks, not a sliding window",), lambda x: p.attend(x, hide=(x.j > x.i) | (x.j // 7 != x.i // 7)), (w.OWN_WINDOW,)),
    Row("padding mask of one row on queries", ("padding mask on queries, not keys",), lambda x: p.attend(x, hide=x.masked.swapaxes(-1, -2)), (w.LEFT_SQUARE,)),
    Row("history masked", ("cached decode masks its own history",), lambda x: p.attend(x, hide=x.j > x.i - x.n_past), (w.CACHED,), "gpt-fast#233"),
    Row("newest key not cached", ("newest key not cached", "causal mask hides each query's own position", "key lengths off by one", "other key lengths", "last block of keys skipped"), lambda x: keys(x, np.arange(x.n_k - 1)), (w.DECODE,), "harvard-edge/cs249r_book PR 1953"),
    Row("newest overwrites the last", ("newest key overwrites the last one",), lambda x: keys(x, [*range(x.n_past - 1), *range(x.n_past, x.n_k)]), (w.DECODE,)),
    Row("cache ignored", ("cache ignored",), lambda x: keys(x, np.arange(x.n_past, x.n_k)), (w.PREFILL,)),
    Row("oldest key lost", ("another window",), lambda x: keys(x, np.arange(1, x.n_k)), (w.DECODE,)),
    Row("no new key cached", ("newest key not cached", "other key lengths", "last block of keys skipped"), lambda x: keys(x, np.arange(x.n_past)), (w.PREFILL,)),
)  # fmt: skip


# ---- arrays read in another order, one in the place of another

SAME = p.World("one width, n_k larger", h=4, n_q=23, n_k=29, d_k=8, d_v=8)
TALL = p.World("square, four heads", h=4, n_q=19, n_k=19, d_k=8, d_v=6)


def cut(x: p.Array) -> p.Array:
    """[b, n, h·d] cut into heads by a reshape, without the transpose after it."""
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape)


def joined(x: p.Array) -> p.Array:
    """[b, h, n, d] joined by a reshape, without the transpose before it; then cut rightly."""
    b, h, n, d = x.shape
    return np.ascontiguousarray(x).reshape(b, n, h, d).swapaxes(1, 2)


def exchanged(x: p.Array, axis: int) -> p.Array:
    """The first two are exchanged."""
    return x.take([1, 0, *range(2, x.shape[axis])], axis=axis)


def first_for_all(x: p.Array, axis: int = 1) -> p.Array:
    return np.repeat(x.take([0], axis=axis), x.shape[axis], axis=axis)


def tokens_for_batch(x: p.Inputs) -> p.Array:
    """A module that expects [n, b, d] is given [b, n, d]: the items of a batch attend to another."""
    q, k, v = (y.swapaxes(0, 2) for y in (x.q, x.k, x.v))
    return np.asarray((p.softmax(p.scores(q, k) * x.wide(x.scale)) @ v).swapaxes(0, 2))


def tokens_for_heads(x: p.Inputs) -> p.Array:
    """A kernel that expects [b, n, h, d] is given [b, h, n, d]: heads attend to heads."""
    q, k, v = (y.swapaxes(1, 2) for y in (x.q, x.k, x.v))
    return np.asarray((p.softmax(p.scores(q, k) * x.wide(x.scale)) @ v).swapaxes(1, 2))


def with_all(change: Callable[[p.Array], p.Array], names: str) -> Callable[[p.Inputs], p.Array]:
    """An attention some of whose inputs are changed."""

    def make(x: p.Inputs) -> p.Array:
        changed: dict[str, Any] = {name: change(p.placed(x, name)) for name in names}
        return p.attend(x, **changed)

    return make


def instead(**names: str) -> Callable[[p.Inputs], p.Array]:
    """An attention one of whose inputs stands in for another."""
    return lambda x: p.attend(x, **{name: getattr(x, other) for name, other in names.items()})


def rolled(x: p.Array, by: int) -> p.Array:
    """Rows moved by one, with zeros where none came."""
    out = np.roll(x, by, axis=2)
    out[:, :, 0 if by > 0 else -1] = 0
    return out


STRIDES = {name: (f"{name.upper()} read with wrong strides",) for name in "qkv"}
LAYOUTS = (
    Row("batch for tokens", ("batch and tokens exchanged in the inputs",), tokens_for_batch, (TALL,), "batch_first"),
    Row("heads for tokens", ("heads and tokens exchanged in the inputs",), tokens_for_heads, (TALL, w.KERNEL), "flash-attention#1391"),
    Row("all cut by reshape", ("heads split by reshape without transpose",), with_all(cut, "qkv"), (w.PRIMES, w.KERNEL), "jsbaan/transformer-from-scratch PR 6"),
    Row("joined by reshape", ("heads merged by reshape without transpose",), lambda x: joined(p.attend(x)), (w.PRIMES, w.ODD, w.LARGE), "FuxiCTR#30"),
    Row("q cut by reshape", STRIDES["q"], with_all(cut, "q"), (w.ODD, w.LARGE), "pytorch#163597"),
    Row("k cut by reshape", STRIDES["k"], with_all(cut, "k"), (w.ODD, w.PRIMES, w.LARGE_KERNEL), "pytorch#112577"),
    Row("v cut by reshape", STRIDES["v"], with_all(cut, "v"), (w.ODD, w.KERNEL, w.LARGE), "pytorch#112577"),
    Row("outputs of two heads exchanged", (), lambda x: exchanged(p.attend(x), 1), (w.ODD, w.PRIMES, w.LARGE_KERNEL), says="head 1 has the numbers of head 2, head 2 those of head 1"),
    Row("K and V of two heads exchanged", (), with_all(lambda y: exchanged(y, 1), "kv"), (w.PRIMES, w.GROUPED), says="k and v of key head 1 are those of key head 2, of key head 2 are those of key head 1"),
    Row("outputs of two items exchanged", (), lambda x: exchanged(p.attend(x), 0), (w.PRIMES,), says="batch item 1 has the numbers of batch item 2, batch item 2 those of batch item 1"),
    Row("K and V of the first head", (), with_all(first_for_all, "kv"), (w.ODD, w.LARGE), says="^k and v .* are those of key head 1"),
    Row("output of the first head", (), lambda x: first_for_all(p.attend(x)), (w.PRIMES,), says="heads 2 and 3 have the numbers of head 1"),
    Row("K and V of the first item", (), with_all(lambda y: first_for_all(y, 0), "kv"), (w.ODD,), says="^k and v .* are those of batch item 1"),
    Row("output of the first item", (), lambda x: first_for_all(p.attend(x), 0), (w.PRIMES,), says="batch item 2 has the numbers of batch item 1"),
    Row("K and V exchanged", ("K and V swapped",), instead(k="v", v="k"), (w.EVEN, SAME)),
    Row("Q and K exchanged", ("Q and K swapped",), instead(q="k", k="q"), (w.SQUARE, w.KERNEL)),
    Row("K not turned", ("K not transposed",), lambda x: p.softmax(x.q @ x.k * x.wide(x.scale)) @ x.v, (w.NOT_TRANSPOSED,)),
    Row("K for V", ("K used as V",), instead(v="k"), (SAME, w.KERNEL, w.LARGE_KERNEL)),
    Row("V for K", ("V used as K",), instead(k="v"), (SAME,)),
    Row("Q for K", ("Q used as K",), instead(k="q"), (w.EVEN, w.KERNEL)),
    Row("K for Q", ("K used as Q",), instead(q="k"), (w.EVEN,)),
    Row("rows one later", ("rows shifted by one",), lambda x: np.roll(p.attend(x), 1, axis=2), (w.PRIMES, w.ODD, w.LARGE)),
    Row("rows one later, first zero", ("rows shifted by one",), lambda x: rolled(p.attend(x), 1), (w.ODD, w.GROUPED_CAUSAL), always=True),
    Row("weights turned before the sum", ("weights transposed before the sum",), lambda x: p.weights_of(x).swapaxes(-1, -2) @ x.v, (w.SQUARE, w.KERNEL)),
    Row("key heads tiled", ("key heads tiled, not in blocks",), lambda x: p.attend(x, k=np.tile(x.k, (1, 2, 1, 1)), v=np.tile(x.v, (1, 2, 1, 1))), (w.GROUPED, w.GROUPED_KERNEL), "onnx PR 7274"),
    Row("key heads in blocks", ("key heads in blocks, not tiled",), lambda x: p.attend(x, k=x.k.repeat(2, 1), v=x.v.repeat(2, 1)), (w.TILED,), "axlearn PR 842"),
    Row("rows one earlier, last zero", ("rows shifted by one",), lambda x: rolled(p.attend(x), -1), (w.ODD,)),
    *(Row(f"{name} joined by reshape", STRIDES[name], with_all(joined, name), (w.ODD,)) for name in "qkv"),
    *(Row(f"{name} columns first", STRIDES[name], with_all(lambda y: np.ascontiguousarray(y.swapaxes(2, 3)).reshape(y.shape), name), (w.ODD,)) for name in "qkv"),
)  # fmt: skip


# ---- tiles: the tail block, the running softmax, splits of the keys and their merge

TAIL = p.World("tail of 5", b=1, h=2, n_q=101, n_k=101, d_k=32, d_v=32)
SHORT_ROWS = p.World("fewer queries than keys", b=1, h=3, n_q=41, n_k=197, d_k=32, d_v=24)


def parts_of(x: p.Inputs) -> tuple[p.Array, p.Array]:
    """Masked scores and values, a row for each query head."""
    s = p.scores(x.q, p.head_of(x, x.k)) * x.wide(x.scale)
    return np.where(x.hidden, x.wide(-np.inf), s), p.head_of(x, x.v)


def zero_keys(x: p.Inputs, more: int) -> p.Array:
    """So many keys and values of zeros at the end, which nobody masks."""
    k, v = (np.pad(y, [(0, 0), (0, 0), (0, more), (0, 0)]) for y in (x.k, x.v))
    hide = np.pad(np.broadcast_to(x.hidden, x.full), [(0, 0), (0, 0), (0, 0), (0, more)])
    return p.attend(x, k=k, v=v, hide=hide)


def without(x: p.Inputs, first: int, last: int) -> p.Array:
    j = np.arange(x.n_k)
    return p.attend(x, hide=x.hidden | ((j >= first) & (j < last)))


def tail_of(n: int, block: int) -> int:
    """Where the last block begins."""
    return (n - 1) // block * block


def online(
    x: p.Inputs,
    block: int,
    *,
    sums: bool = True,
    values: bool = True,
    step: int = 1,
    half: bool = False,
) -> p.Array:
    """Running softmax; the sum or the values so far may miss the correction for a new maximum.

    step  -1 begins with the last block
    half  the weights are rounded to the number type
    """
    s, v = parts_of(x)
    top = np.full((*s.shape[:3], 1), -np.inf, x.wide)
    total, out = np.zeros_like(top), np.zeros((*s.shape[:3], v.shape[3]), x.wide)
    for j in [*range(0, x.n_k, block)][::step]:
        new = np.maximum(top, s[..., j : j + block].max(-1, keepdims=True))
        fix = np.where(np.isneginf(top), 1, np.exp(top - new))
        e = np.where(np.isneginf(new), 0, np.exp(s[..., j : j + block] - new))
        total = total * (fix if sums else 1) + e.sum(-1, keepdims=True)
        out = out * (fix if values else 1) + (x.rounded(e) if half else e) @ v[:, :, j : j + block]
        top = new
    return np.asarray(out / total)


def splits(x: p.Inputs, n: int, merge: str = "log-sum-exp") -> p.Array:
    """The keys in n parts, each with its own softmax, merged by their log-sum-exp."""
    s, v = parts_of(x)
    outs, sums, tops = [], [], []
    for at in np.array_split(np.arange(x.n_k), min(n, x.n_k)):
        top = s[..., at].max(-1, keepdims=True)
        tops.append(np.where(np.isneginf(top), 0, top))
        e = np.exp(s[..., at] - tops[-1])
        total = e.sum(-1, keepdims=True)
        outs.append(e / np.where(total > 0, total, 1) @ v[:, :, at])
        sums.append(np.log(total))
    lse = np.stack(sums) + np.stack(tops)
    weights = {
        "log-sum-exp": lambda: np.exp(lse - lse.max(0)),
        "even": lambda: np.ones_like(lse),
        "exp2 of natural": lambda: np.exp2(lse - lse.max(0)),
        "exp of base 2": lambda: np.exp((lse - lse.max(0)) / np.log(2)),
    }[merge]()
    return np.asarray((weights / weights.sum(0) * np.stack(outs)).sum(0))


def last_rows(x: p.Inputs, tile: int, value: Any) -> p.Array:
    return np.where(np.arange(x.n_q)[:, None] < tail_of(x.n_q, tile), p.attend(x), value)


# m keys of zeros are a sink of ln m
COUNTED = (
    "zero keys of the last block counted",
    "extra term in the softmax's denominator (attention sink)",
)
KERNELS = (
    Row("zero keys to 16", COUNTED, lambda x: zero_keys(x, -x.n_k % 16), (TAIL, w.ODD), "jax#27224"),
    Row("last 16 skipped", ("last block of keys skipped", "other key lengths"), lambda x: without(x, tail_of(x.n_k, 16), x.n_k), (w.ODD, TAIL, w.LARGE)),
    Row("32 in the middle lost", (), lambda x: without(x, 64, 96), (w.KERNEL, SHORT_ROWS), says="keys 65 to 96 count 0 times"),
    Row("values not rescaled, 16", ("sum not rescaled when the maximum grows",), lambda x: online(x, 16, values=False), (w.ODD, w.CAUSAL_KERNEL, w.LARGE)),
    Row("sum not rescaled, 32", ("sum not rescaled when the maximum grows",), lambda x: online(x, 32, sums=False), (w.KERNEL, w.LARGE_KERNEL)),
    Row("neither rescaled, 16", ("sum not rescaled when the maximum grows",), lambda x: online(x, 16, sums=False, values=False), (w.KERNEL, w.ODD, w.LARGE_KERNEL)),
    Row("two splits averaged", (), lambda x: splits(x, 2, "even"), (w.ODD, w.KERNEL, w.LARGE), says=r"two parts of the keys, cut after key \d+, are merged as their mean"),
    Row("natural lse merged by 2^x", (), lambda x: splits(x, 2, "exp2 of natural"), (w.KERNEL, w.ODD, w.LARGE_KERNEL), says="two parts .* wrong base: 2 to the power of a natural logarithm"),
    Row("lse of base 2 merged by e^x", (), lambda x: splits(x, 4, "exp of base 2"), (w.KERNEL, SHORT_ROWS, w.LARGE_KERNEL), "sglang#40903", says="(blocks of 32 keys|cut after keys 50, 99 and 148,) .* wrong base: e to the power"),
    Row("last tile of 16 rows zero", (), lambda x: last_rows(x, 16, 0), (w.ODD, w.CAUSAL, w.LARGE), says="are 0: not written, the last block of 16"),
    Row("last tile of 32 rows garbage", ("last rows hold garbage",), lambda x: last_rows(x, 32, np.random.default_rng(9).normal(size=(x.n_q, x.d_v)) * 50), (TAIL, w.KERNEL)),
    Row("last tile of 16 rows NaN", (), lambda x: last_rows(x, 16, np.nan), (w.ODD,), says="are NaN: not written, the last block of 16"),
    Row("a hole in the cache", ("softmax with 1 added to the sum", *COUNTED), lambda x: zero_keys(x, 1), (w.DECODE, w.PREFILL), "onnxruntime-genai PR 2354"),
    Row("last, partial block of each item skipped", ("other key lengths", "last block of keys skipped"), lambda x: p.attend(x, hide=p.padded(x, np.array(x.lengths) // 16 * 16)), (w.PADDED,)),
)  # fmt: skip


# ---- inputs


def vector(x: p.Inputs, name: str) -> p.Array:
    """The bias that `shifted` put in."""
    return shift(name, getattr(x, name).shape).astype(x.wide)


def rms(y: p.Array) -> p.Array:
    return np.asarray(y / np.sqrt((y**2).mean(-1, keepdims=True)))


def projected(x: p.Inputs, n: int) -> p.Array:
    """Times W_o, n heads side by side."""
    out = p.attend(x).reshape(x.b, x.h // n, n, x.n_q, x.d_v).swapaxes(2, 3)
    side = out.reshape(x.b, x.h // n, x.n_q, n * x.d_v)
    matrix = np.random.default_rng(11).normal(size=(x.h // n, *side.shape[-1:] * 2))
    side = side @ (matrix * side.shape[-1] ** -0.5).astype(x.wide)
    return np.asarray(side.reshape(out.shape).swapaxes(2, 3).reshape(x.b, x.h, x.n_q, x.d_v))


def unnormalised(x: p.Inputs, gain: bool) -> p.Array:
    """What came in is normalised; the queries and keys that are used are as they were before."""
    rng = np.random.default_rng(17)
    q, k = (y * rng.uniform(0.5, 2, size=(*y.shape[:3], 1)).astype(x.wide) for y in (x.q, x.k))
    return p.attend(x, q=q if gain else x.q, k=k)


INPUTS = (
    Row("no bias on the values", ("bias of the values missing",), lambda x: p.attend(x, v=x.v - vector(x, "v")), (w.V_BIAS,)),
    Row("no bias on the queries", ("bias of the queries missing",), lambda x: p.attend(x, q=x.q - vector(x, "q")), (w.Q_BIAS,)),
    Row("RMS norm of q and k", ("queries and keys normalised",), lambda x: p.attend(x, q=rms(x.q), k=rms(x.k)), (w.THREE, w.KERNEL, w.LARGE)),
    Row("QK-norm left out", ("queries and keys not normalised",), lambda x: p.attend(x, q=x.q, k=x.k), (w.NORMED,)),
    Row("norm of q and k missing", ("queries and keys times factors",), lambda x: unnormalised(x, True), (w.THREE, w.KERNEL, w.CAUSAL_KERNEL), but=(("causal kernel float64", "no match"), ("causal kernel float32", "no match"))),
    Row("scale of each key forgotten", ("queries and keys times factors",), lambda x: unnormalised(x, False), (w.THREE, w.KERNEL)),
    Row("q added", ("residual already in the output",), lambda x: p.attend(x) + x.q, (w.EVEN, w.CAUSAL_KERNEL, w.LARGE_KERNEL)),
    Row("v added", ("residual already in the output",), lambda x: p.attend(x) + x.v, (w.EVEN,)),
    Row("k added", ("residual already in the output",), lambda x: p.attend(x) + x.k, (w.EVEN,)),
    Row("projected over all heads", ("output projected already",), lambda x: projected(x, x.h), (w.PROJECTED,)),
    Row("projected, each head", ("output projected already",), lambda x: projected(x, 1), (w.PROJECTED,)),
)  # fmt: skip


# ---- positions


def placing(
    put: Callable[[p.Array, p.Array], p.Array],
    names: str = "qk",
    *,
    first_q: int | None = None,
    first_k: int = 0,
    **more: Any,
) -> Callable[[p.Inputs], p.Array]:
    """An attention that puts these positions in, the queries' counted from first_q."""

    def make(x: p.Inputs) -> p.Array:
        start = {"q": x.n_past if first_q is None else first_q, "k": first_k, "v": first_k}
        parts: dict[str, Any] = {}
        for name in "qkv":
            y = getattr(x, name)
            at = np.arange(start[name], start[name] + y.shape[2])
            parts[name] = put(y, at) if name in names else y
        return p.attend(x, **parts, **more)

    return make


def restarted(x: p.Inputs, **more: Any) -> p.Array:
    """New keys and queries count from 0 again."""
    again = np.r_[np.arange(x.n_past), np.arange(x.n_k - x.n_past)]
    return p.attend(x, q=p.rotate(x.q, np.arange(x.n_q)), k=p.rotate(x.k, again), **more)


IN_PAIRS = p.PLACED["rope-interleaved"]
RESTARTED = ("positions restarted at 0 after the past",)
POSITIONS = (
    Row("interleaved", ("rotary pairs interleaved, not in halves",), placing(IN_PAIRS), (w.ROPE, w.ROPE_CACHED), "transformers#25199"),
    Row("halves", ("rotary pairs in halves, not interleaved",), placing(p.rotate), (w.ROPE_PAIRS,), "nanochat#264"),
    Row("no positions", ("positions left out",), placing(p.rotate, ""), (w.ROPE, w.ROPE_PAIRS, w.SINUS)),
    Row("v rotated too", ("rotary positions in the values too",), placing(p.rotate, "qkv"), (w.ROPE,)),
    Row("base 500000", ("rotary positions with another base",), placing(lambda y, at: p.rotate(y, at, 500000.0)), (w.ROPE, w.ROPE_CACHED)),
    Row("half of the width", ("rotary positions on a part of the width",), placing(lambda y, at: np.concatenate([p.rotate(y[..., :8], at), y[..., 8:]], axis=-1)), (w.ROPE,)),
    Row("queries one too far", ("positions counted from another number",), placing(p.rotate, first_q=1), (w.ROPE,), "flash-linear-attention#766"),
    Row("queries from 0 after the past", (*RESTARTED, "positions counted from another number"), placing(p.rotate, first_q=0), (w.ROPE_CACHED,)),
    Row("restarted after the past", RESTARTED, restarted, (w.ROPE_CACHED,)),
    Row("sinusoids from 1", ("positions counted from 1, not 0", "positions counted from another number"), placing(p.sinusoid, "qkv", first_q=1, first_k=1), (w.SINUS,)),
    Row("sinusoids, not in the values", ("positions left out of the values",), placing(p.sinusoid, "qk"), (w.SINUS,)),
    Row("the article's exponent", ("sinusoid exponent 2·2i/d, not 2i/d",), placing(p.PLACED["article"], "qkv"), (w.SINUS,), "jadore801120/attention-is-all-you-need-pytorch#32"),
    Row("the paper's exponent", ("sinusoid exponent 2i/d, not 2·2i/d",), placing(p.sinusoid, "qkv"), (w.ARTICLE,), "SamLynnEvans/Transformer#25"),
    Row("sines, then cosines", ("sines, then cosines, not interleaved",), placing(lambda y, at: p.sinusoid(y, at, order="halves"), "qkv"), (w.SINUS,), "allennlp#2993"),
    Row("k alone rotated, on a cache", ("positions left out",), placing(p.rotate, "k"), (w.ROPE_CACHED,)),
    Row("no scale, with positions", ("scale left out",), lambda x: p.attend(x, scale=1.0), (w.SINUS, w.ARTICLE, w.SINUS_CACHED, w.ROPE_CACHED), always=True),
)  # fmt: skip


# ---- two bugs at once; the second shows in few items, heads or rows

PAIRS = (
    Row("scale and one padded item", ("scale left out + padding left out",), lambda x: p.attend(x, scale=1.0, hide=p.OPEN), (w.ONE_PADDED, w.PADDED), gives="among several", but=(("padding", "named"),)),
    Row("scale and one masked row", ("scale left out + mask left out",), lambda x: p.attend(x, scale=1.0, hide=p.OPEN), (w.ONE_ROW,), always=True),
    Row("scale and causal", ("scale left out + causal mask left out",), lambda x: p.attend(x, scale=1.0, hide=p.OPEN), (w.CAUSAL,)),
    Row("mask and causal", (), lambda x: p.attend(x, hide=p.OPEN), (w.MASKED_CAUSAL,), says="the given mask is ignored, and so is the causal limit"),
    Row("window and scale", ("window left out + scale left out",), lambda x: p.attend(x, scale=1.0, hide=p.OPEN), (w.TWO_SIDED,)),
    Row("width of the model, next position visible", ("√d_model instead of √d_k + causal mask shows the next position",), lambda x: p.attend(x, scale=(x.h * x.d_k) ** -0.5, hide=x.j > x.i + 1), (w.CAUSAL,)),
    Row("mask inverted, divided by d_k", ("boolean mask read the other way round + divided by d_k, not √d_k",), lambda x: p.attend(x, scale=1 / x.d_k, hide=~x.masked), (w.MASKED,), always=True),
    Row("over queries, unscaled", ("softmax over queries, not keys + scale left out",), lambda x: p.attend(x, scale=1.0, weigh=lambda s: p.softmax(s, axis=-2)), (w.PRIMES,), always=True),
    Row("after softmax, unscaled", ("mask applied after softmax, not renormalised + scale left out",), lambda x: p.attend(x, scale=1.0, hide=p.OPEN, weigh=lambda s: p.softmax(s) * ~x.hidden), (w.MASKED,)),
    Row("cut by reshape, unscaled", ("heads split by reshape without transpose + scale left out",), lambda x: p.attend(x, scale=1.0, q=cut(x.q), k=cut(x.k), v=cut(x.v)), (w.PRIMES,), always=True),
    Row("joined by reshape, not causal", ("heads merged by reshape without transpose + causal mask left out",), lambda x: joined(p.attend(x, hide=p.OPEN)), (w.CAUSAL,)),
    Row("K and V exchanged, causal", ("K and V swapped + causal mask where none is wanted",), lambda x: p.attend(x, k=x.v, v=x.k, hide=x.j > x.i), (SAME,)),
    Row("no softcap, bottom-right", ("softcap left out + causal mask aligned bottom-right, not top-left",), lambda x: p.attend(x, cap=0.0, hide=x.j > x.i + x.n_k - x.n_q), (w.CAPPED_WIDE,)),
    Row("interleaved, unscaled", ("rotary pairs interleaved, not in halves + scale left out",), placing(IN_PAIRS, scale=1.0), (w.ROPE,), always=True),
    Row("restarted after the past, unscaled", ("positions restarted at 0 after the past + scale left out",), lambda x: restarted(x, scale=1.0), (w.ROPE_CACHED,)),
    Row("the article's exponent, unscaled", ("sinusoid exponent 2·2i/d, not 2i/d + scale left out",), placing(p.PLACED["article"], "qkv", scale=1.0), (w.SINUS,)),
    Row("no sinusoids, unscaled", ("positions left out + scale left out",), placing(p.rotate, "", scale=1.0), (w.SINUS,)),
    Row("sines, then cosines, from 1", ("sines, then cosines, not interleaved + positions counted from 1, not 0",), placing(lambda y, at: p.sinusoid(y, at, order="halves"), "qkv", first_q=1, first_k=1), (w.SINUS,), types=("float64", "float32")),
)  # fmt: skip


# ---- wrong in a place that no row of the catalogue is meant to name


def random(x: p.Inputs) -> p.Array:
    return np.random.default_rng(21).normal(size=(x.b, x.h, x.n_q, x.d_v)).astype(x.wide)


CONTROLS = (
    Row("garbage in one block", (), lambda x: p.attend(x) + random(x) * (np.arange(x.n_q) // 16 == 1)[:, None], (w.ODD,), kind="control", always=True, gives="no match"),
    Row("one wrong number a head", (), lambda x: p.attend(x) + np.eye(x.n_q, x.d_v) * (np.arange(x.d_v) == 3), (w.ODD,), kind="control", gives="no match"),
    Row("noise", (), lambda x: p.attend(x) + random(x) * 0.05, (w.KERNEL,), kind="control", gives="no match"),
    Row("scores squared", (), lambda x: p.attend(x, weigh=lambda s: p.softmax(s * s)), (w.ODD,), kind="control", always=True, gives="no match"),
    Row("V one row off", (), lambda x: p.attend(x, v=np.roll(x.v, 1, axis=2)), (w.ODD,), says="each key is read as the one after"),
    Row("mask one key off", (), lambda x: p.attend(x, hide=np.roll(x.masked, 1, axis=-1)), (w.MASKED_ALL,), says="the given mask of each key is that of the one before"),
    Row("mask of another head", (), lambda x: p.attend(x, hide=np.roll(x.masked, 1, axis=1)), (w.MASKED_HEADS,), says="the given mask of head 1 is that of head 3"),
    # shares what it touches, which two that are tried together may not
    Row("mask inverted and turned", (), lambda x: p.attend(x, hide=~x.masked.T), (w.MASKED_SQUARE,), kind="control", gives="no match"),
)  # fmt: skip


GROUPS = {
    "scores and weights": SCORES,
    "masks and caches": MASKS,
    "layouts": LAYOUTS,
    "kernels": KERNELS,
    "inputs": INPUTS,
    "positions": POSITIONS,
    "pairs": PAIRS,
    "no known bug": CONTROLS,
}
ROWS = tuple(row for rows in GROUPS.values() for row in rows)
