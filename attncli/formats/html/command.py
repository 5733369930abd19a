"""The call of attncli that gives a page's computation again, with the numbers that it shows then.

    attncli compute --q - --softcap 2 <<'END'
    {"q": [[1, 0], [0, 1]], "k": …}
    END

The numbers are those of the page when it is copied; what it says here is which of them the call
takes, by which names, and by which options all else is said.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.convention import Convention, flag_text
from attncli.errors import InputError
from attncli.files.write import plain_lists
from attncli.page.select import Block, blocks_of
from attncli.page.text import clean
from attncli.programs.read import lines_of, read, stage_names
from attncli.programs.variants import variants
from attncli.programs.written import program_of, written
from attncli.stages import OUTPUT, PARTS, QKV, WEIGHTS
from attncli.trace import Stage, Trace
from attncli.words.sentence import random_vectors
from attncli.words.tokens import is_padding

_OF_X = ("x", "x_kv", "x_v")
FLAGS: dict[str, dict[str, Any]] = {
    "root": {"flag": "--scale ", "field": "scale", "inverse": 1},
    "factor": {"flag": "--scale ", "field": "scale", "always": 1},
    "cap": {"flag": "--softcap ", "field": "softcap", "always": 1},
    "value": {"flag": "--mask-value ", "field": "mask_value"},
}
EPSILON = 1e-5  # of the norms where --eps does not say otherwise
_LEFT_OUT = ("scale", "softcap", "lse_base")  # said by the parameters, or of no effect here


def command(trace: Trace) -> dict[str, Any]:
    """The call, and where its numbers are; empty where no call gives the trace.

    inputs     name in the JSON of standard input → stage; constants: those that cannot be changed
    rows       the stage whose rows are arguments: word=0.9,0.5
    literals   option → stage whose numbers it is given as JSON
    labels     name in that JSON → the stage whose rows or columns it names: "rowNames", "colNames"
    drawn      the stages whose numbers follow from the words and a seed
    separate   names of inputs that are options of their own
    flags      the parameters of stages that a page may change, and the options that say them,
               of FLAGS the fields of a file, too
    """
    call = _call(trace)
    if not call:
        return {}
    return {"inputs": {}, "literals": {}, "drawn": [], "separate": [], "flags": FLAGS, **call}


def _call(trace: Trace) -> dict[str, Any]:
    """The same without what is empty."""
    blocks = [block for block in blocks_of(trace) if block.weights]
    stages: dict[str, Any] = next(blocks_of(trace)).stages
    if "vectors" in stages and stages["vectors"].labels.get("word"):
        return _similarity(stages)
    if trace.convention is None and {"q", WEIGHTS, OUTPUT} & stages.keys():
        return _formulas(trace)
    if {"slopes", "angles"} & stages.keys():
        return _positions(stages)
    return _explain(trace, blocks) if "embeddings" in trace and blocks else _compute(trace)


def _formulas(trace: Trace) -> dict[str, Any]:
    """By formulas of the user's own."""
    stages = [step for step in trace.steps if isinstance(step, Stage)]
    inputs = {stage.name: stage.value for stage in stages if not stage.expression}
    return {
        "call": f"attncli compute --q -{_own(trace, inputs)}",
        "inputs": {name: name for name in inputs},
        "flags": _parameters(stages),
    }


def _parameters(stages: Iterable[Stage]) -> dict[str, Any]:
    """The parameters of formulas of the user's own that a page may change."""
    params = {name for stage in stages for name in stage.params}
    return {name: {"flag": f"--set {name}="} for name in FLAGS if name in params}


def _own(trace: Trace, inputs: Mapping[str, Array]) -> str:
    """The option that says formulas of the user's own: the name of a variant, else their text."""
    text = program_of(trace).strip()
    names = [name for name in stage_names(text) if not name.startswith("d_")]
    for name, source in variants().items():
        if stage_names(source) != names:
            continue
        try:
            variant = read(lines_of(source), inputs)
        except InputError:  # it reads other arrays
            continue
        steps = [step._replace(function=None) for step in variant.steps]
        program = written(steps, inputs).strip()
        rest = text.removeprefix(program).split("\n")[1:]
        if text.startswith(program) and all(line.startswith("d_") for line in rest):
            return f" --formulas {name}"
    return f" --formulas {shlex.quote(text)}"


def _similarity(stages: Mapping[str, Any]) -> dict[str, Any]:
    """Words with their vectors, compared, as an analogy or along principal components."""
    words = " ".join(shlex.quote(clean(word)) for word in stages["vectors"].labels["word"])
    flag = " --pca" if "coordinates" in stages else ""
    call = f"attncli similarity{f' --analogy {words}' if 'analogy' in stages else flag}"
    return {"call": call, "rows": "vectors", "flags": {}}


