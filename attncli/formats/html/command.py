"""The call that a page copies: as it was given, or with the numbers that the page shows then.

    attncli explain 'I love AI' --heads 2

    attncli compute --q - --softcap 2 <<'END'
    {"q": [[1, 0], [0, 1]], "k": …}
    END

The trace knows its call (attncli/recorded.py). Numbers stand in it in place of files, and after a
change on the page: what it says here is which of them the call takes, and by which names.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from attncli.convention import KNOBS, Convention, flag_text
from attncli.page.select import Block, blocks_of
from attncli.programs.written import program_of
from attncli.recorded import RecordedCall
from attncli.stages import OUTPUT, QKV
from attncli.trace import Stage, Trace

FLAGS: dict[str, dict[str, Any]] = {
    "root": {"flag": "--scale ", "field": "scale", "inverse": 1},
    "factor": {"flag": "--scale ", "field": "scale", "always": 1},
    "temperature": {"flag": "--temperature ", "field": "temperature"},
    "cap": {"flag": "--softcap ", "field": "softcap", "always": 1},
    "value": {"flag": "--mask-value ", "field": "mask_value"},
}
_BASE = {"base": {"flag": "--base ", "field": "base"}}
_OF_CONVENTION = (*KNOBS, "semantics")


def command(trace: Trace) -> dict[str, Any]:
    """What the page copies; empty where no call is known.

    start    how the call begins, and its options with their texts, as it was given: the call until
    options  something is changed that no option can say; left out where nobody can give it again
    python   whether it is of a function in Python
    numbers  the call with the numbers of the page; left out where none can have them:

    start, words  how it begins, and the options that stay
    weights    the option in the place of `--weights -`, as long as no weight is changed
    file       the JSON is that of the page's first attention (see copied.py), without the `fields`
               that are still what an option says: name → option, value
    inputs     name in the JSON of standard input → stage; constants: those that cannot be changed
    merged     names of the file whose heads stand side by side
    rows       the stage whose rows are arguments: word=0.9,0.5
    literals   option → stage whose numbers it is given as JSON
    labels     name in that JSON → the stage whose rows or columns it names: "rowNames", "colNames"
    drawn      the stages whose numbers follow from the words
    separate   names of inputs that are options of their own
    flags      the parameters of stages that a page may change, and the options that say them,
               of FLAGS the fields of a file, too
    """
    call = trace.call
    if call is None or not _is_safe(call):
        return {}
    makers = _IN_PYTHON if call.is_python else _IN_A_SHELL
    make = makers.get(re.split("[ .]", call.function)[1])
    numbers = make(trace, call) if make else {}
    is_readable = not (call.is_python or call.reads_stdin)  # as long as the files are there
    is_whole = call.is_complete or is_readable
    if not numbers and not is_whole:
        return {}
    maps, lists = ("fields", "inputs", "literals"), ("words", "drawn", "separate", "merged")
    empty: dict[str, Any] = {name: {} for name in maps} | {name: [] for name in lists}
    names = (option.name for option in call.options)
    options = [*zip(names, call.texts, strict=True)]
    return {
        "start": call.function,
        **({"options": options} if is_whole else {}),
        **({"python": 1} if call.is_python else {}),
        **({"numbers": {**empty, "flags": FLAGS, **numbers}} if numbers else {}),
    }


def _is_safe(call: RecordedCall) -> bool:
    """Whether a call of a file is one of attncli and nothing else, however it is pasted."""
    texts = [word for option in call.options for word in option.words]
    if not all(c.isprintable() or c == "\n" for text in texts for c in text):
        return False
    if not call.is_python:
        return bool(re.fullmatch(r"attncli [\w-]+", call.function))
    try:
        plain = (text for option in call.options if option.provides == "" for text in option.words)
        for text in plain:
            ast.literal_eval(text.partition("=")[2] if re.match(r"\w+=", text) else text)
    except (ValueError, SyntaxError):
        return False
    return bool(re.fullmatch(r"attncli\.\w+", call.function))


def _choices(call: RecordedCall, *without: str) -> list[str]:
    """The options of a call that stay whatever it is computed from, but for these."""
    return [*call.without("input", "file", names=without).texts]


def _of_convention(convention: Convention, call: RecordedCall) -> list[str]:
    """The options of a convention, as they were given, but for those that the page's mask holds.

    Scale and cap are parameters of stages, which the page knows.
    """
    changes = convention.without_mask_fields().changes()
    texts = {option.name: x for option, x in zip(call.options, call.texts, strict=True)}
    names = [name for name in changes if name not in ("scale", "softcap")]
    words = [texts.get(name, flag_text(name, changes[name])) for name in names]
    return words + ["--scale none"] * (convention.scale == "none")


def _heads(block: Block) -> list[str]:
    n_heads, n_kv_heads = block.n_heads, block.sizes["kv_head"]
    shared = [f"--kv-heads {n_kv_heads}"] if n_kv_heads not in (0, n_heads) else []
    return ([f"--heads {n_heads}"] if n_heads > 1 else []) + shared


# ---- of commands


def _compute(trace: Trace, call: RecordedCall) -> dict[str, Any]:
    """compute: from the file that the page copies as JSON, with the fields that are options."""
    if call.get("sweep") or call.get("against"):
        return {}
    if trace.convention is None:
        return _of_formulas(trace, call)
    block = next(blocks_of(trace))
    words, merged, fields = _choices(call, *_OF_CONVENTION), [], {}
    if "concat" in block.stages and not block.stages["q"].expression:  # q was split into heads
        words, merged = [*words, *_heads(block)], [*QKV]
        words += ["--layout bsd"] * ("batch" in block.stages["q"].axes)
    for option, text in zip(call.options, call.texts, strict=True):
        if option.name in KNOBS and (option.name != "seed" or block.convention.dropout):
            fields[option.name] = text, getattr(block.convention, option.name)
    start = "attncli compute --q -"
    return {"start": start, "words": words, "file": 1, "merged": merged, "fields": fields}


def _of_formulas(trace: Trace, call: RecordedCall) -> dict[str, Any]:
    """compute: by formulas of the user's own."""
    stages = [step for step in trace.steps if isinstance(step, Stage)]
    inputs = {stage.name: stage.name for stage in stages if not stage.expression}
    formulas = call.get("formulas")
    is_typed = formulas is not None and formulas.provides == "" and not call.get("lines")
    text = call.texts[call.options.index(formulas)] if formulas and is_typed else _program(trace)
    words = [text]
    return {
        "start": "attncli compute --q -",
        "words": words,
        "inputs": inputs,
        "flags": _parameters(stages),
    }


