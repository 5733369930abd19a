"""The call of attncli that gives a page's computation again, with the numbers that it shows then.

    attncli compute --q - --softcap 2 <<'END'
    {"q": [[1, 0], [0, 1]], "k": …}
    END

The numbers are those of the page when it is copied; what it says here is which of them the call
takes, by which names, and by which options all else is said.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attncli.convention import Convention, flag_text
from attncli.pipeline.sentence import random_vectors
from attncli.stages import PARTS, QKV
from attncli.trace import Trace
from attncli.views.select import Block, blocks_of
from attncli.views.text import clean
from attncli.words.tokens import is_padding

_OF_X = ("x", "x_kv", "x_v")
FLAGS: dict[str, dict[str, Any]] = {
    "root": {"flag": "--scale", "inverse": 1},
    "factor": {"flag": "--scale", "always": 1},
    "cap": {"flag": "--softcap", "always": 1},
    "value": {"flag": "--mask-value"},
}
"""The parameters of stages that a page may change, and the options that say them."""
EPSILON = 1e-5  # of the norms where --eps does not say otherwise
_LEFT_OUT = ("scale", "softcap", "lse_base")  # said by the parameters, or of no effect here


def command(trace: Trace) -> dict[str, Any]:
    """The call, and where its numbers are; empty where no call gives the trace.

    inputs    name in the JSON of standard input → stage
    literals  option → stage whose numbers it is given as JSON
    tokens    the stage whose labels are the words
    drawn     the stages whose numbers follow from the words and a seed
    separate  names of inputs that are options of their own
    """
    blocks = [block for block in blocks_of(trace) if block.weights]
    has_parts = any(name.split(".")[0] in PARTS for name in trace)
    if not blocks or has_parts:
        return {}
    own = _explain(trace, blocks) if "embeddings" in trace else _compute(trace, blocks[0])
    return {**own, "flags": FLAGS} if own else {}


def _options(how: Convention, *, whole: bool = False) -> str:
    """The options of a convention, but for those that the mask of a page holds."""
    changes = (how if whole else how.beside_mask()).changes()
    kept = {name: value for name, value in changes.items() if name not in _LEFT_OUT}
    words = [flag_text(name, value) for name, value in kept.items()]
    words += ["--scale none"] if how.scale == "none" else []
    return "".join(f" {each}" for each in words)


def _compute(trace: Trace, block: Block) -> dict[str, Any]:
    """From q, k and v, or from x and the weights where all of them are there."""
    stages = block.stages
    if len([*blocks_of(trace)]) > 1:
        return {}
    first = {name for name, stage in stages.items() if not stage.expression and not stage.reads}
    inputs = {name: name for name in (*QKV, "sinks") if name in first}
    source, heads = "--q", ""
    if not {*QKV} <= first:
        names = [n for n, x in stages.items() if x.kind.role == "parameter" or n in _OF_X]
        inputs, source = {n: n for n in names}, "--x"
        heads = _heads(block)
        if not {"x", "w_q", "w_k", "w_v"} <= {*inputs} or "x" not in first:
            return {}
    gradient = next((n for n in ("d_projected", "d_concat", "d_output") if n in first), "")
    own: dict[str, Any] = {"call": f"attncli compute {source} -{heads}{_options(block.convention)}"}
    own |= {"inputs": inputs}
    labels = stages["scores"].labels if "scores" in stages else {}
    if labels.get("query") and labels.get("query") == labels.get("key"):
        own["tokens"] = "scores"
    return own | ({"literals": {"--d-output": gradient}} if gradient else {})


def _heads(block: Block) -> str:
    n_heads, n_kv_heads = block.n_heads, block.sizes["kv_head"]
    shared = f" --kv-heads {n_kv_heads}" if n_kv_heads not in (0, n_heads) else ""
    return (f" --heads {n_heads}" if n_heads > 1 else "") + shared


def _explain(trace: Trace, blocks: list[Block]) -> dict[str, Any]:
    """A sentence, its vectors and the weights of all layers."""
    first = blocks[0]
    weights = [n for n, stage in trace.stages() if stage.kind.role == "parameter"]
    inputs = {n if first.layer else n.replace("cross_", ""): n for n in weights}
    literals, drawn = {"--embeddings": "embeddings"}, []
    words = ["attncli explain --weights -", *_architecture(trace, blocks)]
    if "target.tokens" in trace:  # the vectors of two sentences follow from a seed
        seed = seed_of(trace)
        if seed is None:
            return {}
        literals, drawn = {}, ["embeddings", "target.embeddings"]
        words += [f"--dim {trace['embeddings'].value.shape[-1]} --seed {seed}"]
        target = clean(" ".join(trace["target.tokens"].labels["token"]))
        words += [f"--target {shlex.quote(target)}"]
    positions = "none"
    if "positions" in trace:
        stage = trace["positions"]
        positions = str(stage.params.get("exponent", ""))
        if not stage.expression:
            positions, literals["--positions"] = "", "positions"
    gradients = (name for name, stage in trace.stages() if stage.kind.heading)
    gradient = next((name for name in gradients if trace[name].formula.endswith("given")), "")
    literals |= {"--d-output": gradient} if gradient else {}
    words += [f"--positions {shlex.quote(positions)}"] if positions else []
    call = " ".join(words) + _heads(first) + _options(first.convention, whole=len(blocks) > 1)
    return {
        "call": call,
        "inputs": inputs,
        "literals": literals,
        "tokens": "embeddings",
        "drawn": drawn,
        "separate": ["tokens", *(["mask"] if len(blocks) == 1 else [])],
    }


def seed_of(trace: Trace) -> int | None:
    """The seed from which the vectors of the words are drawn, if they are."""
    if "embeddings" not in trace or trace.convention is None:
        return None
    stage, seed = trace["embeddings"], trace.convention.seed
    names, width = stage.names("token"), stage.value.shape[-1]
    drawn = random_vectors([name for name in names if not is_padding(name)], width, seed)
    rows = [drawn.get(name, np.zeros(width)) for name in names]
    return seed if np.array_equal(stage.value, rows) else None


def _architecture(trace: Trace, blocks: list[Block]) -> Iterator[str]:
    """The options of a block around the attention."""
    first = blocks[0]
    if not first.layer:
        return
    yield f"--block {'decoder' if blocks[-1].prefix.startswith('decoder') else 'encoder'}"
    layers = max(int(block.layer) for block in blocks)
    if layers > 1:
        yield f"--layers {layers}"
    stages: Mapping[str, Any] = first.stages
    if "norm" not in stages:
        yield "--norm none"
    elif stages["q"].reads.get("x") == "norm":
        yield "--norm rms" if "rms" in stages else "--norm pre"
    if "norm" in stages and (eps := stages["norm"].params.get("epsilon")) != EPSILON:
        yield f"--eps {eps}"
    if not any("feed_forward" in block.stages for block in blocks_of(trace)):
        yield "--d-ff 0"
