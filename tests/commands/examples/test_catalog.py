"""The catalogue against the list of what the articles print, typed here by hand."""

import math
import shlex
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder

from attncli.cli.registry import COMMANDS
from attncli.commands.examples.judge import Result, judge, numbers_of, stage_of
from attncli.commands.examples.page import rows
from attncli.commands.examples.printed import VERDICTS
from attncli.commands.examples.runs import Run
from attncli.commands.examples.schema import load_catalog, load_examples
from attncli.commands.examples.titles import titles
from attncli.errors import InputError
from attncli.files.load import read_source
from tests.calls import SAMPLES, Call
from tests.commands.examples.made import CATALOG

EXAMPLES = {example.name: example for example in load_catalog()}
R, A, D, N, SAME, _ = VERDICTS
HALF = np.sqrt(0.5)
PRINTED_PLANE = [
    [-2.40062016, 0.00478901], [-2.54245794, -0.37579669], [-2.24764634, -0.12963368],
    [3.02004564, 2.88826688], [4.17067881, -2.38762552],
]  # fmt: skip


def share(at: int, *scores: float) -> float:
    """One of the weights of these scores."""
    return math.exp(scores[at]) / math.fsum(map(math.exp, scores))


# Every number the articles print: example → verdict and what comes out, claim by claim; None
# where it was not worked out by hand, or where a test below speaks of it. For those with made-up
# numbers what NumPy and a pencil give.
TABLE: dict[str, list[tuple[str, Any] | None]] = {
    "000-length": [(R, 2.4006249368060817), (A, 2.4006249368060817)],
    "000-dot-products": [(N, 5.395124299364358), (N, -10.023649994662344)],
    "000-pca": [
        (A, PRINTED_PLANE), (N, [2]), (N, [0.755136, 0.244864]), (R, [0.9889585, 0.9982241]),
        (R, [[-7.2361505, -10.02365], [-8.7637401, -9.7065137], [-7.1624112, -9.0646943]]),
    ],
    "000-function-words": [(A, 300 / 7)], "000-layer-norm": [(R, -3 / np.sqrt(4 + 1e-5)), (R, [0, 0]), (R, None)],
    "000-heads": [(R, [64])] * 2, "000-product": [(R, 0.27), (R, 0.3**20), (R, 1.5**100)], "000-padding": [(R, [0, 0, 0]), (R, [1, 1, 1])],
    "000-dot-formula": [(R, 24), (R, [5, 5]), (R, 0.96), (R, 0)],
    "000-exploding": [None] * 3,
    "000-shortened-sentence": [(R, [0.0019661, 0.0019661, 0.0027899, 0.0027899]), None, (R, 0.9999999)],
    "000-values": [(D, 2), (R, 4)],
    "000-softmax-gaps": [*[(R, [[0.04201, 0.114195, 0.843795]])] * 2, (R, [1]), (R, 0.843795)],
    "000-rotation": [(R, np.cos(np.pi / 6)), (R, -0.5), (R, (np.sqrt(3) + 1) / 2), (R, 0)],
    "000-dropout": [(R, 0), (R, [0.5] * 3), (R, 3.5)], "000-skip": [(R, [4.5, 4.5]), (R, 5.5), (R, 9.5)],
    "001-money-bank": [(R, [1] * 10), (R, [0] * 45)],
    # scores: 8 where the head looks, less the distance
    "001-lifesaver": [
        (R, share(1, 0, 7, -2, -3, -4, 3)), (R, share(5, -4, 5, -2, -1, 0, 7)),
        (R, share(5, -1, 0, -1, -2, -3, 4)), (R, share(5, -1, 0, -1, -2, -3, -4)),
    ],
    "001-bank-without-positions": [(R, [1] * 10), (R, [0] * 4), (R, [0] * 4)],
    "001-bank-with-positions": [(R, [0] * 4), (R, None)],
    "001-bank-in-context": [(R, [0.9376195]), (R, [0.9820837]), (R, 1), (R, 0.0564538)],
    # σ (1 − σ) of 1 and of 30
    "001-softmax-gradients": [(D, -0.1966119), (R, 0.1966119), (R, [0, 0])],
    "001-masked-heads": [(R, [-np.inf] * 30), (R, [0] * 30), None, (R, [6, 4]), (R, [6, 8]), (R, [6, 8])],
    "001-cross-attention": [(R, [3, 5]), (R, [1] * 3), (R, [3, 4])],
    "002-positions": [(R, [0, 1] * 4), (R, [0.14112, -0.989992, 0.29552, 0.955336, 0.029996, 0.99955, 0.003, 0.999996])],
    "002-concatenated": [(D, [3, 4])],
    "002-self-attention": [(R, [2, 1]), (R, [1] * 5), (R, [5, 2])],
    "002-feed-forward": [(R, [0, 3, 2]), (R, [3, 4])],
    # The rows less their means 7/3, 4, 14/3, 3, over √(14/9), √(26/3), √(38/9), √6.
    "002-norm-over-batch": [(D, [-0.617813, 0.254611, 0.363202]), (R, [0, 0, 0, 0])],
    "002-masked-softmax": [(D, [0, 0, 0]), (R, [-np.inf] * 3), (R, [1, 1, 1])],
    "002-saturation": [(D, [[0.9996645, 0.0003354, 1e-7]]), (R, 0.9996645), (R, [1])],
    "003-analogy": [(R, [0.2, 0.7, 0.9]), (R, [-0.7, 0, 0])], "003-cosines": [(A, 0.8801730942), (A, 0.5177825398)],
    "003-shapes": [(R, [128, 16])] * 3 + [(R, [7, 7]), (R, [7, 16])] + [(R, [7, 128])] * 3 + [(R, [[1] * 7])],
    "003-softmax-columns": [(R, [1] * 7), None],
    "003-yogurt": [
        (R, 2), (R, [3, 3]), (R, [6 * HALF] * 2), (R, [0, 0, 0.6 * HALF, 0, 0]), (R, [0.480898] * 2),
        (R, [1, 1]), (N, [0.962853, 0.007601]), (N, [0, 0.962853, 0, 0.007601]),
        (N, [1, 0.962853, 0, 0.007601]), (R, 0), (R, 0.672691), (R, 0.371391), (R, 0.875681),
    ],
    "003-weighted-values": [(N, [0.962853, 0.007601]), (R, 0.962853), (R, [1])],
    "003-code-numbers": [None, (R, [1] * 7), (D, [[0] * 16] * 6)],
    # each query is 6, the keys are the vectors' own numbers
    "003-heads": [
        (R, [share(4, 0, 0, 0.6, 0, 6, 6, 0)] * 2),
        (R, [share(0, 6, 0.6, 0, 0, 0, 0, 0)] * 2), (R, [1 / 7] * 7),
    ],
    "004-first-example": [(R, [1, 1, 0]), (R, [HALF, HALF, 0]), (D, [0.401112, 0.401112, 0.197776]), (D, [5.0, 5.0])],
    "004-second-example": [
        (R, [[1, 1, 0], [1, 0, 1], [2, 1, 1]]), (R, [[HALF, HALF, 0], [HALF, 0, HALF], [2 * HALF, HALF, HALF]]),
        (A, [0.401112, 0.401112, 0.197776]), (D, [5.0, 5.0]), None, (N, [[6.016681, 3.983319], [6.276174, 3.723826]]),
    ],
    # 0.99995000042 rounds to 1.0000, though of another angle
    "004-positions": [(R, [0, 1, 0, 1]), (A, [0.841471, 0.540302]), (D, 0.01), (D, 0.0099998), (D, 0.99995), (A, 0.99995)],
    "004-positions-code": [(N, [[np.sin(p), np.cos(p), np.sin(p / 1e4), np.cos(p / 1e4)] for p in range(5)])],
    "004-position-sum": [(R, [0.5, 1.2, 1.141, 0.640])], "004-position-mix": [(D, [0, 1, 0, 1])],
    "004-her": [(R, [0.987758])],
    "004-order-without-positions": [(R, [[0] * 4] * 3)],
    "004-order-with-positions": [
        (R, [-0.34959, 0.5319, -0.065973, 0.214577]), (R, [0.178083, -0.119456, -0.112943, -0.163271]),
    ],
    "004-nearness": [(R, 4), (R, 3.535256), (R, 0), (R, [2.563718, 1.96489, 2.266609])],
    "004-longer-sequences": [(R, [0.0357488, -0.9993608, 0.8268795, 0.5623791])],
    "why-scale": [None] * 8,
}  # fmt: skip


