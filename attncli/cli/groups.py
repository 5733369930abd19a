"""How a command is declared: option groups in, one flat Typer command out, quick to start.

An option group is a dataclass of flags under one heading of --help. A command takes groups
instead of forty parameters:

    @group("Inputs")
    class InputFlags:
        kv_heads: int | None = flag("Heads of K and V, if fewer.", min=1)    # --kv-heads

    Command((InputFlags, ConventionFlags, DisplayFlags), "What the command does.")

A flag that is not given is None, a switch False. Each says what it needs and what it excludes:

    unknown = flag("Vector of a word that is missing …", needs="--vectors")
    layers = flag("Layers of encoder and decoder …", needs="--block encoder|decoder")
    cell = flag("Derive one weight …", needs=PAGES, excludes="--rows, --cols, --work")
    weights_axes = flag("in-out: X W …", needs="the weights of x")

Commas separate what is needed together, "or" what may stand for each other, and a flag is followed
by the values that will do. What is no flag is a fact of the input, such as "the weights of x", a
role, or a field of Convention, which a file may set as well: it is known once the input is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
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

from attncli.budget import limited
from attncli.cli.extensions import Call
from attncli.cli.recording import recorded_call
from attncli.cli.terminal import unshielded
from attncli.convention import (
    KNOBS,
    LOG_SUM,
    flag_of,
)
from attncli.errors import ConventionError
from attncli.files.roles import ROLES
from attncli.formats import is_among
from attncli.stages import LSE

if TYPE_CHECKING:
    from attncli.cli.results import Result

T = TypeVar("T")


class Command(NamedTuple):
    """The option groups that a command takes, its help, and what runs it.

    run  takes the groups, filled in, and gives what is presented (results.py), or, where it has
         written all itself, the exit code or None for 0; where it is None, that is the function of
         the command's name in command.py of its room
    """

    groups: tuple[Any, ...]
    help: str = ""
    without: tuple[str, ...] = ()  # fields that mean nothing here: no options then
    other_help: Mapping[str, str] = MappingProxyType({})  # field → help in place of its own
    needs: Mapping[str, str] = MappingProxyType({})  # field → what its flag needs here instead
    stages: tuple[str, ...] = ()  # names of stages that have no row in attncli/stages.py
    extensions: tuple[Any, ...] = ()  # option groups of other rooms: see extensions.py
    run: Callable[..., Result | int | None] | None = None
    apart: tuple[str, ...] = ()  # panels that --help all names, without their options

    @property
    def options(self) -> list[Option]:
        """Its options as --help lists them: an extension before one whose panel it names."""
        groups = list(self.groups)
        for extension in self.extensions:
            panels = (number for number, x in enumerate(groups) if x.PANEL in extension.BEFORE)
            groups.insert(next(panels, len(groups)), extension)
        every = (option for group in groups for option in group.OPTIONS)
        return [option for option in every if option.name not in self.without]


_METAVARS = {bool: "", int: "N", float: "FLOAT"}
"""What --help writes beside a flag, by the type of its value."""


class FastParsing:
    """Mixed into a command: plain values are converted without loading a validation library.

    Typer would import pydantic (45 ms) to see that "3" is 3. Whatever is not plainly right is
    left to Typer, which then finds the words for the error. This reaches into what Typer keeps to
    itself: a Typer that has it no more converts and shows by itself.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer does; UsageError for an option that is given twice: the last would count."""
        command: Any = self
        params, is_call = command.get_params(ctx), not ctx.resilient_parsing
        for param in params:
            if vars(param).get("_runtime_param") is None:
                vars(param)["_runtime_param"] = _QuickConversion()
        takes_blank = is_call and any(param.name == "blank" for param in params)
        if takes_blank and {"--blank", "--random"} & {*args}:
            from attncli.cli.parsing import with_blank_values

            args = with_blank_values(args, command.stages)
        _, _, order = command.make_parser(ctx).parse_args(args=list(args))
        options: list[Any] = [param for param in order if param.param_type_name == "option"]
        for param in options if is_call else ():
            is_repeatable = param.multiple or (param.is_flag and not param.secondary_opts)
            if options.count(param) > 1 and not is_repeatable:
                ctx.fail(f"{'/'.join((*param.opts, *param.secondary_opts))} is given twice")
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As Typer does, without types beside switches and ranges, and with [ as it is."""
        for param in self.get_params(ctx):  # type: ignore[attr-defined]
            kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
            vars(param)["_get_number_range_help_str"] = lambda: None
            param.opts = [name for name in param.opts if name not in vars(param).get("old", ())]
            if param.param_type_name == "argument":
                vars(param)["display_type_rich"] = lambda ctx: None
            if param.metavar is None and kind in _METAVARS:
                param.metavar = _METAVARS[kind]
            if param.metavar is None and get_origin(kind) is Literal:  # a name, not every choice
                param.metavar = "CHOICE" if param.name != "format" else "FORMAT"
                param.help += f" {param.metavar}: {', '.join(_choices(param))}."
            param.help = param.help.replace("[", r"\[")
        with unshielded():
            super().format_help(ctx, formatter)  # type: ignore[misc]


