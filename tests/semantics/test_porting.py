"""Moving code between libraries: the code is run, and gives the numbers of the source."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from attncli import Convention, ConventionError, attend
from attncli.arrays import Array
from attncli.presets import PRESETS
from attncli.semantics.dialects import NO_TARGET, TARGETS
from attncli.semantics.port_code import LONGEST, Call, NoWayError, written
from attncli.semantics.porting import recipe
from tests.semantics.porting_runs import RUNTIMES, Sizes, run

INF = np.float32(np.inf)
KEEP = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], dtype=bool)
EMPTY = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 1]], dtype=bool)
UPPER = np.array([[1, 0, 1, 1], [1, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 0]], dtype=bool)
SQUARE = np.array([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]], dtype=bool)
BIAS = (np.arange(15, dtype=np.float32).reshape(3, 5) % 7 - 3) / 4


class Given(NamedTuple):
    """Arrays of a call, [batch, head, token, d], the kinds of what it has, and its sizes."""

    arrays: dict[str, Array]
    call: Call
    sizes: Sizes


def lowered(keep: Array) -> Array:
    """0 where a query may attend to a key, −inf where it may not."""
    return np.where(keep, np.float32(0), -INF)


def given(
    n_q: int = 3,
    n_k: int = 5,
    mask: Array | None = None,
    causal: bool = False,
    heads: tuple[int, int] = (13, 13),
    d_v: int = 7,
) -> Given:
    """Numbers that depend on the sizes alone; 2 batch items, d_k 7."""
    draw, shapes = np.random.default_rng(23), ((heads[0], n_q, 7), (heads[1], n_k, 7))
    q, k, v = (
        draw.standard_normal((2, *shape)).astype(np.float32)
        for shape in (*shapes, (heads[1], n_k, d_v))
    )
    kind: Any = None if mask is None else "boolean" if mask.dtype == bool else "number"
    arrays = {"q": q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
    call = Call(kind, causal, heads[0] != heads[1], d_v != 7)
    return Given(arrays, call, Sizes(*heads, 7, d_v))


CALLS = {
    "plain": given(),
    "boolean mask": given(mask=KEEP),
    "0/1 mask": given(mask=KEEP.astype(np.float32)),
    "0/-inf mask": given(mask=lowered(KEEP)),
    "mask of numbers": given(mask=BIAS),
    "causal 3x5": given(causal=True),
    "causal 5x3": given(5, 3, causal=True),
    "boolean mask, empty row": given(mask=EMPTY),
    "inverted mask, empty row": given(mask=~EMPTY),
    "0/-inf mask, empty row": given(mask=lowered(EMPTY)),
    "mask and causal": given(4, 4, SQUARE, causal=True),
    "inverted mask and causal": given(4, 4, ~SQUARE, causal=True),
    "0/-inf mask and causal": given(4, 4, lowered(UPPER), causal=True),
    "0/-inf mask and causal, empty row": given(4, 4, lowered(SQUARE), causal=True),
    "6 heads on 3": given(5, 11, heads=(6, 3)),
    "6 heads on 3, causal 5x3": given(5, 3, heads=(6, 3), causal=True),
    "6 heads on 3, empty row": given(mask=EMPTY, heads=(6, 3)),
    "6 heads on 3, causal 5x5": given(5, 5, heads=(6, 3), causal=True),
    "d_v 11": given(d_v=11),
    "d_v 5, causal": given(4, 4, d_v=5, causal=True),
}
SOURCES = [name for name, row in PRESETS.items() if row.version]
RUN = [name for name, row in PRESETS.items() if row.version and name in TARGETS]
# No convention says it: the library lowers what causal hides by a finite number, so that where −inf
# hides all else, the later keys are seen.
NOT_SAID = {(name, "0/-inf mask and causal, empty row") for name in ("jax", "ort-mha")}
# Both add −10000, beside which float32 keeps 2⁻¹¹ of a score: a weight is off by up to 2⁻¹⁰ of it.
ADDED = {"boolean mask, empty row", "mask and causal", "inverted mask and causal"}
TOLERANCES = {("ort-mha", "ort-mha", name): 1e-3 for name in ADDED}
# To these, one source of each convention is moved, and of its calls those that give other numbers
# than in torch-sdpa: each compiles every call anew, and all of them would take minutes.
SLOW = {"torch-flex", "tinygrad", "jax", "flax", "equinox"}
ALWAYS = {"boolean mask, empty row"}
CONVENTIONS = {Convention.of(name): name for name in reversed(SOURCES)}
PAIRS = [
    (source, target)
    for source, target in itertools.product(SOURCES, RUN)
    if target not in SLOW or source in {target, *CONVENTIONS.values()}
]
HEADLESS = {"keras-attention"}
TRANSFORMERS = {"transformers-eager", "transformers-sdpa"}


def as_source(name: str, x: Array) -> Array:
    """[batch, head, token, d] as the source has it."""
    tokens_first = np.swapaxes(x, 1, 2)
    flat = tokens_first.reshape(*tokens_first.shape[:2], -1)
    arrays: dict[str, Array] = {
        "one head": x[:, 0],
        "bhsd": x,
        "bshd": tokens_first,
        "bsd": flat,
        "sd": flat[0],
    }
    return arrays[layout_of(name)]


def as_output(name: str, x: Array) -> Array:
    """The same of an output: transformers give theirs with tokens first."""
    return np.swapaxes(x, 1, 2) if name in TRANSFORMERS else as_source(name, x)


def statements(code: str) -> str:
    """The code without what it says: comments and the docstring."""
    tree = ast.parse(code)
    function = tree.body[-1]
    assert isinstance(function, ast.FunctionDef)
    function.body = function.body[1:]
    return ast.unparse(tree)


def one_head(call: Given) -> Given:
    arrays = {name: x[:, :1] if name in "qkv" else x for name, x in call.arrays.items()}
    return Given(arrays, call.call, call.sizes._replace(heads=1, kv_heads=1))


def entered(source: str, name: str) -> Given:
    """The call of this name as the source takes it."""
    call = CALLS[name] if source not in HEADLESS else one_head(CALLS[name])
    arrays = {key: as_source(source, x) if key in "qkv" else x for key, x in call.arrays.items()}
    return Given(arrays, call.call, call.sizes)


@cache
def outcome(target: str, code: str, layout: str, name: str) -> Array:
    """What the code gives; sources of one layout share what is the same for them."""
    call = entered(next(s for s in SOURCES if layout_of(s) == layout), name)
    return run(target, code, call.arrays, call.sizes)


def layout_of(source: str) -> str:
    return "one head" if source in HEADLESS else PRESETS[source].layout


def canonical(source: str, name: str) -> Array:
    """The source's numbers, as its convention has them: [batch, head, token, d]."""
    call = CALLS[name] if source not in HEADLESS else one_head(CALLS[name])
    how = Convention.of(source)
    if how.mask_value_rule == "add":  # but what causal hides stays hidden, which is no field
        how = replace(how, mask_value=-math.inf, mask_value_rule="replace", empty_rows="unmasked")
    how = replace(how, causal=call.call.causal or how.causal)
    q, k, v = (call.arrays[name] for name in "qkv")
    return attend(q, k, v, mask=call.arrays.get("mask"), convention=how)["output"].value


