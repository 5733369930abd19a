"""Signals that end a call raise an exception, so that no temporary file is left.

Ctrl-C is a KeyboardInterrupt; SIGTERM and SIGHUP are a SystemExit of 143 and 129.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

# Seconds in which another signal is taken for an echo of the first: `timeout` sends SIGTERM twice,
# a shell and a wrapper both pass on a Ctrl-C, and cleaning up takes less.
_ECHO = 1.0
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]  # on Windows two

_received: list[tuple[int, float]] = []  # each signal that was not an echo, and when it came


def end_in_order() -> None:
    """Listens to these signals, but for those that are ignored, as nohup sets SIGHUP."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _ended)
    if hasattr(signal, "setitimer"):  # Windows has none
        sys.unraisablehook = _lost


def ignore() -> None:
    """The call is over and its result is written: Python may end without an exception."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)


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


def _lost(found: Any) -> None:
    """Raises again, a moment later, what was raised in a finalizer, as of a module's lock."""
    if _received and isinstance(found.exc_value, (KeyboardInterrupt, SystemExit)):
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    else:
        sys.__unraisablehook__(found)
