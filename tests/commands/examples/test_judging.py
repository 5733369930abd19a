"""The rules of verdicts, and the causes of differences, all worked by hand.

With q = (1, 0), k = (1, 0), (0, 1) and d_k = 2 the weights are 0.669762 and 0.330238.
"""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.commands.examples.judge import Judgement, judge
from attncli.commands.examples.printed import (
    EXACT,
    VERDICTS,
    compare,
    cut_off,
    holds,
    read_printed,
    worst,
)
from attncli.errors import InputError
from tests.commands.examples.made import example, judged

R, A, D, N, _, _ = VERDICTS
INF = math.inf
PRINTED: dict[Any, tuple[float, int]] = {
    "0.540": (0.54, 3), "5": (5.0, 0), "-.25": (-0.25, 2), "−0.25": (-0.25, 2), "1e-4": (1e-4, 4),
    "2.50e-3": (0.0025, 5), "3e5": (300000.0, -5), 5: (5.0, 0), 5.25: (5.25, 2), 1e-5: (1e-5, 5),
    "1/√2": (math.sqrt(0.5), EXACT), "-√3": (-math.sqrt(3), EXACT), "2/3": (2 / 3, EXACT),
    "sin(3/10)": (math.sin(0.3), EXACT), "-cos(0.0001)": (-math.cos(0.0001), EXACT),
    "-Infinity": (-INF, EXACT),
}  # fmt: skip


def test_printed_numbers() -> None:
    for printed, (value, decimals) in PRINTED.items():
        read = read_printed(printed, "it")
        assert read.value == pytest.approx(value, rel=1e-15)
        assert read.decimals.tolist() == decimals
    read = read_printed([0.5, "0.5"], "it", 3)  # of numbers that are not text
    assert (read.decimals.tolist(), read.text) == ([3, 1], ["0.500", "0.5"])
    texts = ["", "x", "1/0", "√-1", "1//2", "sin(x)", "sin(1", "1,5", "1e999", "0x10", "1_0"]
    others: list[Any] = [True, None, {}, [], [["1"], "2"], ["1", ["2"]], [[[[["1"]]]]]]
    for bad in (*texts, "__import__", "9" * 70, *others):
        with pytest.raises(InputError, match=r"^it"):
            read_printed(bad, "it")


VERDICT_OF: dict[str, list[tuple[float, str]]] = {
    R: [
        (0.4, "0.40"), (0.1 + 0.2, "0.3"), (2.4006249368060817, "2.4006249368060817"),
        (2.4006249368060817, "2.4006249368060818"),  # the next digit float64 cannot tell
        (1.0000000000000002, "1.0000000000000000"),  # one ulp
        (1 / math.sqrt(2), "1/√2"), (math.nan, "NaN"), (-INF, "-Infinity"), (0.0, "0"),
    ],
    A: [
        (0.4011, "0.40"), (123456.0, "1.2e5"), (42.857142857142854, "43"), (6e-17, "0.0"),
        (0.125, "0.12"), (0.125, "0.13"), (-0.125, "-0.13"), (0.5, "0"), (0.5, "1"),  # ties go either way
        (2.675, "2.68"), (2.675, "2.67"),  # float64 holds it a little below the tie
        (1.000000000000001, "1.0000000000000000"),  # what float64 may lose on the way
        (0.99995000041666, "1.0000"),
    ],
    D: [
        (0.4051, "0.40"), (0.5000001, "0"), (1.0000000000001, "1.0000000000000000"), (0.7071, "1/√2"),
        (0.99995000041666, "cos(0.0001)"), (math.nan, "0.5"), (INF, "1"), (1.0, "Infinity"), (1e300, "0"),
    ],
}  # fmt: skip


def test_the_verdict_of_one_number_and_of_several() -> None:
    for verdict, pairs in VERDICT_OF.items():
        for ours, printed in pairs:
            assert compare(ours, read_printed(printed, "it")).tolist() == verdict
    cells = compare([0.4, 0.4011, 0.3], read_printed(["0.4", "0.4", "0.4"], "it"))
    assert cells.tolist() == [R, A, D]
    assert (worst(cells), worst(cells[:2]), worst(cells[:0])) == (D, A, N)


@given(st.floats(-1e6, 1e6), st.integers(0, 8), st.integers(1, 1000))
def test_a_number_rounded_by_python_agrees_and_two_units_off_differ(
    ours: float, decimals: int, units: int
) -> None:
    wrong = round(ours, decimals) + (units + 1) * 10.0**-decimals
    texts = [f"{ours:.{decimals}f}", f"{wrong:.{decimals}f}", repr(ours)]
    rounded, off, full = (compare(ours, read_printed(text, "it")).tolist() for text in texts)
    assert (rounded in (R, A), off, full) == (True, D, R)


