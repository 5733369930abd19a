"""Layers and stacks: against PyTorch's numbers, by hand, and their stages.

PyTorch's numbers are stored: tests/fixtures/make_torch_fixtures.py made them and can again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import Convention, ConventionError, Projections, ShapeError, multi_head_attention
from attncli.arrays import Array
from attncli.trace import Stage, Trace
from attncli.transformer.layers import LayerPlan
from attncli.transformer.state_dict import weights_from_arrays
from attncli.transformer.weights import Architecture, Weights, random_weights
from tests.transformer.norms import layer_norm

TWO_HEADS = Architecture(n_heads=2)
FOLDER = Path(__file__).parents[1] / "fixtures" / "torch"
RNG = np.random.default_rng(19)


def encode(
    x: Any, weights: Weights, convention: Architecture = TWO_HEADS, *, mask: Any = None
) -> Trace:
    """The trace of an encoder alone."""
    layers = LayerPlan(convention, weights)
    layers.stack(layers.rows("x", x), mask=mask)
    return layers.trace().part("encoder")


def decode(x: Any, memory: Any, weights: Weights, convention: Architecture, *labels: Any) -> Trace:
    """The trace of a decoder that attends to a memory."""
    layers, (of_x, of_memory) = LayerPlan(convention, weights), labels or (None, None)
    layers.stack(layers.rows("x", x, of_x), layers.rows("memory", memory, of_memory))
    return layers.trace().part("decoder")


def result(trace: Trace) -> Array:
    """What a layer or stack gives: the value of its last stage."""
    last = trace.steps[-1]
    return last.value if isinstance(last, Stage) else result(last)


def stacks(n_layers: int = 1) -> dict[str, Any]:
    return random_weights(
        Architecture(kind="encoder-decoder", d_model=10, n_heads=2, d_ff=11, n_layers=n_layers)
    )


def rows(n: int) -> Any:
    return np.random.default_rng(0).normal(size=(n, 10))


def feed_forward(x: Any, convention: Architecture | None = None, **weights: Any) -> Trace:
    """The feed-forward of x alone, with its residual."""
    arrays = {f"ffn.{name}": np.asarray(w, float) for name, w in weights.items()}
    layers = LayerPlan(convention or Architecture(norm="none"), arrays)
    layers.feed_forward("ffn", layers.rows("x", x))
    return layers.trace().part("ffn")


# ---- PyTorch's numbers


def of_torch(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a fixture, and its state dict."""
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        arrays = dict(file)
    assert arrays["torch_version"] == "2.13.0+cpu"
    state = {n.removeprefix("weights/"): x for n, x in arrays.items() if n.startswith("weights/")}
    return arrays, state


def test_multi_head_attention_of_pytorch() -> None:
    for name in ("self_attention", "cross_attention"):
        arrays, state = of_torch(name)
        trace = multi_head_attention(arrays["x"], state, n_heads=2, context=arrays.get("memory"))
        for stage, wanted in (("weights", "attention"), ("projected", "output")):
            np.testing.assert_allclose(trace[stage].value, arrays[wanted], rtol=1e-12, atol=1e-12)


NAMES = """encoder encoder_layer_post encoder_layer_pre encoder_layer_no_bias encoder_layer_masked
    decoder_layer_post decoder_layer_pre transformer_post transformer_pre"""


@pytest.mark.parametrize("name", NAMES.split())
def test_layers_and_stacks_of_pytorch(name: str) -> None:
    arrays, state = of_torch(name)
    block: Any = {"transformer": "encoder-decoder"}.get(kind := name.partition("_")[0], kind)
    weights = weights_from_arrays(state, Architecture(kind=block, d_model=10, n_heads=2))
    assert any(n.endswith("feed_forward.b_1") for n in weights) == (name != "encoder_layer_no_bias")
    norm: Any = "pre" if name.endswith("pre") or name == "encoder" else "post"
    padded, x = arrays.get("padded"), arrays["x"]  # padded are those of the causal fixture
    convention = Architecture(
        n_heads=2, norm=norm, convention=Convention(causal=padded is not None)
    )
    if block == "encoder":
        mask = None if padded is None else ~padded[:, None, None, :]
        ours = result(encode(x, weights, convention, mask=mask))
    else:
        memory = arrays.get("memory")
        memory = result(encode(arrays["source"], weights, convention)) if memory is None else memory
        ours = result(decode(x, memory, weights, convention))
    np.testing.assert_allclose(ours, arrays["output"], rtol=1e-12, atol=1e-12)


