"""check on what the backward pass alone reads at another place, and on sinks of other heads."""

from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from tests import plain

RNG = np.random.default_rng(3)
Q, D = (RNG.normal(size=(2, 3, 5, n)) for n in (7, 4))
K, V = (RNG.normal(size=(2, 3, 11, n)) for n in (7, 4))
SINKS = RNG.normal(size=3)
BLOCKS = np.arange(11) // 4 * 4


def gradients(q: Any = Q, k: Any = K, v: Any = V, lse: Any = None) -> dict[str, Any]:
    """As kernels do: weights again by exp(score − log-sum-exp), of what is read; delta of O, dO."""
    saved = plain.attention({"q": Q, "k": K, "v": V}, {})
    lse = saved["lse"] if lse is None else lse
    result = {"d_q": np.zeros_like(Q), "d_k": np.zeros_like(K), "d_v": np.zeros_like(V)}
    for b, h, i in np.ndindex(2, 3, 5):
        delta = D[b, h, i] @ saved["output"][b, h, i]
        for j in range(11):
            weight = np.exp(q[b, h, i] @ k[b, h, j] / np.sqrt(7) - lse[b, h, i])
            slope = weight * (D[b, h, i] @ v[b, h, j] - delta) / np.sqrt(7)
            result["d_q"][b, h, i] += slope * k[b, h, j]
            result["d_k"][b, h, j] += slope * q[b, h, i]
            result["d_v"][b, h, j] += weight * D[b, h, i]
    return result


def cause(observed: Any, **more: Any) -> str:
    verdict = check(observed, Q, K, V, pairs=False, **more)
    return verdict.explanations[0].name if verdict.explanations else ""


def lse() -> Any:
    return plain.attention({"q": Q, "k": K, "v": V}, {})["lse"]


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({"k": K[:, :, BLOCKS]}, "k of each key is that of the first of its block of 4"),
        ({"v": V[:, :, BLOCKS]}, "v of each key is that of the first of its block of 4"),
        ({"q": Q[:, ::-1]}, "q of head 1 is that of head 3, of head 3 is that of head 1"),
        (
            {"lse": lse()[:, :, [0, 0, 2, 2, 4]]},
            "the log-sum-exp of each query is that of the first",
        ),
        ({"lse": lse()[[0, 0]]}, "the log-sum-exp of batch item 2 is that of batch item 1"),
    ],
)
def test_an_operand_that_the_backward_pass_alone_reads_elsewhere(read: Any, words: str) -> None:
    assert check(gradients(), Q, K, V, d_output=D).matches
    assert cause(gradients(**read), d_output=D).startswith(f"the backward pass alone: {words}")


@pytest.mark.parametrize("stage", ["output", "lse"])
def test_sinks_of_other_heads(stage: str) -> None:
    right, wrong = (
        plain.attention({"q": Q, "k": K, "v": V, "sinks": sinks}, {})
        for sinks in (SINKS, SINKS[::-1])
    )
    observed = {"output": right["output"], stage: wrong[stage]}
    words = "the sink of head 1 is that of head 3, of head 3 is that of head 1"
    assert cause(observed, sinks=SINKS).startswith(words)


def test_a_log_sum_exp_is_looked_up_in_other_heads() -> None:
    words = "right rows at another place: head 2 has the numbers of head 1"
    assert cause({"lse": lse()[:, [0, 0, 2]]}) == words