def _program(trace: Trace) -> str:
    """The formulas of a trace, as an option."""
    return f"--formulas {shlex.quote(program_of(trace).strip())}"


def _attention(block: Block) -> Trace:
    """The steps from q, k and v to the output, as a trace of their own."""
    names = [*block.stages]
    after = names[max(map(names.index, QKV)) + 1 : names.index(OUTPUT) + 1]
    qkv = [replace(block.stages[name], expression="") for name in QKV]
    return Trace("", (*qkv, *(block.stages[name] for name in after)))


def _parameters(stages: Iterable[Stage], call: RecordedCall | None = None) -> dict[str, Any]:
    """The parameters of formulas of the user's own that a page may change and no line sets."""
    lines = [
        option.words[-1] for option in (call.options if call else ()) if option.name == "lines"
    ]
    params = {name for stage in stages for name in stage.params}
    params -= {line.partition("=")[0].strip() for line in lines}
    return {name: {"flag": f"--set {name}="} for name in FLAGS if name in params}


def _explain(trace: Trace, call: RecordedCall) -> dict[str, Any]:
    """explain: a sentence, its vectors and the weights of all layers."""
    blocks = [block for block in blocks_of(trace) if block.weights]
    if not blocks or call.get("against") or call.get("against_order"):
        return {}
    first = blocks[0]
    parameters = [n for n, stage in trace.stages() if stage.kind.role == "parameter"]
    gains = {n: flag for n in parameters if (flag := _GAINS.get(n.rpartition(".")[2]))}
    if len({*gains.values()}) < len(gains):  # of several attentions, each of which may be changed
        return {}
    weights = [n for n in parameters if n not in gains]
    inputs = {n if first.layer else n.replace("cross_", ""): n for n in weights}
    literals, drawn = {"--embeddings": "embeddings"}, []
    words = ["--weights -"] if weights else []
    stay = ["lowercase"]
    if call.get("target"):  # the vectors of two sentences are those of their words
        vectors = call.get("vectors")
        if vectors and vectors.provides == "file":
            return {}
        stay += ["dim", "vectors", "unknown"]
        literals, drawn = {}, ["embeddings", "target.embeddings"]
    if "positions" not in trace:
        words.append("--positions none")
    elif trace["positions"].expression:
        words.append(f"--positions {trace['positions'].params['exponent']}")
    else:
        literals["--positions"] = "positions"
    gradients = (name for name, stage in trace.stages() if stage.kind.heading)
    gradient = next((name for name in gradients if trace[name].formula.endswith("given")), "")
    literals |= {"--d-output": gradient} if gradient else {}
    literals |= {flag: n for n, flag in gains.items()}
    options = [x if x.name not in stay else x._replace(provides="") for x in call.options]
    call, flags = replace(call, options=tuple(options)), FLAGS
    has_formulas = first.trace.convention is None
    is_decoder = blocks[-1].prefix.startswith("decoder")
    if has_formulas or is_decoder:  # whose masks the page does not say
        if has_formulas and is_decoder:
            return {}
        formulas = call.get("formulas")
        if has_formulas and formulas and formulas.provides == "file":
            call = call.without(names=["lines"])
            words.append(_program(_attention(first)))
        words += _choices(call)
        flags = _parameters(first.stages.values(), call) if has_formulas else FLAGS
    else:
        words += [
            *_choices(call, *_OF_CONVENTION),
            *_of_convention(trace.convention or Convention(), call),
        ]
    option = call.get("weights")
    text = shlex.join(option.words) if option else "--projection learned"  # which are drawn again
    text = "" if call.get("projection") else text
    kept = {"weights": text} if not (option and "-" in option.words) else {}
    return {
        **kept,
        "start": "attncli explain",
        "words": [*words, *_heads(first)],
        "flags": flags,
        "inputs": inputs,
        "literals": literals,
        "labels": {"tokens": ("embeddings", "rowNames")},
        "drawn": drawn,
        "separate": ["tokens", "mask"],
    }


