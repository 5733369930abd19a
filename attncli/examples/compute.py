"""What an example can ask for: one class for each computation, whose fields are its inputs.

    Attention(q=…, k=…, v=…) ── computed ──> Computed ── trace
                                                └─ going_on: a stage from printed ones

To add a computation: a class here, and its name in `AnyComputation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np

from attncli.attention import functional as f
from attncli.attention.attend import (
    Block,
    attend,
    attend_heads,
    entered,
    prepared,
    projected_sizes,
    restrictions,
    trace_of,
)
from attncli.attention.layers import Architecture, layer_norm, norm_steps
from attncli.attention.positions import add_positions, sinusoidal, sinusoidal_steps
from attncli.attention.run import Sizes, Step, Values, needed, plan, run
from attncli.convention import Convention
from attncli.errors import InputError
from attncli.examples.inputs import (
    Array,
    Changes,
    Matrix,
    Model,
    Number,
    Numbers,
    OneKey,
    Row,
    Side,
    Text,
    TokenRows,
    Vectors,
    Whole,
    Words,
    WordVectors,
)
from attncli.files.messages import listing, quote, safe
from attncli.files.word_vectors import read_vectors
from attncli.stages import CONCAT, OUTPUT, RESIDUAL, kind_of
from attncli.trace import Stage, Trace
from attncli.words.similarity import (
    analogy,
    analogy_steps,
    pca,
    pca_steps,
    similarity,
    similarity_steps,
)

MOST_CELLS = 1 << 22
"""Most scores, and most numbers of an output: 32 MB of float64 a stage."""


class Computed(NamedTuple):
    """A trace, and the plan by which it goes on from a printed stage.

    steps   in the order of the computation; none where nothing can go on
    inputs  what they are computed from
    """

    trace: Trace
    steps: Sequence[Step]
    inputs: Values

    def going_on(self, printed: Values, stage: str) -> Array | None:
        """The stage computed from these printed ones; None where it does not follow from each.

        >>> done = Positions(n=1, dim=2).computed()
        >>> done.going_on({"angles": np.array([[np.pi]])}, "positions").round(4).tolist()
        [[0.0, -1.0]]
        """
        if all(step.name != stage for step in self.steps):
            return None
        inputs = {**self.inputs, **printed}
        read = {name for s in needed(self.steps, inputs, [stage]) for name in s.reads.values()}
        return run(self.steps, inputs, [stage])[stage] if printed.keys() <= read else None


class Computation(Model):
    """The inputs of a computation. `needs` is a file that must be given for it, or ""."""

    name: ClassVar[str]

    @property
    def needs(self) -> str:
        """A file that does not come with the example."""
        return ""

    def with_vectors(self, path: str | None) -> Self:
        """The same with its word vectors read from a file of that kind, where it needs them."""
        return self

    def computed(self) -> Computed:
        """Raises an AttncliError where the inputs do not fit together."""
        raise NotImplementedError


# ---- attention


class _Attending(Computation):
    mask: Numbers | None = None
    convention: Changes = Convention()
    n_heads: Whole | None = None


class Attention(_Attending):
    """`attend` of q, k, v; with n_heads their last axis is split into heads."""

    name: ClassVar[str] = "attention"
    q: Numbers
    k: Numbers
    v: Numbers
    queries: Words | None = None
    keys: Words | None = None

    def computed(self) -> Computed:
        _check_cells(self.q, self.k, self.v, self.n_heads or 1)
        how: dict[str, Any] = {"mask": self.mask, "convention": self.convention}
        how |= {"query_labels": self.queries, "key_labels": self.keys}
        more = []
        if self.n_heads is None:
            trace = attend(self.q, self.k, self.v, **how)
        else:
            trace = attend_heads(self.q, self.k, self.v, n_heads=self.n_heads, **how)
            more = [Step(CONCAT, f.concat, {"x": OUTPUT})]
        q, k, v = (trace[name].value for name in "qkv")
        inputs, sizes = prepared(q, k, v, self.convention, mask=self.mask)
        return Computed(trace, [*plan(self.convention, sizes), *more], inputs)


class SelfAttention(_Attending):
    """Rows of x, with positions if asked for, that attend to each other; without weights x itself
    is q, k and v. Its own output projection and residual come last."""

    name: ClassVar[str] = "self-attention"
    x: TokenRows
    positions: Literal["paper", "article", "none"] = "none"
    w_q: Matrix | None = None
    w_k: Matrix | None = None
    w_v: Matrix | None = None
    w_o: Matrix | None = None
    residual: bool = False

    def computed(self) -> Computed:
        how, tokens = self.convention, self.x.words
        stages, steps, inputs = self._entry()
        x = entered(stages["input"].value, how)
        own, sizes = self._sized(x)
        steps += plan(how, sizes, source="input")
        inputs |= own
        values = run(steps, inputs)
        if self.residual:
            last = steps[-1].name
            if values[last].shape != x.shape:
                hint = "give w_o [d_v, d_model]"
                raise InputError("a residual needs an output as wide as x", hint)
            formula, reads = f"R = {kind_of(last).symbol} + X", {"x": last, "y": "input"}
            steps.append(Step(RESIDUAL, f.add, reads, formula=formula, dtype=how.dtype))
            values = run(steps, values)
        block = Block("Self-attention", how, {"query": tokens, "key": tokens})
        return Computed(trace_of(steps, values, {"": block}, stages), steps, inputs)

    def _entry(self) -> tuple[dict[str, Stage], list[Step], dict[str, Array]]:
        """What comes before the attention: its stages, their steps and inputs."""
        x = entered(self.x.matrix, self.convention)
        tokens = self.x.words
        if self.positions == "none":
            labels = {"token": tokens} if tokens else {}
            stage = Stage("input", "X", "as given", x, ("token", "d_model"), labels)
            return {"input": stage}, [], {"input": x}
        n, dim = x.shape
        before = add_positions(x, sinusoidal(n, dim, exponent=self.positions), tokens=tokens)
        steps = sinusoidal_steps(n, dim, exponent=self.positions)
        reads = {"x": "embeddings", "y": "positions"}
        steps.append(Step("input", f.add, reads, dtype=self.convention.dtype))
        return dict(before.stages()), steps, {"embeddings": x}

    def _sized(self, x: Array) -> tuple[dict[str, Array], Sizes]:
        """What the attention of x reads besides it, and its sizes."""
        how, n_heads = self.convention, 1 if self.n_heads is None else self.n_heads
        _check_cells(x, x, x, n_heads)
        given = {name: getattr(self, name) for name in ("w_q", "w_k", "w_v", "w_o")}
        weights = {name: entered(w, how) for name, w in given.items() if w is not None}
        if not weights and self.n_heads is None:
            return prepared(x, x, x, how, mask=self.mask)
        sizes = projected_sizes({"x": x} | weights, n_heads, n_heads)
        own = weights | restrictions(sizes, self.mask, None)
        return own, sizes._replace(given={"x", *own})


def _check_cells(q: Array, k: Array, v: Array, n_heads: int) -> None:
    if not all(2 <= x.ndim <= 4 for x in (q, k, v)) or n_heads < 1:
        return  # attend says what is wrong with these
    cells = math.prod(q.shape[:-1]) * max(n_heads * k.shape[-2], v.shape[-1])
    if cells > MOST_CELLS:
        raise InputError(f"{cells} scores or outputs are too many", f"{MOST_CELLS} is the most")


# ---- words


class GloveWords(Model):
    """Words whose vectors are in a file that does not come with the example."""

    words: Words
    file: Text

    def read(self, path: str) -> WordVectors:
        """Their vectors from the file; InputError where a word is not in it."""
        found = read_vectors(path, self.words)
        if found.missing:
            raise InputError(
                f"{found.origin} has no vector for {listing(found.missing)}",
                f"the example was made with {safe(self.file)}",
            )
        return WordVectors(tuple(self.words), found.matrix)


class _OnWords(OneKey, Computation):
    vectors: Vectors | None = None
    glove: GloveWords | None = None

    @property
    def needs(self) -> str:
        return self.glove.file if self.glove else ""

    def with_vectors(self, path: str | None) -> Self:
        if self.glove is None or path is None:
            return self
        return self.model_copy(update={"vectors": self.glove.read(path), "glove": None})

    @property
    def known(self) -> WordVectors:
        """The words and their vectors. Raises InputError where they are still to be read."""
        if self.vectors is None:
            raise InputError(f"its vectors are in {quote(self.needs)}", "add --glove FILE")
        return self.vectors


class Similarity(_OnWords):
    """Lengths, dot products and cosines; for two words also their angle."""

    name: ClassVar[str] = "similarity"

    def computed(self) -> Computed:
        words, matrix = self.known
        steps = similarity_steps(len(words))
        return Computed(similarity(words, matrix), steps, {"vectors": matrix})


class Analogy(_OnWords):
    """a is to b as c is to …: b − a + c."""

    name: ClassVar[str] = "analogy"

    def computed(self) -> Computed:
        words, matrix = self.known
        return Computed(analogy(words, matrix), analogy_steps(words), {"vectors": matrix})


class Pca(_OnWords):
    """The two directions in which the vectors vary most."""

    name: ClassVar[str] = "pca"

    def computed(self) -> Computed:
        words, matrix = self.known
        return Computed(pca(words, matrix), pca_steps(), {"vectors": matrix})


class Share(Computation):
    """How many of the tokens, in percent, are among those of `of`."""

    name: ClassVar[str] = "share"
    tokens: Words
    of: Words

    def computed(self) -> Computed:
        hits = np.array([float(token in self.of) for token in self.tokens])
        labels = {"token": tuple(self.tokens)}
        steps = (
            Stage("counted", "n", "1 for each token that counts", hits, ("token",), labels),
            Stage("percent", "%", "100 · Σ n / number of tokens", 100 * hits.sum() / hits.size, ()),
        )
        return Computed(Trace("Share of the tokens", steps), [], {})


# ---- positions and layer norm


class Positions(Computation):
    """The table of sines and cosines."""

    name: ClassVar[str] = "positions"
    n: Side
    dim: Side
    exponent: Literal["paper", "article"] = "paper"
    base: Number = 10000.0
    start: Whole = 0

    def computed(self) -> Computed:
        how: dict[str, Any] = {"exponent": self.exponent, "base": self.base, "start": self.start}
        steps = sinusoidal_steps(self.n, self.dim, **how)
        return Computed(sinusoidal(self.n, self.dim, **how), steps, {})


class PositionsSum(Computation):
    """Embeddings with their positions added."""

    name: ClassVar[str] = "positions sum"
    embeddings: Matrix
    positions: Matrix
    tokens: Words | None = None

    def computed(self) -> Computed:
        trace = add_positions(self.embeddings, self.positions, tokens=self.tokens or ())
        steps = [Step("input", f.add, {"x": "embeddings", "y": "positions"})]
        return Computed(trace, steps, {"embeddings": self.embeddings, "positions": self.positions})


class LayerNorm(Computation):
    """Each row with mean 0 and deviation 1, then gain and bias."""

    name: ClassVar[str] = "layer norm"
    x: Matrix
    gamma: Row | None = None
    beta: Row | None = None
    epsilon: Number = 1e-5

    def computed(self) -> Computed:
        trace = layer_norm(self.x, self.gamma, self.beta, epsilon=self.epsilon)
        given = {"gamma": self.gamma, "beta": self.beta}
        gain = {name: w for name, w in given.items() if w is not None}
        steps = norm_steps("x", gain, Architecture(epsilon=self.epsilon))
        return Computed(trace, steps, {"x": self.x, **gain})


AnyComputation = (
    Attention | SelfAttention | Similarity | Analogy | Pca | Positions | PositionsSum | LayerNorm
    | Share
)  # fmt: skip
COMPUTATIONS: dict[str, type[Computation]] = {kind.name: kind for kind in get_args(AnyComputation)}
"""Each computation by the name that an example gives as `compute`."""
