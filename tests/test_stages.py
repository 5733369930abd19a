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
from attncli.attention.attend import attend, attend_heads, prepared
from attncli.attention.layers import Architecture, LayerPlan
from attncli.attention.multi_head import (
    Projections,
    multi_head_attention,
    projected_inputs,
)
from attncli.attention.plan import plan
from attncli.attention.positions import add_positions, alibi, position_dots, sinusoidal
from attncli.attention.rotary import rotary, rotary_table
from attncli.attention.weights import Dimensions, random_weights
from attncli.convention import Convention
from attncli.pipeline.model import Model, explained
from attncli.pipeline.sentence import Sentence, random_vocabulary
from attncli.stages import CONCAT, KINDS, MAPS, OUTPUT, PROJECTED
from attncli.trace import Stage, Trace
from attncli.views.arithmetic_gradients import GRADIENT_RULES
from attncli.views.arithmetic_tables import TABLE_RULES
from attncli.views.matrix import Matrix
from attncli.views.page import places_of
from attncli.views.select import DisplayOptions, blocks_of, is_computed
from attncli.views.work import work_lines
from attncli.words.similarity import analogy, pca, similarity

PACKAGE = Path(attncli.__file__).parent
DECLARED = {"stages.py", "attention/functional.py", "attention/run.py", "attention/plan.py"}
PLANNED = {"attention/attend.py", "attention/layers.py"}
WORDS = {
    "attention/names.py",
    "files/json.py",
    "files/roles.py",
}  # the names of files, in which "weights" are other numbers
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
    if name not in DECLARED | PLANNED | WORDS:
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
        trace = attend(numbers(2, 3, 5), numbers(2, 3, 5), numbers(2, 3, 2), convention=how)
        yield trace.computing(["lse"])
    trace = attend(numbers(2, 3, 2), numbers(2, 5, 2), numbers(2, 5, 7), sinks=[0.5, -1.0])
    yield trace.computing(["lse"])
    four = numbers(2, 2, 3, 5)
    yield attend(20 * four, four, four, kv_len=[2, 3], lse_base="2").computing(["lse"])
    grouped = Convention(head_order="tiled", causal=True)
    yield attend(numbers(4, 3, 2), numbers(2, 5, 2), numbers(2, 5, 3), convention=grouped)
    bias = numbers(3, 5)
    yield attend(numbers(3, 2), numbers(5, 2), numbers(5, 7), mask=bias)
    yield attend(numbers(2, 3, 2), numbers(2, 5, 2), numbers(2, 5, 7), sinks=[0.5, -1.0])
    yield attend(30 * numbers(3, 2), 30 * numbers(17, 2), numbers(17, 2), convention=Convention())
    yield attend_heads(numbers(3, 6), numbers(5, 6), numbers(5, 4), n_heads=2)
    yield attend(numbers(2, 2, 3, 5), numbers(2, 1, 3, 5), numbers(2, 1, 3, 2), kv_len=[2, 3])
    empty = np.array([[True, False], [False, False]])
    for rows in ("zero", "uniform", "nan"):
        how = Convention(empty_rows=rows)
        yield attend(numbers(2, 3), numbers(2, 3), numbers(2, 3), mask=empty, convention=how)


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


