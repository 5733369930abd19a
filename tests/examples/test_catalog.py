"""The catalogue against the list of what the documents print, typed here by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pydantic
import pytest
from hatchling.builders.wheel import WheelBuilder

from attncli.errors import InputError
from attncli.examples import Result, judge, load_catalog, load_examples
from attncli.examples.printed import VERDICTS
from attncli.examples.schema import Document
from tests.examples.made import CATALOG

EXAMPLES = {example.name: example for example in load_catalog()}
R, A, D, N, _ = VERDICTS
HALF = np.sqrt(0.5)
PRINTED_PLANE = [
    [-2.40062016, 0.00478901], [-2.54245794, -0.37579669], [-2.24764634, -0.12963368],
    [3.02004564, 2.88826688], [4.17067881, -2.38762552],
]  # fmt: skip

# Every number the documents print: example → verdict and what comes out, claim by claim; None
# where it was not worked out by hand, or where a test below speaks of it.
TABLE: dict[str, list[tuple[str, Any] | None]] = {
    "000-length": [(R, 2.4006249368060817), (A, 2.4006249368060817)],
    "000-dot-products": [(N, 5.395124299364358), (N, -10.023649994662344)],
    "000-pca": [None], "000-pca-again": [(A, PRINTED_PLANE)],
    "000-pca-code": [(N, [2]), (N, [0.755136, 0.244864])],
    "000-function-words": [(A, 300 / 7)], "000-layer-norm": [(R, -3 / np.sqrt(4 + 1e-5)), (R, [0, 0]), (R, None)],
    "000-heads": [(R, [64])] * 2, "000-product": [(R, 0.27)], "000-padding": [(R, [0, 0, 0]), (R, [1, 1, 1])],
    "001-money-bank": [(R, [1] * 10), (R, [0] * 45)],
    "001-lifesaver": [(R, [1] * 6), (R, [0] * 15)],
    "001-bank-without-positions": [(R, [1] * 10), (R, [0] * 4), (R, [0] * 4)],
    "001-bank-with-positions": [(R, [0] * 4), (R, None)],
    "002-positions": [(R, [0, 1] * 4), (R, [0.14112, -0.989992, 0.29552, 0.955336, 0.029996, 0.99955, 0.003, 0.999996])],
    "002-concatenated": [(D, [3, 4])],
    # The rows less their means 7/3, 4, 14/3, 3, over √(14/9), √(26/3), √(38/9), √6.
    "002-norm-over-batch": [(D, [-0.617813, 0.254611, 0.363202]), (R, [0, 0, 0, 0])],
    "002-masked-softmax": [(D, [0, 0, 0]), (R, [-np.inf] * 3), (R, [1, 1, 1])],
    "003-analogy": [(R, [0.2, 0.7, 0.9])], "003-cosines": [(A, 0.8801730942), (A, 0.5177825398)],
    "003-shapes": [(R, [128, 16])] * 3 + [(R, [7, 7]), (R, [7, 16])] + [(R, [7, 128])] * 3 + [(R, [[1] * 7])],
    "003-softmax-columns": [(R, [1] * 7), None],
    "004-first-example": [(R, [1, 1, 0]), (R, [HALF, HALF, 0]), (D, [0.401112, 0.401112, 0.197776]), (D, [5.0, 5.0])],
    "004-second-example": [
        (R, [[1, 1, 0], [1, 0, 1], [2, 1, 1]]), (R, [[HALF, HALF, 0], [HALF, 0, HALF], [2 * HALF, HALF, HALF]]),
        (A, [0.401112, 0.401112, 0.197776]), (D, [5.0, 5.0]), None, (N, [[6.016681, 3.983319], [6.276174, 3.723826]]),
    ],
    # 0.99995000042 rounds to 1.0000, though of another angle
    "004-positions": [(R, [0, 1, 0, 1]), (A, [0.841471, 0.540302]), (D, 0.01), (D, 0.0099998), (D, 0.99995), (A, 0.99995)],
    "004-positions-code": [(N, [[np.sin(p), np.cos(p), np.sin(p / 1e4), np.cos(p / 1e4)] for p in range(5)])],
    "004-position-sum": [(R, [0.5, 1.2, 1.141, 0.640])], "004-position-mix": [(D, [0, 1, 0, 1])],
}  # fmt: skip


def result(name: str) -> Result:
    return judge(EXAMPLES[name])


@pytest.mark.parametrize("name", TABLE)
def test_each_claim_comes_out_as_listed(name: str) -> None:
    for judgement, row in zip(result(name).judgements, TABLE[name], strict=True):
        assert judgement.ok
        if row is not None:
            assert judgement.verdict == judgement.claim.verdict == row[0]
            assert row[1] is None or judgement.ours == pytest.approx(np.array(row[1]), rel=1e-9, abs=6e-7)  # fmt: skip


def test_the_whole_catalogue_is_listed_verifies_and_explains_its_differences() -> None:
    assert EXAMPLES.keys() == TABLE.keys()
    assert len(EXAMPLES) == len(load_catalog())
    assert all(name.startswith(e.source.id + "-") for name, e in EXAMPLES.items())
    results = [judge(example) for example in EXAMPLES.values()]
    assert [result.example.name for result in results if result.needs] == ["000-pca"]
    differing = [j.claim for result in results for j in result.judgements if j.verdict == D]
    assert len(differing) == 10
    assert all(claim.why and (claim.alternatives or claim.states) for claim in differing)
    by_path = [e.name for e in load_examples(str(CATALOG / "004.json"))]
    assert by_path == [name for name in EXAMPLES if name.startswith("004")]


def glove_file(folder: Path, last: str) -> str:
    """The printed points, turned into 100 dimensions and moved, as GloVe writes vectors."""
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(100, 2)))[0].T
    rows = (np.array(PRINTED_PLANE) * [1, -1] @ basis + 0.25).tolist()
    words = ["florida", "california", "texas", "politics", last]
    lines = [f"{word} {' '.join(map(repr, row))}\n" for word, row in zip(words, rows, strict=True)]
    (folder / "glove.txt").write_text("".join(lines))
    return str(folder / "glove.txt")


def test_the_pca_needs_a_file_and_agrees_up_to_the_sign_of_each_component(tmp_path: Path) -> None:
    (judgement,) = result("000-pca").judgements
    assert (judgement.verdict, judgement.ours, judgement.ok) == ("needs --glove FILE", None, True)
    assert "glove.6B.100d.txt" in result("000-pca").needs
    (judgement,) = judge(EXAMPLES["000-pca"], glove_file(tmp_path, "truth")).judgements
    assert judgement.verdict == A
    assert judgement.ours == pytest.approx(np.array(PRINTED_PLANE), abs=5e-9)
    with pytest.raises(InputError, match=r"glove.txt has no vector for truth"):
        judge(EXAMPLES["000-pca"], glove_file(tmp_path, "lie"))


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 14),
    reason="pydantic before 2.14 does not write the longest text of a model into its schema",
)
def test_the_schema_is_what_the_model_writes() -> None:
    # if not: write this text to the file
    text = json.dumps(Document.model_json_schema(), indent=2, ensure_ascii=False) + "\n"
    assert CATALOG.with_name("catalog.schema.json").read_text("utf-8") == text


def test_the_wheel_holds_the_data_that_the_package_reads(tmp_path: Path) -> None:
    builder = WheelBuilder(str(CATALOG.parents[2]))
    (path,) = builder.build(directory=str(tmp_path), versions=["standard"])
    shipped = {f"attncli/examples/catalog/{file.name}" for file in CATALOG.glob("*.json")}
    assert len(shipped) == 5
    shipped |= {"attncli/examples/catalog.schema.json"}
    shipped |= {"attncli/files/glove.npz", "attncli/files/glove.md"}
    assert shipped <= {*ZipFile(path).namelist()}
