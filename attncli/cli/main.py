"""The entry point: finds the command, and turns every failure into one line and an exit code.

0  it worked     1  it differs (check, diff, --verify)     2  the call or an input is wrong
130  interrupted (143: terminated; 129: its terminal was closed)

A reader of the output that goes away, such as `| head`, is no failure: 0. Signals that end a call
raise an exception, so that no temporary file is left.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import io
import os
import signal
import sys
import time
from typing import Annotated, Any, ClassVar, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from attncli._version import __version__
from attncli.cli.completion import complete_topic
from attncli.cli.groups import FastParsing, QuickCommand, typer_command
from attncli.cli.registry import COMMANDS, find, names, summary
from attncli.cli.terminal import shielded, tell
from attncli.errors import AttncliError
from attncli.files.characters import NEAR, near

_TO_TRY = {
    "compute": "attncli compute --random --query q1",
    "explain": 'attncli explain "I love AI"',
    "posenc": "attncli posenc --len 5 --dim 4",
}
_MORE = """
attncli COMMAND --help shows the common options, attncli help the manual."""
_NO_MEMORY = "this needs more memory than there is; use fewer tokens"

# Seconds in which another signal is taken for an echo of the first: `timeout` sends SIGTERM twice,
# a shell and a wrapper both pass on a Ctrl-C, and cleaning up takes less.
_ECHO = 1.0
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]  # on Windows two

_received: list[tuple[int, float]] = []  # each signal that was not an echo, and when it came


def _topics(
    names: Annotated[list[str] | None, typer.Argument(autocompletion=complete_topic)] = None,
) -> None:
    """Pages of the manual, such as attncli help masks."""  # shows itself: see show_help


class LazyGroup(FastParsing, TyperGroup):
    """Commands that are imported when they are called, and not before."""

    is_listed = False  # whether the help of all is written, for which none needs its options
    typer_commands: ClassVar[dict[str, Any]] = {}  # a wrong call asks for its command twice

    def list_commands(self, ctx: Any) -> list[str]:
        return [*names(), "help"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name == "help":
            app_of_help = typer.Typer(add_completion=False)
            app_of_help.command("help", cls=QuickCommand)(_topics)
            return typer.main.get_command(app_of_help)
        if self.is_listed:
            return TyperCommand(cmd_name, help=summary(cmd_name).replace("[", r"\["))
        if cmd_name not in self.typer_commands and (command := find(cmd_name)) is not None:
            self.typer_commands[cmd_name] = typer_command(cmd_name, command)
        return self.typer_commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.is_listed = True
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="attncli",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="\n".join(
        [
            "Three commands to try:" if {*_TO_TRY} <= {*COMMANDS} else "Commands to try:",
            *(f"  {line}" for name, line in _TO_TRY.items() if name in COMMANDS),
            _MORE,
        ]
    ),
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Compute attention and print every intermediate matrix."""
    if version:
        print(f"attncli {__version__}")
        raise typer.Exit


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    _replace_closed_streams()
    codecs.register_error(NEAR, near)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_utf8 = codecs.lookup(stream.encoding).name == "utf-8"
            stream.reconfigure(errors="backslashreplace" if is_utf8 else NEAR)
    if "_ATTNCLI_COMPLETE" in os.environ:  # a shell asks what could follow
        app(prog_name="attncli")
    try:
        end_in_order()
        code = run(sys.argv[1:])
        try:
            sys.stderr.flush()
        except OSError:  # a full disk: the message is lost, the exit code is not
            _forget(sys.stderr)
    except KeyboardInterrupt:  # before or after what run() guards
        code = 130
    finally:  # the result is written: Python may end without an exception
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
    gc.freeze()  # what is left is the system's to take back, without a search for circles
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Gives closed streams their numbers, which a file opened later would take.

    Then writing to a closed standard output fails; what goes to a closed standard error is lost.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - never closed
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def run(arguments: list[str]) -> int:
    """The exit code of one call.

    What goes wrong is one line on standard error, and no terminal acts on what a call writes.
    """
    with shielded():
        try:
            code = _call(arguments)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget(sys.stdout)
            return 0
        except SystemExit as end:
            if end.code != 1:  # Rich ends with 1 where the reader of the output went away
                raise
            return 0
        except (KeyboardInterrupt, typer.Abort):
            return _failed("interrupted", 130, arguments)
        except (AttncliError, typer.TyperException) as error:
            excerpt = getattr(error, "excerpt", ())  # of a program: its line, and a caret below it
            return _failed(_in_words(error, arguments), 2, arguments, *excerpt)
        except MemoryError:
            return _failed(_NO_MEMORY, 2, arguments)
        except OSError as error:
            _forget(sys.stdout)
            return _failed(f"cannot write the result: {error.strerror or error}", 2, arguments)
        except Exception as error:
            if isinstance(error, ImportError) and "map segment" in str(error):  # of a library
                return _failed(_NO_MEMORY, 2, arguments)
            problem = f"{type(error).__name__}: {error}".replace("\n", " ")
            return _failed(f"internal error ({problem}); --debug shows where", 2, arguments)
        return code


