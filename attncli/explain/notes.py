"""A sentence of plain words for every stage, laid over those that have none."""

from __future__ import annotations

from dataclasses import replace

from attncli.convention import Convention
from attncli.trace import Stage, Trace

_NOTES = {
    "tokens": "words and punctuation; equal words share a number",
    "embeddings": "one vector for each word, whatever stands around it: static",
    "positions": "the place of each token, counted from 0: all that tells equal words apart",
    "input": "what a word is, and where it stands: what the first layer reads",
    "q": "a query for each token: what it looks for",
    "k": "a key for each token: what it can be found by",
    "v": "a value for each token: what it hands to those who attend to it",
    "scores": "every query times every key: the larger, the better the two fit",
    "scaled": "made smaller, so that wide vectors do not push softmax to its ends",
    "capped": "bent smoothly, so that no score goes beyond the cap",
    "masked": "what may not be seen gets no score worth having",
    "weights": "scores as shares: how each token divides its attention among the keys",
    "dropped": "some weights are set to 0 at random, as in training",
    "output": "for each token a mixture of all values, in the proportions of its weights",
    "concat": "what the heads found, side by side",
    "projected": "the heads mixed with each other, back at the width of the input",
    "sublayer_dropped": "some numbers are set to 0 at random, as in training",
    "residual": "what went in is added, so that the word itself is not lost",
    "mean": "the mean of each token's numbers",
    "deviation": "how far they spread around it",
    "norm": "each token's numbers brought to mean 0 and deviation 1, then gain and bias",
    "hidden": "each token by itself: more numbers, the negative ones set to 0 (ReLU)",
    "feed_forward": "and back to the width of the model",
}


def annotated(trace: Trace, *, one_head: bool = False, identity: bool = False) -> Trace:
    """The trace with a note on every stage that has none.

    one_head  there is one head: concat would be a copy of the output, so it is left out
    identity  nothing was multiplied by W_q, W_k and W_v, so formulas leave them out

    >>> import numpy as np
    >>> stage = Stage("k", "K", "K = X W_k", np.eye(2), ("key", "d_k"))
    >>> annotated(Trace("Attention", (stage,)), identity=True)["k"].formula
    'K = X'
    """
    how = trace.convention or Convention()
    copied = one_head and any(step.name == "projected" for step in trace.steps)
    steps = tuple(
        _noted(step, how, one_head=copied, identity=identity)
        if isinstance(step, Stage)
        else annotated(step, one_head=one_head, identity=identity)
        for step in trace.steps
        if not (copied and step.name == "concat")
    )
    return replace(trace, steps=steps)


def _noted(stage: Stage, how: Convention, *, one_head: bool, identity: bool) -> Stage:
    formula, note = stage.formula, _NOTES.get(stage.name, "")
    if identity and stage.name in {"q", "k", "v"}:
        formula = formula.replace(f" W_{stage.name}", "")
    if one_head and stage.name == "projected":
        formula, note = formula.replace("H W_o", "O W_o"), "back at the width of the input"
    if stage.name == "scaled" and not isinstance(how.scale, str):
        note = "every score times the same factor"
    if stage.name == "weights" and how.softmax_over == "queries":
        note = "scores as shares: how each key divides itself among the queries"
    if stage.name == "positions" and stage.note:
        note = f"{note}; {stage.note}"
    elif stage.note:
        note = stage.note
    return replace(stage, formula=formula, note=note)
