"""Whatever attncli computes and writes matches itself under the same flags."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from attncli.arrays import Array
from tests.calls import SAMPLES, Call, call

__all__ = ["call"]

KINDS: list[Callable[[Array], Array]] = [
    lambda x: x,
    lambda x: np.rint(2 * x),
    lambda x: 10 * x,
    lambda x: 1e-3 * x,
    lambda x: x.astype(np.float32),
    lambda x: x.astype(np.float16),
    lambda x: 1 + 0.01 * x,
    lambda x: np.repeat(x[..., :1, :], x.shape[-2], axis=-2),  # as of one key
]
FLAGS = {
    "window": "-1,0 0,-1 1,1 2,0", "window-counts": "own", "mask-numbers": "truth",
    "causal-align": "top-left bottom-right open-last", "kv-len": "0 1 2 3",
    "mask-means": "keep ignore add", "mask-and-causal": "both mask causal",
    "empty-rows": "zero nan uniform unmasked", "empty-rows-inf": "zero nan uniform unmasked",
    "mask-value": "-1 -100 -1e4 -1e9 -1e30 0 5", "mask-value-rule": "add",
    "scale": "none 0 1 0.3 -0.5 1e-5 10 1e-300", "softcap": "0.5 2 50",
    "softcap-place": "before-mask after-bias after-mask", "head-order": "tiled",
    "dtype": "float32 float16 bfloat16 float64", "softmax-over": "queries", "dropout": "0.1 0.9",
    "seed": "1 2", "d-output": "random ones", "tiles": "1 2 5", "split": "1 1,2", "lse-base": "2",
    "layout": "shd bshd", "causal": "",
}  # fmt: skip
NEEDS = {
    "window-counts": "window", "mask-and-causal": "causal mask", "causal-align": "causal",
    "softcap-place": "softcap", "mask-value-rule": "mask-value", "seed": "dropout",
    "lse-base": "tiles", "mask-numbers": "mask", "mask-means": "mask", "empty-rows-inf": "mask",
}  # fmt: skip
TILED = "dropout seed softmax-over d-output"
EXCLUDES = {
    "split": f"tiles {TILED}", "tiles": TILED, "softmax-over": "sinks",
    "empty-rows-inf": "mask-numbers mask-means mask-value mask-value-rule",
}  # fmt: skip


def drawn(rng: Random) -> tuple[dict[str, Array], list[str]]:
    """Arrays and flags of a call of compute, of which hardly any do not fit together."""
    normal, kind = np.random.default_rng(rng.randrange(2**32)), rng.choice(KINDS)
    shares = dict.fromkeys(FLAGS, 0.1) | {"past": 0.15, "mask": 0.25, "sinks": 0.1}
    names = [name for name, share in shares.items() if rng.random() < share]
    names += [need for name in names for need in NEEDS.get(name, "").split()]
    for name, others in EXCLUDES.items():
        names = [x for x in names if name not in names or x not in others.split()]
    has = {*names}
    n_axes = rng.choice([3, 4] if {"layout", "head-order", "sinks"} & has else [2, 3, 4])
    n_batch, n_kv = rng.randint(1, 3), rng.randint(1, 3)
    n_heads = n_kv * rng.randint(2 if "head-order" in has else 1, 3)
    n_q, n_k, d_k, d_v, n_past = (rng.randint(1, 7) for _ in range(5))
    n_k = max(n_k, 3) if {"kv-len", "split"} & has else n_k

    def array(heads: int, *last: int) -> Array:
        x = np.asarray(kind(normal.normal(size=(n_batch, heads, *last)[4 - n_axes :])))
        return np.swapaxes(x, -3, -2) if "layout" in has else x

    arrays = {"q": array(n_heads, n_q, d_k), "k": array(n_kv, n_k, d_k), "v": array(n_kv, n_k, d_v)}
    if "past" in has:
        n_k += n_past
        arrays |= {"past_k": array(n_kv, n_past, d_k), "past_v": array(n_kv, n_past, d_v)}
    if "sinks" in has:
        arrays["sinks"] = 3 * normal.normal(size=n_heads)
    if "mask" in has:
        keep = normal.random((n_q, n_k)) < rng.choice([0.3, 0.9])
        bias = normal.normal(size=keep.shape)
        added, digits = [np.where(keep, bias, x) for x in (0, -np.inf, -1e4)], keep.astype(float)
        masks = [keep, digits] if "mask-means" in has else [keep, *added]
        masks = added if "empty-rows-inf" in has else masks
        arrays["mask"] = rng.choice([*added, digits] if "mask-numbers" in has else masks)
    values = {name: rng.choice(FLAGS[name].split() or [""]) for name in FLAGS if name in has}
    values |= {"layout": "shd" if n_axes == 3 else "bshd"} if "layout" in has else {}
    values |= {"window": rng.choice(["-1,0", "1,1", "2,0"])} if "window-counts" in has else {}
    return arrays, [f"--{name}={x}" if x else f"--{name}" for name, x in values.items()]


@settings(
    phases=[Phase.generate],  # random numbers shrink slowly, and the flags say enough
    suppress_health_check=list(HealthCheck),
)
@given(rng=st.randoms(use_true_random=False), form=st.sampled_from(["json", "npz"]))
def test_a_trace_matches_itself(rng: Random, form: str, call: Call) -> None:
    arrays, flags = drawn(rng)
    np.savez("in.npz", **arrays)  # type: ignore[arg-type]
    written = call("compute", "in.npz", *flags, "--output", f"t.{form}", "--force")
    assume(written.code == 0)
    read = call("check", "--q", "in.npz", *flags, "--observed", f"t.{form}", "--single")
    about = f"{' '.join(flags)} { ({name: x.shape for name, x in arrays.items()}) }"
    assert read.code == 0, about + read.out[:2000] + read.err


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_of_rounded_inputs_others_are_still_found(dtype: str, call: Call) -> None:
    q, flags = "[[0.1, 0.7]]", ("--dtype", dtype)
    call("compute", "--q", q, *flags, "--output", "t.json")
    assert call("check", "--q", q, *flags, "--observed", "t.json").code == 0
    for other in ("[[0.1, 0.68]]", SAMPLES / "three-tokens.json"):
        result = call("check", "--q", other, *flags, "--observed", "t.json")
        assert (result.code, "inputs differ" in result.out) == (1, True)
