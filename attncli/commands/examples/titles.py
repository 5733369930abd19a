"""The titles of examples: found by name, article, author or word, with nothing computed.

    catalog/*.json ── titles ──> [Title, …] ── find ──> those that a text names ── list_lines

A file is read as plain JSON here, so that a list takes no longer than a computation; schema.py
checks what is computed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from attncli.errors import ConventionError
from attncli.files.messages import safe

PATHS = tuple(sorted(Path(__file__).with_name("catalog").glob("*.json")))
"""The files of the examples that come with attncli, an article each."""
SHORTEST = 3
"""Letters of the beginning of an author's name from which on it names the author."""


class Article(NamedTuple):
    """Where examples are from; "" for what is not known."""

    id: str
    title: str
    author: str = ""
    date: str = ""

    @property
    def line(self) -> str:
        """Author, title and date, and what the examples call it."""
        return self.named(f"“{self.title}”")

    def named(self, title: str = "") -> str:
        """The same with this title, or without one."""
        from attncli.page.text import clean  # with NumPy, which a list of names does without

        fields = filter(None, [self.author, title, self.date])
        return clean(f"{', '.join(fields)} ({self.id})".lstrip())


class Title(NamedTuple):
    """What is known of an example before it is read.

    article   in which it stands
    words     the text in which words are looked for
    path      its file; None: of the user's own
    is_again  whether it stands here, too, but is an example of another article
    """

    name: str
    title: str
    article: Article
    words: str
    path: Path | None = None
    is_again: bool = False


def titles() -> list[Title]:
    """Of the examples that come with attncli, in the order of the articles."""
    documents = [(path, json.loads(path.read_text("utf-8"))) for path in PATHS]
    by_name = {
        entry["name"]: title_of(entry, document["source"], path)
        for path, document in documents
        for entry in document["examples"]
        if "name" in entry
    }
    result = []
    for _, document in documents:
        article = article_of(document["source"])
        for entry in document["examples"]:
            title = by_name[entry.get("see") or entry["name"]]
            result.append(title._replace(article=article, is_again="see" in entry))
    return result


def title_of(entry: dict[str, Any], source: dict[str, str], path: Path | None = None) -> Title:
    """The title of an example as it stands in a file."""
    claims = [claim["claim"] for claim in entry["claims"]]
    words = " ".join([entry["name"], entry["title"], *claims, entry.get("note", "")])
    return Title(entry["name"], entry["title"], article_of(source), words.casefold(), path)


def article_of(source: dict[str, str]) -> Article:
    """The article of a file."""
    return Article(**{name: source.get(name, "") for name in Article._fields})


def find(everything: Sequence[Title], text: str) -> tuple[list[Title], bool]:
    """The examples that a text names, and whether they are one example or all of one article.

    A text is the name of an example, the number or the author of an article, the beginning of the
    names of some, or words that all occur in an example. Raises ConventionError where it is none.
    """
    each_once = [title for title in everything if not title.is_again]
    if exact := [title for title in each_once if title.name == text]:
        return exact, True
    folded = text.casefold()
    of_article = [title for title in everything if _names(title.article, folded)]
    if of_article:
        return of_article, len({title.article for title in of_article}) == 1
    beginning = [title for title in each_once if title.name.startswith(text)]
    words = folded.split()
    of_words = [x for x in each_once if words and all(word in x.words for word in words)]
    if some := beginning or of_words:
        return some, len(some) == 1
    close = get_close_matches(text, [title.name for title in each_once], n=3)
    near = " or ".join(map(safe, close))
    hint = f"did you mean {near}?" if near else "attncli examples lists all"
    raise ConventionError(f"there is no example {text!r}", hint)


def _names(article: Article, folded: str) -> bool:
    """Whether a text is the number of an article, or its author or the beginning of a name."""
    author = article.author.casefold()
    is_author = folded == author or any(name.startswith(folded) for name in author.split())
    return article.id == folded or (is_author and len(folded) >= SHORTEST)


def list_lines(some: Iterable[Title], width: int | None = None) -> Iterator[str]:
    """Every example by name, under the article that it is in."""
    from attncli.page.text import clean, fold, pad, sentence

    listed = list(some)
    names = max((len(title.name) for title in listed), default=0)
    article = None
    for title in listed:
        if title.article != article:
            yield from [""] if article else []
            yield from fold(title.article.line, width, 2, 0)
            article = title.article
        line = f"{pad(clean(title.name), names)}  {sentence(title.title)}"
        yield from fold(line, width, names + 4, 2)
