"""What a computation will need, compared with what is free, before anything is allocated."""

from __future__ import annotations

import os

from attncli.convention import Convention
from attncli.errors import SizeError

_STAGES = 6  # scores, scaled, masked, weights and what softmax holds on the way, at least


def check_numbers(count: int, what: str, hint: str) -> None:
    """SizeError where so many float64 would not fit into the free memory, a few times over."""
    need, free = count * 8 * 4, free_memory()
    if free is not None and need > free:
        raise SizeError(f"{what} needs {_gigabytes(need)}, {_gigabytes(free)} are free", hint)


def check_fits(score_shape: tuple[int, ...], convention: Convention) -> None:
    """SizeError where the stages of this many scores would not fit into the free memory."""
    scores = 1
    for size in score_shape:
        scores *= size
    width = 8 if convention.dtype == "float64" else 4
    need, free = scores * width * _STAGES, free_memory()
    if free is not None and need > free:
        shape = " × ".join(str(size) for size in score_shape)
        raise SizeError(
            f"the stages of {shape} scores need {_gigabytes(need)}, {_gigabytes(free)} are free",
            "give fewer queries, heads or batch items, or --dtype float32",
        )


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


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
