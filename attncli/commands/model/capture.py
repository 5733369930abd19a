"""capture: record every attention that a PyTorch model computes, while it runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from attncli.commands.model.call import Calls
from attncli.errors import MissingExtraError, OutputError
from attncli.files.messages import safe


@contextmanager
def capture(
    model: Any,
    *,
    layers: Collection[int] | None = None,
    heads: Collection[int] | None = None,
    to: str | os.PathLike[str] | None = None,
    gradients: bool = False,
) -> Iterator[Calls]:
    """Record every attention call of a PyTorch model within the block.

        with attncli.capture(model) as calls:
            model(**inputs)
        calls[3].trace(), calls[3].check(), calls.save("dump.npz")

    model   a torch.nn.Module, of transformers or any other code
    layers  only these layers, counted from 0, as in the names of the modules
    heads   only these query heads, counted from 0, each with its key head
    to      a folder, new or empty: each call is written there as it comes, to an npz of its own,
            which `attncli check` reads, and is read again where it is asked for. Long runs stay
            within memory so
    gradients  what the backward pass gives q, k, v and the output is recorded, too, as d_q, d_k,
            d_v and d_output: be it run within the block or after it, the last time counts

    The model, its configuration and the registry of attention functions are as before after the
    block, whatever happens in it. Modules that are called attention and ran, but computed none
    that could be seen, are named in a warning and in `calls.unseen`; no call at all is a warning
    too. Compiled functions run without their compiler, and PyTorch's layers without their fused
    path, whose numbers differ by rounding. Of other threads than that of the block only calls
    through the registry are seen, and none of a thread with a capture of its own. Captures in one
    thread are nested: one that began later and outlasts another may miss calls.

    Raises MissingExtraError without PyTorch, InputError for what is no module, OutputError where
    the folder cannot be written to.
    """
    try:
        from attncli.commands.model.pytorch.watch import watched
    except ImportError as problem:
        if problem.name != "torch":
            raise
        needs = "capturing a model needs the package torch"
        raise MissingExtraError(needs, "pip install 'attncli[models]'") from None
    calls = Calls(folder=None if to is None else _folder(os.fspath(to)))
    with watched(model, calls, layers, heads, gradients=gradients):
        yield calls
    if calls.unseen:
        names = ", ".join(calls.unseen[:5]) + ", …" * (len(calls.unseen) > 5)
        warnings.warn(f"no attention was seen in {names}", UserWarning, stacklevel=3)
    elif not calls:
        place = "" if layers is None else f" in layers {sorted(layers)}"
        warnings.warn(f"no attention was seen{place}", UserWarning, stacklevel=3)


def _folder(path: str) -> str:
    """The folder, made where it is not there; OutputError where it holds something."""
    try:
        os.makedirs(path, exist_ok=True)
        is_empty = not os.listdir(path)
    except OSError as problem:
        text = problem.strerror or problem
        raise OutputError(f"{safe(path)} cannot be made a folder: {text}") from problem
    if not is_empty:
        raise OutputError(f"{safe(path)} is not empty", "name a new folder")
    return path