def test_the_verdict_of_a_statement_and_truncated_digits() -> None:
    for ours, states, magnitude, verdicts in (
        ([1.0, 1 + 2e-16, 1.01], {"equal": 1}, 1.0, [R, R, D]), ([1e-16, 1e-12], {"equal": 0}, 1.0, [R, D]),
        ([0.0, 1e-300], {"equal": 0}, 0.0, [R, D]), ([0.9995, 0.99], {"close_to": 1}, 1.0, [R, D]),
        ([0.0, 0.2], {"unequal": 0}, 1.0, [R, R]), ([0.0, 1e-17], {"unequal": 0}, 1.0, [D, D]),
        ([math.nan], {"equal": 0}, 1.0, [D]), ([math.nan], {"unequal": 0}, 1.0, [D]),
        ([0.9, 0.91, math.nan], {"above": 0.9}, 1.0, [D, R, D]), ([0.1, 0.09, -1.0], {"below": 0.1}, 1.0, [D, R, R]),
    ):  # fmt: skip
        assert holds(ours, states, magnitude).tolist() == verdicts  # type: ignore[arg-type]
    cut = [(0.1978, "0.19"), (-0.1978, "-0.19")]
    for number in (*cut, (0.1978, "0.20"), (0.1978, "0.18"), (INF, "1"), (0.5, "1/2")):
        assert cut_off(number[0], read_printed(number[1], "it")) is (number in cut)


# ---- causes

QKV = "compute --q '[[1, 0]]' --k '[[1, 0], [0, 1]]' --v '[[100, 0], [0, 100]]'"
Q194 = "compute --q '[[1.94, 0.52]]' --k '[[1, 0], [0, 1]]' --v '[[1], [0]]'"
FUTURE = "compute --q '[[1.94], [2.04]]' --k '[[1], [2]]' --v '[[1], [0]]' --causal"
AB = "similarity a=1,1 b=1,2"
BLOCK = "explain --embeddings '[[1, 0], [0, 1]]' --projection identity"
SUM = f"{BLOCK} --block encoder --norm none --d-ff 0"
WEIGHTED = SUM.replace("--projection identity", "--weights -")
EYE = [[1, 0], [0, 1]]
NORM = (
    "explain --embeddings '[[1, 2, 4]]' --projection identity --block encoder --norm pre --d-ff 0 "
    "--stage encoder.1.attention.norm"
)
LAYER = "encoder.1.attention"
ONE: dict[str, Any] = {"query": 1}
HEAD, LAST = {"head": 1, "query": 1}, {"query": 1, "d_model": 3}
ROUNDED = "rounding only"


def at(stage: str, printed: Any, place: Any = None, **more: Any) -> dict[str, Any]:
    """A claim."""
    return {"stage": stage, "printed": printed, **({"at": place} if place else {}), **more}


def test_causes() -> None:
    cases: list[tuple[str, list[dict[str, Any]], str | None]] = [
        (QKV, [at("weights", ["0.67", "0.33"], ONE), at("output", ["67.00", "33.00"], ONE)], ROUNDED),
        (QKV, [at("weights", ["0.73", "0.27"], ONE), at("output", ["73.00", "27.00"], ONE)], "carried over"),
        (QKV, [at("weights", ["0.67", "0.33"], ONE), at("output", ["68.00", "33.00"], ONE)], None),
        (QKV, [at("weights", [["0.66", "0.33"]])], "cut off"),
        (QKV, [at("q", [["2", "0"]]), at("k", ["1", "1"], {"key": 1})], None),  # k does not follow from q
        # scores 1.94, 0.52; scaled 1.371787, 0.367696; weights 0.731906, 0.268094
        # from q or scores 1.9, 0.5: scaled 1.343503, 0.353553; weights 0.729080, 0.270920
        (Q194, [at("scores", ["1.9", "0.5"], ONE), at("weights", ["0.7291", "0.2709"], ONE)], ROUNDED),
        (Q194, [at("q", [["1.9", "0.5"]]), at("weights", [["0.7291", "0.2709"]])], ROUNDED),
        # the mask is applied to printed scores: scores of query 2 are 2.04, 4.08; σ(2.1) = 0.890903
        (FUTURE, [at("scores", [["1.9", "3.9"], ["2.0", "4.1"]]),
                               at("weights", [["1", "0"], ["0.1091", "0.8909"]])], ROUNDED),
        # ‖a‖ = 1.41421, ‖b‖ = 2.23607, cos = 0.948683; 3 / (1.4 · 2.2) = 0.974026
        (AB, [at("lengths", ["1.4", "2.2"]), at("cosines", "0.97", {"word": "a", "other": "b"})], ROUNDED),
        # 1 / 10000^(2/6) = 0.0464159; sin 0.05 = 0.049979
        ("posenc --len 2 --dim 6",
         [at("angles", "0.05", {"position": 2, "pair": 2}), at("positions", "0.0500", {"position": 2, "dimension": 3})], ROUNDED),
        # √(((1 − 2.3)² + (2 − 2.3)² + (4 − 2.3)²) / 3) = 1.24766; (4 − 2.3) / 1.24766 = 1.36255
        (NORM, [at(f"{LAYER}.mean", ["2.3"]), at(f"{LAYER}.norm", "1.3625", LAST)], ROUNDED),
        # weights rounded to 0.67, 0.33 before what follows the output
        (SUM,
         [at("weights", ["0.67", "0.33"], HEAD), at("residual", ["1.6700", "0.3300"], ONE)], ROUNDED),
        (BLOCK,
         [at("weights", ["0.67", "0.33"], HEAD), at("concat", ["0.6700", "0.3300"], ONE)], ROUNDED),
    ]  # fmt: skip
    for run, claims, cause in cases:
        last = judged(run, *claims)[-1]
        assert (last.verdict, last.cause) == (D, cause)
    weights = {"w_q": EYE, "w_k": EYE, "w_v": EYE, "w_o": [[10, 0], [0, 10]]}
    claims = [at("weights", ["0.67", "0.33"], HEAD), at("residual", ["7.7000", "3.3000"], ONE)]
    last = judged(WEIGHTED, *claims, input=weights)[-1]
    assert (last.verdict, last.cause) == (D, ROUNDED)


