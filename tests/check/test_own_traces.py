"""Whatever attncli computes and writes matches itself under the same flags."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from attncli.arrays import Array
from tests.cli.conftest import SAMPLES, Call, call

__all__ = ["call"]

KINDS: dict[str, Callable[[Array], Array]] = {
    "normal": lambda x: x,
    "whole": lambda x: np.rint(2 * x),
    "large": lambda x: 10 * x,
    "small": lambda x: 1e-3 * x,
    "float32": lambda x: x.astype(np.float32),
    "float16": lambda x: x.astype(np.float16),
    "alike": lambda x: 1 + 0.01 * x,
    "one key": lambda x: np.repeat(x[..., :1, :], x.shape[-2], axis=-2),
}
EMPTY = ("zero", "nan", "uniform", "unmasked")
VALUES = ("-1", "-100", "-1e4", "-1e9", "-1e30", "0", "5")
SCALES = ("none", "0", "1", "0.3", "-0.5", "1e-5", "10", "1e-300")


class Drawn:
    """Arrays and flags of one call of compute, drawn at random; at most 7 of anything."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.flags, self.normal = (
            rng,
            list[str](),
            np.random.default_rng(rng.randrange(2**32)),
        )
        self.kind, self.parts = KINDS[rng.choice([*KINDS])], rng.choice(["", "", "tiles", "split"])
        self.n_axes, self.n_batch = rng.choice([2, 3, 4]), rng.randint(1, 3)
        self.n_kv, self.group = (rng.randint(1, 3) if self.n_axes > 2 else 1 for _ in range(2))
        self.n_heads = self.n_kv * self.group
        self.n_q, n_k, d_k, d_v = (rng.randint(1, 7) for _ in range(4))
        n_past = rng.randint(1, 4) if self.may(0.15) else 0
        self.n_keys = n_k + n_past
        self.arrays = {"q": self.array(self.n_heads, self.n_q, d_k)}
        for prefix, n in (("", n_k), ("past_", n_past)):
            for name, width in (("k", d_k), ("v", d_v)) if n else ():
                self.arrays[prefix + name] = self.array(self.n_kv, n, width)
        is_causal = self.restrict()
        is_masked = self.give_mask(is_causal) or bool(self.flags)
        self.choose(is_masked)
        if self.parts:
            self.cut()
        elif not self.flag("d-output", "random", "ones", share=0.4) and self.may(0.1):
            self.arrays["d_output"] = self.array(self.n_heads, self.n_q, d_v)
        if self.n_axes > 2 and self.may():
            self.layout()

    def may(self, share: float = 0.3) -> bool:
        return self.rng.random() < share

    def flag(self, name: str, *values: str, share: float = 0.3) -> bool:
        """One of the values of a flag, perhaps; whether it is given."""
        if is_given := self.may(share):
            self.flags.append(f"--{name}={self.rng.choice(values)}" if values else f"--{name}")
        return is_given

    def shape(self, n_heads: int, *last: int) -> tuple[int, ...]:
        return (self.n_batch, n_heads, *last)[4 - self.n_axes :]

    def array(self, n_heads: int, *last: int) -> Array:
        return np.asarray(self.kind(self.normal.normal(size=self.shape(n_heads, *last))))

    def restrict(self) -> bool:
        """Causality, a window, lengths of keys; whether it is causal."""
        is_causal = self.flag("causal")
        if has_window := self.may(0.2):
            lefts = [-1, 1, 2] if self.flag("window-counts", "own") else [-1, 0, 1]
            self.flags.append(f"--window={self.rng.choice(lefts)},{self.rng.randint(-1, 1)}")
        if is_causal or has_window:
            self.flag("causal-align", "top-left", "bottom-right", "open-last")
        n = self.n_batch if self.n_axes == 4 else 1
        lengths = ",".join(str(self.rng.randint(0, self.n_keys)) for _ in range(n))
        self.flag("kv-len", lengths, share=0.2)
        return is_causal

    def give_mask(self, is_causal: bool) -> bool:
        if not self.may(0.35):
            return False
        n_q, n_k = self.n_q, self.n_keys
        shapes = [self.shape(self.n_heads, n_q, n_k), (n_q, n_k), (1, n_k)]
        shape = self.rng.choice(shapes if self.parts else [*shapes, (n_q, 1)])
        keep = self.normal.random(shape) < self.rng.choice([0.3, 0.9])
        keep[..., :1, :] &= self.may(0.8)
        bias = self.normal.normal(size=shape)
        what = self.rng.choice(["truth", "infinite", "bias", "numbers", "binary"])
        if what in ("truth", "binary"):
            self.arrays["mask"] = keep if what == "truth" else keep.astype(float)
            self.flag("mask-means", "keep", "ignore", "add", share=1 if what == "binary" else 0.3)
        elif what == "numbers":
            self.arrays["mask"] = np.where(keep, bias, 0)
            self.flag("mask-numbers", "truth", share=1)
        else:
            hidden = self.rng.choice([-np.inf, -1e4, -1e9]) if what == "bias" else -np.inf
            self.arrays["mask"] = np.where(keep, bias if what == "bias" else 0.0, hidden)
            self.flag("empty-rows-inf", *EMPTY)
        if is_causal:
            self.flag("mask-and-causal", "both", "mask", "causal")
        return True

    def choose(self, is_masked: bool) -> None:
        """All that is not about masks, and what masks make of rows and scores."""
        if is_masked:
            self.flag("empty-rows", *EMPTY)
            is_kept = any(flag.startswith("--empty-rows-inf") for flag in self.flags)  # −∞ stays −∞
            if not is_kept and self.flag("mask-value", *VALUES):
                self.flag("mask-value-rule", "add", share=0.5)
        self.flag("scale", *SCALES)
        if self.flag("softcap", "0.5", "2", "50"):
            self.flag("softcap-place", "before-mask", "after-bias", "after-mask", share=0.6)
        if self.group > 1:
            self.flag("head-order", "tiled")
        self.flag("dtype", "float32", "float16", "bfloat16", "float64")
        over_queries = not self.parts and self.flag("softmax-over", "queries", share=0.15)
        if self.n_axes > 2 and not over_queries and self.may(0.15):
            self.arrays["sinks"] = 3 * self.normal.normal(size=self.n_heads)
        if not self.parts and self.flag("dropout", "0.1", "0.5", "0.9"):
            self.flag("seed", "1", "2")

    def cut(self) -> None:
        if self.parts == "tiles" or self.n_keys == 1:
            self.flag("tiles", str(self.rng.randint(1, self.n_keys)), share=1)
        else:
            n = self.rng.randint(1, min(3, self.n_keys - 1))
            places = sorted(self.rng.sample(range(1, self.n_keys), n))
            self.flag("split", ",".join(map(str, places)), share=1)
        self.flag("lse-base", "2", share=0.2)

    def layout(self) -> None:
        """Another order of the axes, or heads side by side."""
        is_merged = self.may(0.5)
        for name in self.arrays.keys() - {"mask", "sinks"}:
            x = np.swapaxes(self.arrays[name], -3, -2)
            self.arrays[name] = x.reshape(*x.shape[:-2], -1) if is_merged else x
        if is_merged:
            self.flags += [f"--heads={self.n_heads}", f"--kv-heads={self.n_kv}"]
        if not is_merged or self.n_axes == 4:
            layout = "bsd" if is_merged else {3: "shd", 4: "bshd"}[self.n_axes]
            self.flags.append(f"--layout={layout}")


