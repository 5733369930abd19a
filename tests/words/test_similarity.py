"""Similarity against the numbers of the source documents and formulas written another way."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attncli.attention.run import run
from attncli.errors import ShapeError
from attncli.words.similarity import (
    analogy,
    analogy_steps,
    pca,
    pca_steps,
    similarity,
    similarity_steps,
)

KING, QUEEN, DAD, MOM = [0.9, 0.5, 0.1], [0.2, 0.5, 0.1], [0.9, 0.7, 0.9], [0.2, 0.7, 0.9]
FLORIDA, TEXAS, TRUTH = (
    [-2.40062016, 0.00478901],
    [-2.24764634, -0.12963368],
    [4.17067881, -2.38762552],
)
Matrix = npt.NDArray[np.float64]
NUMBERS = st.floats(-100, 100, width=32)


def test_vectors_are_tensors_too() -> None:
    torch = pytest.importorskip("torch")
    rows = [torch.tensor(x, dtype=torch.bfloat16, requires_grad=True) for x in (MOM, DAD)]
    exact = [row.detach().double().numpy() for row in rows]
    expected = similarity(["mom", "dad"], exact)["dots"].value
    for matrix in (torch.stack(rows), rows):
        assert (similarity(["mom", "dad"], matrix)["dots"].value == expected).all()
    assert (similarity({"mom": rows[0], "dad": rows[1]})["dots"].value == expected).all()
    for odd in (rows[0].to("meta"), "x", [1.0]):
        with pytest.raises(ShapeError, match="the vectors are not rows of numbers"):
            similarity({"mom": odd, "dad": rows[1]})


def test_document_003_cosines() -> None:
    cosines = similarity(["mom", "dad", "king"], [MOM, DAD, KING])["cosines"].value
    assert cosines[0, 1] == pytest.approx(0.8801730942, abs=5e-11)
    assert cosines[0, 2] == pytest.approx(0.5177825398, abs=5e-11)


def test_document_000_lengths_and_dots() -> None:
    trace = similarity(["florida", "texas", "truth"], [FLORIDA, TEXAS, TRUTH])
    assert trace["lengths"].value[0] == 2.4006249368060817
    assert trace["dots"].value[0, 1] == pytest.approx(5.395124299364358, rel=1e-15)
    assert trace["dots"].value[0, 2] == pytest.approx(-10.023649994662344, rel=1e-15)
    assert trace["angles"].value[0, 2] == pytest.approx(
        math.degrees(math.acos(trace["cosines"].value[0, 2]))
    )


@pytest.mark.parametrize("vector", [[1.0, 2.0], [0.1, 0.7, 0.3], [1e-200, 3e-201], [1 / 3] * 100])
def test_parallel_vectors_have_no_angle(vector: list[float]) -> None:
    vectors = [vector, [2 * x for x in vector], [-3 * x for x in vector]]
    angles = similarity(["a", "b", "c"], vectors)["angles"].value
    np.testing.assert_array_equal(angles, [[0, 0, 180], [0, 0, 180], [180, 180, 0]])
    almost = similarity(["a", "b"], [[1.0, 0.0], [1.0, 1e-6]])["angles"].value[0, 1]
    assert almost == pytest.approx(math.degrees(1e-6), rel=1e-3)


def test_words_get_their_angle_in_degrees() -> None:
    trace = similarity(["east", "up"], [[2.0, 0.0], [3.0, 3.0]])
    assert trace["angles"].value[0, 1] == pytest.approx(45)
    assert list(trace) == ["vectors", "lengths", "dots", "cosines", "angles"]
    assert trace["cosines"].labels["other"] == ("east", "up")


@given(arrays(np.float64, (5, 3), elements=NUMBERS))
def test_cosines_are_what_the_math_module_says(matrix: Matrix) -> None:
    cosines = similarity("abcde", matrix)["cosines"].value
    for (row, column), cosine in np.ndenumerate(cosines):
        a, b = matrix[row].tolist(), matrix[column].tolist()
        if not any(a) or not any(b):
            assert math.isnan(cosine)
            continue
        expected = math.fsum(x * y for x, y in zip(_unit(a), _unit(b), strict=True))
        assert cosine == pytest.approx(expected, abs=1e-12)
        assert -1 <= cosine <= 1


def _unit(vector: list[float]) -> list[float]:
    largest = max(map(abs, vector))
    length = math.hypot(*(x / largest for x in vector))
    return [x / largest / length for x in vector]


def test_every_stage_records_what_it_reads() -> None:
    trace = similarity(["east", "up"], [[2.0, 0.0], [3.0, 3.0]])
    assert [dict(stage.reads) for _, stage in trace.stages()] == [
        {},
        {"x": "vectors"},
        {"x": "vectors"},
        {"dots": "dots", "lengths": "lengths"},
        {"x": "cosines"},
    ]
    works = [stage.work for _, stage in trace.stages()]
    assert works == ["", "length", "pairs", "cosine", "arc"]
    trace = pca(["east", "up"], [[2.0, 0.0], [3.0, 3.0]])
    assert dict(trace["centred"].reads) == {"x": "vectors", "mean": "mean"}
    assert dict(trace["coordinates"].reads) == {"x": "centred", "w": "components"}


def test_cosines_follow_from_given_dots_and_lengths_and_angles_from_cosines() -> None:
    given = {"dots": np.array([[4.0, 3.0], [3.0, 9.0]]), "lengths": np.array([2.0, 3.0])}
    cosines = run(similarity_steps(), given, ["cosines"])["cosines"]
    assert cosines.tolist() == [[1, 0.5], [0.5, 1]]
    values = run(similarity_steps(), {"cosines": np.array([[1.0, 0.5], [0.5, 1.0]])}, ["angles"])
    np.testing.assert_allclose(values["angles"], [[0, 60], [60, 0]])


def test_an_analogy_follows_from_a_given_difference() -> None:
    given = {"difference": np.array([10.0, 20.0]), "vectors": np.array([[9.0, 9], [9, 9], [1, 2]])}
    assert run(analogy_steps("abc"), given, ["analogy"])["analogy"].tolist() == [11, 22]


def test_coordinates_follow_from_given_components() -> None:
    given = {"centred": np.array([[2.0, 3.0]]), "components": np.array([[0.0, 1.0], [1.0, 0.0]])}
    assert run(pca_steps(), given, ["coordinates"])["coordinates"].tolist() == [[3, 2]]


def test_zeros_have_no_direction() -> None:
    trace = similarity(["sky", "void"], [[1.0, 2.0], [0.0, 0.0]])
    assert np.isnan(trace["cosines"].value).tolist() == [[False, True], [True, True]]
    assert '"void" is all zeros' in trace["cosines"].note
    assert trace.notes == (trace["cosines"].note,)


@pytest.mark.parametrize("power", [1e200, 1e-200])
def test_very_large_and_small_vectors_keep_their_angle(power: float) -> None:
    trace = similarity(["a", "b"], np.array([[3.0, 4.0], [4.0, 3.0]]) * power)
    assert trace["cosines"].value[0, 1] == pytest.approx(0.96)
    assert trace["lengths"].value[0] == pytest.approx(5 * power)
    assert trace["angles"].value[0, 1] == pytest.approx(math.degrees(math.acos(0.96)))
    assert dict(trace["cosines"].reads) == {"x": "vectors"}  # the dots overflow, or are all 0


def test_king_is_to_queen_as_dad_is_to_mom() -> None:
    trace = analogy(["king", "queen", "dad"], [KING, QUEEN, DAD])
    np.testing.assert_allclose(trace["analogy"].value, MOM, atol=1e-15)
    assert list(trace) == ["vectors", "difference", "analogy"]
    assert trace.title == "king is to queen as dad is to …"


@given(arrays(np.float64, (7, 5), elements=NUMBERS))
def test_pca_agrees_with_the_covariance(matrix: Matrix) -> None:
    trace = pca("abcdefg", matrix)
    variances, directions = np.linalg.eigh(np.cov(matrix.T, bias=True))
    total = variances.sum()
    if total < 1e-6 or variances[-2] - variances[-3] < 1e-6 * total:
        return  # no variance, or two directions as good as each other
    if variances[-1] - variances[-2] < 1e-6 * total:
        return
    expected = directions[:, [-1, -2]].T
    turned = np.sign((trace["components"].value * expected).sum(axis=1))
    np.testing.assert_allclose(trace["shares"].value, variances[[-1, -2]] / total, atol=1e-9)
    np.testing.assert_allclose(trace["components"].value, expected * turned[:, None], atol=1e-5)
    np.testing.assert_allclose(
        trace["coordinates"].value,
        (matrix - matrix.mean(axis=0)) @ (expected * turned[:, None]).T,
        atol=1e-2,
    )


@given(arrays(np.float64, (7, 5), elements=NUMBERS))
def test_the_greatest_entry_of_a_component_is_positive(matrix: Matrix) -> None:
    for component in pca("abcdefg", matrix)["components"].value:
        assert component[np.abs(component).argmax()] >= 0


def test_two_words_lie_on_a_line() -> None:
    trace = pca(["a", "b"], [[0.0, 0.0, 0.0], [-2.0, -3.0, -6.0]])
    np.testing.assert_allclose(trace["components"].value, [[2 / 7, 3 / 7, 6 / 7], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(trace["coordinates"].value, [[3.5, 0.0], [-3.5, 0.0]], atol=1e-15)
    assert trace["shares"].value.tolist() == [1, 0]
    assert "one line" in trace.notes[0]


def test_huge_numbers_still_have_shares() -> None:
    trace = pca("abc", np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]]) * 1e200)
    np.testing.assert_allclose(trace["shares"].value, [8 / 14, 6 / 14], rtol=1e-12)
    with pytest.raises(ShapeError, match="too large"):
        pca("ab", np.array([[1.7e308, 0.0], [1.7e308, 1.0]]))


def test_equal_vectors_have_no_components() -> None:
    trace = pca("abc", np.full((3, 5), 7.0))
    assert np.isnan(trace["shares"].value).all()
    assert "no variance" in trace.notes[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: similarity(["a"], [1.0, 2.0]), r"shape \(2,\) are given for 1 word"),
        (lambda: similarity(["a"], [[1.0], [2.0]]), "give one row per word"),
        (lambda: similarity(["a", "b"], [[1.0], [2.0, 3.0]]), "rows of numbers of one length"),
        (lambda: similarity(["a"], [["x"]]), "rows of numbers of one length"),
        (
            lambda: similarity(["a"], [[math.inf]]),
            "vector of 'a' holds numbers that are not finite",
        ),
        (lambda: analogy(["a"], [[1.0]]), "an analogy has 3 words, not 1"),
        (lambda: pca(["a"], [[1.0, 2.0]]), "given is 1 word of 2"),
        (lambda: pca(["a", "b"], [[1.0], [2.0]]), "given is 2 words of 1"),
    ],
)
def test_what_does_not_fit(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize("factor", [1.0, 2.0, 3.0, 0.1, 1e150, -7.0])
def test_parallel_vectors_have_an_angle_of_0_or_180(factor: float) -> None:
    a = np.array([0.3, -1.7, 2.9, 0.1, 11.3])
    angles = similarity(["a", "b"], [a, factor * a])["angles"].value
    assert angles[0, 1] == (0 if factor > 0 else 180)
    assert angles[0, 0] == angles[1, 1] == 0


def test_a_small_angle_keeps_its_digits() -> None:
    angle = similarity(["a", "b"], [[1.0, 0.0], [1.0, 1e-9]])["angles"].value[0, 1]
    assert math.radians(angle) == pytest.approx(1e-9, rel=1e-12)