def test_causes_through_what_is_not_shown() -> None:
    """Keys that two heads share, and the vectors from which angles are computed."""
    q = {"q": [[[1.94, 0.52]], [[1, 0]]], "k": [[[1, 0], [0, 1]]], "v": [[[1], [0]]]}
    claims = (
        at("k", [["1.04", "0"]], {"kv_head": 1, "key": [1]}),
        at("scores", "2.0176", {"head": 1, "query": 1, "key": 1}),
    )
    last = judged("compute --q -", *claims, input=q)[-1]
    assert (last.verdict, last.cause) == (D, "carried over")  # 1.94 · 1.04 = 2.0176
    # cos 0.948683, θ 18.4349°; arccos 0.95 is 18.1949°
    both = {"word": "a", "other": "b"}
    last = judged(AB, at("cosines", "0.95", both), at("angles", "18.195", both))[-1]
    assert (last.verdict, last.cause) == (D, ROUNDED)


def output_of(weights: list[str], output: list[str], **recorded: Any) -> Judgement:
    claims = at("weights", weights, ONE), at("output", output, ONE, **recorded)
    return judged(QKV, *claims)[1]


def test_what_printed_numbers_give_is_said_and_computed() -> None:
    own: Any = output_of(["0.67", "0.33"], ["67.00", "33.00"]).recomputed
    assert (own.text, own.ours.round(9).tolist()) == ("from the printed weights", [67.0, 33.0])
    own = output_of(["0.67", "0.33"], ["68.00", "33.00"]).recomputed
    assert own.verdict == D
    # mean 2.3333, deviation 1.2472; (4 − 2.3333) / 1.2472 = 1.3363; (4 − 2.3) / 1.2 = 1.4167
    names = (f"{LAYER}.{name}" for name in ("mean", "deviation", "norm"))
    claims = (
        at(*claim) for claim in zip(names, (["2.3"], ["1.2"], "1.42"), ("", "", LAST), strict=True)
    )
    last: Any = judged(NORM, *claims)[-1]
    assert (last.cause, last.recomputed.text) == (ROUNDED, "from the printed deviation and mean")
    scores = at("scores", [["1.9", "3.9"], ["2.0", "4.1"]])
    own = judged(FUTURE, scores, at("weights", [["2", "0"]] * 2))[-1].recomputed
    assert own.ours[0].tolist() == [1.0, 0.0]


UNSCALED = {"how": "no scale", "options": "--scale none"}


def test_a_claim_passes_only_as_recorded() -> None:
    for recorded, ok in (
        ({}, False), ({"verdict": D}, True), ({"verdict": A}, False), ({"verdict": D, "cause": ROUNDED}, True),
        ({"verdict": D, "cause": "carried over"}, False), ({"verdict": D, "ways": [UNSCALED]}, False),
        ({"verdict": D, "ways": [{"how": "its weights", "from": "weights"}]}, True),
    ):  # fmt: skip
        assert output_of(["0.67", "0.33"], ["67.00", "33.00"], **recorded).ok is ok
    output = output_of(["0.67", "0.33"], ["66.98", "33.02"], verdict=D)
    assert (output.verdict, output.ok) == (A, False)
    claims = at("weights", [["0.67", "0.33"]]), {"stage": "output"}
    assert [(j.verdict, j.ok) for j in judged(QKV, *claims)] == [(A, True), (N, True)]


