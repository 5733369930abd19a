"""Names of weights as they are published, and what each says: which matrix, which way round.

W_q, Wq, WQ, W_query, q_weight, q_proj, omega_q     plain: X W, [in, out]
q_proj.weight, query.weight, wq.weight, in_proj_weight   PyTorch's Linear: X Wᵀ, [out, in]
query/kernel, attention_output/kernel               Keras and Flax: [in, out] or [in, head, d]
c_attn.weight, c_proj.weight                        GPT-2's Conv1D: X W, although a .weight
w_q_1, WQ2, heads.0.w_q, q_proj.0.weight            one head of several
in_proj_weight, c_attn, qkv, kv, weights            several matrices in one
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from attncli.stages import OUTPUT, WEIGHTS

Form = Literal["plain", "linear", "kernel", "conv1d"]

READS_X = ("w_q", "w_k", "w_v", "w_qkv", "w_kv")
"""The matrices that x, x_kv or x_v is multiplied with."""


class Name(NamedTuple):
    """What the name of an array says."""

    scope: str  # the block that it belongs to, such as "encoder.layers.0.self_attn"; "" for none
    leaf: str  # w_q, w_k, w_v, w_o, w_qkv, w_kv, and b_q … b_kv
    form: Form  # who writes so, which says what the axes are
    head: int | None = None  # the number of the head, as it is counted there; None: it names none
    bare: bool = False  # it says only that it is the weights, as ONNX Runtime's Attention has it


_ROLES = {
    **dict.fromkeys(("q", "query", "queries"), "q"),
    **dict.fromkeys(("k", "key", "keys"), "k"),
    **dict.fromkeys(("v", "value", "values"), "v"),
    **dict.fromkeys(("o", "out", OUTPUT), "o"),
    "qkv": "qkv",
    "kv": "kv",
}
_PROJECTION = ("proj", "projection")
_MATRIX = {*_PROJECTION, "w", "weight", WEIGHTS, "omega", "u", "kernel", "matrix"}
_MATRIX |= {"linear", "lin", "dense", "to", "fc"}
_BIAS = {"b", "bias", "biases"}
_BARE = {"weight": "w_qkv", WEIGHTS: "w_qkv", "bias": "b_qkv"}  # also the name of a stage

_REPLACED = {"attention_output": OUTPUT, "in_proj": "qkv", "c_attn": "qkv", "c_proj": OUTPUT}
"""What is written instead of the part of a name on the left, before that is read word by word."""
_LINEAR = (".weight", "in_proj_weight")
_MULTIHEAD = ("q_proj_weight", "k_proj_weight", "v_proj_weight")  # PyTorch's, where widths differ
_MARKS = re.compile(r"[\s^{}()$\\]+|:\d+$")  # of W^{Q}, and TensorFlow's kernel:0
_HEAD = re.compile(r"(?:^|(?<=[._]))heads?[._]?(\d{1,6})[._]")
_GLUED = re.compile(r"([wb])((?:qkv|kv|query|key|value|out|[qkvo])\d*)")  # WQ, wkv, bq1
_WORD = re.compile(rf"({'|'.join({*_MATRIX, *_BIAS, *_ROLES})}|)(\d{{0,6}})")


def parse(name: str) -> Name | None:
    """What the name of an array says, in any case of letters; None where it is no projection's.

    >>> parse("encoder.layers.0.self_attn.q_proj.weight")
    Name(scope='encoder.layers.0.self_attn', leaf='w_q', form='linear', head=None, bare=False)
    >>> parse("heads.0.key.weight").head, parse("query/kernel").form, parse("key"), parse("w_1")
    (0, 'kernel', None, None)
    """
    text = _MARKS.sub("", name.lower()).replace("/", ".").replace("-", "_")
    if text in _BARE:
        return Name("", _BARE[text], "plain", bare=True)
    numbered = _HEAD.search(text)
    head = int(numbered[1]) if numbered else None
    text = _HEAD.sub("", text, count=1)
    form: Form = "linear" if text.endswith(_LINEAR) or text in _MULTIHEAD else "plain"
    if text.rpartition(".")[2].rpartition("_")[2] == "kernel":
        form = "kernel"
    parts = text.split(".")
    words: list[str] = []
    while parts and (of_part := _words(parts[-1], words)):
        form = "conv1d" if parts.pop() in ("c_attn", "c_proj") else form
        words = of_part + words
    numbers = [int(word) for word in words if word.isdecimal()]
    roles = [_ROLES[word] for word in words if word in _ROLES]
    if not roles and not {*_PROJECTION}.isdisjoint(words):
        roles = ["o"]  # `proj.weight` is the output's
    if len(roles) != 1 or len(numbers) > 1 or (numbers and head is not None):
        return None
    (role,) = roles
    is_bias = not _BIAS.isdisjoint(words)
    if len(role) == 1 and not is_bias and _MATRIX.isdisjoint(words):
        return None  # `query` alone: no weight
    if is_bias and words[0] == "bias":
        return None  # PyTorch's bias_k is one more key
    head = numbers[0] if numbers else head
    block = ".".join(parts).removesuffix(".self") if parts != ["self"] else ""
    return Name(block, f"{'b' if is_bias else 'w'}_{role}", form, head)


def is_published(name: str) -> bool:
    """Whether an array of this name is a projection's weights or bias."""
    return parse(name) is not None


def blocks(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of each attention's weights, by what stands before them in its first name.

    >>> blocks(["h.0.attn.c_attn.weight", "h.0.mlp.c_proj.weight", "wte.weight"])
    {'h.0.attn': ['h.0.attn.c_attn.weight']}
    """
    scopes: dict[str, dict[str, str]] = {}
    for name in names:
        if parsed := parse(name):
            scopes.setdefault(parsed.scope, {})[name] = parsed.leaf
    blocks = {}
    for scope, leaves in scopes.items():
        if not {*leaves.values()}.isdisjoint(READS_X):
            start = next(iter(leaves))[: len(scope)]  # the scope as it is written there
            is_same = start.lower().replace("/", ".") == scope
            blocks[start if is_same else scope] = [*leaves]
    return blocks


def _words(part: str, after: list[str]) -> list[str]:
    """The words of a part of a name between dots; none where it is no part of a weight's.

    after  those of the parts to its right: left of a matrix there may be `weights.q`, while the
           2 of `2.w_q` is a layer's
    """
    if after and not _ROLES.keys().isdisjoint(after):
        is_known = not (_MATRIX | _BIAS).isdisjoint(after)
        return [] if is_known or part not in _MATRIX | _BIAS else [part]
    for old, new in _REPLACED.items():
        part = re.sub(rf"^{old}(?=_|$)", new, part)
    words = [_WORD.fullmatch(word) for word in _GLUED.sub(r"\1_\2", part).split("_") if part]
    return [x for match in words if match for x in match.groups() if x] if all(words) else []