def _call(arguments: list[str]) -> int:
    """Typer's own parsing and calling, without its reports of what went wrong."""
    if {"--help", "-h"} & {*arguments} or arguments[:1] == ["help"]:
        from attncli.cli.help import show_help

        if show_help(arguments):  # of a command, or a page of the manual
            return 0
    command = typer.main.get_command(app)
    try:
        with command.make_context("attncli", list(arguments)) as context:
            code = command.invoke(context)
    except typer.Exit as done:
        code = done.exit_code
    except typer.TyperException as error:
        if not error.format_message():  # no command was named, and the help has been shown
            return 0
        raise
    return code if isinstance(code, int) else 0


def _in_words(error: AttncliError | typer.TyperException, arguments: list[str]) -> str:
    """What is wrong in one line; for a wrong call also where to find help."""
    from attncli.cli.usage_errors import in_words, likely_mistake

    if isinstance(error, AttncliError):
        command = None
        with contextlib.suppress(AttncliError):  # of a plug-in that cannot be imported
            command = LazyGroup().get_command(None, arguments[0])
        return likely_mistake(arguments, command) or str(error)
    return in_words(error, arguments, LazyGroup().list_commands(None))


def _failed(message: str, code: int, arguments: list[str], *excerpt: str) -> int:
    if code == 2 and (ended := exit_code()):
        return ended  # pydantic, for one, makes an error of its own of what a signal raises
    if "--debug" in arguments:
        import traceback

        traceback.print_exc()
    with contextlib.suppress(OSError):
        tell(message)
        for line in filter(None, excerpt):  # not broken: a caret stands below its place
            print(f"    {line}", file=sys.stderr)
    return code


def _forget(stream: TextIO) -> None:
    """A stream was closed: what is still buffered must not raise at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# ---- signals


def end_in_order() -> None:
    """Listens to these signals, but for those that are ignored, as nohup sets SIGHUP."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _ended)
    if hasattr(signal, "setitimer"):  # Windows has none
        sys.unraisablehook = _lost


def exit_code() -> int | None:
    """Of a call that a signal ended, whatever a library made of the exception; else None."""
    return 128 + _received[-1][0] if _received else None


def _ended(number: int, _: Any) -> None:
    """Raises, but not for an echo: the cleaning up would stop."""
    now = time.monotonic()
    if not _received or now - _received[-1][1] > _ECHO:
        _received.append((number, now))
        _raise()


def _raise(*_: Any) -> None:
    number, _when = _received[-1]
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _lost(report: Any) -> None:
    """Raises again, a moment later, what was raised in a finalizer, as of a module's lock."""
    if _received and isinstance(report.exc_value, (KeyboardInterrupt, SystemExit)):
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    else:
        sys.__unraisablehook__(report)