def test_alternatives_that_are_refused() -> None:
    unscaled = {**UNSCALED, "from": "scores"}
    one_query = {"how": "", "from": "weights", "options": "--q '[[1, 0]]'"}
    for run, claims, key in (
        (QKV, [at("output", [["1", "2"]], ways=[{"how": "w", "from": "weights"}])], "does not follow"),
        (QKV, [at("scores", [["1", "0"]]), at("scaled", [["1", "0"]], ways=[unscaled])], "there is no"),
        (QKV.replace("[[1, 0]]", "[[1, 0], [0, 1]]"), [at("weights", ["0.3", "0.7"], {"query": 2}), at("output", ["67", "33"], ONE, ways=[one_query])],
         "stage weights"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"^made.json: example 'it'.* way 1: .*{key}"):
            judge(example(run, *claims))


def test_the_call_of_another_way() -> None:
    """Options replace those of the run; a run and an input replace those of the example."""
    run = "compute --q '[[3]]' --k '[[1], [2]]' --v '[[4], [8]]' --scale 2"
    for options, stage, gives in (
        ("--scale 3", "scaled", [["9", "18"]]), ("--q '[[5], [7]]'", "scaled", [["10", "20"], ["14", "28"]]),
        ("--q '[[0], [0]]' --causal", "weights", [["1", "0"], ["1/2", "1/2"]]),
    ):  # fmt: skip
        way = {"how": "", "options": options, "gives": gives}
        assert judged(run, at(stage, [["7.0", "7.0"]], verdict=D, ways=[way]))[0].ok
    ways = [
        {"how": "", "run": "posenc --len 1 --dim 2", "gives": [["0", "1"]]},
        {"how": "", "run": "posenc --add - --len 1", "input": [[5, 5]], "gives": [["0", "1"]]},
    ]
    assert judged(
        "posenc --len 2 --dim 2", at("positions", [["1", "1"]] * 2, verdict=D, ways=ways)
    )[0].ok
    other = {"how": "", "input": {"q": [[0]], "k": [[0], [0]]}, "gives": [["1/2", "1/2"]]}
    claim = at("weights", [["1"]], verdict=R, ways=[other])
    (judgement,) = judged("compute --q -", claim, input={"q": [[0]], "k": [[0]], "v": [[0]]})
    assert (judgement.ok, judgement.alternatives[0].verdict) == (True, R)
    # vectors of another way replace the file
    way = {"how": "others", "run": "similarity a=3,4", "gives": ["5"]}
    claim = at("lengths", ["1"], ways=[way], verdict=D)
    of_file = example("similarity a --vectors g", claim, needs="g")
    (judgement,) = judge(of_file, "a=6,8").judgements
    assert (judgement.verdict, judgement.ok) == (D, True)


def test_the_cosine_to_another_place_and_the_gradients_of_an_attention() -> None:
    run = "compute --q '[[3, 4], [4, 3]]' --k '[[0, 0]]' --v '[[1]]' --d-output '[[2], [3]]'"
    cosine = {
        "stage": "q",
        "at": {"query": 1},
        "take": {"cosine": {"query": 2}},
        "printed": "24/25",
    }
    both = judged(run, cosine, {"stage": "d_v", "printed": [["5"]]})
    assert [judgement.verdict for judgement in both] == [R, R]
    with pytest.raises(InputError, match="shape"):
        judged(run, {"stage": "q", "take": {"cosine": {"query": 2}}})


def test_a_claim_has_a_run_of_its_own() -> None:
    """Its ways replace options of that run, and printed numbers of another run explain nothing."""
    other = "compute --q '[[2, 0]]' --k '[[1, 0], [0, 1]]' --v '[[1], [0]]'"
    way = {"how": "thrice", "options": "--scale 3", "gives": [["6", "0"]]}
    claims = (
        at("scores", [["9", "9"]]),  # of the example's own run: 1, 0
        at("scores", [["2", "0"]], run=other),
        at("scaled", [["7", "0"]], run=other, verdict=D, ways=[way]),
    )
    first, second, third = judged(QKV, *claims)
    assert (first.verdict, second.verdict, third.verdict) == (D, R, D)
    assert third.alternatives[0].verdict == R
    assert third.recomputed is None
    with pytest.raises(InputError, match="claim 1: its run reads standard input"):
        judged(QKV, at("scores", "1", run="compute --q -"))


def test_what_is_computed_without_a_file_of_vectors() -> None:
    points = {"run": "similarity a=3,4", "adds": "computes it from real vectors"}
    claim = at("lengths", ["5"])
    one = example("similarity a --vectors g", claim, needs="g", offline=points)
    offline, of_file = judge(one), judge(one, "a=6,8")
    assert (offline.ok, offline.adds, offline.needs) == (True, points["adds"], "")
    assert (of_file.judgements[0].verdict, of_file.adds) == (D, "")
    assert offline.run.shown == "attncli similarity a=3,4"