# ---- parts by hand


def test_layer_norm_by_hand() -> None:
    # Mean 5, squares of the differences 9 1 1 9, so the variance of the population is 5.
    gain, bias, root = [1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 10.0], np.sqrt(5)
    trace = layer_norm([[2.0, 4.0, 6.0, 8.0]], gain, bias, epsilon=0.0, labels=["bank"])
    np.testing.assert_allclose([*trace["mean"].value, *trace["deviation"].value], [5.0, root])
    expected = [[-3 / root, -2 / root, 3 / root, 12 / root + 10]]
    np.testing.assert_allclose(trace["norm"].value, expected)
    assert trace["mean"].names("query") == trace["norm"].names("query") == ("bank",)
    # Constant rows; variance 1 and ε = 3, so divided by 2; and every axis before the last.
    rows = layer_norm([[3.0, 3.0], [1.0, 3.0]], epsilon=3)["norm"].value
    assert rows.tolist() == [[0.0, 0.0], [-0.5, 0.5]]
    assert np.isnan(layer_norm([[3.0, 3.0]], epsilon=0)["norm"].value).all()
    cube = RNG.normal(size=(3, 5, 7)) * 1e6
    norm = layer_norm(cube, epsilon=0)["norm"].value
    np.testing.assert_allclose([norm.mean(axis=-1), norm.std(axis=-1) - 1], 0, atol=1e-12)


def test_feed_forward_by_hand() -> None:
    # [1, 2] W₁ + b₁ = [1 − 2 + 0, 1 + 2 + 1, −1 + 0 + 0] = [−1, 4, −1] → [0, 4, 0].
    w_1, w_2 = [[1.0, 1, -1], [-1, 1, 0]], [[9.0, 9], [2, -3], [9, 9]]
    trace = feed_forward([[1.0, 2.0]], w_1=w_1, w_2=w_2, b_1=[0.0, 1, 0], b_2=[0.5, 0])
    assert trace["hidden"].value.tolist() == [[0.0, 4.0, 0.0]]
    assert trace["feed_forward"].value.tolist() == [[8.5, -12.0]]
    assert trace["residual"].value.tolist() == [[9.5, -10.0]]
    assert trace["hidden"].axes == ("query", "d_ff")


def test_no_norm_and_no_feed_forward_of_one_head_or_of_grouped_heads() -> None:
    of: Any
    for of in ({"n_heads": 1, "n_kv_heads": 1}, {"n_heads": 6, "n_kv_heads": 3}):
        weights = random_weights(
            Architecture(kind="encoder", d_model=13, d_k=3, d_v=5, d_ff=0, **of)
        )
        w = Projections(**{n[-3:]: x for n, x in weights.items() if n[-3:-1] == "w_"})
        x = RNG.normal(size=(7, 13))
        trace = encode(x, weights, Architecture(norm="none", **of)).part("1")
        # of one head it would be a copy of the output
        assert ("attention.concat" in trace) == (of["n_heads"] > 1)
        assert list(trace)[-1] == "attention.residual"
        expected = x + multi_head_attention(x, w, **of)["projected"].value
        np.testing.assert_allclose(result(trace), expected, rtol=1e-12)


# ---- stages


def test_stages_and_what_they_were_computed_from() -> None:
    attention = "w_q w_k w_v w_o gamma beta q k v scores scaled weights output concat projected"
    feed = "w_1 w_2 b_1 b_2 gamma beta hidden feed_forward"
    norm = " residual mean deviation norm"
    expected = [f"1.attention.{name}" for name in (attention + norm).split()]
    expected += [f"1.feed_forward.{name}" for name in (feed + norm).split()]
    assert list(encode(rows(3), stacks())) == expected
    convention, labels = (
        Architecture(n_heads=2, norm="pre", dropout=0.25),
        (("le", "un", "a"), "abcde"),
    )
    trace = decode(rows(3), rows(5), stacks(), convention, *labels).part("1")
    norm_first = [f"attention.{name}" for name in ("mean", "deviation", "norm", "q", "k")]
    assert list(trace)[6:11] == norm_first
    assert list(trace)[-1] == "feed_forward.residual"
    reads: dict[str, dict[str, str]] = {
        "attention.q": {"x": "norm", "w": "w_q"}, "cross_attention.k": {"x": "memory", "w": "w_k"},
        "attention.residual": {"x": "x", "y": "sublayer_dropped"},
        "cross_attention.mean": {"x": "attention.residual"},
        "feed_forward.hidden": {"x": "norm", "w": "w_1", "b": "b_1"},
    }  # fmt: skip
    assert {name: dict(trace[name].reads) for name in reads} == reads
    formulas = trace["cross_attention.q"].formula, trace["cross_attention.k"].formula
    assert formulas == ("Q = N₂ W_q", "K = C W_k")
    cross = trace["cross_attention.weights"]
    assert cross.axes == ("head", "query", "key")
    assert (cross.names("query"), cross.names("key")) == (labels[0], tuple("abcde"))
    assert trace["feed_forward.hidden"].names("query") == labels[0]


