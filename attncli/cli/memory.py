"""What a computation will need, compared with what is free, before anything is allocated."""

from __future__ import annotations

import math
import os

from attncli.convention import Convention
from attncli.errors import SizeError

_STAGES = 6  # scores, scaled, masked, weights and what softmax needs, at least


def check_numbers(count: int, what: str, hint: str) -> None:
    """SizeError where so many float64 would not fit into the free memory, a few times over."""
    check_bytes(count * 8 * 4, f"{what} needs", hint)


def check_bytes(need: int, what: str, hint: str) -> None:
    """SizeError where what needs so many bytes would not fit into the free memory."""
    free = free_memory()
    if free is not None and need > free:
        raise SizeError(f"{what} {need / 1e9:.3g} GB, {free / 1e9:.3g} GB are free", hint)


def fits(score_shape: tuple[int, ...], convention: Convention) -> bool:
    """Whether the stages of this many scores fit into the free memory, as far as it is known."""
    free = free_memory()
    return free is None or _need(score_shape, convention) <= free


def check_fits(score_shape: tuple[int, ...], convention: Convention, hint: str = "") -> None:
    """SizeError where the stages of this many scores would not fit into the free memory."""
    shape = " × ".join(str(size) for size in score_shape)
    default = "give fewer queries, heads or batch items, or --dtype float32"
    what = f"the stages of {shape} scores need"
    check_bytes(_need(score_shape, convention), what, hint or default)


def _need(score_shape: tuple[int, ...], convention: Convention) -> int:
    return math.prod(score_shape) * (8 if convention.dtype == "float64" else 4) * _STAGES


def free_memory() -> int | None:
    """Bytes that can be had without swapping, or None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
