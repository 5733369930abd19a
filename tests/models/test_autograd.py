"""Gradients against PyTorch's autograd, in float64: each feature, all together, and down to x."""

from typing import Any

import numpy as np
import pytest

import attncli

NEEDS = ("torch",)
torch: Any = None
DRAW = np.random.default_rng(29)
SIZES: dict[str, tuple[int, ...]] = {"q": (2, 6, 7, 5), "k": (2, 6, 11, 5), "v": (2, 6, 11, 13)}
SIZES |= {"d_output": (2, 6, 7, 13), "bias": (6, 7, 11), "sinks": (6,)}
ARRAYS = {name: DRAW.standard_normal(size) for name, size in SIZES.items()}
ARRAYS["keep"] = (DRAW.random((7, 11)) < 0.7) & (np.arange(7)[:, None] != 2)  # no key for one
ROW, SHARED = {"bias": ARRAYS["bias"][:, :1]}, {name: ARRAYS[name][:, :2] for name in "kv"}
MOST = {"scale": 0.37, "softcap": 2.0, "causal": True, "dropout": 0.3, "seed": 5}
# what goes in beside q, k, v and d_output, arrays of another size, the convention
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *[("", {}, {}), ("keep", {}, {}), ("bias", {}, {}), ("bias", ROW, {}), ("sinks", {}, {})],
    *[("", {}, {name: MOST[name]}) for name in ("scale", "softcap", "causal")],
    *[("", SHARED, {}), ("", SHARED, {"head_order": "tiled"}), ("", {}, {"softmax_over": "queries"})],
    ("", {}, {"dropout": 0.3, "seed": 3}),
    ("keep bias sinks", SHARED, {"head_order": "tiled", **MOST}),
]  # fmt: skip


def output(x: dict[str, Any], how: dict[str, Any]) -> Any:
    """Attention of tensors, and of a mask `keep`."""
    heads, n_kv = torch.arange(6), x["k"].shape[1]
    k, v = (x[name][:, heads % n_kv if "head_order" in how else heads * n_kv // 6] for name in "kv")
    s = x["q"] @ k.mT * how.get("scale", 5**-0.5)
    s = how["softcap"] * torch.tanh(s / how["softcap"]) if "softcap" in how else s
    hidden = torch.ones(7, 11, dtype=torch.bool).triu(1) & how.get("causal", False) | ~x["keep"]
    powers = (s + x.get("bias", 0)).exp() * ~hidden
    total = powers.sum(-2 if "softmax_over" in how else -1, keepdim=True)
    total = total + (x["sinks"][:, None, None].exp() if "sinks" in x else total == 0)
    draw, rate = np.random.default_rng(how.get("seed", 0)), how.get("dropout", 0)
    kept = torch.tensor(draw.random(powers.shape) >= rate)  # as --seed is documented
    return powers / total * kept / (1 - rate) @ v


@pytest.mark.parametrize(("names", "others", "how"), CASES)
def test_each_feature(names: str, others: dict[str, Any], how: dict[str, Any]) -> None:
    arrays = {name: ARRAYS[name] for name in f"q k v {names}".split()} | others
    mask, d = arrays.pop("keep", None), ARRAYS["d_output"]
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in arrays.items()}
    keep = np.array(True) if mask is None else mask
    output(leaves | {"keep": torch.tensor(keep)}, how).backward(torch.tensor(d))
    if "bias" in arrays:
        mask = np.where(keep, arrays.pop("bias"), -np.inf)
    trace = attncli.attend(**arrays, mask=mask, **how, d_output=d)
    for name, leaf in leaves.items():
        ours, theirs = trace[f"d_{name}"].value, leaf.grad.numpy()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("is_cross", [False, True])
def test_x_and_the_weights(is_cross: bool) -> None:
    d_kv, later = 7 if is_cross else 12, torch.ones(11, 17 if is_cross else 11).triu(1) > 0
    sizes = {"x": (11, 12), "w_q": (12, 12), "w_k": (d_kv, 12), "w_v": (d_kv, 12), "w_o": (12, 12)}
    sizes |= {"x_kv": (17, 7)} if is_cross else {}
    arrays = {name: DRAW.standard_normal(size) for name, size in sizes.items()}
    arrays |= {f"b_{name}": DRAW.standard_normal(12) for name in "qkvo"}
    d = DRAW.standard_normal((11, 12))
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in arrays.items()}
    weights = {f"{name}_proj_weight": leaves[f"w_{name}"].T for name in "qkv"}
    biases, x_kv = (
        torch.cat([leaves[f"b_{name}"] for name in "qkv"]),
        leaves.get("x_kv", leaves["x"]),
    )
    result, _ = torch.nn.functional.multi_head_attention_forward(
        *(leaves["x"], x_kv, x_kv, 12, 3, None, biases, None, None, False, 0.0),
        *(leaves["w_o"].T, leaves["b_o"]),
        **{"attn_mask": later, "use_separate_proj_weight": True, **weights},
    )
    result.backward(torch.tensor(d))
    own: Any = {name: x for name, x in arrays.items() if name[:2] in ("w_", "b_")}
    how: Any = {"context": arrays.get("x_kv"), "causal": True, "d_output": d}
    trace = attncli.multi_head_attention(arrays["x"], own, n_heads=3, **how)
    for name, leaf in leaves.items():
        ours, theirs = trace[f"d_{name}"].value, leaf.grad.numpy()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11, err_msg=name)