class QuickCommand(FastParsing, TyperCommand):
    """A command that starts quickly."""

    stages: tuple[str, ...] = ()


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
        if kind is Literal and len(choices := _choices(param)) > len(inner):
            if value in choices:
                return value
            param.type_descriptor = replace(param.type_descriptor, annotation=Literal[choices])
        vars(param)["_runtime_param"] = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _choices(param: Any) -> tuple[str, ...]:
    """What an option of few texts may be, with what other packages add."""
    choices = vars(param).get("choices")
    return get_args(param.type_descriptor.annotation) if choices is None else tuple(choices())


class Option(NamedTuple):
    """What is said of an option: a field of a group, which is an option or an argument.

    name      of the field, type the type of its value; both are known once the group is made
    names     of the option, of --on/--off both in one: on and off
    old       its earlier names, which are taken, too, and said by --help all
    panel     the heading of --help under which it is listed, where not that of its group
    make      typer.Option or typer.Argument, which takes `more`
    needs, excludes  what it has no effect without, and what it cannot be used with
    default   what it is where it is not given, for other flags that need a value of it
    choices   those of a Literal and of other packages, for a text that is none of ours
    provides  "input": what is computed from; "display": how the result is shown
    reads     of an input: whether a text names a file or standard input, where it may
    """

    help: str
    metavar: str | None = None
    names: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    panel: str | None = None
    make: Any = typer.Option
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    default: str = ""
    choices: Callable[[], Iterable[str]] | None = None
    provides: str = ""
    reads: Callable[[str], bool] | None = None
    more: Mapping[str, Any] = MappingProxyType({})
    name: str = ""
    type: Any = None
    on: str = ""
    off: str = ""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def group(panel: str, *, before: Collection[str] = ()) -> Callable[[type[T]], type[T]]:
    """Makes a class an option group: a dataclass of flags, those without a panel under this one.

    Its OPTIONS are those of its fields, in their order.

    before  of an extension: panels of a command's groups, before the first of which it is listed
    """

    def made(kind: type[T]) -> type[T]:
        whole: Any = dataclass(kw_only=True, eq=False, repr=False, match_args=False)(kind)
        options = []
        for item in (item for item in fields(whole) if item.metadata):
            option: Option = item.metadata["option"]
            names = option.names or (f"--{item.name.replace('_', '-')}",)
            on, _, off = names[0].partition("/")
            option = option._replace(panel=option.panel or panel, names=names, on=on, off=off)
            options.append(option._replace(name=item.name, type=item.type))
        whole.PANEL, whole.BEFORE, whole.OPTIONS = panel, before, tuple(options)
        return kind

    return made


def flag(
    help: str,  # noqa: A002 - as Typer has it
    metavar: str | None = None,
    *,
    needs: str = "",
    excludes: str = "",
    **more: Any,
) -> Any:
    """A field of a group, with its Option; what Option does not have is for typer's."""
    conditions = {"needs": needs, "excludes": excludes}
    known: dict[str, Any] = {
        name: tuple(x.strip() for x in text.split(",") if x) for name, text in conditions.items()
    }
    known |= {name: more.pop(name) for name in [*more] if name in Option._fields}
    return field(default=None, metadata={"option": Option(help, metavar, more=more, **known)})


def typer_command(name: str, command: Command) -> Any:
    """A command as Typer takes it: it imports and calls what runs it, and presents the result."""

    def flat(context: typer.Context, **_: Any) -> int | None:
        with called(name, command, context.params) as result:
            return result if result is None or isinstance(result, int) else result.present()

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("context", keyword, annotation=typer.Context)]
    for option in command.options:
        more = {**option.more, "metavar": option.metavar, "rich_help_panel": option.panel}
        more["help"] = command.other_help.get(option.name, option.help)
        names = (*option.names, *option.old)
        if option.old:
            more["help"] += f" Old name: {', '.join(option.old)}."
        if option.make is typer.Argument:
            names, more["rich_help_panel"] = (), None
        default = False if option.type is bool else None
        annotation: Any = Annotated[option.type, option.make(*names, show_default=False, **more)]
        parameter = inspect.Parameter(option.name, keyword, default=default, annotation=annotation)
        parameters.append(parameter)
    flat.__doc__ = command.help
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(flat)["__signature__"] = inspect.Signature(parameters)
    app = typer.Typer(add_completion=False)
    app.command(name, cls=QuickCommand)(flat)
    result = typer.main.get_command(app)
    options = {option.name: option for option in command.options}
    for param in result.params:
        if (of_param := options.get(param.name or "")) is not None:  # all but --help
            vars(param).update(choices=of_param.choices, old=of_param.old)
    vars(result)["stages"] = command.stages
    return result


