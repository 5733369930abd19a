"""Moving code between libraries: the code is run, and gives the numbers of the source."""

import ast
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from attncli import Convention, ConventionError, attend
from attncli.arrays import Array
from attncli.commands.semantics.dialects import NO_TARGET, TARGETS
from attncli.commands.semantics.port_code import LONGEST
from attncli.commands.semantics.port_code import Call as Kinds
from attncli.commands.semantics.porting import recipe
from attncli.presets import PRESETS
from tests.commands.semantics import calls
from tests.commands.semantics.calls import EMPTY, Call, call, lowered
from tests.commands.semantics.libraries import LIBRARIES, Sizes, as_laid_out

UPPER = np.array([[1, 0, 1, 1], [1, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 0]], dtype=bool)
SQUARE = np.array([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]], dtype=bool)
BIAS = (np.arange(15, dtype=np.float32).reshape(3, 5) % 7 - 3) / 4
CALLS = calls.CALLS | {
    "mask of numbers": call(mask=BIAS),
    "mask and causal": call(4, 4, mask=SQUARE, causal=True),
    "inverted mask and causal": call(4, 4, mask=~SQUARE, causal=True),
    "0/-inf mask and causal": call(4, 4, mask=lowered(UPPER), causal=True),
    "0/-inf mask and causal, empty row": call(4, 4, mask=lowered(SQUARE), causal=True),
    "6 heads on 3, causal 5x3": call(5, 3, heads=(6, 3), causal=True),
    "6 heads on 3, empty row": call(mask=EMPTY, heads=(6, 3)),
    "6 heads on 3, causal 5x5": call(5, 5, heads=(6, 3), causal=True),
    "d_v 5, causal": call(4, 4, d_v=5, causal=True),
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
OTHER_NUMBERS = {"0/1 mask", "mask of numbers"}
"""Calls whose mask holds numbers besides 0 and −inf."""
HEADLESS = {"keras-attention"}
TRANSFORMERS = {"transformers-eager", "transformers-sdpa"}


def kinds_of(given: Call) -> Kinds:
    """What the call has, in the words of the recipe."""
    kind: Any = None if given.mask is None else "boolean" if given.mask.dtype == bool else "number"
    sizes = Sizes.of(given.q, given.k, given.v)
    return Kinds(kind, given.causal, sizes.grouped, sizes.d_v != sizes.d_k)


@cache
def outcome(target: str, code: str, layout: str, name: str) -> Array:
    """What the code gives; sources of one layout share what is the same for them."""
    given = CALLS[name]
    arrays = {key: as_laid_out(layout, getattr(given, key)) for key in "qkv"}
    arrays |= {} if given.mask is None else {"mask": given.mask}
    sizes = Sizes.of(given.q, given.k, given.v)
    sizes = sizes._replace(heads=1, kv_heads=1) if layout == "one head" else sizes
    return LIBRARIES[target].run_code(code, arrays, sizes)


def canonical(source: str, name: str) -> Array:
    """The source's numbers, as its convention has them: [batch, head, token, d]."""
    given, convention = CALLS[name], Convention.of(source)
    if convention.mask_value_rule == "add":  # but what causal hides stays hidden, which is no field
        convention = replace(
            convention, mask_value=-math.inf, mask_value_rule="replace", empty_rows="unmasked"
        )
    convention = replace(convention, causal=given.causal or convention.causal)
    q, k, v = (x[:, :1] if source in HEADLESS else x for x in given[:3])
    return attend(q, k, v, mask=given.mask, convention=convention)["output"].value


def is_close(x: Array, y: Array, tolerance: float) -> bool:
    return x.shape == y.shape and np.allclose(x, y, rtol=0, atol=tolerance, equal_nan=True)


@cache
def as_default(source: str, name: str) -> bool:
    """Whether the call gives the numbers that it gives in torch-sdpa."""
    if source == "torch-sdpa" or source in HEADLESS:
        return False
    return is_close(canonical(source, name), canonical("torch-sdpa", name), 1e-9)


def bare(code: str) -> str:
    """The code without comments and docstring, so that the same code is run once."""
    tree = ast.parse(code)
    function: Any = tree.body[-1]
    function.body = function.body[1:]
    return ast.unparse(tree)


def failures(source: str, target: str) -> Iterator[str]:
    """Calls whose code gives other numbers than the source."""
    for name, given in CALLS.items():
        row, is_square = PRESETS[source], given.q.shape[2] == given.k.shape[2]
        is_taken = not kinds_of(given).refusal(row) and (is_square or not row.refusal(["lengths"]))
        if not is_taken or (source, name) in NOT_SAID:
            continue
        if target in SLOW and name not in ALWAYS and as_default(source, name):
            continue
        move = recipe(source, target, kinds_of(given))
        is_other = name in OTHER_NUMBERS and any("0 and −inf" in note for note in move.notes)
        if is_other or not move.code:
            continue
        layout = "one head" if source in HEADLESS else PRESETS[source].layout
        returned = "bshd" if source in TRANSFORMERS else layout
        wanted = as_laid_out(returned, canonical(source, name))
        tolerance = TOLERANCES.get((source, target, name), 2e-4)
        try:
            output = outcome(target, bare(move.code), layout, name)
        except Exception as problem:  # each library fails in its own way
            yield f"{name}: {problem!r}\n{move.code}"
            continue
        if not is_close(output, wanted, tolerance):
            yield f"{name}: {output}, not {wanted}\n{move.code}"


@pytest.mark.parametrize("target", RUN)
def test_the_code_gives_the_numbers_of_the_source(target: str) -> None:
    if missing := LIBRARIES[target].missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'attncli[libraries]'")
    sources = {target, *CONVENTIONS.values()} if target in SLOW else SOURCES
    wrong = {source: [*failures(source, target)] for source in sources}
    assert {source: calls for source, calls in wrong.items() if calls} == {}


# ---- without a library


FLAG: Any = False, True
MASKS: Any = None, "boolean", "number"
EVERY_CALL = [Kinds(*kinds) for kinds in itertools.product(MASKS, FLAG, FLAG, FLAG)]


def test_the_code_of_a_library_that_is_not_run() -> None:
    assert ".tril(n_k - n_q)" in recipe("flash-attn", "torch-sdpa").code
    assert "causal=True" in recipe("flash-attn", "flash-attn").code
    assert any("not run" in note for note in recipe("jax", "flash-attn").notes)
    assert not any("not run" in note for note in recipe("jax", "mlx").notes)


@pytest.mark.parametrize("target", PRESETS)
def test_every_difference_is_made_up_for_or_says_why_not(target: str) -> None:
    for source in PRESETS:
        move = recipe(source, target)
        assert bool(move.code) == (target not in NO_TARGET or source == target) or move.notes
        for difference in move.differences:
            assert difference.source != difference.target
            lines = difference.write.split("\n")
            is_written = difference.write and all(line in move.code for line in lines)
            assert difference.why or is_written, (source, difference)
        if source == target:
            assert (move.differences, "where" in move.code) == ((), False)


def names_of(tree: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, kind)}


