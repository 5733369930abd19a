"""Similarity of word vectors: lengths, angles, analogies, and two dimensions to plot.

similarity   vectors → lengths, dots → cosines → angles
analogy      a is to b as c is to …: b − a + c
pca          vectors → centred → two components → coordinates

Each is a plan that the runner of attention computes, so its steps can also be run from a later
stage on: `run(similarity_steps(), {"dots": …, "lengths": …}, ["cosines"])`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import FloatArray, Like
from attncli.attention.run import Heading, Step, traced
from attncli.attention.shapes import on_host
from attncli.errors import ShapeError, joined
from attncli.files.messages import count
from attncli.formula import common as formulas
from attncli.recorded import recorded
from attncli.stages import StageSpec
from attncli.trace import Stage, Trace
from attncli.words.tokens import called

_WORDS = "word other"
_NO_COSINE = "no cosine: a vector of zeros has no direction"
SPECS = {
    "vectors": StageSpec("V", "word dimension"),
    "lengths": StageSpec("‖a‖", "word"),
    "dots": StageSpec("a·b", _WORDS),
    "cosines": StageSpec("cos", _WORDS, shade="signed", undefined=_NO_COSINE),
    "angles": StageSpec("θ", _WORDS, undefined="no angle: a vector of zeros has no direction"),
    "difference": StageSpec("b − a", "dimension"),
    "analogy": StageSpec("b − a + c", "dimension"),
    "mean": StageSpec("μ", "dimension"),
    "centred": StageSpec("C", "word dimension", beside="x"),
    "components": StageSpec("W", "component dimension"),
    "shares": StageSpec("σ²/Σσ²", "component"),
    "coordinates": StageSpec("Y", "word component", plotted=True),
}
"""What is known of each stage of these traces."""

N_COMPONENTS = 2
_PLANE = ("PC 1", "PC 2")

# Products of two numbers below 2^500, and sums of thousands of them, stay within float64, which
# ends at 2^1024; those of two numbers above 2^-500 are not rounded to 0.
_FARTHEST_POWER = 500

# Parallel unit vectors differ by this at most: each of their numbers is rounded three times.
_ROUNDED = 8 * np.finfo(np.float64).eps

# Farther from the cosine of an angle than rounding takes it, and nearer than a printed number.
_OTHER = 1e-12


@recorded
def similarity(
    words: Sequence[str] | Mapping[str, npt.ArrayLike], matrix: npt.ArrayLike | None = None
) -> Trace:
    """Lengths, dot products, cosines and angles of word vectors.

    ‖a‖ = √(a·a),  cos(a, b) = a·b / (‖a‖·‖b‖),  θ = arccos(cos) in degrees

    `words` may be a mapping, word → vector, in place of a matrix with a row for each word.

    Stages: vectors [n, d], lengths [n], dots [n, n], cosines [n, n] in −1 … 1 and angles [n, n]
    in degrees. The cosine of a vector of zeros is undefined: NaN.
    Raises ShapeError where there is not one row of finite numbers per word.
    Source: the definition a·b = ‖a‖·‖b‖·cos θ.

    >>> trace = similarity(["mom", "dad"], [[3.0, 4.0], [4.0, 3.0]])
    >>> trace["lengths"].value.tolist(), trace["cosines"].value[0, 1].item()
    ([5.0, 5.0], 0.96)
    >>> list(similarity({"mom": [3.0, 4.0], "dad": [4.0, 3.0]})) == list(trace)
    True
    """
    if isinstance(words, Mapping):
        each: Any = words.values()
        matrix, words = list(each), list(words)
    vectors = _vectors(words, () if matrix is None else matrix)
    lengths, dots, cosines, angles = similarity_steps()
    if np.abs(_powers(vectors)).max(initial=0) > _FARTHEST_POWER:
        reads = {"x": "vectors"}
        cosines = cosines._replace(function=_scaled_cosines, reads=reads, text="")
    # arccos keeps half of the digits of a cosine near 1: it is used only of other cosines
    angles = angles._replace(function=lambda x: _angles_of_cosines(x, vectors))
    zeros = [called(words, at) for at, row in enumerate(vectors) if not row.any()]
    notes = []
    if zeros:
        have, them = ("has", "it") if len(zeros) == 1 else ("have", "them")
        are = "is" if len(zeros) == 1 else "are"
        no_direction = f"{joined(zeros)} {are} all zeros and {have} no direction"
        notes = [f"{no_direction}: cosines and angles with {them} are undefined"]
    noted = [step._replace(note="".join(notes)) for step in (cosines, angles)]
    labels = {"word": tuple(words), "other": tuple(words)}
    heading = Heading("Similarity", None, labels, tuple(notes))
    return _trace([lengths, dots, *noted], vectors, heading)


def similarity_steps() -> list[Step]:
    """The steps of `similarity`, from the vectors to the angles."""
    x, both = {"x": "vectors"}, {"dots": "dots", "lengths": "lengths"}
    angle, text = "θ = arccos(cos), in degrees", formulas.WORD_ANGLES
    in_place: Any = {"function": cosines_of, "like": lambda dots, **_: Like(dots.shape)}
    steps = [
        Step("lengths", formulas.LENGTHS, x, {}, "‖a‖ = √(a·a)", function=lengths_of),
        Step("dots", formulas.DOTS, x, {}, "D = V Vᵀ"),
        Step("cosines", formulas.COSINES, both, {}, "a·b / (‖a‖·‖b‖)", **in_place),
        Step("angles", text, {"x": "cosines"}, {}, angle),
    ]
    return [step._replace(spec=SPECS[step.name]) for step in steps]


def lengths_of(x: FloatArray) -> FloatArray:  # [n, d] -> [n]
    """The length of each vector, √(a·a), also where a·a would overflow."""
    powers = _powers(x)
    scaled = np.ldexp(x, -powers[:, None])
    return np.asarray(np.ldexp(np.sqrt((scaled * scaled).sum(axis=1)), powers))


def cosines_of(dots: FloatArray, lengths: FloatArray) -> FloatArray:  # [n, n], [n] -> [n, n]
    """a·b / (‖a‖·‖b‖), in −1 … 1: rounding can take a vector's cosine with itself past 1."""
    cosines = lengths[:, None] * lengths
    np.divide(dots, cosines, out=cosines)
    return np.clip(cosines, -1.0, 1.0, out=cosines)


