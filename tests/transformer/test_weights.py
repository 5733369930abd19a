"""Weights: drawn, read from arrays by the names they are published under, and what does not fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncli import Convention, InputError, ShapeError
from attncli.transformer.names import blocks, parse
from attncli.transformer.published import Published, published
from attncli.transformer.state_dict import canonical, weights_from_arrays
from attncli.transformer.weights import Architecture, glorot_uniform, random_weights

# d_model 7, two heads of 3 and 5, d_ff 11.
SIZES = Architecture(d_model=7, n_heads=2, d_k=3, d_v=5, d_ff=11)
OPEN = Architecture(kind="encoder", d_model=7, n_heads=2)
RNG = np.random.default_rng(59)


# ---- drawn


def test_glorot_uniform_fills_its_range_evenly_and_stays_what_it_is() -> None:
    w, limit = glorot_uniform((101, 149), 0, "w"), np.sqrt(6 / 250)
    assert 0.99 * limit < np.abs(w).max() <= limit
    # Glorot & Bengio (2010), equation 12: the variance is 2 / (n_in + n_out).
    np.testing.assert_allclose(w.var(), 2 / 250, rtol=0.03)
    np.testing.assert_allclose(w.mean(), 0, atol=0.03 * limit)
    # Written down once, so that a change of NumPy's or ours shows: others have these numbers too.
    first = [-0.5455986100242702, -0.32178956016820154, 0.5634356077407258]
    second = [-0.3835976337866287, 0.466581727392354, 0.8758962437998206]
    assert glorot_uniform((2, 3), 0, "encoder.1.w_q").tolist() == [first, second]


def test_every_drawn_matrix_has_numbers_of_its_own_whatever_else_is_drawn() -> None:
    every = random_weights(replace(SIZES, kind="encoder-decoder", n_layers=2, norm="pre"))
    shapes = {name: x.shape for name, x in every.items()}
    assert shapes["encoder.1.attention.w_v"] == (7, 10)
    assert shapes["decoder.2.cross_attention.w_o"] == (10, 7)
    assert shapes["decoder.2.feed_forward.gamma"] == shapes["encoder.beta"] == (7,)
    # Four matrices, four of the feed-forward, four of the norms; the decoder has four and two more.
    assert len(shapes) == 2 * 12 + 2 + 2 * 18 + 2
    matrices = [x.ravel()[:6].tobytes() for name, x in every.items() if ".w_" in name]
    assert len(set(matrices)) == len(matrices) == 2 * (6 + 10)
    fewer, other = (
        random_weights(replace(SIZES, kind="encoder", convention=Convention(seed=seed)))
        for seed in (0, 1)
    )
    assert all((x == every[name]).all() for name, x in fewer.items())
    assert (other["encoder.1.attention.w_q"] != fewer["encoder.1.attention.w_q"]).all()
    attention = random_weights(SIZES)
    np.testing.assert_array_equal(attention["attention.w_v"], every["encoder.1.attention.w_v"])


def test_drawn_weights_are_read_back_by_their_names() -> None:
    kinds: tuple[Any, ...] = ("attention", "encoder", "decoder", "encoder-decoder")
    norms: tuple[tuple[Architecture, Any], ...] = ((SIZES, "post"), (OPEN, "pre"))
    for kind in kinds:
        for sizes, norm in norms:
            before = random_weights(replace(SIZES, kind=kind, n_layers=2, norm=norm))
            after = weights_from_arrays(before, replace(sizes, kind=kind))
            assert list(before) == list(after)
            assert all((after[name] == x).all() for name, x in before.items())


# ---- names

# By leaf and form: names alone, "scope leaf" before a colon, or a head behind an at.
PUBLISHED = {
    "w_q plain": "w_q omega_q q_weight weights.q b:b.w_q 2:2.w_q WQ2@2 W_Q^(3)@3",
    "w_k plain": "WK w_k_1@1",
    "w_v plain": "W_value v_proj attn:attn.head_1.w_v@1",
    "w_o plain": "W^{O} encoder.1.attention:encoder.1.attention.w_o",
    "b_q plain": "bq b.q",
    "b_k plain": "biases.k key.bias",
    "b_o plain": "attention_output/bias",
    "w_kv plain": "kv",
    "b_qkv plain": "in_proj_bias",
    "w_q linear": "q_proj.weight W_query.weight attention:attention.self.query.weight "
    "q_proj.0.weight@0",
    "w_k linear": "k_proj_weight heads.0.key.weight@0",
    "w_o linear": "to_out.0.weight@0 attention:attention.output.dense.weight "
    "blocks.3.attn:blocks.3.attn.proj.weight "
    "model.layers.0.self_attn:model.layers.0.self_attn.o_proj.weight",
    "w_qkv linear": "Wqkv.weight self_attn:self_attn.in_proj_weight",
    "w_q kernel": "mha:mha/query/kernel:0",
    "w_qkv conv1d": "h.0.attn:h.0.attn.c_attn.weight",
    "b_o conv1d": "h.0.attn:h.0.attn.c_proj.bias",
}
NOT_PUBLISHED = """q key query values output o x mask w W_0 w_1 b_1 bias_k bias_v norm.weight
    linear1.weight lm_head.weight wte.weight mlp.c_fc.weight attn.bias attn.masked_bias
    query_key_value.weight key_states past_key q_norm.weight dense.weight kernel w_x gamma_1"""


def test_names_as_they_are_published() -> None:
    for meaning, names in PUBLISHED.items():
        leaf, form = meaning.split()
        for word in names.split():
            text, _, head = word.partition("@")
            scope, _, name = text.partition(":") if text.count(":") else ("", "", text)
            wanted = (scope, leaf, form, int(head) if head else None)
            assert (parse(name) or ())[:4] == wanted, name
    assert [name for name in ("", *NOT_PUBLISHED.split()) if parse(name)] == []


NAMES = """
    attention        w_q                                            attention.w_q
    encoder          W_Q                                            encoder.1.attention.w_q
    decoder          2.w_q                                          decoder.2.attention.w_q
    encoder          decoder.3.cross_attention.b_o                  decoder.3.cross_attention.b_o
    encoder          gamma_2                                        encoder.1.feed_forward.gamma
    decoder          gamma_2                                        decoder.1.cross_attention.gamma
    decoder          decoder.2.gamma_3                              decoder.2.feed_forward.gamma
    encoder          decoder.beta                                   decoder.beta
    encoder          layers.4.norm1.weight                          encoder.5.attention.gamma
    decoder          decoder.layers.0.multihead_attn.out_proj.bias  decoder.1.cross_attention.b_o
    decoder          norm.weight                                    decoder.gamma
    encoder-decoder  encoder.norm.bias                              encoder.beta
