"""What could follow in a shell, for the options and arguments that are no choice of a few texts.

Typer calls these by the names of their parameters; each imports what it needs once a shell asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

_MOST = 70  # characters of what is said of a name: a line of a terminal


def complete_stage(ctx: Any, incomplete: str) -> list[str]:
    """Stages of the command by name: those that have no row in attncli/stages.py first."""
    from attncli.stages import SPECS

    names = dict.fromkeys((*getattr(ctx.command, "stages", ()), *SPECS))
    return [name for name in names if name.startswith(incomplete)]


def complete_library(incomplete: str) -> list[str]:
    """The libraries of attncli semantics by name."""
    from attncli.presets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


def complete_positions(incomplete: str) -> list[str]:
    """The kinds of positions that check can put in."""
    kinds = ("paper", "article", "rope-halves", "rope-interleaved")
    return [name for name in kinds if name.startswith(incomplete)]


def complete_topic(incomplete: str) -> list[tuple[str, str]]:
    """The topics of attncli help: the pages of the manual, then the commands."""
    from attncli.cli.help import manual
    from attncli.cli.registry import names, summary

    rows = dict.fromkeys(manual(), "") | {name: summary(name) for name in names()}
    return described(rows, incomplete)


def described(rows: Mapping[str, str], incomplete: str) -> list[tuple[str, str]]:
    """Names and what is said of each, which zsh and fish show, on one line."""
    names = (name for name in rows if name.startswith(incomplete))
    return [(x, shorten(rows[x], _MOST, placeholder="…").replace("[", r"\[")) for x in names]
