"""attncli: attention, computed and shown step by step.

    q, k, v ── attend ──> Trace of Stages ──┬── table, markdown, csv, mermaid
                              │     │       ├── json, npz (and back)
      Convention ─────────────┘     │       └── check of other numbers
    sentence ── explain ────────────┘

>>> import attncli
>>> trace = attncli.attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
>>> trace["output"].value.round(3)
array([[6.698, 3.302]])

The names below are loaded when they are first used, so that `import attncli` costs nothing.
"""

from __future__ import annotations

from attncli._version import __version__

TYPE_CHECKING = False  # as typing has it, which is slow to import: __main__ follows this module
if TYPE_CHECKING:
    from typing import Any

    from attncli.attention.attend import attend, attend_heads
    from attncli.attention.heads import heads_first, merge_heads, split_heads
    from attncli.attention.inputs import Inputs
    from attncli.attention.stream_gradients import stream_gradients
    from attncli.attention.streaming import stream
    from attncli.attention.tiles import attend_split, attend_tiles
    from attncli.commands.check.diagnose import check
    from attncli.commands.diff.diff import diff
    from attncli.commands.explain.api import explain
    from attncli.commands.model.capture import capture
    from attncli.commands.posenc.api import posenc
    from attncli.convention import Convention
    from attncli.errors import (
        AttncliError,
        ConventionError,
        InputError,
        MissingExtraError,
        OutputError,
        ShapeError,
        SizeError,
        StageError,
    )
    from attncli.files.inputs import load
    from attncli.formats.render import plot, render
    from attncli.programs.attend import attend_by
    from attncli.programs.written import program_of
    from attncli.trace import Stage, Trace
    from attncli.transformer.multi_head import Projections, multi_head_attention
    from attncli.words.measures import similarity

__all__ = [
    "AttncliError",
    "Convention",
    "ConventionError",
    "InputError",
    "Inputs",
    "MissingExtraError",
    "OutputError",
    "Projections",
    "ShapeError",
    "SizeError",
    "Stage",
    "StageError",
    "Trace",
    "__version__",
    "attend",
    "attend_by",
    "attend_heads",
    "attend_split",
    "attend_tiles",
    "capture",
    "check",
    "diff",
    "explain",
    "heads_first",
    "load",
    "merge_heads",
    "multi_head_attention",
    "plot",
    "posenc",
    "program_of",
    "render",
    "similarity",
    "split_heads",
    "stream",
    "stream_gradients",
]

_MODULES = (
    "errors",
    "convention",
    "trace",
    "attention.heads",
    "attention.attend",
    "attention.inputs",
    "files.inputs",
    "transformer.multi_head",
    "attention.streaming",
    "attention.stream_gradients",
    "attention.tiles",
    "formats.render",
    "words.measures",
    "commands.explain.api",
    "commands.posenc.api",
    "commands.diff.diff",
    "commands.check.diagnose",
    "commands.model.capture",
    "programs.attend",
    "programs.written",
)
"""Where they are, those that import the least first."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module in _MODULES if name in __all__ else ():
        try:
            names = vars(import_module(f"attncli.{module}"))
        except ModuleNotFoundError as error:
            if not f"attncli.{module}".startswith(error.name or "-"):
                raise
            continue  # the room of a command that was taken out
        if name in names:
            return names[name]
    raise AttributeError(f"module 'attncli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
