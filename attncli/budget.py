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
_CELL = 50  # bytes of a cell as Python holds it: a float takes 32 with its place, a short text 60
_LITTLE = 1 << 24  # bytes: any machine has them, so that small calls need not ask

_size = ContextVar("size", default=DEFAULT)


@contextmanager
def limited(size: int) -> Iterator[None]:
    """What runs inside may cost so many bytes, and a fiftieth as many cells.

    >>> with limited(10**6):
    ...     allowed(), cells()
    (1000000, 20000)
    """
    token = _size.set(size)
    try:
        yield
    finally:
        _size.reset(token)


def allowed() -> int:
    """The bytes that a call may take."""
    return _size.get()


def cells() -> int:
    """The numbers, texts, keys or rows that a call may make."""
    return allowed() // _CELL


def check_cells(count: int, what: str, hint: str = "", *, unit: str = "numbers") -> None:
    """SizeError where `what`, such as "a table of 9 × 9 has", is more cells than are allowed.

    >>> check_cells(10**8, "a table of 100000 × 1000 has", "use a smaller --len")
    Traceback (most recent call last):
        ...
    attncli.errors.SizeError: a table of 100000 × 1000 has 100 million numbers, 20 million are \
allowed; use a smaller --len, or --max-size 5GB
    """
    if count > cells():
        found = f"{what} {_counted(count)} {unit}, {_counted(cells())} are allowed"
        raise SizeError(found, _or_more(hint, count * _CELL))


def check_bytes(need: int, what: str, hint: str = "") -> None:
    """SizeError where `what`, such as "the stages need", is more bytes than are allowed or free."""
    if need <= min(_LITTLE, allowed()):
        return
    free = free_memory()
    if free is not None and need > free:
        raise SizeError(f"{what} {in_bytes(need)}, {in_bytes(free)} are free", hint)
    if need > allowed():
        found = f"{what} {in_bytes(need)}, {in_bytes(allowed())} are allowed"
        raise SizeError(found, _or_more(hint, need))


def fits(need: int) -> bool:
    """Whether so many bytes are allowed, and free."""
    free = free_memory()
    return need <= allowed() and (free is None or need <= free)


def _or_more(hint: str, need: int) -> str:
    """The hint, and, if they are free, the --max-size for so many bytes, up to one digit."""
    free = free_memory()
    if free is not None and need > free:
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
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (1000, "kB")):
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

    The least of what the machine has free, what the container's limit leaves, and what is left of
    the address space (`ulimit -v`).
    """
    found = [*_of_machine(), *_of_container(), *_of_process()]
    return max(min(found), 0) if found else None


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


def _of_process() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        yield limit - int(file.read().split()[0]) * resource.getpagesize()
