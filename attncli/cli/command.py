"""How a command is declared: option groups in, one flat Typer command out, quick to start.

An option group is a frozen dataclass whose fields are Annotated Typer options. A command takes
groups instead of forty parameters:

    @command_of(app)
    def compute(inputs: Inputs, choices: Choices, show: Show) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

Command = Callable[..., int | None]

_UNSURE = object()


class Quick:
    """Mixed into a command: plain values are converted without loading a validation library.

    Typer would import pydantic (45 ms) to see that "3" is 3. Whatever is not plainly right is
    left to Typer, which then finds the words for the error.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if vars(param).get("_runtime_param") is None:
                vars(param)["_runtime_param"] = _QuickConversion()
        return params


class QuickCommand(Quick, TyperCommand):
    """A Typer command that starts quickly."""


class _QuickConversion:
    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind = param.type_descriptor
        converted = _converted(kind.annotation, value)
        if converted is not _UNSURE and _within(kind.parameter_info, converted):
            return converted
        vars(param)["_runtime_param"] = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _converted(annotation: Any, value: Any) -> Any:
    """The value in its type, or _UNSURE where it is not plainly one of that type."""
    if value is None or (annotation is str and isinstance(value, str)):
        return value
    if annotation in {int, float}:
        try:
            return annotation(value)
        except ValueError:
            return _UNSURE
    if annotation is bool and isinstance(value, bool):
        return value
    if get_origin(annotation) is Literal and value in get_args(annotation):
        return value
    if get_origin(annotation) is tuple and set(get_args(annotation)) == {str}:
        return tuple(value)
    if get_origin(annotation) is list and get_args(annotation) == (str,):
        return list(value)
    return _UNSURE


def _within(bounds: Any, value: Any) -> bool:
    if value is None or (bounds.min is None and bounds.max is None):
        return True
    return bool(
        (bounds.min is None or value >= bounds.min) and (bounds.max is None or value <= bounds.max)
    )


def command_of(app: typer.Typer, *, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Registers a function of option groups as the app's command, one option a field.

    `without` names fields that have no meaning here: they keep their default.

    What it returns is the exit code; None is 0.
    """

    def register(command: Command) -> Command:
        groups = {name: kind for name, kind in get_type_hints(command).items() if name != "return"}

        def flat(**values: Any) -> int | None:
            return command(**{name: _group(kind, values) for name, kind in groups.items()})

        parameters = [
            parameter
            for kind in groups.values()
            for parameter in parameters_of(kind)
            if parameter.name not in without
        ]
        flat.__name__, flat.__doc__ = command.__name__, _paragraphs(command)
        flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        vars(flat)["__signature__"] = inspect.Signature(parameters)
        app.command(cls=QuickCommand)(flat)
        return command

    return register


def _paragraphs(command: Command) -> str:
    """The docstring with each paragraph on one line, for the terminal to wrap."""
    text = inspect.getdoc(command) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def parameters_of(kind: Any) -> list[inspect.Parameter]:
    """The options of a group: what it says itself, or one for each field."""
    if hasattr(kind, "parameters"):
        return list(kind.parameters())
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(kind)
    ]


def _group(kind: Any, values: dict[str, Any]) -> Any:
    if hasattr(kind, "parameters"):
        return kind.of(values)
    given = {field.name for field in fields(kind)} & values.keys()
    return kind(**{name: values[name] for name in given})
