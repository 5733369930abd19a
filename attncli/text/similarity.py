"""What word vectors have in common: lengths, angles, analogies, and a map in two dimensions.

similarity   vectors → lengths, dots → cosines
analogy      a is to b as c is to …: b − a + c
pca          vectors → centred → two components → coordinates
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from attncli.errors import ShapeError
from attncli.trace import Stage, Trace

Array = npt.NDArray[np.float64]

N_COMPONENTS = 2
_PLANE = ("PC 1", "PC 2")


def similarity(words: Sequence[str], matrix: npt.ArrayLike) -> Trace:
    """Lengths, dot products and cosines of word vectors; for two words also their angle.

    ‖a‖ = √(a·a),  cos(a, b) = a·b / (‖a‖·‖b‖),  θ = arccos(cos) in degrees

    Stages: vectors [n, d], lengths [n], dots [n, n], cosines [n, n] in −1 … 1 and, for two
    words, angles [n, n] in degrees. The cosine of a vector of zeros is undefined: NaN.
    Raises ShapeError where there is not one row of finite numbers per word.
    Source: the definition a·b = ‖a‖·‖b‖·cos θ.

    >>> trace = similarity(["mom", "dad"], [[3.0, 4.0], [4.0, 3.0]])
    >>> trace["lengths"].value.tolist(), trace["cosines"].value[0, 1].item()
    ([5.0, 5.0], 0.96)
    """
    vectors = _vectors(words, matrix)
    names = tuple(words)
    rows, table = {"word": names}, {"word": names, "other": names}
    with np.errstate(over="ignore"):
        dots = vectors @ vectors.T
        lengths = _lengths(vectors)
    cosines = _cosines(vectors)
    note = _zeros_note(names, cosines)
    steps = [
        Stage("vectors", "V", "as given", vectors, ("word", "dimension"), rows),
        Stage(
            "lengths",
            "‖a‖",
            "‖a‖ = √(a·a)",
            lengths,
            ("word",),
            rows,
            reads={"x": "vectors"},
            work="length",
        ),
        Stage(
            "dots",
            "a·b",
            "D = V Vᵀ",
            dots,
            ("word", "other"),
            table,
            reads={"x": "vectors"},
            work="pairs",
        ),
        Stage(
            "cosines",
            "cos",
            "a·b / (‖a‖·‖b‖)",
            cosines,
            ("word", "other"),
            table,
            note,
            {"dots": "dots", "lengths": "lengths"},
            work="cosine",
        ),
    ]
    if len(names) == 2:
        angles = np.degrees(np.arccos(cosines))
        formula = "θ = arccos(cos), in degrees"
        reads = {"cosines": "cosines"}
        axes = ("word", "other")
        steps.append(Stage("angles", "θ", formula, angles, axes, table, note, reads, work="arc"))
    return Trace("Similarity", tuple(steps), notes=(note,) if note else ())


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
    with np.errstate(over="ignore", invalid="ignore"):
        difference = vectors[1] - vectors[0]
        answer = difference + vectors[2]
    rows = {"word": tuple(words)}
    steps = (
        Stage("vectors", "V", "as given", vectors, ("word", "dimension"), rows),
        Stage("difference", "b − a", f"{b} − {a}", difference, ("dimension",)),
        Stage("analogy", "b − a + c", f"{b} − {a} + {c}", answer, ("dimension",)),
    )
    return Trace(f"{a} is to {b} as {c} is to …", steps)


def pca(words: Sequence[str], matrix: npt.ArrayLike) -> Trace:
    """Word vectors laid flat: their two directions of greatest variance.

    centred = V − mean,  centred = U Σ Wᵀ,  coordinates = centred · W₂,  share_i = σ_i² / Σσ²

    The sign of a component is free; here its entry of greatest magnitude (the first of equals)
    is positive, as in scikit-learn from 1.5. A component that explains nothing is all zeros.

    Stages: vectors [n, d], mean [d], centred [n, d], components [2, d], shares [2] in 0 … 1
    (NaN where all vectors are equal), coordinates [n, 2].
    Raises ShapeError for fewer than two words or dimensions.
    Source: Jolliffe, "Principal Component Analysis" (2002), section 3.5.

    >>> trace = pca(["a", "b"], [[0.0, 0.0], [6.0, 8.0]])
    >>> trace["components"].value[0].round(4).tolist(), trace["shares"].value.tolist()
    ([0.6, 0.8], [1.0, 0.0])
    """
    vectors = _vectors(words, matrix)
    if min(vectors.shape) < N_COMPONENTS:
        raise ShapeError(
            f"two components need two words of two numbers; there are {len(words)} words of "
            f"{vectors.shape[1]}"
        )
    mean, centred = _centred(vectors)
    components, shares = _components(centred)
    flat = centred @ components.T
    labels = {"word": tuple(words), "component": _PLANE}
    wide, rule = ("word", "dimension"), "the entry of greatest magnitude of each is positive"
    axes = ("component", "dimension")
    steps = (
        Stage("vectors", "V", "as given", vectors, wide, labels),
        Stage("mean", "μ", "mean over the words", mean, ("dimension",)),
        Stage("centred", "C", "C = V − μ", centred, wide, labels),
        Stage("components", "W", "C = U Σ Wᵀ", components, axes, labels, rule),
        Stage("shares", "σ²/Σσ²", "share of the variance", shares, ("component",), labels),
        Stage("coordinates", "Y", "Y = C · W", flat, ("word", "component"), labels),
    )
    return Trace("Principal components", steps, notes=_flat_notes(shares))


def _vectors(words: Sequence[str], matrix: npt.ArrayLike) -> Array:
    try:
        vectors = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError("the vectors are not rows of numbers of one length") from None
    if vectors.ndim != 2 or len(vectors) != len(words):
        raise ShapeError(
            f"there are {len(words)} words but vectors of shape {vectors.shape}",
            "give one row per word",
        )
    for word, row in zip(words, vectors, strict=True):
        if not np.isfinite(row).all():
            raise ShapeError(f"the vector of {word!r} holds numbers that are not finite")
    return vectors


def _exponents(vectors: Array) -> npt.NDArray[np.int32]:
    """A power of two per row near its greatest number: dividing by it changes no digit."""
    powers: npt.NDArray[np.int32] = np.frexp(np.abs(vectors).max(axis=1, initial=0.0))[1]
    return powers


def _lengths(vectors: Array) -> Array:
    # [n, d] -> [n]; scaled first, so that squares of very large or small numbers survive
    powers = _exponents(vectors)
    scaled = np.ldexp(vectors, -powers[:, None])
    lengths: Array = np.ldexp(np.sqrt((scaled * scaled).sum(axis=1)), powers)
    return lengths


def _cosines(vectors: Array) -> Array:
    # [n, d] -> [n, n]
    scaled = np.ldexp(vectors, -_exponents(vectors)[:, None])
    lengths = np.sqrt((scaled * scaled).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines: Array = (scaled @ scaled.T) / (lengths[:, None] * lengths)
    return np.clip(cosines, -1.0, 1.0)  # rounding can take a vector's cosine with itself past 1


def _zeros_note(words: tuple[str, ...], cosines: Array) -> str:
    zeros = [
        word for word, cosine in zip(words, np.diagonal(cosines), strict=True) if np.isnan(cosine)
    ]
    if not zeros:
        return ""
    holds = "is all zeros and has" if len(zeros) == 1 else "are all zeros and have"
    return f"{', '.join(zeros)} {holds} no direction: cosines with it are NaN"


def _centred(vectors: Array) -> tuple[Array, Array]:
    # [n, d] -> [d], [n, d]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.mean(vectors, axis=0)
        centred = vectors - mean
    if not np.isfinite(centred).all():
        raise ShapeError("the vectors hold numbers too large to take their mean")
    return mean, centred


def _components(centred: Array) -> tuple[Array, Array]:
    # [n, d] -> [2, d], [2]
    _, sigma, rows = np.linalg.svd(centred, full_matrices=False)
    nothing = sigma <= sigma[0] * max(centred.shape) * np.finfo(np.float64).eps
    rows[nothing], sigma[nothing] = 0.0, 0.0
    components = rows[:N_COMPONENTS]
    largest = np.abs(components).argmax(axis=1)[:, None]
    signs = np.where(np.take_along_axis(components, largest, axis=1) < 0, -1.0, 1.0)
    shares = np.full(N_COMPONENTS, np.nan)
    if sigma[0] > 0:
        relative = sigma / sigma[0]  # squares of the numbers themselves could overflow
        shares = relative[:N_COMPONENTS] ** 2 / (relative**2).sum()
    return components * signs + 0.0, shares  # + 0.0: no −0 where a zero row was turned


def _flat_notes(shares: Array) -> tuple[str, ...]:
    if np.isnan(shares).all():
        return ("all vectors are equal: there is no variance to explain",)
    if shares[1] == 0:
        return ("the vectors lie on one line: PC 2 explains nothing",)
    return ()
