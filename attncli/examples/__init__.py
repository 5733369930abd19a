"""Worked examples of documents as data, and what judges them.

    catalog/*.json ── load_catalog ──┐
                                     ├── Examples ── judge ── Result ── verify ── Verification
    somebody's file ── load_examples ┘

A file is one document and its examples (version 1; `catalog.schema.json` beside this module says
the same as a JSON Schema):

    {"attncli": "examples", "version": 1,
     "source": {"id": "004", "title": "…", "author": "…", "date": "…"},   author, date if known
     "examples": [
       {"name": "004-first-example", "title": "…",
        "compute": "attention",                     computations.py lists what there is
        "inputs": {"q": [[1, 0]], "k": …, "v": …},  and which inputs each takes
        "note": "…",
        "claims": [
          {"claim": "weights of query 1",           in words
           "stage": "weights",                      the stage it is about
           "at": {"query": 1},                      axis → number from 1, label, or a list of them
           "printed": ["0.42", "0.42", "0.16"],     as printed, so that the decimals show
           "verdict": "differs",                    as recorded; also "cause", "why"
           "ways": [{"how": "without the scale",
                     "inputs": {"convention": {"scale": "none"}}}]}]}]}

An array in `inputs` is nested lists, or {"random": [7, 128], "seed": 0} where its numbers do not
matter. In `printed` an entry is a text ("0.540", "1/√2", "cos(0.0001)") or a number, with
`decimals` beside it; printed.py has the rules. A claim without `printed` shows what comes out.

In place of `printed` a claim can state something: {"equal": 1}, {"close_to": 0} (within a
thousandth) or {"unequal": 0}, of the numbers at its place or of what is made of them: `take` is
{"sum": axis}, {"mean": axis}, {"deviation": axis}, {"shape": true}, {"future": true} (the cells
whose key comes after their query) or {"minus": place}. `free_sign` names an axis whose entries may
each be negated, as the components of a PCA may.

A way computes what was printed: with other `inputs`, `from` the printed numbers of an earlier
stage, or looking `at` another place. It must give the printed numbers, or those in `gives`.
"""

from attncli.examples.example import Claim, Example, Source, States, Take, Way
from attncli.examples.judge import judge, verify
from attncli.examples.load import load_catalog, load_examples
from attncli.examples.places import Piece
from attncli.examples.printed import Printed
from attncli.examples.results import Judgement, Recomputed, Result, Verification

__all__ = [
    "Claim",
    "Example",
    "Judgement",
    "Piece",
    "Printed",
    "Recomputed",
    "Result",
    "Source",
    "States",
    "Take",
    "Verification",
    "Way",
    "judge",
    "load_catalog",
    "load_examples",
    "verify",
]