def gradients() -> Iterator[Trace]:
    """The way back of every convention, of grouped heads, batches and broadcast biases."""
    finite: dict[str, Any] = {"causal": True, "mask_value": -2.0}
    added: dict[str, Any] = {**finite, "mask_value_rule": "add"}
    biased: dict[str, Any] = {"softcap": 2.0, "softcap_place": "after-bias", "causal": True}
    q, k, v, d = numbers(2, 3, 5), numbers(2, 3, 5), numbers(2, 3, 2), numbers(2, 3, 2)
    for how in (*HOWS, finite, added, biased, {"window": (0, -1), "softmax_over": "queries"}):
        yield attend(q, k, v, d_output=d, **how)
    empty = np.array([[True, False, True], [False, False, False]])
    for rows in ("zero", "uniform", "nan", "unmasked"):
        own: Any = {"empty_rows": rows, "d_output": numbers(2, 7)}
        yield attend(numbers(2, 5), numbers(3, 5), numbers(3, 7), mask=empty, **own)
    bias = numbers(3, 5)
    bias[1, 2:] = -np.inf
    for order, batch in (("blocks", ()), ("tiled", (2,))):
        q, d = numbers(*batch, 4, 3, 2), numbers(*batch, 4, 3, 7)
        k, v = numbers(*batch, 2, 5, 2), numbers(*batch, 2, 5, 7)
        grouped: Any = {"head_order": order, "d_output": d}
        yield attend(q, k, v, sinks=[0.5, -1.0, 2.0, 0.0], mask=bias, **grouped)
        yield attend(q, k, v, causal=True, dropout=0.3, **grouped)
    q, k, v, d = numbers(2, 3, 5, 7), numbers(2, 1, 3, 7), numbers(2, 1, 3, 2), numbers(2, 3, 5, 2)
    shapes: list[tuple[int, ...]] = [
        (3,),
        (1, 3),
        (5, 1),
        (3, 1, 1),
        (2, 1, 1, 3),
        (1, 3, 5, 3),
        (),
    ]
    for shape in shapes:
        bias = numbers(*shape) + 0.25
        yield attend(q, k, v, mask=bias, d_output=d, causal=len(shape) == 2)
    yield attend(numbers(3, 2), numbers(5, 2), numbers(5, 7), sinks=[0.5], d_output=numbers(3, 7))


def gradients_of_weights() -> Iterator[Trace]:
    """The way back to x and the weights: those of `projections`, with and without a batch."""
    for heads, shared, context in ((1, 1, 0), (2, 2, 0), (4, 2, 0), (2, 1, 7)):
        batch = (2,) if heads < 4 else ()
        rows = {"x": numbers(*batch, 3, 5)}
        rows |= {"x_kv": numbers(*batch, context, 5)} if context else {}
        wide = {"q": heads * 2, "k": shared * 2, "v": shared * 3}
        weights = {f"w_{name}": numbers(5, size) for name, size in wide.items()}
        last = {f"b_{name}": numbers(size) for name, size in wide.items()}
        last |= {"w_o": numbers(heads * 3, 11), "b_o": numbers(11)}
        for projections in (Projections(**weights), Projections(**weights | last)):
            many: Any = {"n_heads": heads, "n_kv_heads": shared}
            made = projected_inputs(rows, projections, Convention(), **many)
            shape = (*batch, 3, heads * 3 if projections.w_o is None else 11)
            d_output = numbers(*shape)
            made = made.with_gradient(d_output)
            q, k, v = (made.values[name] for name in "qkv")
            yield made.around(attend(q, k, v, d_output=made.d_output))
            past: Any = {"past_k": k[..., :2, :], "past_v": v[..., :2, :]}
            yield made.around(attend(q, k, v, d_output=made.d_output, **past))
            if not context:
                own: Any = {"d_output": d_output, "causal": True, **many}
                yield multi_head_attention(rows["x"], projections, **own)


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
        asking = Sentence(target) if block == "decoder" or heads == 3 else None
        yield explained(Sentence(words), vocabulary, model, target=asking)
    architecture = Architecture(n_heads=2, dropout=0.3, epsilon=0.5)
    weights = random_weights("encoder", Dimensions(d_model=6, n_heads=2, d_ff=0), n_layers=2)
    bare = {name: w for name, w in weights.items() if not name.endswith(("w_q", "w_k", "gamma"))}
    model = Model(block="encoder", weights=bare, architecture=architecture, positions="article")
    yield explained(Sentence.padded(words, 5), vocabulary, model)
    layers = LayerPlan(Architecture(), random_weights("encoder", Dimensions(d_model=6)))
    batch = numbers(2, 3, 6)
    layers.stack(layers.rows("x", batch))
    x = Stage("x", "X", "", batch, ("batch", "query", "d_model"))
    yield layers.trace(stages={"x": x})


