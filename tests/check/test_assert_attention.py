"""assert_attention: passes, names the bug, and takes what other libraries' tensors offer."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncli import attend
from attncli.check import check
from attncli.testing import assert_attention

RNG = np.random.default_rng(31)
SHAPES = (2, 3, 7), (2, 5, 7), (2, 5, 11)
Q, K, V = (RNG.normal(size=shape).astype(np.float32) for shape in SHAPES)
RIGHT = attend(Q, K, V)["output"].value.astype(np.float32)


class FakeTensor:
    """A tensor as PyTorch has it: numpy and DLPack refuse it while it tracks gradients."""

    def __init__(self, array: Any, dtype: str = "torch.float32", grad: bool = True) -> None:
        self.array, self.dtype, self.grad = array, dtype, grad

    def detach(self) -> FakeTensor:
        return FakeTensor(self.array, self.dtype, grad=False)

    def cpu(self) -> FakeTensor:
        return self

    def float(self) -> FakeTensor:
        return FakeTensor(self.array.astype(np.float32), "torch.float32", self.grad)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if self.grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return np.asarray(self.array, dtype=dtype)


class OnlyDLPack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, FakeTensor, OnlyDLPack])
def test_right_numbers_pass_and_others_do_not(kind: Any) -> None:
    assert_attention(kind(RIGHT), kind(Q), kind(K), kind(V))
    with pytest.raises(AssertionError):
        assert_attention(kind(2 * RIGHT), kind(Q), kind(K), kind(V))


def test_the_text_of_the_error_is_the_report() -> None:
    wrong = attend(Q, K, V, causal=True)["output"].value
    with pytest.raises(AssertionError, match="causal mask where none is wanted") as caught:
        assert_attention(wrong, Q, K, V)
    assert str(caught.value) == str(check(wrong, Q, K, V))
    assert_attention(wrong, Q, K, V, causal=True)


def test_masks_stages_and_tolerances() -> None:
    mask = np.tri(3, 5, 2, dtype=bool)
    weights = attend(Q, K, V, mask=mask)["weights"].value
    assert_attention(weights, Q, K, V, mask=mask, stage="weights")
    assert_attention(weights + 1e-3, Q, K, V, mask=mask, stage="weights", atol=2e-3)
    with pytest.raises(AssertionError, match="mask left out"):
        assert_attention(attend(Q, K, V)["weights"].value, Q, K, V, mask=mask, stage="weights")


def test_bfloat16_tensors_are_judged_as_such() -> None:
    small = [x.astype(ml_dtypes.bfloat16) for x in (Q, K, V)]
    exact = [x.astype(np.float64) for x in small]
    tensors = [FakeTensor(x, "torch.bfloat16") for x in small]
    right, wrong = (
        FakeTensor(attend(*exact, scale=scale)["output"].value.astype(ml_dtypes.bfloat16), "torch.bfloat16")
        for scale in ("1/sqrt(d_k)", "none")
    )  # fmt: skip
    assert_attention(right, *tensors)
    with pytest.raises(AssertionError, match="scale left out"):
        assert_attention(wrong, *tensors)