def angles_of(x: FloatArray) -> FloatArray:  # [n, d] -> [n, n]
    """The angle between each vector and every other in degrees, to full precision at 0 and 180.

    Of unit vectors u and w it is 2 · atan2(‖u − w‖, ‖u + w‖).
    Source: Kahan, "How Futile are Mindless Assessments of Roundoff" (2006), section 12.

    >>> angles_of(np.array([[1.0, 2.0], [3.0, 6.0], [-2.0, 1.0]]))[0].tolist()
    [0.0, 0.0, 90.0]
    """
    scaled = np.ldexp(x, -_powers(x)[:, None])
    units = scaled / lengths_of(scaled)[:, None]
    apart, together = (np.empty((len(x), len(x))) for _ in range(2))
    for sign, lengths in ((-1.0, apart), (1.0, together)):
        for row, unit in zip(lengths, units, strict=True):  # as there may be thousands of words
            row[:] = np.linalg.norm(unit + sign * units, axis=-1)
        np.copyto(lengths, 0.0, where=lengths < _ROUNDED)
    np.arctan2(apart, together, out=apart)
    apart *= 2
    return np.degrees(apart, out=apart)


def _angles_of_cosines(
    x: FloatArray, vectors: FloatArray
) -> FloatArray:  # [n, n], [n, d] -> [n, n]
    """The angles of these cosines in degrees: those of the vectors, but where x is not theirs."""
    angles = angles_of(vectors)
    for row, cosines in zip(angles, x, strict=True):
        is_other = np.abs(np.cos(np.radians(row)) - cosines) > _OTHER
        row[is_other] = np.degrees(np.arccos(cosines[is_other]))
    return angles


