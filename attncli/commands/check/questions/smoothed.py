"""The log-sum-exp of smoothed keys: a constant of a row is lost in the weights, not in its own.

Kernels of few bits subtract the mean of K from each key: all scores of a query are less by
scale · q · mean(K), which changes no weight. The log-sum-exp lacks it until it is added again.
"""

from __future__ import annotations

from collections.abc import Iterator

from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.bugs.patch import whole_plan
from attncli.commands.check.bugs.rewrite import names_of
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.search import Search
from attncli.stages import LSE

OF_KEYS = {
    "K − mean(K)": "sum[l]({x}[b,h,i,l]) / size[l]",
    "K − the mean of those that the query may attend to": (
        "sum[l]({x}[b,h,i,l] where mask[b,h,i,l] != -inf)"
        " / sum[l](1 where mask[b,h,i,l] != -inf and {x}[b,h,i,l] == {x}[b,h,i,l])"
    ),
}
"""The mean of the scores of a query, by the words for the keys that have it subtracted."""


def smoothed(search: Search) -> Iterator[Answer]:
    """Whether an observed log-sum-exp is off by the mean of the scores of its query."""
    setup, stage = search.comparison.setup, search.comparison.errors.get(LSE)
    if stage is None or stage.matches or setup.convention.softcap is not None:
        return
    names = names_of(whole_plan(setup))
    x = "unmasked" if "unmasked" in names else "logits"
    base = " / ln(2)" if setup.convention.lse_base == "2" else ""
    for keys, text in OF_KEYS.items():
        mean = text.format(x=x)
        for sentence, sign in (
            (f"lse is that of {keys}: scale · q · mean(K) is not added again", "-"),
            (f"lse is that of {keys}, to which scale · q · mean(K) is added twice", "+"),
        ):
            lines = [f"lse: => right {sign} {mean}{base}"]
            yield Answer(sentence, changed(lines, setup, search.evidence))
