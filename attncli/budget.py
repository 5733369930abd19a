"""What one call may cost: a size in bytes, and the cells that follow from it.

    --max-size 1GB (the default)    and 20 million cells: numbers, texts, keys, rows

Readers count what a file unpacks to before they keep it, and flags what they ask for before it is
made. So a small file, or a flag with a few zeros too many, never costs much. What is larger is
refused, with the size that would allow it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from attncli.errors import SizeError

DEFAULT = 10**9
"""Bytes; --max-size says otherwise."""
FLOAT = 8
"""Bytes of a float64."""
SURELY_FITS = 1 << 16
"""Numbers of the largest stage that fit into any memory, so that nothing is counted."""
_CELL = 50  # bytes of a cell as Python holds it: a float takes 32 with its place, a short text 60
_LITTLE = 1 << 24  # bytes: any machine has them, so that small calls need not ask
_PROCESS = 20 * 10**6  # bytes that Python and Typer take before a command begins

_size = ContextVar("size", default=DEFAULT)
_before = ContextVar("before", default=0)


@contextmanager
def limited(size: int | None) -> Iterator[None]:
    """What runs inside may cost so many bytes, and a fiftieth as many cells; None: as outside.

    To be entered before NumPy is imported: where the memory of the process is limited, its linear
    algebra gets one thread. SizeError where it could not be loaded: it would end the process in
    words of its own.
    """
    room = min(_left(), default=None)
    if room is not None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if room < _NUMPY + _LATER:
            needs, rest = in_bytes(_NUMPY + _LATER), in_bytes(max(room, 0))
            message = f"NumPy needs {needs} of memory, {rest} are left"
            raise SizeError(message, "raise ulimit -v or -d")
    size_before = _size.set(_size.get() if size is None else size)
    taken_before = _before.set(_resident())
    try:
        yield
    finally:
        _size.reset(size_before)
        _before.reset(taken_before)


def allowed() -> int:
    """The bytes that a call may take."""
    return _size.get()


def taken() -> int:
    """The bytes of memory that the process has taken for this call; its start counts, once."""
    return max(_resident() - max(_before.get() - _PROCESS, 0), 0)


def held() -> int:
    """The same within a call; 0 where attncli is a library in a process that holds other things."""
    return taken() if _before.get() else 0


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 2 * _PROCESS  # with NumPy and Rich


def check_cells(count: int, subject: str, hint: str = "", *, unit: str = "numbers") -> None:
    """SizeError where `subject`, such as "a table of 9 × 9 has", is more cells than are allowed.

    >>> check_cells(10**8, "a table of 100000 × 1000 has", "use a smaller --len")
    Traceback (most recent call last):
        ...
    attncli.errors.SizeError: a table of 100000 × 1000 has 100 million numbers, 20 million are \
allowed; use a smaller --len, or --max-size 5GB
    """
    most = _size.get() // _CELL  # numbers, texts, keys or rows
    if count > most:
        message = f"{subject} {_counted(count)} {unit}, {_counted(most)} are allowed"
        raise SizeError(message, _or_more(hint, count * _CELL))


def check_bytes(need: int, subject: str, hint: str = "", *, resident: int = 0) -> None:
    """SizeError where `subject`, such as "the stages need", is more bytes than are allowed or free.

    resident  how many of them the process has already
    """
    if need <= _size.get() and need - resident <= _LITTLE:
        return
    free = free_memory()
    if free is not None and need - resident > free:
        raise SizeError(f"{subject} {in_bytes(need)}, {in_bytes(free + resident)} are free", hint)
    if need > allowed():
        message = f"{subject} {in_bytes(need)}, {in_bytes(allowed())} are allowed"
        raise SizeError(message, _or_more(hint, need, resident))


def fits(need: int, *, resident: int = 0) -> bool:
    """Whether so many bytes are allowed, and free but for those that the process has already."""
    free = free_memory()
    return need <= allowed() and (free is None or need - resident <= free)


def is_free(more: int) -> bool:
    """Whether so many bytes are allowed, and free, beside those that the process has taken."""
    bytes_taken = taken()
    return fits(bytes_taken + more, resident=bytes_taken)


def check_free(more: int, subject: str, hint: str = "") -> None:
    """SizeError where so many bytes more are not: `subject` is such as "the stages need"."""
    bytes_taken = taken()
    check_bytes(bytes_taken + more, subject, hint, resident=bytes_taken)


def _or_more(hint: str, need: int, resident: int = 0) -> str:
    """The hint, and, if they are free, the --max-size for so many bytes, up to one digit."""
    free = free_memory()
    if free is not None and need - resident > free:
        return hint
    unit = 10 ** int(math.log10(max(need, 1000)))
    enough = in_bytes(-(-need // unit) * unit).replace(" ", "")
    return ", or ".join(filter(None, [hint, f"--max-size {enough}"]))


def in_bytes(count: int) -> str:
    """A size in the largest unit that fits.

    >>> in_bytes(1_500_000_000), in_bytes(2000), in_bytes(7), in_bytes(10**30)
    ('1.5 GB', '2 kB', '7 bytes', '10^30 bytes')
    """
    if count >= 10**15:
        return f"10^{int(math.log10(count))} bytes"  # a flag may have any number of digits
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (1000, "kB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"


def _counted(count: int) -> str:
    """A number as it is read: 20 million.

    >>> _counted(20_000_000), _counted(1234), _counted(10**30)
    ('20 million', '1,234', '10^30')
    """
    if count >= 10**12:
        return f"10^{int(math.log10(count))}"
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count:,}"


def free_memory() -> int | None:
    """Bytes that can be had without swapping, or None where the system does not say.

    The least of what the machine has free, and what the limits of the container and of the process
    leave.
    """
    of_process = (rest - _LATER for rest in _left())  # ulimit -v, ulimit -d
    free = [*_of_machine(), *_of_container(), *of_process]
    return max(min(free), 0) if free else None


def _of_machine() -> Iterator[int]:
    with suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
                return
    with suppress(AttributeError, OSError, ValueError):
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_container() -> Iterator[int]:
    """What the memory limit of the control group leaves (cgroup version 2)."""
    folder = "/sys/fs/cgroup"
    with suppress(OSError, ValueError):
        with open(f"{folder}/memory.max", encoding="ascii") as most:
            limit = int(most.read())  # "max" where there is none
        with open(f"{folder}/memory.current", encoding="ascii") as current:
            yield limit - int(current.read())


_LATER = 60 * 10**6
"""Bytes mapped after the size of a call is known: 34 MB in which OpenBLAS multiplies matrices (it
ends the process where it cannot have them), and modules that write the result."""
_NUMPY = 90 * 10**6
"""Bytes that NumPy maps when it is imported, with one thread; 32 MB more for each other one."""
_LIMITS = {"Max address space": 0, "Max data size": 5}
"""Limits in /proc/self/limits, and the field of /proc/self/statm that each bounds, in pages."""


def _left() -> Iterator[int]:
    with (
        suppress(OSError),  # not Linux
        open("/proc/self/limits", encoding="ascii") as limits,
        open("/proc/self/statm", encoding="ascii") as memory,
    ):
        pages, size = memory.read().split(), os.sysconf("SC_PAGE_SIZE")
        for line in limits:
            name, value = line[:26].strip(), line[26:].split()[0]
            if name in _LIMITS and value != "unlimited":
                yield int(value) - int(pages[_LIMITS[name]]) * size


def is_limited() -> bool:
    """Whether the process has a limit on its memory, in which each thread takes some more."""
    return any(True for _ in _left())