def _scaled_cosines(x: FloatArray) -> FloatArray:  # [n, d] -> [n, n]
    """The cosines of very large or small vectors, whose dot products are infinite or 0."""
    scaled = np.ldexp(x, -_powers(x)[:, None])
    return cosines_of(scaled @ scaled.T, lengths_of(scaled))


def _powers(vectors: FloatArray) -> npt.NDArray[np.int32]:
    """A power of two per row near its greatest number: dividing by it changes no digit."""
    return np.asarray(np.frexp(np.abs(vectors).max(axis=1, initial=0.0))[1])


def analogy(words: Sequence[str], matrix: npt.ArrayLike) -> Trace:
    """The vector that is to c as b is to a; its nearest words answer the analogy.

    difference = b − a,  analogy = difference + c     # [d], [d], [d] -> [d]

    Stages: vectors [3, d] of a, b, c in this order, difference [d], analogy [d].
    Raises ShapeError where there are not three words of equal size.
    Source: Mikolov et al., "Linguistic Regularities in Continuous Space Word Representations"
    (2013), section 4.

    >>> trace = analogy(["king", "queen", "dad"], [[4.0, 1.0], [1.0, 1.0], [4.0, 3.0]])
    >>> trace["analogy"].value.tolist()
    [1.0, 3.0]
    """
    vectors = _vectors(words, matrix)
    if len(words) != 3:
        raise ShapeError(f"an analogy has 3 words, not {len(words)}", "a is to b as c is to …")
    a, b, c = words
    heading = Heading(f"{a} is to {b} as {c} is to …", None, {"word": tuple(words)})
    return _trace(analogy_steps(words), vectors, heading)


def analogy_steps(words: Sequence[str]) -> list[Step]:
    """The steps of `analogy` for the words a, b and c."""
    (a, b, c), x = words, {"x": "vectors"}  # [3, d]
    both, total = {"difference": "difference", **x}, f"{b} − {a} + {c}"
    steps = [
        Step("difference", formulas.DIFFERENCE, x, {}, f"{b} − {a}"),
        Step("analogy", formulas.ANALOGY, both, {}, total),
    ]
    return [step._replace(spec=SPECS[step.name]) for step in steps]


def pca(words: Sequence[str], matrix: npt.ArrayLike) -> Trace:
    """Word vectors in two dimensions: the two directions of greatest variance.

    centred = V − mean,  centred = U Σ Wᵀ,  coordinates = centred · W₂,  share_i = σ_i² / Σσ²

    The sign of a component is free; here its entry of greatest magnitude (the first of equals)
    is positive, as in scikit-learn from 1.5. A component that explains nothing is all zeros.

    Stages: vectors [n, d], mean [d], centred [n, d], components [2, d], shares [2] in 0 … 1
    (NaN where all vectors are equal), coordinates [n, 2].
    Raises ShapeError for fewer than two words or dimensions, or numbers too large for a mean.
    Source: Jolliffe, "Principal Component Analysis" (2002), section 3.5.

    >>> trace = pca(["a", "b"], [[0.0, 0.0], [6.0, 8.0]])
    >>> trace["components"].value[0].round(4).tolist(), trace["shares"].value.tolist()
    ([0.6, 0.8], [1.0, 0.0])
    """
    vectors = _vectors(words, matrix)
    if min(vectors.shape) < N_COMPONENTS:
        raise ShapeError(
            "two components need two words of two numbers; there is "
            f"{count(len(words), 'word')} of {vectors.shape[1]}"
        )
    heading = Heading("Principal components", None, {"word": tuple(words), "component": _PLANE})
    trace = _trace(pca_steps(), vectors, heading)
    shares = trace["shares"].value
    if np.isnan(shares).all():
        return replace(trace, notes=("all vectors are equal: there is no variance to explain",))
    if shares[1] == 0:
        return replace(trace, notes=("the vectors lie on one line: PC 2 explains nothing",))
    return trace