def result(name: str) -> Result:
    return judge(EXAMPLES[name])


@pytest.mark.parametrize("name", TABLE)
def test_each_claim_comes_out_as_listed(name: str) -> None:
    for judgement, row in zip(result(name).judgements, TABLE[name], strict=True):
        assert judgement.ok
        if row is not None:
            is_ours = judgement.claim.basis == "shown here" and row[0] == R
            assert judgement.verdict == judgement.claim.verdict == (SAME if is_ours else row[0])
            assert row[1] is None or judgement.ours == pytest.approx(np.array(row[1]), rel=1e-9, abs=6e-7)  # fmt: skip


def test_the_whole_catalogue_is_listed_verifies_and_explains_its_differences() -> None:
    assert EXAMPLES.keys() == TABLE.keys()
    assert len(EXAMPLES) == len(load_catalog())
    own = {name for name, e in EXAMPLES.items() if not name.startswith(e.article.id + "-")}
    assert own == {"why-scale"}
    results = [judge(example) for example in EXAMPLES.values()]
    assert [result.example.name for result in results if result.needs] == []
    assert [result.example.name for result in results if result.adds] == ["000-pca"]
    differing = [j.claim for result in results for j in result.judgements if j.verdict == D]
    assert len(differing) == 15
    assert all(claim.why and (claim.alternatives or claim.states) for claim in differing)
    by_path = [e.name for e in load_examples(str(CATALOG / "004.json"))]
    assert by_path == [title.name for title in titles() if title.article.id == "004"]


