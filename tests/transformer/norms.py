"""A layer norm by itself, by the steps that layers have."""

from __future__ import annotations

import numpy.typing as npt

from attncli.attention.inputs import cast_input
from attncli.attention.run import Heading, Labels, run, trace_of
from attncli.attention.shapes import as_numbers, token_rows
from attncli.convention import Convention
from attncli.trace import Trace
from attncli.transformer.layers import add_norm, of_rows
from attncli.transformer.weights import Architecture


def layer_norm(
    x: npt.ArrayLike,
    gamma: npt.ArrayLike | None = None,
    beta: npt.ArrayLike | None = None,
    *,
    epsilon: float = 1e-5,
    labels: Labels = None,
    convention: Convention | None = None,
) -> Trace:
    """Each row with mean 0 and deviation 1, times γ plus β: N = γ (X − μ) / √(σ² + ε) + β.

    x [..., n, d] -> stages `mean` μ [..., n], `deviation` σ [..., n] (the population's: divided by
    d), `norm` [..., n, d]. γ and β are [d]; γ = 1 and β = 0 where they are left out.

    Raises ShapeError where γ or β does not fit x, ConventionError for an ε below 0.
    Source: Ba et al. (2016), section 3.1; ε as in PyTorch and ONNX LayerNormalization-17.
    """
    convention, gain = convention or Convention(), {"gamma": gamma, "beta": beta}
    weights = {n: as_numbers(w, n) for n, w in gain.items() if w is not None}
    inputs = {n: cast_input(w, convention) for n, w in {"x": token_rows(x), **weights}.items()}
    rows = of_rows(convention)
    add_norm(rows, "x", weights, inputs["x"].shape, Architecture(epsilon=epsilon))
    values = run(rows.steps, inputs)
    stages = {step.name: values[step.name] for step in rows.steps}
    return trace_of(rows.steps, stages, {"": Heading("Layer norm", convention, {"query": labels})})
