"""The bytes of an explanation, counted from the numbers of tokens and widths alone.

weights ── entry ── the layers' plan ── what it means, beside the stages that are kept
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Like
from attncli.attention.memory import bytes_of
from attncli.attention.positions import SUM, sinusoidal_steps
from attncli.attention.shapes import result_shape
from attncli.commands.explain.pipeline import Keep, add_stages, kept_stages
from attncli.stages import MAPS, SCORES, gradient_of
from attncli.transformer.layers import LayerPlan
from attncli.transformer.weights import Architecture
from attncli.words.measures import similarity_steps

_LABEL = 100  # bytes of the name of a position
_LAYER = 10**5  # bytes of the steps and stages of a layer, however narrow: about 30, 3 kB each
_FEW = 3  # layers that are counted; of each further one there is as much more as of the last
_COMPARED = 3  # tables of what changed between two tables of cosines
_TRUTH = np.dtype(np.bool_)


class Sentences(NamedTuple):
    """How many tokens there are."""

    n_words: int  # of the sentence
    n_keys: int  # the same with padding
    n_target: int  # of the target; 0 where there is none
    has_mask: bool  # whether a mask restricts the attention, too


class Need(NamedTuple):
    """The bytes of stages, and the shapes of those of the first layers by dotted name."""

    of_stages: int
    likes: Mapping[str, Like]
    n_layers: int

    def maps(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The stages of all layers with a number for every query and key, and their shapes."""
        leaves = {"mask", *MAPS, *map(gradient_of, MAPS)}
        for name, x in self.likes.items():
            place, dot, leaf = name.rpartition(".")
            if leaf in leaves:
                whole = self.likes.get(f"{place}{dot}{SCORES}", x).shape
                yield name, whole
                for at in range(_FEW + 1, self.n_layers + 1) if f".{_FEW}." in name else ():
                    yield name.replace(f".{_FEW}.", f".{at}."), whole


def of_explanation(
    block: Architecture,
    weights_of: Callable[[int], Mapping[str, Like]],
    sizes: Sentences,
    keep: Keep | None,
    *,
    has_gradient: bool = False,
) -> Need:
    """Bytes of the stages from the vectors to what they mean.

    weights_of    the weights of so many layers
    keep          as in `explained`
    has_gradient  whether that of the last stage is given
    """
    n_layers = block.n_layers or 1
    plans = [
        _plan(block, weights_of(n), sizes, has_gradient=has_gradient)
        for n in range(max(1, min(n_layers, _FEW) - 1), min(n_layers, _FEW) + 1)
    ]
    counts = []
    for layers, last_stage in plans:
        names = None if keep is None else kept_stages(layers, last_stage, keep)
        inputs: Any = layers.inputs  # of arrays that are not there
        counts.append(bytes_of(layers.steps, inputs, names))
    more = max(n_layers - _FEW, 0)
    first, last = counts[0], counts[-1]
    value = last.value + more * (last.value - first.value)
    most = last.most + more * (last.most - first.most)
    n_compared, n_tables = sizes.n_target or sizes.n_words, 3 if block.kind == "attention" else 2
    of_stages = max(most, value + _of_meaning(n_compared, block.d_model, n_tables))
    of_stages += sum(_of_entry(n, block) for n in (sizes.n_keys, sizes.n_target) if n)
    return Need(of_stages + n_layers * _LAYER, last.likes, n_layers)


def _plan(
    block: Architecture, weights: Mapping[str, Any], sizes: Sentences, *, has_gradient: bool
) -> tuple[LayerPlan, str]:
    """The layers as `explained` has them, of arrays that are not there, and their last stage."""
    layers, is_alone = LayerPlan(block, weights), block.kind == "attention"
    sentence, target = (Like((n, block.d_model)) for n in (sizes.n_keys, sizes.n_target))
    rows: dict[str, Any] = {"input": sentence, "target.input": target}
    ends = [layers.rows(name, x) for name, x in rows.items() if x.size]
    x: Any = rows[ends[-1]]
    padding: Any = Like((sizes.n_keys,), _TRUTH) if sizes.n_keys > sizes.n_words else None
    if sizes.has_mask:
        padding = Like(((x if is_alone else sentence).shape[0], sizes.n_keys), _TRUTH)
    gradient: Any = x if has_gradient else None
    if has_gradient and is_alone:
        leaves = {name.rpartition(".")[2]: w for name, w in weights.items()}
        n_kv_heads = block.n_kv_heads or block.n_heads
        gradient = Like(result_shape({"x": x, **leaves}, block.n_heads, n_kv_heads))
    last = add_stages(layers, ends, (padding, None), None, gradient if is_alone else None)
    if has_gradient and not is_alone:
        layers.gradients(last, gradient)
    return layers, last


def _of_entry(n: int, block: Architecture) -> int:
    """Bytes of n tokens' embeddings with their positions, a copy in the number type included."""
    embeddings = Like((n, block.d_model))
    steps, names = [*sinusoidal_steps(n, block.d_model), SUM], ["positions", "input"]
    table = bytes_of(steps, {"embeddings": embeddings}, names).most
    return 2 * embeddings.nbytes + table + n * _LABEL


def _of_meaning(n: int, d: int, n_tables: int) -> int:
    """Bytes of the cosines of n words before and after, and of what changed."""
    vectors, table = Like((n, d)), Like((n, n)).nbytes
    similarity = bytes_of(similarity_steps(), {"vectors": vectors}).most
    return 2 * vectors.nbytes + (n_tables - 1) * table + max(similarity, (1 + _COMPARED) * table)