def test_only_what_is_wanted_is_kept() -> None:
    weights = stacks(n_layers=2)
    layers = LayerPlan(TWO_HEADS, weights)
    last = layers.stack(layers.rows("x", rows(3)))
    wanted = {"encoder.1.attention.weights", "encoder.2.attention.w_q", last}
    trace = layers.trace(wanted)
    assert set(trace) == wanted
    np.testing.assert_array_equal(trace[last].value, result(encode(rows(3), weights)))


def test_the_decoder_alone_is_causal_and_windows_stay_out_of_cross_attention() -> None:
    convention = Convention(causal=True, window=(1, 0))
    trace = decode(rows(4), rows(5), stacks(), Architecture(n_heads=2, convention=convention))
    own, cross = (trace[f"1.{name}.weights"].value for name in ("attention", "cross_attention"))
    assert ((own[:, 3] > 0) == [False, False, True, True]).all()
    assert (cross > 0).all()
    assert trace.convention == convention


def test_dropout_is_off_unless_asked_and_differs_by_place() -> None:
    assert not any("dropped" in name for name in encode(rows(7), stacks()))
    convention = Architecture(n_heads=2, dropout=0.5, convention=Convention(dropout=0.25, seed=3))
    trace, again = (encode(rows(7), stacks(n_layers=2), convention) for _ in range(2))
    np.testing.assert_array_equal(result(trace), result(again))
    places = ("1.attention", "1.feed_forward", "2.attention", "2.feed_forward")
    assert len({(trace[f"{p}.sublayer_dropped"].value == 0).tobytes() for p in places}) == 4
    assert len({(trace[f"{n}.attention.dropped"].value == 0).tobytes() for n in (1, 2)}) == 2
    ones, eye = np.ones((97, 101)), np.eye(101)
    fed = feed_forward(ones, Architecture(norm="none", dropout=0.25), w_1=eye, w_2=eye)
    dropped = fed["sublayer_dropped"].value
    assert set(np.unique(dropped)) == {0.0, 1 / 0.75}
    assert abs((dropped == 0).mean() - 0.25) < 0.02


EYE, THREE = np.eye(2), [[1, 2, 3]]
NARROW = {f"encoder.1.attention.w_{name}": np.ones((10, 5)) for name in "qkv"}
NARROW["encoder.1.attention.w_o"] = np.ones((5, 7))
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Architecture(dropout=1), "dropout is 1"),
    (lambda: Architecture(norm="mid"), "norm is 'mid'"),  # type: ignore[arg-type]
    (lambda: Architecture(epsilon=float("nan")), "epsilon is nan"),
    (lambda: encode(rows(3), {}), "no layers"),
    (lambda: encode(rows(3), NARROW, Architecture()), r"projected \(3 × 7\) .* 10 columns"),
    (lambda: encode(np.ones(10), stacks()), "x has the shape 10"),
    (lambda: layer_norm(THREE, gamma=np.ones(2)), r"gamma \(2\) .* x \(1 × 3\)"),
    (lambda: layer_norm(THREE, epsilon=-1), "epsilon is -1"),
    (lambda: layer_norm([1, 2, 3]), "x has the shape 3"),
    (lambda: feed_forward(THREE, w_1=EYE, w_2=EYE), r"x \(1 × 3\) .* 2 × 2"),
    (lambda: feed_forward(np.ones((2, 5)), w_1=np.ones((5, 7)), w_2=np.ones((7, 3))),
     r"feed_forward \(2 × 3\) .* \(2 × 5\)"),
    (lambda: feed_forward(np.ones((2, 5)), w_1=np.ones((5, 7))), r"no ffn\.w_2"),
]  # fmt: skip


def test_what_does_not_fit() -> None:
    for call, words in REFUSED:
        with pytest.raises((ConventionError, ShapeError), match=words):
            call()
