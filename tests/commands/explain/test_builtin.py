"""`builtin`: the GloVe vectors that come with attncli."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import attncli
from attncli.words.vectors import read_vectors
from tests.calls import Call, stages

DATA = Path(attncli.__file__).with_name("words") / "glove.npz"


def test_the_vectors_are_gloves_rounded_to_float16() -> None:
    found = read_vectors("builtin", ["the", "humanitarian"])
    assert (found.words, found.matrix.shape) == (("the",), (1, 100))
    # the first line of glove.6B.100d.txt
    assert_allclose(found.matrix[0, :4], [-0.038194, -0.24487, 0.72812, -0.39961], rtol=2**-11)
    assert_allclose(found.matrix[0, -3:], [-0.1459, 0.8278, 0.27062], rtol=2**-11)
    with np.load(DATA) as arrays:
        assert (arrays["vectors"].dtype, arrays["words"].size) == (np.float16, 2717)
    assert DATA.stat().st_size <= 600_000
    text = DATA.with_suffix(".md").read_text("utf-8")
    assert [word for word in ("Pennington", "Public Domain", "2014") if word not in text] == []


def test_similarity_takes_them_where_no_file_is_named(call: Call) -> None:
    done = call("similarity", "king", "Queen", "man", "woman", "--format", "json")
    cosines = stages(done.json)["cosines"]
    assert abs(cosines[0][1] - 0.7508) < 5e-4  # gensim's glove-wiki-gigaword-100: 0.75076
    assert "float16" in done.err
    for flag in ([], ["--glove", "builtin"], ["--vectors", "builtin"]):
        nearest = call("similarity", *flag, "--analogy", "man", "king", "woman", "--format", "json")
        assert "queen" in nearest.out.partition('"nearest"')[2]
    words = ["florida", "california", "texas", "politics"]
    plane = stages(call("similarity", *words, "--pca", "--format", "json").json)
    first = plane["coordinates"][:, 0]
    assert np.sign(first[:3]).tolist() == [-np.sign(first[3])] * 3  # the states against politics


@pytest.mark.parametrize(
    ("name", "old", "calls"),
    [
        ("--vectors", "--glove", ["explain a", "examples 003-cosines", "similarity a b"]),
        ("--positions", "--exponent", ["posenc --len 2 --dim 4"]),
    ],
)
def test_an_old_name_of_an_option_is_taken(
    call: Call, name: str, old: str, calls: list[str]
) -> None:
    value = "article" if old == "--exponent" else "a=1,2 b=3,5"
    for line in calls:
        new, former = (call(*line.split(), x, value, "--quiet") for x in (name, old))
        assert (new.code, new.out) == (former.code, former.out) == (0, new.out)
        command = line.split()[0]
        short, every = (call(command, "--help", *x).out for x in ([], ["all"]))
        assert (name in short, old in short) == (True, False)
        assert every.count(old) == 1


@pytest.mark.parametrize("flags", ["", "--unknown error"])
def test_explain_takes_them_and_tells_where_there_are_more(call: Call, flags: str) -> None:
    done = call("explain", "She visited the truth", "--vectors", "builtin", *flags.split())
    assert done.code == (2 if flags else 0)
    text = done.err if flags else " ".join(done.out.split())
    assert all(word in text for word in ("'truth'", "glove.6B.zip", "nlp.stanford.edu"))
    trace = attncli.explain("the money bank", vectors="builtin")
    assert trace["embeddings"].value.shape == (3, 100)