@cache
def as_default(source: str, name: str) -> bool:
    """Whether the call gives the numbers that it gives in torch-sdpa."""
    other = "torch-sdpa"
    if source == other or source in HEADLESS:
        return False
    numbers, usual = canonical(source, name), canonical(other, name)
    return np.shape(numbers) == np.shape(usual) and np.allclose(
        numbers, usual, rtol=0, atol=1e-9, equal_nan=True
    )


def has_other_numbers(name: str) -> bool:
    """Whether the mask of this call holds numbers besides 0 and −inf."""
    mask = CALLS[name].arrays.get("mask")
    return mask is not None and mask.dtype != bool and not ((mask == 0) | np.isneginf(mask)).all()


def is_taken(source: str, call: Given) -> bool:
    """Whether the source takes the call."""
    row, (q, k) = PRESETS[source], (call.arrays[name].shape[-2] for name in "qk")
    return not call.call.refusal(row) and (q == k or not row.refusal(["lengths"]))


def failures(source: str, target: str) -> Iterator[str]:
    """Calls whose code gives other numbers than the source."""
    for name, call in CALLS.items():
        if not is_taken(source, call) or (source, name) in NOT_SAID:
            continue
        if target in SLOW and name not in ALWAYS and as_default(source, name):
            continue
        try:
            found = written(PRESETS[source], PRESETS[target], call.call)
        except NoWayError:
            continue
        is_limited = any("0 and −inf" in note for note in found.notes) and has_other_numbers(name)
        if is_limited:
            continue
        want, tolerance = (
            as_output(source, canonical(source, name)),
            TOLERANCES.get((source, target, name), 2e-4),
        )
        try:
            got = outcome(target, statements(found.code), layout_of(source), name)
        except Exception as problem:  # each library fails in its own way
            yield f"{name}: {problem!r}\n{found.code}"
            continue
        if got.shape != want.shape:
            yield f"{name}: {got.shape}, not {want.shape}\n{found.code}"
        elif not np.allclose(got, want, rtol=0, atol=tolerance, equal_nan=True):
            yield f"{name}: apart by {np.nanmax(np.abs(got - want))}\n{found.code}"


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_code_gives_the_numbers_of_the_source(source: str, target: str) -> None:
    if missing := RUNTIMES[target].missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'attncli[libraries]'")
    assert not [*failures(source, target)]


