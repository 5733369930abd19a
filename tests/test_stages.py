"""The registry: stages are named in one place, steps fit their functions, arithmetic gives its cell."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.attention.attend import attend, prepared
from attncli.attention.layers import Architecture, LayerPlan
from attncli.attention.multi_head import Projections, projected_inputs
from attncli.attention.positions import add_positions, position_dots, sinusoidal
from attncli.attention.run import plan
from attncli.attention.weights import Dimensions, random_weights
from attncli.convention import Convention
from attncli.explain.pipeline import Model, explain
from attncli.explain.sentence import Sentence, random_vocabulary
from attncli.stages import CONCAT, KINDS, MAPS, OUTPUT, PROJECTED
from attncli.trace import Trace
from attncli.views.select import blocks_of
from attncli.views.work import RULES, Entry, equation
from attncli.words.similarity import similarity

PACKAGE = Path(attncli.__file__).parent
DECLARED = {"stages.py", "attention/functional.py", "attention/run.py"}
PLANNED = {"attention/attend.py", "attention/layers.py"}
STAGES = {*MAPS, OUTPUT, CONCAT, PROJECTED, "residual", "hidden", "sublayer_dropped"}


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a module and their lines, docstrings excepted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_a_stage_is_named_in_the_registry_and_in_plans_alone(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    if name not in DECLARED | PLANNED:
        assert [found for found in strings_of(path) if found[1] in STAGES] == []


def test_every_stage_that_has_a_name_of_its_own_is_in_the_registry() -> None:
    assert KINDS.keys() >= STAGES


HOWS: list[dict[str, Any]] = [
    {},
    {"causal": True, "scale": 0.3, "softcap": 2.0, "dropout": 0.25},
    {"causal": True, "softcap": 2.0, "softcap_place": "after-mask", "mask_value": -1e3},
    {"softmax_over": "queries", "window": (2, 0), "scale": "none", "empty_rows": "uniform"},
]


def numbers(*shape: int) -> Any:
    return np.random.default_rng(math.prod(shape)).normal(size=shape).round(3)


@pytest.mark.parametrize("changes", HOWS)
def test_every_step_binds_the_parameters_of_its_function(changes: dict[str, Any]) -> None:
    how = Convention(**changes)
    mask = np.tri(5, 7) - 1
    past = {"past_k": numbers(3, 2, 2), "past_v": numbers(3, 2, 11)}
    given = numbers(3, 5, 2), numbers(3, 5, 2), numbers(3, 5, 11)
    _, sizes = prepared(*given, how, mask=mask, kv_len=[6], **past)
    steps = plan(how, sizes)
    architecture = Architecture(n_heads=2, convention=how, dropout=0.1)
    weights = random_weights("encoder-decoder", Dimensions(d_model=6, n_heads=2))
    layers = LayerPlan(architecture, weights)
    x, y = layers.rows("x", numbers(5, 6)), layers.rows("y", numbers(3, 6))
    layers.stack(y, layers.stack(x))
    for step in [*steps, *layers.steps]:
        inspect.signature(step.compute).bind(**dict.fromkeys(step.reads), **step.params)


# ---- the printed arithmetic, computed again from its text


def attentions() -> Iterator[Trace]:
    for changes in HOWS:
        how = Convention(**changes)
        yield attend(numbers(2, 3, 5), numbers(2, 3, 5), numbers(2, 3, 2), convention=how)
    grouped = Convention(head_order="tiled", causal=True)
    yield attend(numbers(4, 3, 2), numbers(2, 5, 2), numbers(2, 5, 3), convention=grouped)
    bias = numbers(3, 5)
    yield attend(numbers(3, 2), numbers(5, 2), numbers(5, 7), mask=bias)


def projections() -> Iterator[Trace]:
    """x and the weights: one head, two, four that share two, cross-attention, and a cache."""
    how = Convention()
    for heads, shared, context in ((1, 1, 0), (2, 2, 0), (4, 2, 0), (2, 1, 7)):
        rows = {"x": numbers(3, 5)} | ({"x_kv": numbers(context, 5)} if context else {})
        wide = {"q": heads * 2, "k": shared * 2, "v": shared * 3}
        matrices = {f"w_{name}": numbers(5, size) for name, size in wide.items()}
        biases = {f"b_{name}": numbers(size) for name, size in wide.items()}
        last = {"w_o": numbers(heads * 3, 11), "b_o": numbers(11)}
        for weights in (matrices, matrices | biases | last):
            given = Projections(**weights)
            made = projected_inputs(rows, given, how, n_heads=heads, n_kv_heads=shared)
            q, k, v = (made.values[name] for name in "qkv")
            yield made.around(attend(q, k, v, convention=how))
            past: dict[str, Any] = {
                f"past_{name}": x[..., :2, :] for name, x in (("k", k), ("v", v))
            }
            yield made.around(attend(q, k, v, convention=how, **past))


def sentences() -> Iterator[Trace]:
    words, target = ("the", "money", "bank"), ("la", "banque")
    vocabulary = random_vocabulary((*words, *target), 6)
    for block, heads, norm in (
        ("attention", 1, "post"),
        ("attention", 3, "post"),
        ("encoder", 2, "pre"),
        ("encoder", 1, "none"),
        ("decoder", 2, "post"),
    ):
        kind: Any = "encoder-decoder" if block == "decoder" else block
        sizes = Dimensions(d_model=6, n_heads=heads, d_ff=5)
        weights = dict(random_weights(kind, sizes, last_norm=norm == "pre"))
        for name in [*weights]:  # with biases too
            leaf = name.rpartition(".")[2]
            if leaf.startswith("w_"):
                bias = name.removesuffix(leaf) + leaf.replace("w_", "b_")
                weights[bias] = numbers(weights[name].shape[1])
        place: Any = norm
        own: Any = block
        model = Model(
            block=own, weights=weights, architecture=Architecture(n_heads=heads, norm=place)
        )
        asking = Sentence(target, 2) if block == "decoder" or heads == 3 else None
        yield explain(Sentence(words, 3), vocabulary, model, target=asking)


def tables() -> Iterator[Trace]:
    yield position_dots(sinusoidal(3, 5))
    yield sinusoidal(3, 4, exponent="article", start=7)
    yield add_positions(numbers(3, 4), sinusoidal(3, 4))
    yield similarity(("a", "b"), numbers(2, 3))
    yield similarity(("a", "b", "c"), numbers(3, 1))


def entries(trace: Trace) -> Iterator[Entry]:
    """Every cell of every stage of a trace, at every head."""
    for block in blocks_of(trace):
        for stage in block.stages.values():
            if not stage.work or stage.value.ndim == 0:
                continue
            heads = stage.value.shape[0] if stage.axes[0] in ("head", "kv_head") else 1
            for head in range(heads):
                where = {stage.axes[0]: head} if stage.value.ndim > 2 else {}
                rows, columns = block.matrix(stage, where).shape
                for row in range(rows):
                    for column in range(columns):
                        yield Entry(block, stage, where, row, column, 17, 10**9)


NAMES = {"sin": math.sin, "cos": math.cos, "tanh": math.tanh, "exp": math.exp, "max": max}
NAMES |= {"sqrt": math.sqrt, "arccos": lambda x: math.degrees(math.acos(min(x, 1.0)))}


def computed(form: str) -> float:
    """The value of a form of an equation."""
    text = form.replace("·", "*").replace("√", "sqrt").replace("²", "**2").replace("^", "**")
    return float(eval(text, {"__builtins__": {}}, NAMES))  # noqa: S307 - our own output


@pytest.mark.parametrize("make", [attentions, projections, sentences, tables])
def test_the_operands_of_the_printed_arithmetic_give_the_cell(make: Any) -> None:
    seen: set[str] = set()
    for trace in make():
        for entry in entries(trace):
            found = equation(entry)
            assert found is not None, entry.stage.name
            seen.add(entry.stage.work if entry.stage.work in RULES else "template")
            *forms, result = (" ".join(form) for form in found.forms)
            if not forms:  # masked, or set to 0 by dropout
                assert found.remark
                assert result in {"-inf", "0", "-1000", "0.3333333333333333"}, result
                continue
            numeric = [form for form in forms if not re.search(r"\[|d_k|c ·", form)]
            at = re.fullmatch(r".*\[(.*),(.*)\]|.*", found.left)
            assert at is not None
            expected = float(result.rstrip("°"))
            assert numeric, found
            for form in numeric:
                assert computed(form) == pytest.approx(expected, rel=1e-9, abs=1e-12), found
    wanted = {
        attentions: {"row products", "products", "softmax", "mask", "dropout", "template"},
        projections: {"row products", "products", "softmax", "template"},
        sentences: {"row products", "products", "softmax", "relu", "template"},
        tables: {"divisor", "angle", "wave", "pairs", "length", "cosine", "arc", "template"},
    }
    assert wanted[make] <= seen
