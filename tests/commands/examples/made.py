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


def plain(run: str, *claims: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An example as written in a file."""
    named = [{"claim": "it", **claim} for claim in claims]
    return {"name": "it", "title": "", "run": run, **more, "claims": named}


def example(run: str, *claims: dict[str, Any], **more: Any) -> Example:
    """An example, read."""
    (read,) = read_examples(document(plain(run, *claims, **more)), "made.json")
    return read


def judged(run: str, *claims: dict[str, Any], **more: Any) -> list[Judgement]:
    """The judgements of an example."""
    return list(judge(example(run, *claims, **more)).judgements)
