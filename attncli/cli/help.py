"""--help in two sizes, and the pages of the manual.

attncli compute --help            what people use: help.txt of its room
attncli compute --help all        every option, from its declaration; of some groups the names alone
attncli compute --help masking    one group of them, under which the first has them too
attncli help                      the topics
attncli help masks                a page: help/masks.md
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from importlib.resources import files
from shutil import get_terminal_size
from typing import Any

from attncli.cli.groups import Command, typer_command
from attncli.cli.registry import COMMANDS, find, names, summary
from attncli.cli.terminal import console, unshielded
from attncli.errors import ConventionError
from attncli.files.characters import as_printed, printed_on

PAGES = files("attncli") / "help"
ALL, HELP = "all", "help"
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")  # keeps its backticks where nothing has a style


def show_help(arguments: Sequence[str]) -> bool:
    """Shows the help that a call asks for; False where it asks for none, or for that of attncli."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    places = [at for at, x in enumerate(before) if x in ("--help", "-h")]
    name, topic = arguments[0], [*before[places[0] + 1 :], ""][0].lower() if places else ""
    if name == HELP and not places:
        _show_topics(arguments[1:])
    elif not places or (name not in (*COMMANDS, HELP) and find(name) is None):
        return False
    elif name not in (*COMMANDS, HELP):
        _show_options(name, topic if topic and not topic.startswith("-") else ALL)
    elif name == HELP or not topic or topic.startswith("-"):
        sys.stdout.write(_short(name))
    else:
        _show_options(name, topic)
    return True


def _show_options(name: str, topic: str) -> None:
    """Every option of a command, or those of a group, which may be named by its beginning."""
    row = find(name) or Command(())
    command: Any = typer_command(name, row)
    group_of = {param.name: (param.rich_help_panel or "").lower() for param in command.params}
    groups = [*dict.fromkeys(filter(None, group_of.values()))]  # arguments are in none
    matches = [x for x in (ALL, *groups) if x == topic] or [
        x for x in groups if x.startswith(topic)
    ]
    if len(matches) != 1:
        near = get_close_matches(topic, [*groups, ALL], 1)
        problem = f"{name} has no group of options {topic!r}, only {', '.join(groups)}"
        hint = f"did you mean {near[0]}?" if near else "--help all shows every option"
        raise ConventionError(problem, hint)
    with command.make_context(f"attncli {name}", [], resilient_parsing=True) as context:
        command.get_help_option(context).rich_help_panel = (
            group_of.get("debug", "").capitalize() or None
        )
        apart = [panel.lower() for panel in row.apart if matches[0] == ALL]
        for param in command.get_params(context):
            group = group_of.get(param.name)
            is_asked = group not in apart if matches[0] == ALL else group == matches[0]
            param.hidden = param.hidden or not is_asked
        command.format_help(context, context.make_formatter())
    for group in apart:
        flags = [param.opts[0] for param in command.params if group_of[param.name] == group]
        line = f"attncli {name} --help {group}: {', '.join(flags)}"
        width = min(get_terminal_size().columns, 80)
        sys.stdout.write(
            textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False) + "\n"
        )


def _short(name: str) -> str:
    """What people use of a command, no wider than the terminal."""
    lines, width = list[str](), min(get_terminal_size().columns, 80)
    with printed_on(sys.stdout):
        text = as_printed(_text(name))
    for line in re.sub(r"(?<=\S)\n( {24}|(?=\S))", " ", text).splitlines():  # a paragraph, a row
        is_row = line.startswith("  ") and not line.startswith("  attncli")
        hang = " " * (24 if is_row else 4 * line.startswith("  "))  # where descriptions begin
        at_blanks: Any = {"break_long_words": False, "break_on_hyphens": False}
        lines += textwrap.wrap(line, width, subsequent_indent=hang, **at_blanks) or [""]
    return "\n".join([*lines, ""])


def _text(name: str) -> str:
    """What stands in help.txt of a command's room; of a plug-in what it says of itself."""
    if name in COMMANDS:
        return (files("attncli") / "commands" / name / "help.txt").read_text("utf-8")
    if name != HELP:
        more = f"attncli {name} --help shows every option."
        return f"Usage: attncli {name} [OPTIONS]\n\n{summary(name)}\n\n{more}\n"
    text = (PAGES / "help.txt").read_text("utf-8")
    rows = [f"  {name:<22}{summary(name)}" for name in names() if name not in COMMANDS]
    return "\n".join([text, "Commands of other packages", *rows, ""]) if rows else text


def manual() -> list[str]:
    """The pages of the manual, by name."""
    return sorted(page.name[:-3] for page in PAGES.iterdir() if page.name.endswith(".md"))


def _pages_on(word: str, pages: Sequence[str]) -> list[str]:
    """Two pages at most that have a word: those whose line in the list of topics has it first, then
    those that have a heading with it."""
    pattern = re.compile(rf"\b{re.escape(word)}", re.IGNORECASE)
    about = dict(re.findall(r"(?m)^  (\w+) +(.+)$", _text(HELP)))
    counts = {
        page: (
            bool(pattern.search(about.get(page, ""))),
            any(map(pattern.search, re.findall("(?m)^#.*", text))),
            len(pattern.findall(text)),
        )
        for page in pages
        if page != "options"  # calls without words
        if (text := (PAGES / f"{page}.md").read_text("utf-8")) and pattern.search(text)
    }
    return sorted(counts, key=lambda page: counts[page], reverse=True)[:2]


def _show_topics(topics: Sequence[str]) -> None:
    """Pages of the manual, or the help of commands, one after the other; or the list of both."""
    from rich.markdown import Markdown

    pages = manual()
    for name in topics:
        if name not in (*pages, *COMMANDS, HELP) and find(name) is None:
            near = get_close_matches(name, [*pages, *names()], 1)
            others = " or ".join(f"attncli help {page}" for page in _pages_on(name, pages))
            hint = f"did you mean {near[0]}?" if near else f"see {others}" if others else ""
            raise ConventionError(f"there is no topic {name!r}", hint or "attncli help lists them")
    screen = console(sys.stdout)
    os.environ.setdefault("LESS", "-FRX")  # less shows colours, and ends where all fits
    with (
        unshielded(),
        printed_on(sys.stdout),
        screen.pager(styles=True) if screen.is_terminal else nullcontext(),
    ):
        for at, name in enumerate(topics or [HELP]):
            screen.print("\n" * (at > 0), end="")
            text = (PAGES / f"{name}.md").read_text("utf-8") if name in pages else _short(name)
            text = as_printed(text)
            if name not in pages:
                screen.print(text, end="", soft_wrap=True)
            elif screen.color_system is None:
                with screen.capture() as page:
                    screen.print(Markdown(_CODE.sub(r"`` `\1` ``", text)))
                lines = map(str.rstrip, page.get().splitlines())
                screen.print("\n".join(lines), soft_wrap=True)
            else:
                screen.print(Markdown(text))
