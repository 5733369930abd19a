"""What to say of a call that cannot be parsed: what is wrong with it, and how to write it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import accumulate, pairwise
from typing import Any

from attncli.cli.groups import options_of
from attncli.cli.parsing import with_blank_values
from attncli.cli.registry import COMMANDS

# Options of other tools and libraries → ours, where it is an option of the command.
_OURS = {
    "--query": "--q", "--queries": "--q", "--key": "--k", "--keys": "--k",
    "--value": "--v", "--values": "--v", "--x": "--embeddings", "--embeddings": "--x",
    "--words": "--tokens", "--labels": "--tokens",
    "--digits": "--precision", "--decimals": "--precision",
}  # fmt: skip
_SAME = {"rotary": "rope", "md": "markdown", "text": "table"}  # choices by other names
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LEAST, _MOST = (
    re.compile(rf"Input should be {than} than or equal to (\S+)") for than in ("greater", "less")
)
_INVALID = re.compile(
    r"Invalid value for '([^']*)'(?: / '[^']*')*: (?:Value error, )?(.*)", re.DOTALL
)


def in_words(error: Any, arguments: Sequence[str], commands: Sequence[str]) -> str:
    """One line on an error of Typer's parser, with what to write where that can be guessed."""
    context: Any = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())
    help_of = " ".join(["see attncli", *(x for x in arguments[:1] if x in commands), "--help"])
    if mistake := likely_mistake(arguments, None if context is None else context.command):
        return mistake
    if message.startswith("No such command"):
        return f"{message.rstrip('.')}; {_command(arguments, commands) or help_of}"
    if message.startswith("No such option"):
        options = [opt for param in context.command.params for opt in param.opts]
        hint = _option(error.option_name, options, error.possibilities or ())
        return f"{error.message}; {hint or help_of}"
    if message.startswith("Got unexpected extra argument"):
        return f"{message}; {_extra(context, arguments) or help_of}"
    if invalid := _INVALID.fullmatch(message):
        problem = _LEAST.sub(r"it must be \1 or more", invalid[2].rstrip("."))
        problem = _MOST.sub(r"it must be \1 or less", problem)
        message = f"{invalid[1]}: {problem}{_near_choice(problem)}"
    return f"{message.rstrip('.')}; {help_of}"


def likely_mistake(arguments: Sequence[str], command: Any) -> str:
    """What to say of a matrix that the shell split, and of a switch with a value; else "".

    >>> likely_mistake(["compute", "--q", "[[1,", "0],", "[0,", "1]]"], None)
    'the matrix is split at its blanks; put it in quotes: attncli compute --q "[[1, 0], [0, 1]]"'
    """
    switches = {
        name
        for param in (() if command is None else command.params)
        if getattr(param, "is_flag", False)
        for name in param.opts
    }
    for flag, value in pairwise(arguments):
        if (flag, value) == ("--mask", "causal"):
            return "--mask takes a file or a matrix; the causal mask is --causal"
        if flag in switches and value.lower() in _TRUTH:
            hint = "write it alone" if _TRUTH[value.lower()] else f"leave {flag} out"
            return f"{flag} takes no value; {hint}"
    for start, first in enumerate(arguments):
        if not re.match(r"'?[\[{]", first):
            continue
        depths = accumulate(
            sum(text.count(sign) for sign in "[{") - sum(text.count(sign) for sign in "]}")
            for text in arguments[start:]
        )
        end = next((n for n, depth in enumerate(depths, 1) if depth <= 0), 0)
        if end > 1 and re.search(r"\d", "".join(arguments[start : start + end])):
            matrix = " ".join(arguments[start : start + end]).strip("'")
            quoted = shlex.quote(matrix) if '"' in matrix else f'"{matrix}"'
            call = [*map(shlex.quote, arguments[:start]), quoted]
            call += map(shlex.quote, arguments[start + end :])
            text = "the matrix is split at its blanks; put it in quotes"
            return f"{text}: attncli {' '.join(call)}"
    return ""


def _command(arguments: Sequence[str], commands: Sequence[str]) -> str:
    import os

    name = arguments[0]
    if close := get_close_matches(name.lower(), commands, n=1):
        return f"did you mean {close[0]}?"
    if (os.path.exists(name) or name[:1] in ("[", "{")) and "compute" in commands:
        return f"did you mean attncli compute {shlex.quote(name)}?"
    is_sentence = " " in name.strip() and "explain" in commands
    return f'did you mean attncli explain "{name}"?' if is_sentence else ""


def _option(wrong: str, options: Sequence[str], possible: Sequence[str]) -> str:
    """Which option to use instead, or which commands have it, or ""."""
    if (ours := _OURS.get(wrong)) in options:
        return f"use {ours}"
    if owners := [name for name, command in COMMANDS.items() if wrong in options_of(command)]:
        return f"it is an option of attncli {' and '.join(owners)}"
    near = get_close_matches(wrong, options, n=1) or sorted(possible)[:1]
    return f"did you mean {near[0]}?" if near else ""


def _extra(context: Any, arguments: Sequence[str]) -> str:
    """How to write a call with more arguments than the command takes, or ""."""
    name = context.command.name
    if name == "explain":
        call = with_blank_values([*arguments[1:]], context.command.stages)
        values, rest, _ = context.command.make_parser(context).parse_args(args=call)
        sentence = " ".join((values["sentence"], *rest))
        return f'put the sentence in quotes: attncli explain "{sentence}"'
    if name == "posenc":
        return "write attncli posenc --len 5 --dim 4"
    return "name the others with --k, --v or --mask" if name in ("compute", "check") else ""


def _near_choice(message: str) -> str:
    """A question after a text that is none of the choices named, or ""."""
    match = re.fullmatch(r"'(.*)' is not one of (.*)", message, re.DOTALL)
    choices = re.findall("'([^']*)'", match[2]) if match else []
    word = match[1].lower() if match else ""
    near = get_close_matches(_SAME.get(word, word), choices, n=1)
    return f"; did you mean {near[0]}?" if near else ""