@contextmanager
def called(name: str, command: Command, values: Mapping[str, Any]) -> Iterator[Result | int | None]:
    """What a command gives for the values of its options; within it, as much memory as they allow.

    A trace that it gives has the call, in the order of the values.

    AttncliError for a call or an input that is wrong.
    """
    size, groups = None, dict[Any, Any]()
    for kind in (*command.groups, *command.extensions):
        arguments = {x.name: values[x.name] for x in fields(kind) if x.name in values}
        if arguments.get("max_size") is not None:
            size = import_module("attncli.cli.parsing").bytes_of(arguments["max_size"])
        groups[kind] = kind(**arguments)
    with limited(size):
        shows = [group for group in groups.values() if hasattr(group, "form")]
        into_folder = any(getattr(group, "writes_folder", False) for group in groups.values())
        for show in shows:
            show.check_ending(into_folder=into_folder)
        check_flags([*groups.values()], command.needs)
        for show in shows:
            _ = show.options  # which refuses a text that is not understood
            show.check_form()
        run = command.run or getattr(import_module(f"attncli.commands.{name}.command"), name)
        of_command, of_others = (
            tuple(groups[kind] for kind in kinds) for kinds in (command.groups, command.extensions)
        )
        call = Call(command=name, function=run, groups=of_command, extensions=of_others)
        record = recorded_call(name, groups.values(), [*values])  # before the groups are completed
        errstate = import_module("numpy").errstate
        with errstate(all="ignore"):  # infinity and NaN are shown, not warned about
            result = call.result()
            yield result if result is None or isinstance(result, int) else result.with_call(record)


def options_of(command: Command) -> set[str]:
    """The flags of a command; of --x/--no-x the first."""
    options = (option for option in command.options if option.make is typer.Option)
    return {name.partition("/")[0] for option in options for name in (*option.names, *option.old)}


def given_of(group: Any, *names: str) -> dict[str, Any]:
    """Those of these fields, or of all, that are given; a switch that is off is not."""
    every = names or [item.name for item in fields(group) if item.init]
    values = {name: getattr(group, name) for name in every}
    return {name: x for name, x in values.items() if x is not None and x is not False}


# ---- which flags have an effect


def check_flags(
    groups: Sequence[Any],
    needs: Mapping[str, str] = MappingProxyType({}),
    facts: Collection[str] | None = None,
) -> None:
    """ConventionError for a flag that another one makes useless, or that misses what it needs.

    needs  field → what its flag needs in this command, in place of what it declares
    facts  those of the input, once it is read: then only the flags that need one are checked
    """
    settings, flags, values = [], set[str](), dict.fromkeys(facts or (), "")
    for group in groups:
        for option in group.OPTIONS:
            flags |= {option.on, option.off}
            value, name = getattr(group, option.name), option.on
            if value is False:  # a switch that is off, unless its flag is of the form --on/--off
                name, value = (option.off, False) if option.off else (name, None)
            if value is not None:
                settings.append((option, name))
                values[name] = str(value)
            elif option.default:
                values[name] = option.default
        if hasattr(group, "form"):
            values["--format"] = group.form.name
    for option, name in settings:
        for other in option.excludes if facts is None else ():
            if _holds(other, values):
                problem = f"{name} cannot be used with {_text(other)}"
                raise ConventionError(problem, "leave one of the two out")
        for need in [needs[option.name]] if option.name in needs else option.needs:
            conditions = need.split(" or ")
            is_asked = need.startswith("--") == (facts is None)
            if facts is None and not flags & {text.partition(" ")[0] for text in conditions}:
                continue  # of a command that is not there
            if is_asked and not any(_holds(text, values) for text in conditions):
                raise _no_effect(name, need, values)


def of_lse(stages: Iterable[str]) -> set[str]:
    """The fact that a log-sum-exp is among these stages."""
    return {LOG_SUM for name in stages if name.rpartition(".")[2] == LSE}


def _holds(condition: str, values: Mapping[str, str]) -> bool:
    """Whether a flag is given with one of these values, or a fact is there."""
    if not condition.startswith("--"):
        return condition in values
    flag, _, choices = condition.partition(" ")
    if flag not in values or not choices:
        return flag in values
    if flag == "--format":
        return is_among(values[flag], choices)
    return values[flag] in choices.split("|")


def _text(condition: str) -> str:
    """A condition as a message has it: `--block encoder or decoder`, `--mask`."""
    if condition in KNOBS or condition in ROLES:
        return flag_of(condition)
    *others, last = condition.split("|")
    return f"{', '.join(others)} or {last}" if others else last


def _no_effect(flag: str, need: str, values: Mapping[str, str]) -> ConventionError:
    """The error for a flag that misses what it needs."""
    needed = " or ".join(map(_text, need.split(" or ")))
    form = values.get("--format", "")
    if need.startswith("--format"):
        return ConventionError(f"{flag} has no effect on {form}", f"use {needed}, or leave it out")
    mend = "add it, or leave" if needed.startswith("--") else "leave"
    return ConventionError(f"{flag} has no effect without {needed}", f"{mend} {flag} out")