def _positions(stages: Mapping[str, Any]) -> dict[str, Any]:
    """A table of positions, alone or added to embeddings."""
    if "slopes" in stages:
        n_heads, n, _ = stages["bias"].value.shape
        convention = "" if stages["bias"].params["causal"] else " --symmetric"
        call = f"attncli posenc --kind alibi --len {n} --heads {n_heads}{convention}"
        return {"call": call, "flags": {}}
    if not {"divisors", "cos"} & stages.keys() or "x" in stages:
        return {}
    angles, dim = stages["angles"], 2 * stages["angles"].value.shape[-1]
    size, literals = f"--len {len(angles.value)} --dim {dim} --kind rope", {}
    if "divisors" in stages:
        params = stages["divisors"].params
        size = f"--len {len(angles.value)} --dim {params['dim']} --exponent {params['exponent']}"
    if "embeddings" in stages:
        size, literals = f"--exponent {params['exponent']}", {"--add": "embeddings"}
    start = f" --start {int(angles.value[0, 0])}" if angles.value[0, 0] else ""
    call = f"attncli posenc {size}{start}{' --dots' * ('dots' in stages)}"
    flags = {"base": {"flag": "--base ", "always": 1}}
    return {"call": call, "literals": literals, "flags": flags}


def _options(convention: Convention) -> str:
    """The options of a convention, but for those that the mask of a page holds."""
    changes = convention.without_mask_fields().changes().items()
    words = [flag_text(name, value) for name, value in changes if name not in _LEFT_OUT]
    words += ["--scale none"] if convention.scale == "none" else []
    return "".join(f" {each}" for each in words)


def _compute(trace: Trace) -> dict[str, Any]:
    """From q, k and v, or from x and the weights where all of them are there."""
    block, *parts = blocks_of(trace)
    stages: Mapping[str, Any] = block.stages
    if not {*QKV} <= stages.keys() or any(x.prefix.split(".")[0] not in PARTS for x in parts):
        return {}
    first = {name for name, stage in stages.items() if not stage.expression and not stage.reads}
    names, call = (*QKV, "sinks"), "--q -"
    if not {*QKV} <= first:
        names = tuple(n for n, x in stages.items() if x.kind.role == "parameter" or n in _OF_X)
        call = f"--x -{_heads(block)}"
        if not {"x", "w_q", "w_k", "w_v"} <= first:
            return {}
    cached = [n for n in "kv" if "n_cached" in stages[n].params]
    past = {n: stages[n].value[..., : stages[n].params["n_cached"], :] for n in cached}
    if parts:
        bounds = [x.stages["k"].params for x in parts if "k" in x.stages]
        starts = ",".join(str(each["start"]) for each in bounds[1:])
        is_tiles = parts[0].prefix.startswith("tile")
        call += f" --tiles {bounds[0]['stop']}" if is_tiles else f" --split {starts}"
        names += ("mask",) * ("mask" in stages)
        call += " --mask-means add" * ("mask" in stages)
    gradient = next((n for n in ("d_projected", "d_concat", "d_output") if n in first), "")
    labels = stages["scores"].labels if "scores" in stages else {}
    is_of_tokens = labels.get("query") and labels.get("query") == labels.get("key")
    return {
        "call": f"attncli compute {call}{_options(block.convention)}",
        "inputs": {name: name for name in names if name in first},
        "constants": {f"past_{name}": plain_lists(value) for name, value in past.items()},
        **({"labels": {"tokens": ("scores", "rowNames")}} if is_of_tokens else {}),
        "literals": {"--d-output": gradient} if gradient else {},
    }


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
    convention = first.convention
    if blocks[-1].prefix.startswith("decoder") and convention != convention.without_mask_fields():
        return {}
    call, flags = " ".join(words) + _heads(first) + _options(convention), FLAGS
    if first.trace.convention is None:  # by formulas of the user's own
        names = [*first.stages]
        if not {*QKV, OUTPUT} <= {*names} or (len(words) > 1 and "decoder" in call):
            return {}
        after = names[max(map(names.index, QKV)) + 1 : names.index(OUTPUT) + 1]
        stages = [first.stages[name] for name in after]
        qkv = [replace(first.stages[name], expression="") for name in QKV]
        text = _own(Trace("", (*qkv, *stages)), {stage.name: stage.value for stage in qkv})
        call, flags = call + text, _parameters(stages)
    return {
        "call": call,
        "flags": flags,
        "inputs": inputs,
        "literals": literals,
        "labels": {"tokens": ("embeddings", "rowNames")},
        "drawn": drawn,
        "separate": ["tokens", "mask"],
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
