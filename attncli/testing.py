"""For other people's test suites: an assertion that names the bug.

from attncli.testing import assert_attention

def test_my_attention():
    assert_attention(my_attention(q, k, v), q, k, v)
"""

from __future__ import annotations

from typing import Any

from attncli.commands.check.diagnose import check
from attncli.commands.check.verdict import report_text


def assert_attention(observed: Any, q: Any, k: Any, v: Any, **options: Any) -> None:
    """Pass where `observed` is the attention of q, k and v; else say which bug it is.

    observed  the output, or the stage that `stage` names, or a mapping of several; any array that
              NumPy or DLPack takes, PyTorch and JAX tensors included (those that track gradients
              and those of 8 and 16 bits too)
    options   further keywords of `attncli.check`, such as mask, kv_len, stage; layout="bshd"
              for tokens before heads; causal, scale, window and every other field of Convention;
              decimals, or rtol and atol, else the noise floor of the observed number type

    Raises AssertionError, whose text is the report; ShapeError and ConventionError for inputs
    that do not fit together.

    >>> q = k = [[1.0, 0.0], [0.0, 1.0]]
    >>> assert_attention([[0.6698, 0.3302], [0.3302, 0.6698]], q, k, k, atol=1e-4)
    >>> assert_attention([[0.7311, 0.2689], [0.2689, 0.7311]], q, k, k, atol=1e-4)
    Traceback (most recent call last):
        ...
    AssertionError: it differs; the cause:
      scale left out
    ...
    """
    __tracebackhide__ = True
    verdict = check(observed, q, k, v, **options)
    if not verdict.matches:
        raise AssertionError(report_text(verdict))
