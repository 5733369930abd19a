"""What an example can ask for: one class for each computation, whose fields are its inputs.

To add a computation: a class here, and its name in `Name` and `COMPUTATIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

import numpy as np
from pydantic import Field

from attncli.arrays import Array
from attncli.attention.attend import in_heads
from attncli.attention.formulas import RESIDUAL as SUM
from attncli.attention.inputs import cast_input, inputs_of
from attncli.attention.plan import Merge, plan
from attncli.attention.positions import add_positions, sinusoidal, sinusoidal_steps
from attncli.attention.run import Heading, Step, Values, run, trace_of
from attncli.attention.sweep import N_KEYS, sweep_widths
from attncli.commands.examples.input_types import (
    Changes,
    Matrix,
    Model,
    Numbers,
    OneKey,
    Row,
    Seed,
    Side,
    TokenRows,
    Vectors,
    Whole,
    Words,
    WordVectors,
    validated,
)
from attncli.convention import Convention
from attncli.errors import InputError
from attncli.files.messages import listing, quote, safe
from attncli.stages import RESIDUAL, spec_of
from attncli.trace import Stage, Trace
from attncli.transformer.layers import add_norm, layer_norm, of_rows
from attncli.transformer.weights import Architecture
from attncli.words import measures as words
from attncli.words.vector_files import GLOVE_SITE
from attncli.words.vectors import read_vectors

MOST_CELLS = 1 << 22
"""Most scores, and most numbers of an output: 32 MB of float64 a stage."""


class Computed(NamedTuple):
    """A trace, and the plan that computes a stage of it again where earlier ones are given."""

    trace: Trace
    steps: Sequence[Step]  # in their order; none where no stage can be computed again
    inputs: Values  # what they are computed from


class Computation(Model):
    """The inputs of a computation."""

    @property
    def needs(self) -> str:
        """The file of word vectors that must be given for it, or ""."""
        return ""

    def changed(self, changes: dict[str, Any]) -> Self:
        """The inputs with changes, those of a convention added to its own; others are shared."""
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        merged, after = fields | changes, changes.get("convention")
        if isinstance(after, dict) and "convention" in fields:
            merged["convention"] = fields["convention"].changes() | after
        if {"vectors", "glove"} <= merged.keys():
            del merged["glove" if "vectors" in changes else "vectors"]
        return validated(type(self), merged, "inputs")

    def computed(self, glove: str | None = None) -> Computed:
        """Raises an AttncliError where the inputs do not fit together."""
        raise NotImplementedError


# ---- attention


class _Attending(Computation):
    mask: Numbers | None = None
    convention: Changes = Convention()
    n_heads: Whole | None = None


class Attention(_Attending):
    """`attend` of q, k, v, with n_heads in heads, and the gradients of d_output."""

    q: Numbers
    k: Numbers
    v: Numbers
    queries: Words | None = None
    keys: Words | None = None
    d_output: Numbers | None = None

    def computed(self, glove: str | None = None) -> Computed:
        _check_cells(self.q, self.k, self.v, self.n_heads or 1)
        arrays: dict[str, Any] = {"q": self.q, "k": self.k, "v": self.v}
        if self.n_heads is not None:
            arrays = in_heads(**arrays, n_heads=self.n_heads)
        arrays |= {"mask": self.mask, "d_output": self.d_output}
        labels = {"query": self.queries, "key": self.keys}
        merge: Merge = "never" if self.n_heads is None else "shown"
        inputs = inputs_of(arrays, self.convention, merge=merge, labels=labels)
        return Computed(inputs.trace(), inputs.steps, inputs.arrays)


class SelfAttention(_Attending):
    """Rows of x that attend to each other; without weights x itself is q, k and v."""

    x: TokenRows
    positions: Literal["paper", "article", "none"] = "none"
    w_q: Matrix | None = None
    w_k: Matrix | None = None
    w_v: Matrix | None = None
    w_o: Matrix | None = None
    residual: bool = False

    def computed(self, glove: str | None = None) -> Computed:
        convention, n_heads = self.convention, 1 if self.n_heads is None else self.n_heads
        stages, steps, inputs = self._before()
        x = cast_input(stages["input"].value, convention)
        _check_cells(x, x, x, n_heads)
        matrices = {name: getattr(self, name) for name in ("w_q", "w_k", "w_v", "w_o")}
        weights = {name: cast_input(w, convention) for name, w in matrices.items() if w is not None}
        if weights or self.n_heads is not None:
            attention = inputs_of(
                {"x": x, **weights, "mask": self.mask}, convention, n_heads=n_heads, merge="shown"
            )
        else:
            attention = inputs_of({"q": x, "k": x, "v": x, "mask": self.mask}, convention)
        steps += plan(convention, attention.sizes, source="input")
        inputs |= {name: y for name, y in attention.arrays.items() if name != "x"}
        values = run(steps, inputs)
        if self.residual:
            last = steps[-1].name
            if values[last].shape != x.shape:
                hint = "give w_o [d_v, d_model]"
                raise InputError("a residual needs an output as wide as x", hint)
            formula, reads = f"R = {spec_of(last).symbol} + X", {"x": last, "y": "input"}
            steps.append(Step(RESIDUAL, SUM, reads, formula=formula, dtype=convention.dtype))
            values = run(steps, values)
        tokens = self.x.words
        heading = Heading("Self-attention", convention, {"query": tokens, "key": tokens})
        return Computed(trace_of(steps, values, {"": heading}, stages), steps, inputs)

    def _before(self) -> tuple[dict[str, Stage], list[Step], dict[str, Array]]:
        """What comes before the attention: its stages, their steps and inputs."""
        x, tokens = cast_input(self.x.matrix, self.convention), self.x.words
        if self.positions == "none":
            labels = {"token": tokens} if tokens else {}
            stage = Stage("input", "X", "as given", x, ("token", "d_model"), labels)
            return {"input": stage}, [], {"input": x}
        trace = add_positions(x, sinusoidal(*x.shape, exponent=self.positions), tokens=tokens)
        steps = sinusoidal_steps(*x.shape, exponent=self.positions)
        reads = {"x": "embeddings", "y": "positions"}
        steps.append(Step("input", SUM, reads, dtype=self.convention.dtype))
        return dict(trace.stages()), steps, {"embeddings": x}


class Widths(Computation):
    """Attention of random queries and keys, for each d_k without the scale and with it."""

    d_k: Annotated[list[Side], Field(min_length=1, max_length=16)]
    n_keys: Side = N_KEYS
    seed: Seed = 0

    def computed(self, glove: str | None = None) -> Computed:
        return Computed(sweep_widths(self.d_k, self.n_keys, self.seed), [], {})


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
    file: str


class _OnWords(OneKey, Computation):
    vectors: Vectors | None = None
    glove: GloveWords | None = None

    @property
    def needs(self) -> str:
        return self.glove.file if self.glove else ""

    def word_vectors(self, path: str | None) -> WordVectors:
        """The words and their vectors, from a file where they do not come with the example."""
        if self.glove is None:
            return cast("WordVectors", self.vectors)
        if path is None:
            raise InputError(f"its vectors are in {quote(self.needs)}", "add --glove FILE")
        made_with = f"the example was made with {safe(self.needs)}, of {GLOVE_SITE}"
        try:
            vectors = read_vectors(path, self.glove.words)
        except InputError as problem:  # whose hint may name vectors that lack these words
            raise InputError(problem.message, made_with) from problem
        if vectors.missing:
            message = f"{vectors.origin} has no vector for {listing(vectors.missing)}"
            raise InputError(message, made_with)
        return WordVectors(tuple(self.glove.words), vectors.matrix)


class Similarity(_OnWords):
    """Lengths, dot products, cosines and angles."""

    def computed(self, glove: str | None = None) -> Computed:
        vocabulary, matrix = self.word_vectors(glove)
        steps = words.similarity_steps()
        return Computed(words.similarity(vocabulary, matrix), steps, {"vectors": matrix})


class Analogy(_OnWords):
    """a is to b as c is to …: b − a + c."""

    def computed(self, glove: str | None = None) -> Computed:
        vocabulary, matrix = self.word_vectors(glove)
        trace = words.analogy(vocabulary, matrix)
        return Computed(trace, words.analogy_steps(vocabulary), {"vectors": matrix})


class Pca(_OnWords):
    """The two directions in which the vectors vary most."""

    def computed(self, glove: str | None = None) -> Computed:
        vocabulary, matrix = self.word_vectors(glove)
        return Computed(words.pca(vocabulary, matrix), words.pca_steps(), {"vectors": matrix})


class Share(Computation):
    """How many of the tokens, in percent, are among those of `of`."""

    tokens: Words
    of: Words

    def computed(self, glove: str | None = None) -> Computed:
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

    n: Side
    dim: Side
    exponent: Literal["paper", "article"] = "paper"
    base: float = 10000.0
    start: Whole = 0

    def computed(self, glove: str | None = None) -> Computed:
        convention: dict[str, Any] = {
            "exponent": self.exponent,
            "base": self.base,
            "start": self.start,
        }
        steps = sinusoidal_steps(self.n, self.dim, **convention)
        return Computed(sinusoidal(self.n, self.dim, **convention), steps, {})


class PositionsSum(Computation):
    """Embeddings with their positions added."""

    embeddings: Matrix
    positions: Matrix
    tokens: Words | None = None

    def computed(self, glove: str | None = None) -> Computed:
        trace = add_positions(self.embeddings, self.positions, tokens=self.tokens or ())
        steps = [Step("input", SUM, {"x": "embeddings", "y": "positions"})]
        return Computed(trace, steps, {"embeddings": self.embeddings, "positions": self.positions})


class LayerNorm(Computation):
    """Each row with mean 0 and deviation 1, then gain and bias."""

    x: Matrix
    gamma: Row | None = None
    beta: Row | None = None
    epsilon: float = 1e-5

    def computed(self, glove: str | None = None) -> Computed:
        trace = layer_norm(self.x, self.gamma, self.beta, epsilon=self.epsilon)
        parameters = {"gamma": self.gamma, "beta": self.beta}
        gain = {name: w for name, w in parameters.items() if w is not None}
        rows = of_rows(Convention())
        add_norm(rows, "x", gain, trace["norm"].value.shape, Architecture(epsilon=self.epsilon))
        return Computed(trace, rows.steps, {"x": self.x, **gain})


Name = Literal[
    "attention", "self-attention", "widths", "similarity", "analogy", "pca", "share", "positions",
    "positions sum", "layer norm",
]  # fmt: skip
COMPUTATIONS: dict[Name, type[Computation]] = {
    "attention": Attention, "self-attention": SelfAttention, "widths": Widths,
    "similarity": Similarity, "analogy": Analogy, "pca": Pca, "share": Share,
    "positions": Positions, "positions sum": PositionsSum, "layer norm": LayerNorm,
}  # fmt: skip
"""Each computation by the name that an example gives as `compute`."""