def test_random_queries_and_keys_have_dot_products_of_deviation_root_d_k() -> None:
    judged: Any = result("why-scale")
    without, scaled = (judged.trace[f"{word}_scale"].value for word in ("without", "with"))
    names = judged.trace["with_scale"].labels["value"]
    deviations = np.sqrt([int(name.removeprefix("d_k ")) for name in names])
    assert without[:, 0] == pytest.approx(deviations, rel=0.05)  # 1 / √(2 · 1024 · 8) is 0.8 %
    assert scaled[:, 0] == pytest.approx(1, rel=0.05)
    gradients, largest = without[:, -1], without[:, 1]
    assert (np.diff(gradients[1:]) < 0).all()  # from d_k 2 on
    assert (np.diff(largest) > 0).all()
    code: Any = result("003-code-numbers").judgements[0]  # 128 · 1/2 · 1/2 is 32
    assert code.ours.mean() == pytest.approx(16 * 32 * 32 / 4, rel=0.1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_command_that_is_shown_gives_the_numbers(name: str, call: Call) -> None:
    """Typed into a shell, in this process: its words, and what is echoed into it."""
    judged = result(name)
    for row, judgement in zip(rows(judged), judged.judgements, strict=True):
        words, text = typed(row.run)
        assert call(*words, "--output", "t.json", "--force", "--quiet", stdin=text).code == 0
        trace = read_source("t.json").trace
        assert trace is not None
        claim = judgement.claim
        theirs = numbers_of(stage_of(trace, claim.stage), claim, claim.at)
        np.testing.assert_array_equal(theirs, judgement.ours)


def typed(run: Run) -> tuple[list[str], bytes]:
    """The words of a call as it is shown, and its standard input."""
    echoed, _, command = run.shown.rpartition(" | ")
    attncli, *words = shlex.split(command)
    assert (attncli, echoed[:5]) == ("attncli", "echo " if echoed else "")
    return words, (shlex.split(echoed)[1] if echoed else "").encode()


FIGURES = [(name, at) for name, one in EXAMPLES.items() for at in range(len(one.figures))]


@pytest.mark.parametrize(("name", "at"), FIGURES)
def test_the_command_of_a_figure_runs(name: str, at: int, call: Call) -> None:
    Path("samples").symlink_to(SAMPLES)
    words, text = typed(EXAMPLES[name].run_of_figure(EXAMPLES[name].figures[at]))
    if "--output" in words:
        pytest.importorskip("matplotlib")
    done = call(*words, stdin=text)
    assert done.code == 0
    assert bool(done.out) is ("--output" not in words)


def test_numbers_grow_from_layer_to_layer_without_normalization() -> None:
    """24 layers multiply 24 times: the deviations grow by a factor that stays the same."""
    judged: Any = result("000-exploding")
    layers = [f"encoder.{n}.feed_forward.residual" for n in (6, 12, 18, 24)]
    sizes = np.log([judged.trace[name].value.std() for name in layers])
    assert np.diff(sizes).min() > 1  # e-fold in six layers


def glove_file(folder: Path, last: str) -> str:
    """The printed points, turned into 100 dimensions and moved, as GloVe writes vectors."""
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(100, 2)))[0].T
    rows = (np.array(PRINTED_PLANE) * [1, -1] @ basis + 0.25).tolist()
    words = ["florida", "california", "texas", "politics", last]
    lines = [f"{word} {' '.join(map(repr, row))}\n" for word, row in zip(words, rows, strict=True)]
    (folder / "glove.txt").write_text("".join(lines))
    return str(folder / "glove.txt")


def test_the_pca_of_a_file_agrees_up_to_the_sign_of_each_component(tmp_path: Path) -> None:
    assert (result("000-pca").needs, "glove.6B.100d.txt" in result("000-pca").adds) == ("", True)
    of_file = judge(EXAMPLES["000-pca"], glove_file(tmp_path, "truth"))
    assert ("glove.txt" in of_file.run.shown, of_file.adds, of_file.ok) == (True, "", True)
    judgement, shape, *_ = of_file.judgements
    assert shape.ours.tolist() == [100]  # type: ignore[union-attr]
    assert judgement.verdict == A
    assert judgement.ours == pytest.approx(np.array(PRINTED_PLANE), abs=5e-9)
    with pytest.raises(InputError, match=r"glove.txt has no vector for 'truth'; .*glove.6B.100d"):
        judge(EXAMPLES["000-pca"], glove_file(tmp_path, "lie"))


def test_the_wheel_holds_the_data_that_the_package_reads(tmp_path: Path) -> None:
    builder = WheelBuilder(str(CATALOG.parents[3]))
    (path,) = builder.build(directory=str(tmp_path), versions=["standard"])
    shipped = {f"attncli/commands/examples/catalog/{file.name}" for file in CATALOG.glob("*.json")}
    assert len(shipped) == 6
    shipped |= {"attncli/commands/examples/article.html"}
    shipped |= {"attncli/words/glove.npz", "attncli/words/glove.md", "attncli/help/help.txt"}
    shipped |= {f"attncli/commands/{name}/help.txt" for name in COMMANDS}
    assert shipped <= {*ZipFile(path).namelist()}
