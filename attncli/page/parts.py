"""The parts of a page, before any format writes them.

A format is a loop over the parts. Every string in them is clean (see text.py), labels excepted,
which `labels` cleans; what means something to a format, it escapes itself.
"""

from __future__ import annotations

from typing import NamedTuple

from attncli.arrays import Array
from attncli.page.matrix import Matrix
from attncli.page.options import Index
from attncli.page.text import plain


class Headline(NamedTuple):
    """The title of a trace or of a block in it, its sizes, its convention, its notes."""

    title: str
    facts: tuple[str, ...]
    choices: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """What stands below the title."""
        lines = (" · ".join(self.facts), " · ".join(self.choices), *self.notes)
        return [line for line in lines if line]


class Heading(NamedTuple):
    """What the parts that follow belong to: a head, or a part of the computation at all heads."""

    text: str
    is_whole: bool = False


class Remark(NamedTuple):
    """A line on what is left out, and what shows it."""

    text: str


class Plot(NamedTuple):
    """Points in a plane [n, 2], and their names."""

    names: tuple[str, ...]
    points: Array


class Closing(NamedTuple):
    """Sentences on the weights of an attention or their gradients, under a heading for each head.

    places  at which head and batch entry each of them is; () where they are of the whole
    stage   the name of the stage that they are on, "" where they are on several
    """

    heads: tuple[tuple[str, tuple[str, ...]], ...]
    places: tuple[Index, ...] = ()
    stage: str = ""


class Branch(NamedTuple):
    """A line of a tree: what is drawn before it, the step's name, its shape and formula."""

    lead: str
    name: str
    shape: str
    formula: str


class Tree(NamedTuple):
    """The steps of a trace with their formulas and shapes."""

    branches: tuple[Branch, ...]


class Equation(NamedTuple):
    """left = one form = the next = the result; words of a form may be on separate lines.

    Numbers and labels in it have marks around them (see text.py), except in the remark.

    is_rounded  the last form is not exactly what the form before it gives as it is written: ≈
    """

    left: str
    forms: tuple[tuple[str, ...], ...]
    remark: str = ""
    is_rounded: bool = False

    @property
    def signs(self) -> list[str]:
        """What stands before each form."""
        return ["="] * (len(self.forms) - 1) + ["≈" if self.is_rounded else "="]

    @property
    def plain(self) -> Equation:
        """The equation without marks, as text."""
        forms = tuple(tuple(map(plain, form)) for form in self.forms)
        return self._replace(left=plain(self.left), forms=forms)


Part = Headline | Heading | Matrix | Plot | Closing | Remark | Tree