"""
UNKNOWN = """w_x encoder.0.w_q layers.-1.w_q attention.w_1 self_attn.norm1.weight w_q.wait bias_k
    encoder.1.gamma feed_forward.w_q encoder.1.2.w_q gamma_3 gamma_4"""


def test_where_in_a_block_an_array_belongs() -> None:
    for line in NAMES.strip().splitlines():
        block, name, ours = line.split()
        assert list(canonical({name: np.ones(3)}, block)) == [ours]  # type: ignore[arg-type]
    for name in ("", *UNKNOWN.split()):
        with pytest.raises(InputError, match=f"no weights called {name!r}"):
            canonical({name: np.ones(3)}, "encoder")
    names = [f"H.{layer}.Attn.{own}.weight" for layer in (0, 1) for own in ("c_attn", "c_proj")]
    of_layers = {"H.0.Attn": names[:2], "H.1.Attn": names[2:]}
    assert blocks([*names, "H.0.MLP.c_proj.weight"]) == of_layers


# ---- which way round


def transposed(result: Published) -> set[str]:
    return {leaf for leaf, own in result.parameters.items() if own.is_transposed}


def test_q_k_and_v_or_the_heads_on_a_first_axis() -> None:
    w = RNG.normal(size=(3, 5, 7))
    result = published({"qkv": w}, [(2, 5)])
    assert all((result.arrays[f"w_{name}"] == x).all() for name, x in zip("qkv", w, strict=True))
    heads = {"w_q": np.ones((4, 5, 3)), "w_k": np.ones((2, 5, 3)), "w_v": np.ones((2, 5, 3))}
    result = published(heads, [(2, 5)])
    assert (result.n_heads, result.n_kv_heads) == (4, 2)
    assert result.notes == ("4 heads, 2 heads of K and V",)


def test_matrices_of_one_form_are_turned_together() -> None:
    # W_q is square and tells nothing; W_k and W_v fit as [out, in] alone
    w = {"w_q": RNG.normal(size=(5, 5)), "w_k": RNG.normal(size=(7, 5)), "w_v": np.ones((3, 5))}
    result = published(w, [(2, 5)])
    np.testing.assert_array_equal(result.arrays["w_q"], w["w_q"].T)
    assert transposed(result) == {"w_q", "w_k", "w_v"}
    named = {"q_proj.weight": w["w_q"], "w_k": w["w_k"].T, "w_v": w["w_v"].T}
    assert transposed(published(named, [(2, 5)])) == {"w_q"}
    three = {"w_q": np.ones((5, 11)), "w_k": np.ones((7, 11)), "w_v": np.ones((13, 3))}
    result = published(three, [(2, 5), (17, 7), (17, 13)])
    shapes = {name: x.shape for name, x in result.arrays.items()}
    assert shapes == {"w_q": (5, 11), "w_k": (7, 11), "w_v": (13, 3)}


PLAIN = {f"w_{name}": np.ones((5, 7)) for name in "qkv"}
UNFIT: list[tuple[dict[str, Any], Any, str]] = [
    ({"in_proj_weight": np.ones((7, 7))}, [(2, 7)], "in_proj_weight .* three"),
    ({"w_q": np.ones((4, 5, 3)), "w_k": np.ones((2, 5, 3)), "w_v": np.ones((4, 5, 3))},
     [(2, 5)], "w_k holds 2 heads, w_v 4"),
    (PLAIN | {"w_q_1": np.ones((5, 3))}, [(2, 5)], "w_q and w_q_1 both"),
    (PLAIN | {"b_o": np.ones(7)}, [(2, 5)], r"b_o \(7\) has no w_o"),
    (PLAIN | {"b_k": np.ones(5)}, [(2, 5)], r"b_k \(5\) does not fit .* 7"),
    (PLAIN | {"w_k": np.ones((11, 7))}, [(2, 5), (17, 5), (17, 5)], r"w_k \(11 × 7\) .* 5"),
]  # fmt: skip


def test_matrices_that_do_not_fit_each_other() -> None:
    for arrays, inputs, words in UNFIT:
        with pytest.raises((InputError, ShapeError), match=words):
            published(arrays, inputs)


# ---- read


def encoder_arrays(prefix: str = "") -> dict[str, Any]:
    shapes = {"w_q": (7, 6), "w_k": (7, 6), "w_v": (7, 10), "w_o": (10, 7)}
    shapes |= {"w_1": (7, 11), "w_2": (11, 7)}
    return {prefix + name: np.full(shape, 0.5) for name, shape in shapes.items()}


def test_what_may_be_missing_and_what_is_passed_over() -> None:
    arrays = encoder_arrays() | {"b_1": np.ones(11), "gamma_2": np.full(7, 2.0)}
    weights = weights_from_arrays(arrays, OPEN)
    arrays["w_q"][:] = 9
    assert (weights["encoder.1.attention.w_q"] == 0.5).all()  # copies
    assert len(weights) == 6 + 2
    arrays = encoder_arrays("encoder.1.") | encoder_arrays("encoder.2.")
    attention = weights_from_arrays(arrays, replace(OPEN, kind="attention"))
    assert set(attention) == {f"attention.{name}" for name in ("w_q", "w_k", "w_v", "w_o")}
    assert len(weights_from_arrays(arrays, OPEN)) == 12
    assert len(weights_from_arrays(arrays, replace(OPEN, n_layers=1))) == 6
    no_w_1 = {name: x for name, x in encoder_arrays().items() if name != "w_1"}
    none = Architecture(kind="encoder", d_model=7, n_heads=2, d_ff=0)
    assert len(weights_from_arrays(no_w_1, none)) == 4


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"w_2": np.ones((7, 11))}, "w_2 is 7 × 11, expected 11 × 7 .*transposed"),
    ({"w_k": np.ones((7, 5))}, "w_k is 7 × 5, expected 7 × 6"),
    ({"w_q": np.ones((7, 5))}, r"h·d_k = 5, .* 2 heads"),
    ({"w_q": np.ones(6)}, "w_q is 6, expected 7 × any"),
    ({"gamma_1": np.ones(3)}, r"gamma_1 .*encoder\.1\.attention\.gamma.* is 3, expected 7"),
    ({"b_2": np.ones(())}, "b_2 is one number, expected 7"),
    ({"linear1.weight": np.ones((7, 11)), "w_1": None},
     "feed_forward.w_1.* is 7 × 11, expected any × 7 .*transposed"),
    ({"w_q": [[1], [2, 3]]}, "w_q is ragged"),
    ({"w_q": [["a"]]}, "w_q holds"),
    ({"w_1": None}, r"no encoder\.1\.feed_forward\.w_1 .*d_ff 0"),
    ({"encoder.999999.b_1": np.ones(11)}, r"no encoder\.2\.attention\.w_q"),
    ({"q_proj_weight": np.ones((6, 7))}, r"w_q and q_proj_weight both mean encoder\.1"),
    ({"block": "encoder-decoder"}, "could belong to the encoder or to the decoder"),
    ({**dict.fromkeys(encoder_arrays()), **encoder_arrays("encoder.1."), "block": "encoder-decoder"},
     r"no decoder\.1\.attention\.w_q .*encoder\.1"),
    (dict.fromkeys(encoder_arrays()), r"no encoder\.1\.attention\.w_q .*nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_arrays_that_do_not_fit(changes: dict[str, Any], words: str) -> None:
    arrays = {name: x for name, x in (encoder_arrays() | changes).items() if x is not None}
    block: Any = arrays.pop("block", "encoder")
    with pytest.raises((InputError, ShapeError), match=words):
        weights_from_arrays(arrays, replace(OPEN, kind=block))


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ShapeError, match="d_ff is -1"):
        Architecture(d_model=7, d_ff=-1)
    with pytest.raises(ShapeError, match=r"7 .* 2 heads"):
        random_weights(OPEN)
