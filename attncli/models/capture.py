"""capture: record every attention that a PyTorch model computes, while it runs."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from attncli.errors import MissingExtraError
from attncli.models.call import Calls


@contextmanager
def capture(
    model: Any,
    *,
    layers: Collection[int] | None = None,
    heads: Collection[int] | None = None,
) -> Iterator[Calls]:
    """Record every attention call of a PyTorch model within the block.

        with attncli.capture(model) as calls:
            model(**inputs)
        calls[3].trace(), calls[3].check(), calls.save("dump.npz")

    model   a torch.nn.Module, of transformers or any other code
    layers  only these layers, counted from 0, as in the names of the modules
    heads   only these query heads, counted from 0, each with its key head

    The model, its configuration and the registry of attention functions are as before after the
    block, whatever happens in it. Modules that are called attention and ran, but computed none
    that could be seen, are named in a warning and in `calls.unseen`. Compiled functions run
    without their compiler.

    Raises MissingExtraError without PyTorch, InputError for what is no module.
    """
    try:
        from attncli.models.recorder import watched
    except ImportError as problem:
        if problem.name != "torch":
            raise
        needs = "to capture a model needs the package torch"
        raise MissingExtraError(needs, "pip install 'attncli[models]'") from None
    with watched(model, layers, heads) as calls:
        yield calls
    if calls.unseen:
        names = ", ".join(calls.unseen[:5]) + ", …" * (len(calls.unseen) > 5)
        warnings.warn(f"no attention was seen in {names}", UserWarning, stacklevel=3)
