"""Examples made for the tests, from Python instead of a file."""

from pathlib import Path
from typing import Any

from attncli.commands.examples.judge import Judgement, judge
from attncli.commands.examples.schema import Example, read_examples

CATALOG = Path(__file__).parents[3] / "attncli" / "commands" / "examples" / "catalog"


def document(*examples: dict[str, Any]) -> dict[str, Any]:
    """A document of these examples."""
    source = {"id": "t", "title": "A test"}
    return {"attncli": "examples", "version": 1, "source": source, "examples": list(examples)}


def plain(compute: str, inputs: dict[str, Any], *claims: dict[str, Any]) -> dict[str, Any]:
    """An example as written in a file."""
    named = [{"claim": "it", **claim} for claim in claims]
    return {"name": "it", "title": "", "compute": compute, "inputs": inputs, "claims": named}


def example(compute: str, inputs: dict[str, Any], *claims: dict[str, Any]) -> Example:
    """An example, read."""
    (read,) = read_examples(document(plain(compute, inputs, *claims)), "made.json")
    return read


def judged(compute: str, inputs: dict[str, Any], *claims: dict[str, Any]) -> list[Judgement]:
    """The judgements of an example."""
    return list(judge(example(compute, inputs, *claims)).judgements)