@settings(
    phases=[Phase.generate],  # random numbers shrink slowly, and the flags say enough
    suppress_health_check=list(HealthCheck),
)
@given(rng=st.randoms(use_true_random=False), form=st.sampled_from(["json", "npz"]))
def test_a_trace_matches_itself(rng: Random, form: str, call: Call) -> None:
    drawn = Drawn(rng)
    np.savez("in.npz", **drawn.arrays)  # type: ignore[arg-type]
    about = f"{' '.join(drawn.flags)} { ({name: x.shape for name, x in drawn.arrays.items()}) }"
    written = call("compute", "in.npz", *drawn.flags, "--output", f"t.{form}", "--force")
    assert written.code == 0, about + written.err
    read = call("check", "--q", "in.npz", *drawn.flags, "--observed", f"t.{form}", "--single")
    assert read.code == 0, about + read.out[:2000] + read.err


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_of_rounded_inputs_others_are_still_found(dtype: str, call: Call) -> None:
    q, flags = "[[0.1, 0.7]]", ("--dtype", dtype)
    call("compute", "--q", q, *flags, "--output", "t.json")
    assert call("check", "--q", q, *flags, "--observed", "t.json").code == 0
    for other in ("[[0.1, 0.68]]", SAMPLES / "three-tokens.json"):
        result = call("check", "--q", other, *flags, "--observed", "t.json")
        assert (result.code, "inputs differ" in result.out) == (1, True)
