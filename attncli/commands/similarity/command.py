"""attncli similarity: how similar word vectors are."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np

from attncli.arrays import Like
from attncli.attention.memory import bytes_of
from attncli.budget import check_free
from attncli.cli.options import DisplayFlags
from attncli.cli.output import note
from attncli.cli.output_size import LABEL, of_output
from attncli.cli.results import TraceResult
from attncli.commands.similarity.flags import WordFlags
from attncli.errors import ConventionError, InputError
from attncli.files.messages import listing, quote, safe
from attncli.formats import PAGE
from attncli.page.matrix import WIDEST
from attncli.trace import Stage, Trace
from attncli.words.measures import analogy, pca, pca_steps, similarity_steps
from attncli.words.measures import similarity as alike
from attncli.words.vector_files import BUILTIN
from attncli.words.vectors import Vectors, nearest, read_vectors, suggestion

NEAREST = 5  # words shown after an analogy, unless --nearest says how many


def similarity(words: WordFlags, show: DisplayFlags) -> TraceResult:
    """The comparison of the words that the flags name."""
    names, source = _source(words)
    n = len(names)
    if not words.pca:
        _check_room(n, 0, words, show)  # before a large file is read
    vectors = _read(source, names)
    _check_room(n, vectors.matrix.shape[1], words, show)
    notes = [*vectors.warnings, *vectors.in_other_case]
    if words.pca:
        trace = pca(vectors.words, vectors.matrix)
    else:
        make = _similarity if words.analogy is None else _analogy
        trace = make(vectors, words, source, notes)
    note(*dict.fromkeys(notes), quiet=show.quiet)
    if show.form.holds == PAGE:
        is_pair = len(vectors.words) == 2 and words.analogy is None and not words.pca
        show = _readable(trace, show, shows_pair=is_pair)
    return TraceResult(trace=trace, show=show)


def _check_room(n: int, dim: int, words: WordFlags, show: DisplayFlags) -> None:
    """SizeError where the tables of n words and vectors of this width do not fit."""
    vectors, steps = Like((n, dim)), pca_steps() if words.pca else similarity_steps()
    more = bytes_of(steps, {"vectors": vectors}).most + 3 * vectors.nbytes + n * LABEL
    more += of_output(show, (n, dim if words.pca else max(n, dim)))
    check_free(more, f"comparing {n} words needs", "name fewer")


def _readable(trace: Trace, show: DisplayFlags, *, shows_pair: bool) -> DisplayFlags:
    """For the eye: the arithmetic of a pair, and no rows of a hundred numbers unless asked for."""
    show = replace(show, work=show.work or shows_pair)
    wide = [name for name, stage in trace.stages() if stage.axes[-1:] == ("dimension",)]
    too_wide = wide and trace[wide[0]].value.shape[-1] > WIDEST
    if show.stage or show.full or not too_wide:
        return show
    names = " and ".join(f"step {n} ({name})" for n, name in enumerate(trace, 1) if name in wide)
    note(f"left out, because it is too wide: {names}; --full shows it", quiet=show.quiet)
    return replace(show, stage=[name for name in trace if name not in wide])


def _source(words: WordFlags) -> tuple[list[str], str]:
    """The words asked for, each once, and where their vectors are: a SOURCE, or the words."""
    entries, three = list(words.words or ()), list(words.analogy or ())
    if any(word.startswith("--") for word in three):
        before = " ".join(takewhile(lambda word: word[:2] != "--", three))
        message = f"--analogy takes three words, not {before!r}"
        raise ConventionError(message, "write --analogy A B C")
    inline = [word for word in entries if "=" in word[1:]]
    for word in inline if words.vectors is None else ():
        if not word.rpartition("=")[2].strip():
            raise ConventionError(f"{quote(word)} has no numbers", f"write {safe(word)}0.9,0.5,0.1")
    if not entries + three:
        raise ConventionError("no word is named", "add one: attncli similarity king queen")
    if words.vectors is not None or not inline:
        source = BUILTIN if words.vectors is None else words.vectors
        return list(dict.fromkeys(entries + three)), source
    if len(inline) != len(entries):
        bare = next(word for word in entries if word not in inline)
        hint = f"give every word its numbers ({safe(bare)}=0.9,0.5,0.1), or none"
        raise ConventionError(f"{quote(bare)} has no numbers, {quote(inline[0])} has", hint)
    names = [word.rpartition("=")[0] for word in entries]
    return list(dict.fromkeys(names + three)), "; ".join(inline)


def _read(source: str, words: list[str]) -> Vectors:
    """The vectors of all these words; a word that is not there is an error that says what is."""
    vectors = read_vectors(source, words)
    if not vectors.missing:
        return vectors
    words_of = [f": {safe(word)} " for word in vectors.missing]
    wrong = [text for word in words_of for text in vectors.warnings if word in text]
    names = listing(map(repr, vectors.missing), 8)
    hint = wrong[0] if wrong else suggestion(vectors.missing)
    if vectors.whole:
        hint += f"{' Else ' if hint else ''}{vectors.whole}"
    raise InputError(f"{vectors.origin} has no vector for {names}", hint or "check the spelling")


def _similarity(vectors: Vectors, words: WordFlags, source: str, notes: list[str]) -> Trace:
    trace = alike(vectors.words, vectors.matrix)
    if words.nearest is None:
        return trace
    lists = []
    for number, (word, vector) in enumerate(
        zip(vectors.words, vectors.matrix, strict=True), start=1
    ):
        without = {vectors.folded.get(word, word)}
        near = _nearest(source, vector, words.nearest, without, word, notes, "vectors")
        lists += [replace(block, name=f"nearest_{number}") for block in near]
    return replace(trace, steps=(*trace.steps, *lists))


def _analogy(vectors: Vectors, words: WordFlags, source: str, notes: list[str]) -> Trace:
    a, b, c = words.analogy or ("", "", "")
    row = dict(zip(vectors.words, vectors.matrix, strict=True))
    trace = analogy((a, b, c), [row[word] for word in (a, b, c)])
    vector = trace["analogy"].value.reshape(-1)
    without = {vectors.folded.get(word, word) for word in (a, b, c)}
    name = f"{b} − {a} + {c}"
    n = words.nearest or NEAREST
    near = _nearest(source, vector, n, without, name, notes, "analogy")
    return replace(trace, steps=(*trace.steps, *near))


def _nearest(
    source: str, vector: Any, n: int, without: set[str], name: str, notes: list[str], read: str
) -> list[Trace]:
    """The nearest words as a block of its own, its stage `nearest` their cosines with `read`.

    None, and a note, where there are no other words.
    """
    neighbours = nearest(source, vector, n, without)
    notes += neighbours.warnings
    if not neighbours.pairs:
        notes.append(f"there is no other word that could be nearest to {name}")
        return []
    cosines = np.array([[cosine] for _, cosine in neighbours.pairs]).reshape(-1, 1)
    labels = {"word": tuple(word for word, _ in neighbours.pairs), "measure": ("cosine",)}
    formula = "the words whose vectors have the largest cosine"
    axes, reads = ("word", "measure"), {"x": read}
    stage = Stage("nearest", "cos", formula, cosines, axes, labels, reads=reads)
    return [Trace(f"Nearest to {name}", (stage,), name="nearest_1")]
