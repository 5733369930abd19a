"""What an example can ask for: name → inputs, the library function, and how to go on from a stage.

| compute | needs | may have | stages |
|---|---|---|---|
| attention | q, k, v | mask, convention, n_heads, queries, keys | those of `attend`, concat |
| self-attention | x | positions, w_q … w_o, residual, and as above | input, and as above |
| similarity | vectors or glove | | lengths, dots, cosines, for two words angles |
| analogy | vectors or glove of a, b, c | | difference, analogy |
| pca | vectors or glove | | mean, centred, components, shares, coordinates |
| positions | n, dim | exponent, base, start | angles, positions |
| positions sum | embeddings, positions | tokens | embeddings, positions, input |
| layer norm | x | gamma, beta, epsilon | mean, deviation, norm |
| share | tokens, of | | tokens, counted, percent |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.layers import layer_norm
from attncli.attention.positions import add_positions, sinusoidal
from attncli.documents import attention_examples, nodes, word_inputs
from attncli.errors import AttncliError, InputError
from attncli.trace import Stage, Trace
from attncli.words.similarity import analogy, pca, similarity

Inputs = Mapping[str, Any]
Array = npt.NDArray[Any]
Parse = Callable[[object, str], Any]
Resume = Callable[[Inputs, Trace, Mapping[str, Array], str], Any]


@dataclass(frozen=True)
class Computation:
    """A computation an example can ask for.

    run     inputs → Trace
    needs   input → how it is read; those named together in `either` replace each other
    may     the same for what can be left out
    resume  a stage computed anew from somebody's numbers in place of earlier stages, or None
    """

    run: Callable[[Inputs], Trace]
    needs: Mapping[str, Parse]
    may: Mapping[str, Parse]
    either: tuple[str, ...] = ()
    resume: Resume | None = None


def run(compute: str, inputs: Inputs, spot: str) -> Trace:
    """The trace of a computation; `spot` is how messages call the example.

    Raises InputError where the inputs do not fit together.
    """
    try:
        with np.errstate(all="ignore"):
            return COMPUTATIONS[compute].run(inputs)
    except AttncliError as problem:
        raise InputError(f"{spot}: {problem.message}", problem.hint) from problem
    except np.linalg.LinAlgError as problem:
        raise InputError(f"{spot}: it cannot be computed ({problem})") from problem


def _on_words(compute: Callable[[Any, Any], Trace]) -> Callable[[Inputs], Trace]:
    return lambda inputs: compute(inputs["vectors"].words, inputs["vectors"].matrix)


def _positions(inputs: Inputs) -> Trace:
    n, dim = inputs["n"], inputs["dim"]
    if n > nodes.MOST_SIDE or dim > nodes.MOST_SIDE:
        raise InputError(f"a table of {n} × {dim} is too large", f"{nodes.MOST_SIDE} is the most")
    named = {name: inputs[name] for name in ("exponent", "base", "start") if name in inputs}
    return sinusoidal(n, dim, **named)


def _positions_sum(inputs: Inputs) -> Trace:
    tokens = inputs.get("tokens", ())
    return add_positions(inputs["embeddings"], inputs["positions"], tokens=tokens)


def _layer_norm(inputs: Inputs) -> Trace:
    gain = {name: inputs.get(name) for name in ("gamma", "beta")}
    return layer_norm(inputs["x"], **gain, epsilon=inputs.get("epsilon", 1e-5))


def _share(inputs: Inputs) -> Trace:
    tokens, counted = inputs["tokens"], set(inputs["of"])
    hits = np.array([float(token in counted) for token in tokens])
    names = {"token": tokens}
    steps = (
        Stage("counted", "n", "1 for each token that counts", hits, ("token",), names),
        Stage("percent", "%", "100 · Σ n / number of tokens", 100 * hits.sum() / hits.size, ()),
    )
    return Trace("Share of the tokens", steps)


def _cosines(inputs: Inputs, trace: Trace, given: Mapping[str, Array], wanted: str) -> Any:
    lengths = given.get("lengths", trace["lengths"].value)
    cosines = given.get("dots", trace["dots"].value) / (lengths[:, None] * lengths)
    if wanted == "angles":
        return np.degrees(np.arccos(given.get("cosines", cosines)))
    return cosines if wanted == "cosines" else None


def _difference(inputs: Inputs, trace: Trace, given: Mapping[str, Array], wanted: str) -> Any:
    if wanted != "analogy" or "difference" not in given:
        return None
    return given["difference"] + trace["vectors"].value[2]


def _waves(inputs: Inputs, trace: Trace, given: Mapping[str, Array], wanted: str) -> Any:
    if wanted != "positions" or "angles" not in given:
        return None
    table = np.array(trace["positions"].value)
    table[:, 0::2] = np.sin(given["angles"])
    table[:, 1::2] = np.cos(given["angles"])[:, : table.shape[1] // 2]
    return table


def _normed(inputs: Inputs, trace: Trace, given: Mapping[str, Array], wanted: str) -> Any:
    if wanted != "norm":
        return None
    mean = given.get("mean", trace["mean"].value)[..., None]
    deviation = given.get("deviation", trace["deviation"].value)[..., None]
    norm = (inputs["x"] - mean) / np.sqrt(deviation**2 + inputs.get("epsilon", 1e-5))
    return norm * inputs.get("gamma", 1.0) + inputs.get("beta", 0.0)


_HOW: dict[str, Parse] = {
    "mask": nodes.array,
    "convention": attention_examples.read_convention,
    "n_heads": nodes.whole,
}
_WORDS: dict[str, Parse] = {
    "vectors": word_inputs.word_vectors,
    "glove": word_inputs.glove_words,
}
_EITHER = ("vectors", "glove")

COMPUTATIONS: dict[str, Computation] = {
    "attention": Computation(
        attention_examples.attention,
        dict.fromkeys("qkv", nodes.array),
        {**_HOW, "queries": nodes.words, "keys": nodes.words},
        resume=attention_examples.from_stage,
    ),
    "self-attention": Computation(
        attention_examples.self_attention,
        {"x": word_inputs.token_rows},
        {
            **_HOW,
            **dict.fromkeys(("w_q", "w_k", "w_v", "w_o"), nodes.matrix),
            "positions": nodes.choice("paper", "article", "none"),
            "residual": nodes.flag,
        },
        resume=attention_examples.from_stage,
    ),
    "similarity": Computation(_on_words(similarity), {}, _WORDS, _EITHER, _cosines),
    "analogy": Computation(_on_words(analogy), {}, _WORDS, _EITHER, _difference),
    "pca": Computation(_on_words(pca), {}, _WORDS, _EITHER),
    "positions": Computation(
        _positions,
        {"n": nodes.whole, "dim": nodes.whole},
        {
            "exponent": nodes.choice("paper", "article"),
            "base": nodes.number,
            "start": nodes.whole,
        },
        resume=_waves,
    ),
    "positions sum": Computation(
        _positions_sum,
        {"embeddings": nodes.matrix, "positions": nodes.matrix},
        {"tokens": nodes.words},
    ),
    "layer norm": Computation(
        _layer_norm,
        {"x": nodes.matrix},
        {"gamma": nodes.row, "beta": nodes.row, "epsilon": nodes.number},
        resume=_normed,
    ),
    "share": Computation(_share, {"tokens": nodes.words, "of": nodes.words}, {}),
}
