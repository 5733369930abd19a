"""Worked examples of documents as data, and how they are judged.

    catalog/*.json ── load_catalog ──┐
                                     ├── Examples ── judge ── Result ── Judgement of each claim
    a file ── load_examples ─────────┘

A file holds one document and its examples; schema.py and compute.py declare all that it can say,
and `catalog.schema.json` repeats it as a JSON Schema:

    {"attncli": "examples", "version": 1,
     "source": {"id": "004", "title": "…", "author": "…", "date": "…"},
     "examples": [
       {"name": "004-first-example", "title": "…",
        "compute": "attention", "inputs": {"q": [[1, 0]], "k": …, "v": …},
        "claims": [
          {"claim": "weights of query 1", "stage": "weights", "at": {"query": 1},
           "printed": ["0.42", "0.42", "0.16"], "verdict": "differs", "why": "…",
           "ways": [{"how": "without the scale",
                     "inputs": {"convention": {"scale": "none"}}}]}]}]}
"""

from attncli.commands.examples.judge import Judgement, Recomputed, Result, judge
from attncli.commands.examples.schema import Example, load_catalog, load_examples

__all__ = ["Example", "Judgement", "Recomputed", "Result", "judge", "load_catalog", "load_examples"]