def tables() -> Iterator[Trace]:
    yield position_dots(sinusoidal(3, 5))
    yield sinusoidal(3, 4, exponent="article", start=7)
    yield add_positions(numbers(3, 4), sinusoidal(3, 4))
    yield rotary_table(3, 4, start=2)
    yield rotary(numbers(2, 3, 6), rotary_dim=4)
    yield rotary(numbers(3, 4), layout="interleaved", position_ids=[5, 0, 2])
    yield alibi(5, 3)
    yield alibi(2, 2, 5, causal=False, first_query=3)
    yield similarity(("a", "b"), numbers(2, 3))
    yield similarity(("a", "b"), [[1.0, 2.0, 3.0], [3.0, 6.0, 9.0]])
    yield similarity(("a", "b", "c"), numbers(3, 1))
    yield similarity(("a", "b"), numbers(2, 17))
    yield analogy(("a", "b", "c"), numbers(3, 5))
    yield pca(("a", "b", "c"), numbers(3, 5))


NAMES: dict[str, Any] = {
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "exp": math.exp,
    "max": max,
    "ln": math.log,
    "log2": math.log2,
}
NAMES |= {"sqrt": math.sqrt, "abs": abs, "NaN": math.nan, "inf": math.inf}
NAMES |= {"arccos": lambda x: math.degrees(math.acos(max(-1.0, min(x, 1.0))))}
WITHOUT = {"tokens", "embeddings", "x", "vectors", "components", "shares"}  # given, or not by cells


def computed(form: str) -> float:
    """The value of a form of an equation."""
    text = re.sub(r"… \d+ more: (\S+) …", r"(\1)", form)
    text = re.sub(r"\|(.*?)\|", r"abs(\1)", text)
    text = re.sub(
        r"(ln|log2) (\S+)", r"\1(\2)", text.replace("log₂", "log2").replace("ln (", "ln(")
    )
    text = text.replace("log2 (", "log2(")
    text = text.replace("·", "*").replace("√", "sqrt").replace("²", "**2").replace("^", "**")
    return float(eval(text, {"__builtins__": {}}, NAMES))  # noqa: S307 - our own output


@pytest.mark.parametrize(
    "make",
    [attentions, projections, gradients, gradients_of_weights, sentences, tables],
)
def test_the_operands_of_the_printed_arithmetic_give_the_cell(make: Any) -> None:
    options, seen = DisplayOptions(work=True, full=True, precision=16), set()
    for trace in make():
        for block in blocks_of(trace):
            stages = [stage for stage in block.stages.values() if is_computed(stage)]
            for place in places_of(block, stages, options)[0]:
                matrix, name = Matrix(block, place.stage, place.where, options), place.stage.name
                lines = work_lines(matrix, 10**6)
                is_given = name in WITHOUT or place.stage.formula.endswith(" given")
                assert len(lines) == (0 if is_given else matrix.values.size), name
                seen |= {place.stage.work}
                for line, value in zip(lines, matrix.values.ravel().tolist(), strict=False):
                    check_line(line, value)
    of_weights = {"d_of_weights", "d_of_bias", "d_of_rows"}
    wanted = {
        attentions: {"row products", "products", "softmax", "lse", "mask", "dropout", "merge"},
        sentences: {"copy", "relu", "mean", "deviation", "norm", "row cosine", "wave", "dropout"},
        tables: {*TABLE_RULES} - {"row cosine"},
        gradients: {*GRADIENT_RULES} - of_weights | {"row products", "products", "dropout"},
        gradients_of_weights: {*of_weights, "summed column products", "copy", "merge"},
        projections: {"row products", "products", "softmax", "merge"},
    }
    assert wanted[make] <= seen


def check_line(line: str, value: float) -> None:
    """Every form of numbers in a line gives the number, which is that of the cell."""
    text, _, remark = line.partition("  (")
    _, *forms, result = text.split(" = ")
    assert float(result.rstrip("°")) == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)
    numeric = [form for form in forms if not re.search(r"\[|d_k|c ·", form)]
    for form in numeric:
        assert computed(form) == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), line
    if not numeric:  # a number that is copied, masked, or set to 0 by dropout
        assert forms or remark, line
