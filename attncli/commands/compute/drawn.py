"""compute --random and --sweep: numbers that are drawn, and one number of attention varied."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

from attncli.attention.inputs import Inputs
from attncli.attention.sweep import N_KEYS, exercise, sweep, sweep_widths
from attncli.cli.groups import given_of
from attncli.cli.options import ConventionFlags, DisplayFlags, InputFlags
from attncli.cli.parsing import sizes_of, unclear, whole_numbers
from attncli.commands.compute.flags import ExerciseFlags
from attncli.convention import flag_of
from attncli.errors import ConventionError, SizeError
from attncli.files.messages import quote
from attncli.trace import Trace

WIDTHS = "d_k"
SWEPT = (WIDTHS, "scale", "temperature", "softcap")
WIDEST, MOST = 4096, 100  # 16 MB of random numbers at once, and a table that can be read
MOST_SCORES = 1 << 16


def draw(inputs: InputFlags, choices: ConventionFlags, drawn: ExerciseFlags) -> InputFlags:
    """The inputs with drawn numbers as q, k and v, where --random asks for them."""
    if drawn.random is None:
        return inputs
    if inputs.source is not None:
        raise ConventionError(f"both {quote(inputs.source)} and --random are given", "use one")
    arrays = exercise(*sizes_of(drawn.random), choices.fields.get("seed", 0))
    inputs.q, inputs.k, inputs.v = (json.dumps(x.tolist()) for x in arrays.values())
    return inputs


def swept(drawn: ExerciseFlags, choices: ConventionFlags) -> tuple[str, list[float]]:
    """The name and the numbers of --sweep; "" without it. ConventionError for what it takes not."""
    if drawn.sweep is None:
        return "", []
    name, text = drawn.sweep[0].replace("-", "_"), drawn.sweep[1]
    if name not in SWEPT:
        raise ConventionError(f"--sweep takes no {quote(name)}", f"use {' or '.join(SWEPT)}")
    if name in choices.fields:
        raise ConventionError(f"both {flag_of(name)} and --sweep {name} are given", "use one")
    values: list[Any] = []
    form = f"A,B,C: up to {MOST} numbers{' above 0' * (name != 'scale')}, such as 0.1,0.7,2"
    if name == WIDTHS:
        form = f"A,B,C: up to {MOST} whole numbers from 1 to {WIDEST}, such as 1,4,16,64,256"
        values = [float(x) for x in whole_numbers(text, "--sweep d_k", form)]
        is_right = min(values) >= 1 and max(values) <= WIDEST
    else:
        with suppress(ConventionError):
            candidates: list[dict[str, Any]] = [{name: x.strip()} for x in text.split(",")]
            values = [ConventionFlags(**candidate).fields.get(name) for candidate in candidates]
        is_right = bool(values) and all(isinstance(x, (int, float)) for x in values)
    if not is_right or len(values) > MOST:
        raise unclear(f"--sweep {name}", text, form)
    return name, values


def of_widths(
    values: list[float],
    drawn: ExerciseFlags,
    inputs: InputFlags,
    choices: ConventionFlags,
    show: DisplayFlags,
) -> Trace:
    """The sweep of d_k, of random numbers. ConventionError for flags without effect on it."""
    if drawn.random is None:
        raise ConventionError("--sweep d_k has no effect without --random", "add it")
    others = [*given_of(inputs), *choices.fields, *given_of(show, "query", "head", "batch")]
    for name in (flag_of(field) for field in others if field != "seed"):
        raise ConventionError(f"{name} has no effect on --sweep d_k", "leave it out")
    n_keys = sizes_of(drawn.random)[0] if drawn.random else N_KEYS
    return sweep_widths([int(x) for x in values], n_keys, choices.fields.get("seed", 0))


def of_knob(name: str, values: list[float], attention: Inputs, row: int | None) -> Trace:
    """The sweep of a number of the convention; of the weights of a query where there is a row."""
    if math.prod(attention.sizes.scores) > MOST_SCORES:
        raise SizeError(f"a sweep is of up to {MOST_SCORES} scores", "give fewer queries or keys")
    return sweep(name, values, {**attention.keywords, **attention.label_keywords}, row)
