"""How a command is declared: option groups in, one flat Typer command out, quick to start.

An option group is a dataclass of flags under one heading of --help. A command takes groups
instead of forty parameters:

    @group("Inputs")
    class InputFlags:
        kv_heads: int | None = flag("Heads of K and V, if fewer.", min=1)    # --kv-heads

    Command((InputFlags, Choices, DisplayFlags), "What the command does.")

A flag that is not given is None, a switch False.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
)

import typer
from typer.core import TyperCommand

from attncli.budget import before_numpy, limited
from attncli.cli.parsing import bytes_of, with_blank_values

T = TypeVar("T")


class Command(NamedTuple):
    """The option groups that a command takes, and its help."""

    groups: tuple[Any, ...]
    help: str
    without: tuple[str, ...] = ()  # fields that mean nothing here: no options then
    other_help: Mapping[str, str] = MappingProxyType({})  # field → help in place of its own
    needs: Mapping[str, str] = MappingProxyType({})  # field → what its flag needs here instead


_METAVARS = {bool: "", int: "N", float: "FLOAT"}
"""What --help writes beside a flag, by the type of its value."""


class Quick:
    """Mixed into a command: plain values are converted without loading a validation library.

    Typer would import pydantic (45 ms) to see that "3" is 3. Whatever is not plainly right is
    left to Typer, which then finds the words for the error. This reaches into what Typer keeps to
    itself: a Typer that has it no more converts and shows by itself.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if vars(param).get("_runtime_param") is None:
                vars(param)["_runtime_param"] = _QuickConversion()
        return params

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As Typer does, without types beside switches and ranges, and with [ as it is."""
        for param in self.get_params(ctx):
            kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
            vars(param)["_get_number_range_help_str"] = lambda: None
            if param.param_type_name == "argument":
                vars(param)["display_type_rich"] = lambda ctx: None
            if param.metavar is None and kind in _METAVARS:
                param.metavar = _METAVARS[kind]
            if param.metavar is None and get_origin(kind) is Literal:  # a name, not every choice
                param.metavar = "CHOICE" if param.name != "format" else "FORMAT"
                param.help += f" {param.metavar}: {', '.join(get_args(kind))}."
            param.help = param.help.replace("[", r"\[")
        super().format_help(ctx, formatter)  # type: ignore[misc]


class QuickCommand(Quick, TyperCommand):
    """A Typer command that starts quickly, and takes no option twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer does; UsageError for an option that is given twice: the last would count."""
        if not ctx.resilient_parsing and any(param.name == "blank" for param in self.params):
            args = with_blank_values(args)
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        options: list[Any] = [param for param in order if param.param_type_name == "option"]
        for param in () if ctx.resilient_parsing else options:
            is_repeatable = param.multiple or (param.is_flag and not param.secondary_opts)
            if options.count(param) > 1 and not is_repeatable:
                ctx.fail(f"{'/'.join((*param.opts, *param.secondary_opts))} is given twice")
        return super().parse_args(ctx, args)


class _QuickConversion:
    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value in its type, where it is plainly one of that type."""
        annotation, bounds = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        kind, inner = get_origin(annotation), get_args(annotation)
        if value is None or (annotation in {str, bool} and isinstance(value, annotation)):
            return value
        if kind is Literal and value in inner:
            return value
        if kind in {tuple, list} and set(inner) == {str}:
            return kind(value)
        if annotation in {int, float}:
            with suppress(ValueError):
                number, low, high = annotation(value), bounds.min, bounds.max
                if (low is None or number >= low) and (high is None or number <= high):
                    return number
        vars(param)["_runtime_param"] = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def group(panel: str) -> Callable[[type[T]], type[T]]:
    """Makes a class an option group: a dataclass of flags, those without a panel under this one."""

    def made(kind: type[T]) -> type[T]:
        kind.PANEL = panel  # type: ignore[attr-defined]
        return dataclass(kw_only=True, eq=False, repr=False, match_args=False)(kind)

    return made


def flag(
    help: str,  # noqa: A002 - as Typer has it
    metavar: str | None = None,
    *,
    names: Collection[str] = (),
    panel: str | None = None,
    make: Any = typer.Option,
    needs: str = "",
    excludes: str = "",
    default: str = "",
    **more: Any,
) -> Any:
    """A field of a group: an option of the field's name or of these names, or an Argument.

    needs, excludes  what it has no effect without, and what it cannot be used with (see effects.py)
    default          what it is where it is not given, for other flags that need a value of it
    """
    named = {"help": help, "metavar": metavar, "rich_help_panel": panel, **more}
    rules = {"needs": needs, "excludes": excludes, "default": default}
    return field(default=None, metadata={"make": make, "names": names, "more": named, **rules})


def typer_command(name: str, command: Command) -> Any:
    """A command as Typer takes it: it imports and calls the function of its name."""

    def flat(**values: Any) -> int | None:
        given = [
            kind(**{own.name: values[own.name] for own in fields(kind) if own.name in values})
            for kind in command.groups
        ]
        with limited(bytes_of(values["max_size"])):
            before_numpy()
            effects: Any = import_module("attncli.cli.effects")
            effects.check_flags(given, command.needs)
            function: Any = getattr(import_module(f"attncli.cli.{name}"), name)
            errstate = import_module("numpy").errstate
            with errstate(all="ignore"):  # infinity and NaN are shown, not warned about
                code: int | None = function(*given)
        return code

    parameters = [
        parameter
        for kind in command.groups
        for parameter in parameters_of(kind, command.other_help)
        if parameter.name not in command.without
    ]
    flat.__doc__ = help_of(command)
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(flat)["__signature__"] = inspect.Signature(parameters)
    app = typer.Typer(add_completion=False)
    app.command(name, cls=QuickCommand)(flat)
    return typer.main.get_command(app)


def help_of(command: Command) -> str:
    """The help of a command, with [ as it is."""
    return command.help.replace("[", r"\[")


def parameters_of(
    kind: Any, other_help: Mapping[str, str] = MappingProxyType({})
) -> list[inspect.Parameter]:
    """The options of a group, one for each field that is given."""
    parameters = []
    for own in filter(attrgetter("init"), fields(kind)):
        make, names, more = (own.metadata[key] for key in ("make", "names", "more"))
        if make is typer.Option:
            names = names or (f"--{own.name.replace('_', '-')}",)
            more = {**more, "rich_help_panel": more.get("rich_help_panel") or kind.PANEL}
        more = {**more, "help": other_help.get(own.name, more["help"])}
        default = False if own.type is bool else None
        annotation: Any = Annotated[own.type, make(*names, show_default=False, **more)]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(own.name, keyword, default=default, annotation=annotation)
        )
    return parameters


def given_of(group: Any, *names: str) -> dict[str, Any]:
    """Those of these fields, or of all, that are given; a switch that is off is not."""
    values = {name: getattr(group, name) for name in names or vars(group)}
    return {name: x for name, x in values.items() if x is not None and x is not False}