# ---- without a library


GOLDEN = {
    (
        "keras-mha",
        "torch-sdpa",
    ): '''\
import torch
import torch.nn.functional as F


def attention(q, k, v, mask, n_heads):
    """As keras-mha. q, k, v: [batch, token, head * d]; mask: [n_q, n_k], True may attend."""
    q, k, v = (x.unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in (q, k, v))
    mask = mask.tril()  # causal
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    # a row with no key: the mean of v, as in keras-mha
    out = torch.where(mask.any(-1, keepdim=True), out, v.mean(2, keepdim=True))
    return out.transpose(1, 2).flatten(2)
''',
    (
        "torch-mha",
        "torch-sdpa",
    ): '''\
import torch
import torch.nn.functional as F


def attention(q, k, v, mask, n_heads):
    """As torch-mha. q, k, v: [batch, token, head * d]; mask: [n_q, n_k], True hides a key."""
    q, k, v = (x.unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in (q, k, v))
    mask = ~mask  # True in torch-mha hides a key
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    # a row with no key: NaN, as in torch-mha
    out = torch.where(mask.any(-1, keepdim=True), out, float("nan"))
    return out.transpose(1, 2).flatten(2)
''',
    (
        "flash-attn",
        "torch-sdpa",
    ): '''\
import torch
import torch.nn.functional as F


def attention(q, k, v):
    """As flash-attn. q, k, v: [batch, token, head, d]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    n_q, n_k = q.shape[2], k.shape[2]
    # the last query is at the last key
    mask = torch.ones(n_q, n_k, dtype=torch.bool, device=q.device).tril(n_k - n_q)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2)
''',
    (
        "torch-sdpa",
        "jax",
    ): '''\
import jax
import jax.numpy as jnp


def attention(q, k, v, mask):
    """As torch-sdpa. q, k, v: [batch, head, token, d]; mask: [n_q, n_k], True may attend."""
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    mask = jnp.tril(mask)  # causal
    out = jax.nn.dot_product_attention(q, k, v, mask=mask[None, None])
    # a row with no key: zeros, as in torch-sdpa
    out = jnp.where(mask.any(-1, keepdims=True)[..., None], out, 0.0)
    return out.swapaxes(1, 2)
''',
    (
        "torch-sdpa",
        "onnx",
    ): '''\
from onnx import helper


def attention(run, q, k, v, mask):
    """As torch-sdpa.

    q, k, v: [batch, head, token, d]
    mask: [n_q, n_k], True may attend
    run: gives the output of a model of this node for these inputs
    """
    node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["out"], is_causal=1)
    return run(node, q=q, k=k, v=v, mask=mask)
''',
}
EVERY_CALL = [
    Call(mask, causal, grouped, d_v)
    for mask in (None, "boolean", "number")
    for causal, grouped, d_v in itertools.product((False, True), repeat=3)
]


