"""What a command gives: a trace, a text or a report, which the line that called it presents.

flags ── the function of a command ──> Result ── .present() ──> the screen, a pipe or a file
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from attncli.cli.options import DisplayFlags
from attncli.cli.output import (
    PRECISION,
    Destination,
    coloured_text,
    note,
    open_file,
    print_page,
    with_file_to_open,
    write_file,
    write_report,
    write_text,
    write_with_arrays,
)
from attncli.formats import EXACT, FIGURE, FORMATS
from attncli.page.page import Page, parts
from attncli.recorded import RecordedCall
from attncli.trace import Trace


class Result(ABC):
    """What a command gives."""

    @abstractmethod
    def present(self) -> int:
        """Writes it where its flags say; the exit code."""

    def with_call(self, call: RecordedCall | None) -> Result:
        """The same, its trace, if it has one, with the call that gave it."""
        return self


@dataclass(frozen=True, kw_only=True)
class TraceResult(Result):
    """A trace, and how it is shown.

    page          what tables and markdown lay out
    precision     decimals, where `show` has none
    least_height  lines that a matrix may take its share of, however low the screen
    stdin_used    the input came from standard input, so --step reads keys from the terminal
    remarks       notes that are printed below it
    code          the exit code
    """

    trace: Trace
    show: DisplayFlags
    page: Page = parts
    precision: int = PRECISION
    least_height: int = 0
    stdin_used: bool = False
    remarks: tuple[str, ...] = ()
    code: int = 0

    def with_call(self, call: RecordedCall | None) -> TraceResult:
        """The same, its trace with the call that gave it."""
        return replace(self, trace=replace(self.trace, call=call))

    def present(self) -> int:
        """Writes it where its flags say; the exit code."""
        trace, show, page = self.trace, self.show, self.page
        form, options = show.form, show.options
        options = options if options.rounded else replace(options, precision=self.precision)
        trace = trace.computing(options.stages) if options.stages else trace
        if options.query is not None and form.holds == EXACT:
            from attncli.page.walk import walked

            trace, options = walked(trace, options), replace(options, query=None)
        if options.blank is not None:
            from attncli.page.worksheet import DECIMALS, without_numbers

            decimals = max(options.precision, DECIMALS) if options.rounded else DECIMALS
            trace = without_numbers(trace, options.blank, decimals)
        show = with_file_to_open(show) if show.open else show
        if (
            form.holds == FIGURE
        ):  # what Matplotlib has to say of its fonts and its cache is no error
            import logging

            logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
        module = form.module()
        writer = getattr(module, form.function)
        if form.binary:
            names = (form.name,) if form.holds == FIGURE else ()
            write_file(lambda file: writer(trace, options, file, *names), show)
        elif form.beside and show.output:
            write_with_arrays(partial(module.with_arrays, trace, options), show)
        elif form is not FORMATS["table"]:
            text = getattr(module, "standalone", writer) if show.output else writer
            write_text(text(trace, options, page), show, is_safe=form.is_data)
        elif show.output and show.color == "always":
            write_text(coloured_text(trace, show, options, page), show, is_safe=True)
        elif show.output:
            screen = module.Screen(width=show.width)
            write_text(module.text(trace, options, page, screen), show)
        else:
            print_page(
                trace,
                show,
                options,
                page,
                stdin_used=self.stdin_used,
                least_height=self.least_height,
            )
        if show.open and show.output:
            open_file(show.output, quiet=show.quiet)
        note(*self.remarks, quiet=self.show.quiet)
        return self.code


@dataclass(frozen=True, kw_only=True)
class TextResult(Result):
    """Pieces of text; is_safe: no terminal acts on them; is_page: a browser opens its file."""

    pieces: Iterable[str]
    show: Destination
    is_safe: bool = False
    is_page: bool = False
    code: int = 0

    def present(self) -> int:
        """Writes it where its flags say; the exit code."""
        write_text(self.pieces, self.show, is_safe=self.is_safe)
        if self.is_page and self.show.output:
            open_file(self.show.output, quiet=self.show.quiet)
        return self.code


@dataclass(frozen=True, kw_only=True)
class ReportResult(Result):
    """A report, in words and as data for JSON."""

    text: str
    data: dict[str, Any]
    show: Destination
    as_json: bool = False
    code: int = 0

    def present(self) -> int:
        """Writes it where its flags say; the exit code."""
        write_report(self.text, self.data, self.show, as_json=self.as_json)
        return self.code
