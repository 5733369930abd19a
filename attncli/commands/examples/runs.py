"""The call that an example is: read from its text, computed in this process, shown for a shell.

"run": "compute --q - --causal", "input": {"q": …} ── read_words ── Run ──┬── trace_of ──> Trace
                                                                         └── shown ──> text
"""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from typing import NamedTuple

from attncli.cli.calls import parsed, trace_from
from attncli.convention import flag_of
from attncli.errors import InputError
from attncli.files.json_text import described
from attncli.files.messages import listing, quote, safe
from attncli.trace import Trace
from attncli.words.vector_files import GLOVE_SITE

COMMANDS = ("compute", "explain", "posenc", "similarity", "diff", "model")
"""Those that an example can call: they give a trace, and write only where a flag says so."""
_HINT = "write \"compute --q '[[1, 0], [0, 1]]' --causal\""
MOST_CHARACTERS = 1 << 17
"""Of a call: what Linux takes as one argument."""

_REFUSED = {
    "output": "writes a file",
    "dump": "writes a file",
    "open": "opens a browser",
    "step": "waits for keys",
    "max_size": "is for whoever runs the example",
}
"""Options that a call of an example cannot have, and what is wrong with each."""


class Run(NamedTuple):
    """A call of a command.

    words    the command and its arguments, as a shell passes them
    options  further ones, which replace those of the words
    stdin    the text of standard input; None: it reads none
    needs    the word that stands for a file of word vectors that does not come with the example
    """

    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    stdin: str | None = None
    needs: str = ""

    def with_vectors(self, path: str | None) -> Run:
        """The same with this file of word vectors."""
        if path is None or not self.needs:
            return self
        return self._replace(words=tuple(path if x == self.needs else x for x in self.words))

    @property
    def pieces(self) -> list[str]:
        """The call without the options as it is typed into a shell, each flag with its values."""
        words = [shlex.quote(word) for word in ("attncli", *self.words)]
        starts = [0, *(at for at, word in enumerate(words) if word.startswith("--")), len(words)]
        pieces = [" ".join(words[start:end]) for start, end in pairwise(starts)]
        if self.stdin is None:
            return pieces
        echo = "printf %s" if "\\" in self.stdin else "echo"  # some shells' echo reads \n
        return [f"{echo} {shlex.quote(self.stdin)} |", *pieces]

    @property
    def shown(self) -> str:
        """The same on one line."""
        return " ".join(self.pieces)

    def trace(self) -> Trace:
        """What it computes. AttncliError for a call that is wrong, or that may write or wait."""
        command, *words = self.words
        values = parsed(command, words)
        more = parsed(command, self.options) if self.options else {}
        values |= {name: x for name, x in more.items() if x is not None and x is not False}
        for name, why in _REFUSED.items():
            if values.get(name):
                raise InputError(f"its run has {flag_of(name)}, which {why}", "leave it out")
        reads = any(_reads_stdin(word) for word in (*self.words, *self.options))
        if reads != (self.stdin is not None):
            message = "its run reads standard input, but there is no input"
            hint = 'write "input": {"q": [[1, 0]]}'
            if not reads:
                message, hint = "there is an input, which its run does not read", "write --q -"
            raise InputError(message, hint)
        try:
            return trace_from(command, values | {"quiet": True}, self.stdin or "")
        except InputError as problem:
            if not self.needs:
                raise
            hint = f"the example was made with {safe(self.needs)}, of {GLOVE_SITE}"
            raise InputError(problem.message, hint) from problem


def _reads_stdin(word: str) -> bool:
    return word.partition("::")[0] == "-"


def read_words(data: object) -> tuple[str, ...]:
    """The command and its arguments in the text of a call. Raises InputError."""
    words = read_options(data)
    words = words[words[0] == "attncli" :]
    if words[:1] and words[0] in COMMANDS:
        return words
    calls = f"calls {quote(words[0])}" if words else "calls nothing"
    raise InputError(f" {calls}", f"use {listing(COMMANDS)}")


def read_options(data: object) -> tuple[str, ...]:
    """The words of a text, split as a shell does. Raises InputError."""
    if not isinstance(data, str):
        raise InputError(f" is {described(data)}", _HINT)
    if len(data) > MOST_CHARACTERS:
        raise InputError(f" has {len(data)} characters", f"{MOST_CHARACTERS} is the most")
    try:
        words = tuple(shlex.split(data))
    except ValueError:
        raise InputError(" ends within a quotation", "close the quotation mark") from None
    if not words or {"--help", "-h"} & {*words}:
        raise InputError(" computes nothing", "write \"compute --q '[[1, 0], [0, 1]]'\"")
    return words


def read_stdin(data: object) -> str:
    """Standard input: a text, or the JSON of anything else. Raises InputError."""
    if isinstance(data, str):
        return data
    try:
        return json.dumps(data, ensure_ascii=False)
    except TypeError:  # Beyond
        raise InputError(" holds a number beyond float64", "the limit is 1.8e308") from None
    except RecursionError:
        raise InputError(" is nested too deeply", "use 2 to 4 levels") from None
