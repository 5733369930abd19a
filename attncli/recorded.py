"""The call that gave a trace: of a command in a shell, or of a function in Python.

attncli compute --q x.json --causal ──> RecordedCall ── str() ──> the same text
                                          └── its options, and which of them read files
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec

if TYPE_CHECKING:
    from attncli.trace import Trace

Provides = Literal["", "input", "file"]

P = ParamSpec("P")
_PLAIN = (str, int, float, bool, type(None))
_LONGEST = 200  # characters of an argument of Python: a call of a line or two


class CallOption(NamedTuple):
    """An option or an argument of a call, with its values.

    name      "softcap" of --softcap 2
    words     ("--softcap", "2"); in Python ("softcap=2.0",)
    provides  "input": what is computed from, such as a sentence; "file": the same, from a file,
              standard input or an array, which are no part of the call; "": it is a choice
    """

    name: str
    words: tuple[str, ...]
    provides: Provides = ""


@dataclass(frozen=True)
class RecordedCall:
    """A call, as it was given, without the options that only say how its result is shown.

    function  "attncli compute", or "attncli.attend" in Python
    options   in the order in which they were given

    >>> heads = CallOption("heads", ("--heads", "2"))
    >>> call = RecordedCall("attncli explain", (CallOption("sentence", ("a b",), "input"), heads))
    >>> str(call), str(call.without("input"))
    ("attncli explain 'a b' --heads 2", 'attncli explain --heads 2')
    """

    function: str
    options: tuple[CallOption, ...] = ()

    def __str__(self) -> str:
        if self.is_python:
            return f"{self.function}({', '.join(self.texts)})"
        return " ".join([self.function, *self.texts])

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each option, as a shell or Python takes it."""
        write = " ".join if self.is_python else shlex.join
        return tuple(write(option.words) for option in self.options)

    @property
    def is_python(self) -> bool:
        """Whether it is of a function, not of a command."""
        return "." in self.function

    @property
    def is_complete(self) -> bool:
        """Whether it says by itself what is computed: it reads no file and takes no array."""
        return all(option.provides != "file" for option in self.options)

    @property
    def reads_stdin(self) -> bool:
        """Whether one of its options names standard input."""
        sources = (x.words[-1] for x in self.options if x.provides == "file")
        return any(source.split("::")[0] == "-" for source in sources)

    def without(self, *provides: Provides, names: Sequence[str] = ()) -> RecordedCall:
        """The call without the options that provide one of these, or have one of these names."""
        options = (x for x in self.options if x.provides not in provides and x.name not in names)
        return replace(self, options=tuple(options))

    def get(self, name: str) -> CallOption | None:
        """The option of this name, where it is given."""
        return next((option for option in self.options if option.name == name), None)


def recorded(function: Callable[P, Trace]) -> Callable[P, Trace]:
    """A function that gives a trace, as one that gives a trace with its call."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Trace:
        trace = function(*args, **kwargs)
        call = RecordedCall(f"attncli.{function.__name__}", _arguments(args, kwargs))
        return replace(trace, call=call)

    return wrapper


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[CallOption, ...]:
    """The arguments of a call, with the text of those that have a short one."""
    named = [*(("", x) for x in args), *kwargs.items()]
    return tuple(_argument(name, value) for name, value in named if value is not None)


def _argument(name: str, value: Any) -> CallOption:
    values = value if isinstance(value, list | tuple) else [value]
    is_text = len(values) < _LONGEST and all(isinstance(x, _PLAIN) for x in values)
    text = repr(value) if is_text else ""
    if not is_text or len(text) > _LONGEST or "inf" in text or "nan" in text:
        return CallOption(name, (name,), "file")
    return CallOption(name, (f"{name}={text}" if name else text,))
