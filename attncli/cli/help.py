"""--help in two sizes, and the pages of the manual.

attncli compute --help            what people use: help/commands/compute.txt
attncli compute --help all        every option, from its declaration
attncli compute --help masking    one group of them
attncli help                      the topics
attncli help masks                a page: help/masks.md
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from attncli.cli.commands import COMMANDS
from attncli.cli.groups import typer_command
from attncli.errors import ConventionError

PAGES = files("attncli") / "help"
ALL = "all"


def show_help(arguments: Sequence[str]) -> bool:
    """Shows the help that a call asks for; False where it asks for none, or for that of attncli.

    ConventionError for a topic that there is not.
    """
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    asked = [at for at, x in enumerate(before) if x in ("--help", "-h")]
    if arguments[:1] == ["help"] and not asked:
        _show_topic(arguments[1:])
        return True
    if not asked or arguments[0] not in COMMANDS:
        return False
    name, topic = arguments[0], [*before[asked[0] + 1 :], ""][0].lower()
    command = typer_command(name, COMMANDS[name])
    groups = dict.fromkeys(_group(param) for param in command.params if _group(param))
    if topic == ALL or topic in groups:
        for param in command.params:
            param.hidden = param.hidden or topic not in (ALL, _group(param))
        with command.make_context(f"attncli {name}", [], resilient_parsing=True) as context:
            command.format_help(context, context.make_formatter())
    elif near := get_close_matches(topic, [*groups, ALL], 1):
        raise ConventionError(f"there is no group of options {topic!r}", f"did you mean {near[0]}?")
    else:
        sys.stdout.write((PAGES / "commands" / f"{name}.txt").read_text("utf-8"))
        sys.stdout.write("\n--help all shows every option, --help GROUP those of a group:\n")
        sys.stdout.write(f"{', '.join(groups)}.\n")
    return True


def _group(param: Any) -> str:
    """The group of options that a parameter is shown in, in lowercase; "" of an argument."""
    is_option = param.param_type_name == "option"
    return str(getattr(param, "rich_help_panel", None) or "").lower() if is_option else ""


def topics() -> dict[str, str]:
    """Each page of the manual and its first line, without its mark."""
    pages = {page.name[:-3]: page for page in PAGES.iterdir() if page.name.endswith(".md")}
    first = {name: pages[name].read_text("utf-8").partition("\n")[0] for name in sorted(pages)}
    return {name: line.lstrip("# ") for name, line in first.items()}


def _show_topic(names: Sequence[str]) -> None:
    """A page of the manual, or of a command, or the list of both."""
    from rich.console import Console
    from rich.markdown import Markdown

    known = topics()
    if not names:
        width = max(map(len, known), default=0)
        lines = [f"  {name:<{width}}  {title}" for name, title in known.items()]
        commands = ", ".join(COMMANDS)
        sys.stdout.write("\n".join(["attncli help TOPIC shows a page:", *lines, ""]))
        sys.stdout.write(f"attncli COMMAND --help shows the options of {commands}\n")
    elif names[0] in COMMANDS:
        show_help([names[0], "--help"])
    elif names[0] in known:
        page = Markdown((PAGES / f"{names[0]}.md").read_text("utf-8"))
        screen = Console()
        if screen.is_terminal:
            os.environ.setdefault("LESS", "-FRX")  # less shows colours, and ends where all fits
            with screen.pager(styles=True):
                screen.print(page)
        else:
            screen.print(page)
    else:
        near = get_close_matches(names[0], [*known, *COMMANDS], 1)
        hint = f"did you mean {near[0]}?" if near else "attncli help lists them"
        raise ConventionError(f"there is no topic {names[0]!r}", hint)