def pca_steps() -> list[Step]:
    """The steps of `pca`."""
    svd = "C = U Σ W, the singular value decomposition"
    rule = "signs are arbitrary: each component is turned so that its largest entry is positive"
    mean, text = "μ = mean over the words", formulas.CENTRE
    share = "σ² / Σσ², the explained variance ratio"
    vectors, x = {"x": "vectors"}, {"x": "centred"}
    difference, product = {**vectors, "mean": "mean"}, {**x, "w": "components"}
    steps = [
        Step("mean", text, vectors, {}, mean),
        Step("centred", formulas.CENTRED, difference, {}, "C = V − μ", function=_centred),
        Step("components", "", x, {}, svd, note=rule, function=_components, like=_like_components),
        Step("shares", "", x, {}, share, function=_shares, like=_like_shares),
        Step("coordinates", formulas.COORDINATES, product, {}, "Y = C Wᵀ"),
    ]
    return [step._replace(spec=SPECS[step.name]) for step in steps]


def _centred(x: FloatArray, mean: FloatArray) -> FloatArray:  # [n, d], [d] -> [n, d]
    centred: FloatArray = x - mean
    if not np.isfinite(centred).all():
        raise ShapeError("the vectors hold numbers too large to take their mean")
    return centred


def _components(x: FloatArray) -> FloatArray:  # [n, d] -> [2, d]
    components = _svd(x)[1][:N_COMPONENTS]
    largest = np.abs(components).argmax(axis=1)[:, None]
    signs = np.where(np.take_along_axis(components, largest, axis=1) < 0, -1.0, 1.0)
    return components * signs + 0.0  # + 0.0: no −0 where a row of zeros was turned


def _shares(x: FloatArray) -> FloatArray:  # [n, d] -> [2]
    sigma, _ = _svd(x)
    if not sigma[0]:
        return np.full(N_COMPONENTS, np.nan)
    relative = sigma / sigma[0]  # squares of the numbers themselves could overflow
    return np.asarray(relative[:N_COMPONENTS] ** 2 / (relative**2).sum())


def _like_components(x: Like) -> Like:
    """The shape and the type of the components, for which x is decomposed."""
    return Like((N_COMPONENTS, x.shape[1]), takes=_DECOMPOSED * x.nbytes)


def _like_shares(x: Like) -> Like:
    """The shape and the type of the shares, for which x is decomposed."""
    return Like((N_COMPONENTS,), takes=_DECOMPOSED * x.nbytes)


_DECOMPOSED = 3
"""Arrays as large as the vectors that their decomposition takes: a copy, and both factors."""


def _svd(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The singular values and the directions of x; those that are rounding alone are zeros."""
    _, sigma, rows = np.linalg.svd(x, full_matrices=False)
    nothing = sigma <= sigma[0] * max(x.shape) * np.finfo(np.float64).eps
    rows[nothing], sigma[nothing] = 0.0, 0.0
    return sigma, rows


def _vectors(words: Sequence[str], matrix: npt.ArrayLike) -> FloatArray:
    try:
        rows = [*map(on_host, matrix)] if isinstance(matrix, list) else on_host(matrix)
        vectors = np.asarray(rows, dtype=np.float64)
    except (RuntimeError, TypeError, ValueError):  # the first is PyTorch's
        raise ShapeError("the vectors are not rows of numbers of one length") from None
    if vectors.ndim != 2 or len(vectors) != len(words):
        message = f"vectors of shape {vectors.shape} are given for {count(len(words), 'word')}"
        raise ShapeError(message, "give one row per word")
    for word, row in zip(words, vectors, strict=True):
        if not np.isfinite(row).all():
            raise ShapeError(f"the vector of {word!r} holds numbers that are not finite")
    return vectors


def _trace(steps: list[Step], vectors: FloatArray, heading: Heading) -> Trace:
    """The trace of a plan on these vectors, which are its first stage."""
    words = {"word": tuple(heading.labels["word"] or ())}
    stage = Stage("vectors", "V", "as given", vectors, ("word", "dimension"), words)
    stage = replace(stage, spec=SPECS["vectors"])
    return traced(steps, heading, stage)
