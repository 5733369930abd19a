"""explain in Python: the command's trace for any options, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attncli
from attncli.arrays import Array
from attncli.cli.calls import trace_of
from attncli.convention import Convention
from attncli.errors import ConventionError, InputError, ShapeError
from attncli.files.write import plain_lists

SENTENCES = ("the river bank", "the bank near the bank", "I love AI , I do", "the <pad> bank", "a")
TARGETS = ("la rive", "une banque du fleuve")


class Options:
    """Options of one call: words for the command, keywords for the function."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.words, self.keywords = draw, list[str](), dict[str, Any]()
        self.rng = np.random.default_rng(draw(st.integers(0, 999)))

    def one_of(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def add(self, keyword: str, value: Any, flag: str = "") -> Any:
        """Gives an option to both; None: to none."""
        if value is None:
            return None
        self.keywords[keyword] = value
        self.words.append(flag or f"--{keyword.replace('_', '-')}")
        if isinstance(value, np.ndarray):
            self.words.append(json.dumps(plain_lists(value)))
        elif isinstance(value, dict):
            self.words.append(json.dumps({name: plain_lists(x) for name, x in value.items()}))
        elif isinstance(value, tuple):
            self.words.append(",".join(map(str, value)))
        elif value is not True:
            self.words.append(str(value))
        return value

    def numbers(self, *shape: int) -> Array:
        return self.rng.normal(size=shape).round(2)


def vectors(options: Options, tokens: list[str], *, has_target: bool) -> int:
    """Draws where the vectors are from; gives their width."""
    dim = int(options.one_of(4, 6))
    source = options.one_of("random", "words", *[] if has_target else ["rows"])
    if source == "rows":
        options.add("vectors", options.numbers(len(tokens), dim), "--embeddings")
    elif source == "words":
        some = [word for word in dict.fromkeys(tokens) if word.isalpha()][1:] or ["zebra"]
        rows = [",".join(map(str, options.numbers(dim))) for _ in some]
        text = " ".join(f"{word}={row}" for word, row in zip(some, rows, strict=True))
        options.add("vectors", text, "--vectors")
        options.add("unknown", options.one_of(None, "random", "zero"))
    elif options.add("dim", options.one_of(dim, None)) is None:
        return 8
    return dim


def weights(options: Options, block: str, dim: int) -> dict[str, Array]:
    """Weights of an attention or of an encoder, under several names."""
    if block == "encoder":
        names = [f"encoder.{n}.{leaf}" for n in range(1, options.one_of(2, 3)) for leaf in
                 ("attention.w_q", "attention.w_k", "attention.w_v", "attention.w_o",
                  "feed_forward.w_1", "feed_forward.w_2")]  # fmt: skip
        shapes = {"w_1": (dim, 5), "w_2": (5, dim)}
        return {name: options.numbers(*shapes.get(name[-3:], (dim, dim))) for name in names}
    every = {f"w_{name}": options.numbers(dim, dim) for name in "qkvo"[: options.one_of(3, 4)]}
    form = options.one_of("plain", "heads", "of a layer", "with others")
    if form == "heads" and options.keywords.get("heads") != 1:
        split = {n: x.reshape(dim, 2, -1).transpose(1, 0, 2) for n, x in every.items()}
        return split | {name: every[name] for name in ("w_o",) if name in every}
    if form == "of a layer":
        return {f"blk.0.attn.{name.replace('_', '')}": x for name, x in every.items()}
    return every | ({"linear1.weight": options.numbers(3, dim)} if form == "with others" else {})


def of_block(options: Options, block: str, dim: int) -> None:
    """Draws heads, widths, layers and weights."""
    heads = options.add("heads", options.one_of(None, 1, 2))
    form = options.one_of("drawn", "drawn", "identity", *["given"] * 2 * (block != "decoder"))
    if form == "identity":
        options.add("projection", "identity")
    elif form == "given":
        options.add("weights", weights(options, block, dim))
    else:
        options.add("kv_heads", options.one_of(None, 1) if heads == 2 else None)
        options.add("d_k", options.one_of(None, None, 3))
        options.add("d_v", options.one_of(None, None, 2))
    if block != "attention":
        options.add("layers", options.one_of(None, 1, 2) if form != "given" else 1)
        options.add("d_ff", options.one_of(None, 0, 3) if form != "given" else None)
        norm = options.add("norm", options.one_of(None, "pre", "post", "rms", "none"))
        options.add("eps", options.one_of(None, 1e-3) if norm != "none" else None)


def restrictions(options: Options, block: str, shape: tuple[int, int]) -> None:
    """Draws a mask, and other conventions."""
    kind = "" if block == "decoder" else options.one_of("", "", "truth", "0 and 1", "numbers")
    if kind == "numbers":
        options.add("mask", options.numbers(*shape))
        options.add("mask_numbers", options.one_of(None, "add", "truth"))
    elif kind:
        mask: Array = options.rng.random(shape) > 0.3
        options.add("mask", mask if kind == "truth" else mask.astype(int))
        choices = ("keep", "ignore") if kind == "truth" else ("keep", "ignore", "add")
        options.add("mask_means", options.one_of(*choices))
    options.add("causal", options.one_of(None, True) if block != "decoder" else None)
    for name, value in {
        "window": (1, 0), "scale": 0.5, "softcap": 3.0, "qk_norm": True, "dtype": "float32",
        "dropout": 0.2, "seed": 7, "d_output": options.one_of("ones", "random"),
    }.items():  # fmt: skip
        options.add(name, options.one_of(None, None, None, value))


@st.composite
def calls(draw: Any) -> tuple[str, Options]:
    """A sentence and options that do not contradict each other."""
    options, sentence = Options(draw), draw(st.sampled_from(SENTENCES))
    block, tokens = str(options.one_of("attention", "encoder", "decoder")), sentence.split()
    options.add("block", block)
    targets = {"attention": (None, *TARGETS), "encoder": (None,), "decoder": TARGETS}[block]
    target = options.add("target", options.one_of(*targets))
    dim = vectors(options, tokens, has_target=target is not None)
    padded = options.add("pad_to", options.one_of(None, None, len(tokens) + 2)) or len(tokens)
    n_q = len(target.split()) if target and block == "attention" else padded
    table = options.one_of(None, None, "paper", "article", "none", "Paper", "matrix")
    matrix = options.numbers(padded + 4, dim)
    options.add("positions", matrix if table == "matrix" else table)
    of_block(options, block, dim)
    restrictions(options, block, (n_q, padded))
    return sentence, options


def rendered(trace: attncli.Trace) -> str:
    """The trace as JSON, without its call, which is of a command or of Python."""
    return attncli.render(replace(trace, call=None), "json")


@given(calls())
@settings(max_examples=60)
def test_python_gives_what_the_command_gives(call: tuple[str, Options]) -> None:
    sentence, options = call
    of_command = trace_of(["explain", sentence, *options.words, "--format", "json", "--quiet"])
    written = rendered(of_command)
    for as_typed in ("those of what you typed:", "read from what you typed"):  # a call has no file
        if as_typed[-1] == ":" or np.ndim(options.keywords.get("vectors", "")) == 2:
            written = written.replace(as_typed, "as given" + ":" * (as_typed[-1] == ":"))
    assert rendered(attncli.explain(sentence, **options.keywords)) == written


def test_a_library_is_a_convention_in_both() -> None:
    for name, mask, field in (
        ("torch-mha", "[[true, false, false], [false, true, false], [true, false, true]]", bool),
        ("flax", "[[1, 0, 3], [0, 2, 0], [1, 0, 1]]", int),
        ("jax", "[[0, -1, -2], [0.5, 0, 0], [3, 1, 0]]", float),
    ):
        line = ["explain", "a b c", "--semantics", name, "--mask", mask, "--format", "json"]
        given_mask = np.array(json.loads(mask), dtype=field)
        trace = attncli.explain("a b c", mask=given_mask, convention=Convention.of(name))
        title = f"{trace.title}, as {name} has it"
        expected = rendered(trace).replace(trace.title, title, 1)
        assert rendered(trace_of(line)) == expected


EYES: dict[str, Array] = {f"w_{x}": np.eye(4) for x in "qkvo"}
HALVES: dict[str, Array] = {f"w_{x}": np.ones((2, 4, 2)) for x in "qkv"}


def test_the_weights_say_how_many_heads_and_layers_there_are() -> None:
    trace = attncli.explain("a b", dim=4, weights=HALVES)
    assert trace["attention.weights"].value.shape == (2, 2, 2)
    assert trace.notes == ("The weights are as given: w_q, w_k, w_v.", "2 heads.")
    layer = {f"attention.{name}": x for name, x in EYES.items()}
    layer |= {"feed_forward.w_1": np.ones((4, 3)), "feed_forward.w_2": np.ones((3, 4))}
    two = {f"encoder.{n}.{name}": x for n in (1, 2) for name, x in layer.items()}
    for layers, last in ((None, 2), (2, 2), (1, 1)):
        trace = attncli.explain("a b", dim=4, block="encoder", weights=two, layers=layers)
        assert list(trace)[-4].startswith(f"encoder.{last}.")


def test_rows_of_vectors_have_no_positions_unless_they_are_asked_for() -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert "positions" not in attncli.explain("a b", vectors=rows)
    assert "positions" in attncli.explain("a b", vectors=rows, positions="paper")
    assert "positions" in attncli.explain("a b", vectors={"a": rows[0], "b": rows[1]})


def test_what_became_of_words_without_a_vector_is_a_note() -> None:
    trace = attncli.explain("a b", vectors={"a": [1.0, 2.0]}, unknown="zero")
    assert trace.notes[-1] == "1 word is not in vectors: 'b' is a vector of zeros"
    assert any("float16" in note for note in attncli.explain("bank", vectors="builtin").notes)


WRONG: list[tuple[Any, type[Exception], str]] = [
    ({"block": "encoders"}, ConventionError, "encoders"),
    ({"block": "decoder"}, ConventionError, "needs a target"),
    ({"block": "decoder", "target": "c", "mask": np.eye(2) > 0}, ConventionError, "mask cannot be used"),
    ({"block": "decoder", "target": "c", "causal": True}, ConventionError, "causal cannot be used"),
    ({"block": "encoder", "target": "c"}, ConventionError, "target cannot be used"),
    ({"positions": "learned"}, ConventionError, "learned"),
    ({"projection": "none"}, ConventionError, "projection is 'none'"),
    ({"projection": "identity", "d_k": 3}, ConventionError, "d_k cannot be used"),
    ({"projection": "identity", "weights": EYES}, ConventionError, "weights cannot be used"),
    ({"pad_to": 9, "mask": np.zeros((2, 9)) - 1.5}, ShapeError, "the mask"),
    ({"dim": 0}, ShapeError, "d_model is 0"),
    ({"vectors": {"a": [1.0, 2.0]}, "unknown": "error"}, InputError, "vectors has no vector for 'b'"),
    ({"vectors": {"a": [1.0, 2.0]}, "unknown": "none"}, ConventionError, "unknown is 'none'"),
    ({"vectors": {"a": [1.0, 2.0], "b": [1.0]}}, ShapeError, "the vector of 'b' is 1"),
    ({"vectors": np.ones((3, 4))}, InputError, "3 rows for 2 tokens"),
    ({"vectors": np.ones((1, 4))}, InputError, "1 row for 2 tokens"),
    ({"vectors": np.ones((2, 3, 4))}, InputError, "vectors is 2 × 3 × 4"),
    ({"vectors": np.ones((2, 4)), "target": "c"}, ConventionError, "none for the target"),
    ({"vectors": np.ones((2, 4)), "dim": 3}, ConventionError, "dim is 3, but the vectors have 4"),
    ({"dim": 4, "block": "encoder", "weights": {"w_q": np.eye(4)}}, InputError, "hold no encoder"),
    ({"dim": 3, "weights": EYES}, ShapeError, "4 × 4"),
    ({"dim": 4, "weights": EYES | {"title": np.eye(4)}}, InputError, "no weights called 'title'"),
    ({"dim": 4, "weights": {f"blk.{n}.attn.{name}": np.eye(4) for n in "01" for name in ("wq", "wk", "wv")}},
     InputError, "holds those of 2 attentions: blk.0.attn, blk.1.attn"),
    ({"dim": 4, "weights": HALVES, "heads": 3}, ShapeError, "w_q holds 2 heads, not 3"),
]  # fmt: skip


def test_what_does_not_fit_is_refused() -> None:
    for wrong, error, words in WRONG:
        with pytest.raises(error, match=words):
            attncli.explain(**{"sentence": "a b", **wrong})