@pytest.mark.parametrize(("source", "target"), GOLDEN)
def test_the_code_reads_so(source: str, target: str) -> None:
    assert recipe(source, target).code == GOLDEN[source, target]


@pytest.mark.parametrize("name", TARGETS)
def test_a_library_does_not_part_from_itself(name: str) -> None:
    found = recipe(name, name)
    assert found.differences == ()
    function = ast.parse(found.code).body[-1]
    assert isinstance(function, ast.FunctionDef)
    plain = [
        type(statement) for statement in function.body[1:] if "node" not in ast.unparse(statement)
    ]
    assert set(plain) <= {ast.Return, ast.Assign}
    assert "where" not in found.code


@pytest.mark.parametrize(("source", "target"), [*itertools.product(PRESETS, PRESETS)])
def test_every_difference_is_made_up_for_or_says_why_not(source: str, target: str) -> None:
    found = recipe(source, target)
    assert bool(found.code) == (target not in NO_TARGET or source == target) or found.notes
    for difference in found.differences:
        assert difference.source != difference.target
        lines = difference.write.split("\n")
        assert difference.why or (difference.write and all(line in found.code for line in lines))


@pytest.mark.parametrize(("source", "target"), [*itertools.product(PRESETS, TARGETS)])
def test_the_code_has_what_it_uses_and_nothing_else(source: str, target: str) -> None:
    for call in EVERY_CALL:
        if call.refusal(PRESETS[source]):
            continue
        try:
            code = written(PRESETS[source], PRESETS[target], call).code
        except NoWayError:
            continue
        assert all(len(line) <= LONGEST for line in code.split("\n")), code
        tree = ast.parse(code)
        imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        function = tree.body[-1]
        assert isinstance(function, ast.FunctionDef)
        given_names = {argument.arg for argument in function.args.args}
        local = {
            name.id
            for name in ast.walk(function)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        }
        inner = {
            argument.arg
            for node in ast.walk(function)
            if isinstance(node, ast.Lambda)
            for argument in node.args.args
        }
        used = {
            name.id
            for name in ast.walk(function)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
        }
        assert imported <= used, code
        assert used - imported - given_names - local - inner <= {"bool", "float", "max", "len"}, (
            code
        )
        assert local <= used | {"out"}, code
        assert given_names - {"mask"} <= used, code


# What the targets have no way for: with true and false added, or with values of another width.
NO_WAY = {
    "keras-mha": {"true and false are added"},
    "equinox": {"true and false are added"},
    "torch-mha": {"d_v"},
    "torch-mha-fast": {"d_v"},
}


@pytest.mark.parametrize("target", RUN)
def test_every_call_has_a_way_but_these(target: str) -> None:
    missing = set()
    for source, call in itertools.product(SOURCES, EVERY_CALL):
        if not call.refusal(PRESETS[source]):
            found = recipe(source, target, call)
            is_added = "adds nothing to the scores" in "".join(found.notes)
            missing |= set() if found.code else {"true and false are added" if is_added else "d_v"}
    assert missing == NO_WAY.get(target, set())


def test_flash_attn_has_no_mask() -> None:
    found = recipe("torch-sdpa", "flash-attn", Call("boolean"))
    assert found.code == ""
    assert found.notes[0] == (
        "flash-attn has no way: it has no mask of queries and keys; use torch-sdpa"
    )
    causal = recipe("torch-sdpa", "flash-attn", Call(causal=True))
    assert "as many queries as keys" in causal.notes[0]
    assert "causal=True" in recipe("flash-attn", "flash-attn").code


def test_what_was_not_run_is_said() -> None:
    assert (
        "flash-attn is known from its documents: this was not run"
        in recipe("jax", "flash-attn").notes
    )
    assert not any("not run" in note for note in recipe("jax", "mlx").notes)


def test_unknown_names_and_refused_calls() -> None:
    with pytest.raises(ConventionError, match="no semantics 'torch'"):
        recipe("torch", "jax")
    with pytest.raises(ConventionError, match="flax refuses this call"):
        recipe("flax", "jax", Call(causal=True))