@pytest.mark.parametrize("target", TARGETS)
def test_the_code_has_what_it_uses_and_nothing_else(target: str) -> None:
    for source, kinds in itertools.product(PRESETS, EVERY_CALL):
        code = "" if kinds.refusal(PRESETS[source]) else recipe(source, target, kinds).code
        if not code:
            continue
        assert all(len(line) <= LONGEST for line in code.split("\n")), code
        tree = ast.parse(code)
        function: Any = tree.body[-1]
        used, local = names_of(function, ast.Load), names_of(function, ast.Store)
        aliases = [node for node in ast.walk(tree) if isinstance(node, ast.alias)]
        imported = {alias.asname or alias.name.partition(".")[0] for alias in aliases}
        arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        assert imported <= used, code
        assert used - imported - local - arguments <= {"bool", "float", "max", "len"}, code
        assert local <= used | {"out"}, code
        assert {argument.arg for argument in function.args.args} - {"mask"} <= used, code


# What the targets have no way for: with true and false added, or with values of another width.
NO_WAY = {"keras-mha": {"added"}, "equinox": {"added"}}
NO_WAY |= {"torch-mha": {"d_v"}, "torch-mha-fast": {"d_v"}}


@pytest.mark.parametrize("target", RUN)
def test_every_call_has_a_way_but_these(target: str) -> None:
    missing = set()
    for source, kinds in itertools.product(SOURCES, EVERY_CALL):
        if not kinds.refusal(PRESETS[source]):
            move = recipe(source, target, kinds)
            is_added = "adds nothing to the scores" in "".join(move.notes)
            missing |= set() if move.code else {"added" if is_added else "d_v"}
    assert missing == NO_WAY.get(target, set())


def test_what_cannot_be_moved_is_said() -> None:
    masked = recipe("torch-sdpa", "flash-attn", Kinds("boolean"))
    assert (masked.code, "no equivalent" in masked.notes[0]) == ("", True)
    causal = recipe("torch-sdpa", "flash-attn", Kinds(causal=True))
    assert "as many queries as keys" in causal.notes[0]
    with pytest.raises(ConventionError, match="torch"):
        recipe("torch", "jax")
    with pytest.raises(ConventionError, match="flax refuses"):
        recipe("flax", "jax", Kinds(causal=True))