_GAINS = {"q_gain": "--q-gain", "k_gain": "--k-gain"}
"""The gains of the norms of queries and keys, which are no weights of a file."""


def _posenc(trace: Trace, call: RecordedCall) -> dict[str, Any]:
    """posenc: a table of positions, alone or added to embeddings; queries and keys turned by it."""
    numbers = {"start": "attncli posenc", "words": _choices(call), "flags": _BASE}
    if call.get("apply"):
        roles = {"x": "q", "queries.x": "q", "keys.x": "k"}
        inputs = {role: name for name, role in roles.items() if name in trace}
        return {**numbers, "inputs": inputs, "words": [*_choices(call), "--apply -"]}
    return {**numbers, "literals": {"--add": "embeddings"} if call.get("add") else {}}


def _similarity(trace: Trace, call: RecordedCall) -> dict[str, Any]:
    """similarity: words with their vectors, of which no file tells the nearest."""
    words = call.get("words")
    is_typed = words is not None and all("=" in word[1:] for word in words.words if word != "--")
    if call.get("nearest") or (call.get("analogy") and not is_typed) or "vectors" not in trace:
        return {}
    is_flag = any(word.startswith("-") for word in trace["vectors"].labels["word"])
    start = ["--"] * is_flag  # before words that would be options
    return {
        "start": "attncli similarity",
        "words": [*_choices(call), *start],
        "rows": "vectors",
        "flags": {},
    }


_IN_A_SHELL = {
    "compute": _compute,
    "explain": _explain,
    "posenc": _posenc,
    "similarity": _similarity,
}


# ---- of functions in Python


def _attend(trace: Trace, call: RecordedCall) -> dict[str, Any]:
    """Attention of arrays: from the file that the page copies as JSON, as arguments."""
    if trace.convention is None or call.get("rows"):
        return {}
    options = [option for option in call.options if option.name in ("tiles", "split")]
    return {"start": call.function, "words": replace(call, options=tuple(options)).texts, "file": 1}


def _table(trace: Trace, call: RecordedCall) -> dict[str, Any]:
    """posenc: a table of positions, alone or added to embeddings."""
    is_added = call.get("add") is not None
    numbers = {"start": call.function, "words": _choices(call), "flags": _BASE}
    return {**numbers, "literals": {"add": "embeddings"} if is_added else {}}


def _vectors(trace: Trace, call: RecordedCall) -> dict[str, Any]:
    """similarity: words and their vectors."""
    labels = {"words": ("vectors", "rowNames")}
    return {"start": call.function, "labels": labels, "inputs": {"matrix": "vectors"}, "flags": {}}


_IN_PYTHON = {
    "attend": _attend,
    "attend_tiles": _attend,
    "attend_split": _attend,
    "multi_head_attention": _attend,
    "posenc": _table,
    "similarity": _vectors,
}
