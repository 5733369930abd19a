"""The calls of a model as stacks of layers: what each is called, and all of them as one Trace.

    encoder.layers.2.self_attn   decoder.layers.2.encoder_attn     modules, counted from 0
    encoder.3                    decoder.3.encoder_attn            parts of a trace, from 1

The names of the modules say what belongs together; no architecture is known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.model.call import Call
from attncli.commands.model.heads import MEASURES, OVER, SPECS, measures
from attncli.errors import ShapeError
from attncli.files.messages import listing
from attncli.stages import WEIGHTS
from attncli.trace import Stage, Trace

_SUMMARY = "What each head does"


class Place(NamedTuple):
    """Where an attention is: in which stack, in which layer from 1, and which of the layer's.

    stack is "layer" where there is but one; module is "" where a layer has but one attention.
    """

    stack: str
    layer: int
    module: str

    @property
    def group(self) -> str:
        """The name of all attentions of its kind, such as "decoder.self_attn"."""
        return f"{self.stack}.{self.module}" if self.module else self.stack

    @property
    def name(self) -> str:
        """Its dotted name in a trace, such as "decoder.3.self_attn"."""
        return ".".join(filter(None, (self.stack, str(self.layer), self.module)))


class Attention(NamedTuple):
    """A call of a model, and the names of its queries and keys.

    tokens  the numbers of the tokens where they attend to themselves, else None
    """

    call: Call
    queries: Sequence[str] | None
    keys: Sequence[str] | None
    tokens: Sequence[int] | None


def places(names: Sequence[str]) -> list[Place]:
    """Where each attention is, by the names of the modules in the order in which they ran.

    What comes before the first number of a name is the stack, what comes after it which attention
    of the layer; what all of them share is left out. The layer is that number and 1. Where a module
    is called again, as layers that share their weights are, it is the how-manieth of its kind.
    """
    split = [_split(name) for name in names]
    stacks = _told_apart([before for before, _, _ in split])
    modules = [""] * len(names)
    for before in dict.fromkeys(before for before, _, _ in split):
        same = [at for at, parts in enumerate(split) if parts[0] == before]
        kinds = {split[at][1:] for at in same}
        if len(kinds) > len({layer for layer, _ in kinds}):
            for at, module in zip(same, _told_apart([split[at][2] for at in same]), strict=True):
                modules[at] = module
    result = [
        Place(stack or "layer", layer, module)
        for stack, (_, layer, _), module in zip(stacks, split, modules, strict=True)
    ]
    if len(set(result)) == len(result):
        return result
    n_calls: Counter[tuple[str, str]] = Counter()
    for at, place in enumerate(result):
        n_calls[place.stack, place.module] += 1
        result[at] = place._replace(layer=n_calls[place.stack, place.module])
    return result


def _split(name: str) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    """The words before the first number of a name, that number from 1, the words after it."""
    parts = name.split(".")
    at = next((at for at, part in enumerate(parts) if part.isdecimal()), len(parts))
    after = tuple(part for part in parts[at + 1 :] if not part.isdecimal())
    return tuple(parts[:at]), int(parts[at]) + 1 if at < len(parts) else 1, after


def _told_apart(names: Sequence[tuple[str, ...]]) -> list[str]:
    """Each name without the words that all begin or end with, EncDec as enc_dec."""
    different = list(dict.fromkeys(names))
    if len(different) < 2:
        return [""] * len(names)
    before = _n_shared(different)
    after = _n_shared([name[before:][::-1] for name in different])
    words = ["_".join(name[before : len(name) - after]) for name in names]
    return [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower() for word in words]


def _n_shared(names: Sequence[tuple[str, ...]]) -> int:
    """How many words all names begin with."""
    words = zip(*names, strict=False)
    return len([*takewhile(lambda same: len(set(same)) == 1, words)])


def traced(attention: Attention, layer: int, name: str = "") -> Trace:
    """Every stage of an attention; labels that do not fit its queries or keys are left out."""
    call = attention.call
    names = zip((attention.queries, attention.keys), call.shape[-2:], strict=True)
    queries, keys = (
        labels if labels is None or len(labels) == size else None for labels, size in names
    )
    trace = call.trace(query_labels=queries, key_labels=keys)
    title = f"Attention of layer {layer}: {call.name}" if call.name else f"Attention {layer}"
    return replace(trace, title=title, name=name)


def model_trace(
    title: str,
    attentions: Sequence[Attention],
    stage_names: Collection[str] | None = None,
    notes: Sequence[str] = (),
) -> Trace:
    """What every head of a model does, and the stages of each layer.

    stage_names  the stages of a layer that are kept; None: all of them

    The stages of MEASURES [layer, head] come first, then the layers: `previous`, `layer.3.weights`;
    of several stacks `encoder.previous`, `encoder.3.weights`. Heads that a layer does not have are
    NaN. What attends to something else than the sentence has no measures, and a note says so.
    """
    locations = places([attention.call.name for attention in attentions])
    measured: dict[str, dict[str, dict[int, dict[str, Array]]]] = {p.stack: {} for p in locations}
    layers: dict[str, dict[int, list[Trace]]] = {place.stack: {} for place in locations}
    others = []
    for place, attention in zip(locations, attentions, strict=True):
        trace = traced(attention, place.layer, place.module)
        values = _measures(trace[WEIGHTS].value, attention)
        if values is None:
            others.append(place.name)
        else:
            measured[place.stack].setdefault(place.module, {})[place.layer] = values
        trace = trace if stage_names is None else trace.keep({*stage_names})
        layers[place.stack].setdefault(place.layer, []).extend([trace] if trace.steps else [])
    first: list[Stage | Trace] = []
    stacks: list[Trace] = []
    for stack, modules in layers.items():
        steps: list[Stage | Trace] = []
        for module, by_layer in measured[stack].items():
            stages = _stages(by_layer)
            steps += [Trace(_SUMMARY, stages, name=module)] if module else stages
        if len(layers) == 1 and "" in measured[stack]:
            first, steps = steps, []
        for layer, traces in modules.items():
            if len(traces) == 1 and not traces[0].name:
                steps.append(replace(traces[0], name=str(layer)))
            elif traces:
                steps.append(Trace(f"Layer {layer}", tuple(traces), name=str(layer)))
        stacks += [Trace(_SUMMARY, tuple(steps), name=stack)] if steps else []
    if others:
        verb = "attends" if len(others) == 1 else "attend"
        message = f"{verb} to something other than the tokens, which is not measured"
        notes = (*notes, f"{listing(others, 4)} {message}")
    return Trace(title, (*first, *stacks), notes=tuple(notes))


def _measures(weights: Array, attention: Attention) -> dict[str, Array] | None:
    """The measures of an attention; None where it has several entries of a batch, or other keys."""
    sizes = tuple(None if x is None else len(x) for x in (attention.queries, attention.keys))
    if weights.ndim > 3 or weights.shape[-2:] != sizes:
        return None
    return measures(weights.reshape(-1, *weights.shape[-2:]), attention.tokens)


def _stages(by_layer: Mapping[int, Mapping[str, Array]]) -> tuple[Stage, ...]:
    """The measures of all layers of one kind as tables [layer, head]."""
    n_heads = max(len(values["entropy"]) for values in by_layer.values())
    labels = {
        "layer": tuple(f"L{layer}" for layer in by_layer),
        "head": tuple(f"H{head}" for head in range(1, n_heads + 1)),
    }
    present = {name for values in by_layer.values() for name in values}
    axes, over, tables = ("layer", "head"), OVER["previous" in present], []
    for measure in (measure for measure in MEASURES if measure.name in present):
        rows = [values.get(measure.name, np.zeros(0)) for values in by_layer.values()]
        table = np.full((len(rows), n_heads), np.nan)
        for row, values in zip(table, rows, strict=True):
            row[: len(values)] = values
        name, symbol, formula, note = measure
        formula = formula.format(over=over)
        tables.append(Stage(name, symbol, formula, table, axes, labels, note, spec=SPECS[name]))
    even = np.array([values["even"] for values in by_layer.values()])
    formula = "the entropy of equal weights on the keys that get any"
    return *tables, Stage("even", "", formula, even, ("layer",), labels, spec=SPECS["even"])


def of_layer(attentions: Sequence[Attention], layer: int) -> list[tuple[Place, Attention]]:
    """The attentions of a layer, counted from 1; ShapeError where it is not there."""
    locations = places([attention.call.name for attention in attentions])
    pairs = zip(locations, attentions, strict=True)
    selection = [(place, attention) for place, attention in pairs if place.layer == layer]
    if not selection:
        there = sorted({place.layer for place in locations})
        is_whole = there == [*range(1, len(there) + 1)]
        span = f"1 to {there[-1]}" if is_whole else listing(map(str, there))
        raise ShapeError(f"there is no layer {layer}", f"choose from {span}")
    return selection


def layer_trace(
    title: str, attentions: Sequence[Attention], layer: int, notes: Sequence[str] = ()
) -> Trace:
    """Every stage of the attentions of one layer, counted from 1; ShapeError if it is not there.

    Of one attention they are called as those of `attend`: weights. Of several, by what tells these
    apart: encoder.weights, decoder.self_attn.weights.
    """
    selection = of_layer(attentions, layer)
    if len(selection) == 1:
        trace = traced(selection[0][1], layer)
        return replace(trace, notes=(*notes, *trace.notes))
    stacks: dict[str, list[Trace]] = {}
    for place, attention in selection:
        trace = traced(attention, layer, place.module)
        stacks.setdefault(place.stack, []).append(trace)
    steps = [
        replace(traces[0], name=stack)
        if len(traces) == 1 and not traces[0].name
        else Trace(title, tuple(traces), name=stack)
        for stack, traces in stacks.items()
    ]
    return Trace(title, tuple(steps), notes=tuple(notes))
