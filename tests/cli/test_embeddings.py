"""attncli compute --x: embeddings and weights as they are published, against plain NumPy.

Every expected number is written out here: x @ W, or x @ W.T where PyTorch's Linear is meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import SAMPLES, Call
from .test_inputs import stages

RNG = np.random.default_rng(53)
N, N_K, D, D_K, D_V, D_OUT, H = 3, 17, 5, 7, 11, 13, 2


def random(*shape: int) -> Any:
    return RNG.normal(size=shape)


X, CONTEXT = random(N, D), random(N_K, D)
W_Q, W_K, W_V, W_O = random(D, D_K), random(D, D_K), random(D, D_V), random(D_V, D_OUT)
B_Q, B_K, B_V, B_O = random(D_K), random(D_K), random(D_V), random(D_OUT)
PER_HEAD = {"w_q": random(H, D, D_K), "w_k": random(H, D, D_K), "w_v": random(H, D, D_V)}
HEADS_OUT = random(H, D_V, D_OUT)
BESIDE = {name: np.hstack(list(w)) for name, w in PER_HEAD.items()}  # [d, head·d_head]
BESIDE_OUT = np.vstack(list(HEADS_OUT))


def attention(q: Any, k: Any, v: Any) -> Any:
    z = q @ k.T / np.sqrt(q.shape[-1])
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ v


def heads_of(x: Any, context: Any = None, n_heads: int = H) -> Any:
    """The outputs of the heads of BESIDE, side by side."""
    c = x if context is None else context
    q, k, v = (np.split(y, n_heads, axis=1) for y in (
        x @ BESIDE["w_q"], c @ BESIDE["w_k"], c @ BESIDE["w_v"]
    ))  # fmt: skip
    return np.hstack([attention(*qkv) for qkv in zip(q, k, v, strict=True)])


ALONE = attention(X @ W_Q, X @ W_K, X @ W_V)
BIASED = attention(X @ W_Q + B_Q, X @ W_K + B_K, X @ W_V + B_V) @ W_O + B_O
PLAIN = {"w_q": W_Q, "w_k": W_K, "w_v": W_V}
BIASES = {"b_q": B_Q, "b_k": B_K, "b_v": B_V}


def write(path: Path, arrays: dict[str, Any]) -> str:
    """The arrays as a file of the format that the ending names."""
    arrays = {name: np.asarray(x) for name, x in arrays.items()}
    if path.suffix == ".json":
        path.write_text(json.dumps({name: x.tolist() for name, x in arrays.items()}))
    elif path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        numpy = pytest.importorskip("safetensors.numpy")
        numpy.save_file({n: np.ascontiguousarray(x) for n, x in arrays.items()}, str(path))
    return path.name


@pytest.fixture
def computed(call: Call, tmp_path: Path) -> Callable[..., tuple[dict[str, Any], str]]:
    """Writes arrays to a file, computes it with these flags; gives the stages and the notes."""

    def computing(arrays: Any, *flags: str, give: str = "--x", to: str = "a.npz") -> Any:
        if isinstance(arrays, str):
            (tmp_path / to).write_text(arrays)
        else:
            write(tmp_path / to, arrays)
        result = call("compute", give, to, *flags, "--format", "json")
        assert result.code == 0, result.err
        return stages(result.json), result.err

    return computing


def torch(w: Any) -> Any:
    """As PyTorch's Linear keeps it: [out, in]."""
    return w.T


# name → arrays beside x, the stage to compare, its value, and what the note says
FORMS: dict[str, tuple[dict[str, Any], str, Any, str]] = {
    "plain": (PLAIN, "output", ALONE, ""),
    "spelled otherwise": ({"W_Q": W_Q, "Wk": W_K, "WV": W_V}, "output", ALONE, ""),
    "words": ({"W_query": W_Q, "W_key": W_K, "W_value": W_V}, "output", ALONE, ""),
    "weight last": ({"q_weight": W_Q, "k_weight": W_K, "v_weight": W_V}, "output", ALONE, ""),
    "omega": ({"omega_q": W_Q, "omega_k": W_K, "omega_v": W_V}, "output", ALONE, ""),
    "superscript": ({"W^Q": W_Q, "W^{K}": W_K, "W^V": W_V}, "output", ALONE, ""),
    "biases": (PLAIN | BIASES | {"w_o": W_O, "b_o": B_O}, "projected", BIASED, ""),
    "biases as columns": (
        PLAIN | {n: b[:, None] for n, b in BIASES.items()} | {"W_O": W_O, "bo": B_O},
        "projected", BIASED, "",
    ),
    "PyTorch": (
        {
            "q_proj.weight": torch(W_Q), "k_proj.weight": torch(W_K), "v_proj.weight": torch(W_V),
            "q_proj.bias": B_Q, "k_proj.bias": B_K, "v_proj.bias": B_V,
            "out_proj.weight": torch(W_O), "out_proj.bias": B_O,
        },
        "projected", BIASED, "taken as [out, in]: X Wᵀ",
    ),
    "BERT": (
        {f"attention.self.{name}.weight": torch(w) for name, w in
         (("query", W_Q), ("key", W_K), ("value", W_V))}
        | {f"attention.self.{name}.bias": b for name, b in
           (("query", B_Q), ("key", B_K), ("value", B_V))}
        | {"attention.output.dense.weight": torch(W_O), "attention.output.dense.bias": B_O},
        "projected", BIASED, "[out, in]",
    ),
    "a Linear called W_query": (
        {f"W_{name}.weight": torch(w) for name, w in
         (("query", W_Q), ("key", W_K), ("value", W_V))},
        "output", ALONE, "[out, in]",
    ),
    "plain, but [out, in] by their shapes": (
        {name: w.T for name, w in PLAIN.items()}, "output", ALONE, "w_q, w_k, w_v taken as [out, in]",
    ),
    "a .weight that is [in, out] by its shape": (
        {f"{n}_proj.weight": w for n, w in zip("qkv", PLAIN.values(), strict=True)},
        "output", ALONE, "taken as [in, out]: X W",
    ),
    "a list of matrices": (
        PER_HEAD | {"w_o": BESIDE_OUT}, "projected", heads_of(X) @ BESIDE_OUT, "2 heads",
    ),
    "W_o a list as well": (
        PER_HEAD | {"w_o": HEADS_OUT}, "projected", heads_of(X) @ BESIDE_OUT, "2 heads",
    ),
    "numbered": (
        {f"{name}_{head + 1}": w for name, ws in PER_HEAD.items() for head, w in enumerate(ws)},
        "concat", heads_of(X), "2 heads",
    ),
    "numbered without a stroke": (
        {f"W{name[-1].upper()}{head}": w for name, ws in PER_HEAD.items()
         for head, w in enumerate(ws)},
        "concat", heads_of(X), "2 heads",
    ),
    "numbered Linears": (
        {f"heads.{head}.{long}.weight": torch(w) for long, name in
         (("query", "w_q"), ("key", "w_k"), ("value", "w_v"))
         for head, w in enumerate(PER_HEAD[name])},
        "concat", heads_of(X), "2 heads",
    ),
    "Keras": (
        {f"mha/{long}/kernel:0": PER_HEAD[name].transpose(1, 0, 2) for long, name in
         (("query", "w_q"), ("key", "w_k"), ("value", "w_v"))}
        | {f"mha/{long}/bias:0": np.zeros((H, d)) for long, d in
           (("query", D_K), ("key", D_K), ("value", D_V))}
        | {"mha/attention_output/kernel:0": HEADS_OUT, "mha/attention_output/bias:0": B_O},
        "projected", heads_of(X) @ BESIDE_OUT + B_O, "2 heads",
    ),
    "Keras' Dense": (
        {"query/kernel": W_Q, "key/kernel": W_K, "value/kernel": W_V}, "output", ALONE, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("ending", ["npz", "json", "safetensors"])
@pytest.mark.parametrize("form", FORMS)
def test_weights_as_they_are_published(computed: Any, form: str, ending: str) -> None:
    arrays, stage, expected, says = FORMS[form]
    found, notes = computed({"x": X} | arrays, to=f"a.{ending}")
    np.testing.assert_allclose(found[stage], expected, rtol=1e-9)
    np.testing.assert_array_equal(found["x"], X)
    assert list(found)[-1] == stage
    assert (says in notes) if says else (notes == "")
    assert notes.count("\n") == bool(says)


# ---- packed: W_q, W_k and W_v in one

W_3 = [random(D, D_K) for _ in "qkv"]
B_3 = [random(D_K) for _ in "qkv"]
SQUARE = random(D_K, D_K)
PACKED = attention(*(X @ w + b for w, b in zip(W_3, B_3, strict=True)))
COLUMNS, ROWS = np.hstack(W_3), np.vstack([w.T for w in W_3])
STACKS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "in_proj_weight": (
        {"in_proj_weight": ROWS, "in_proj_bias": np.hstack(B_3), "out_proj.weight": SQUARE.T},
        PACKED @ SQUARE, "in_proj_weight cut by rows into w_q, w_k, w_v",
    ),
    "timm": (
        {"attn.qkv.weight": ROWS, "attn.qkv.bias": np.hstack(B_3), "attn.proj.weight": SQUARE.T},
        PACKED @ SQUARE, "attn.qkv.weight cut by rows",
    ),
    "GPT-2, whose Conv1D is [in, out]": (
        {"h.0.attn.c_attn.weight": COLUMNS, "h.0.attn.c_attn.bias": np.hstack(B_3),
         "h.0.attn.c_proj.weight": SQUARE},
        PACKED @ SQUARE, "h.0.attn.c_attn.weight cut by columns",
    ),
    "nanoGPT, whose c_attn is a Linear": (
        {"attn.c_attn.weight": ROWS, "attn.c_attn.bias": np.hstack(B_3),
         "attn.c_proj.weight": SQUARE.T},
        PACKED @ SQUARE, "attn.c_attn.weight cut by rows",
    ),
    "a plain one": (
        {"w_qkv": COLUMNS, "b_qkv": np.hstack(B_3), "w_o": SQUARE},
        PACKED @ SQUARE, "w_qkv cut by columns",
    ),
    "ONNX Runtime's": (
        {"weights": COLUMNS, "bias": np.hstack(B_3)}, PACKED, "weights cut by columns",
    ),
    "kv": (
        {"w_q": W_3[0], "b_q": B_3[0], "kv": np.hstack(W_3[1:]), "kv_bias": np.hstack(B_3[1:])},
        PACKED, "kv cut by columns into w_k, w_v",
    ),
    "a Linear to kv": (
        {"to_q.weight": W_3[0].T, "to_kv.weight": np.vstack([w.T for w in W_3[1:]]),
         "to_q.bias": B_3[0], "to_kv.bias": np.hstack(B_3[1:]), "to_out.0.weight": SQUARE.T},
        PACKED @ SQUARE, "to_kv.weight cut by rows into w_k, w_v",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", STACKS)
def test_matrices_in_one(computed: Any, form: str) -> None:
    arrays, expected, says = STACKS[form]
    found, notes = computed({"inputs": X} | arrays)
    np.testing.assert_allclose(list(found.values())[-1], expected, rtol=1e-9)
    assert says in notes
    assert notes.count("\n") == 1


def test_a_square_linear_is_still_out_in(computed: Any) -> None:
    w = {name: random(D, D) for name in "qkv"}
    expected = attention(*(X @ w[name].T for name in "qkv"))
    found, notes = computed({"x": X} | {f"{name}_proj.weight": w[name] for name in "qkv"})
    np.testing.assert_allclose(found["output"], expected, rtol=1e-9)
    assert "[out, in]" in notes
    found, _ = computed({"x": X} | {f"w_{name}": w[name] for name in "qkv"})
    plain = attention(*(X @ w[name] for name in "qkv"))
    np.testing.assert_allclose(found["output"], plain, rtol=1e-9)
    found, _ = computed(
        {"x": X} | {f"w_{name}": w[name] for name in "qkv"}, "--weights-axes", "out-in"
    )
    np.testing.assert_allclose(found["output"], expected, rtol=1e-9)
    found, _ = computed(
        {"x": X} | {f"{name}_proj.weight": w[name] for name in "qkv"}, "--weights-axes", "in-out"
    )
    np.testing.assert_allclose(found["output"], plain, rtol=1e-9)


def test_tokens_as_columns(computed: Any) -> None:
    w = {name: random(D_K, D) for name in "qkv"}  # W x
    found, notes = computed({"X": X.T} | {f"W_{name}": w[name] for name in "qkv"})
    expected = attention(*((w[name] @ X.T).T for name in "qkv"))
    np.testing.assert_allclose(found["output"], expected, rtol=1e-9)
    assert "the tokens are the columns of x" in notes
    square = {name: random(D, D) for name in "qkv"}
    found, _ = computed({"X": X.T} | {f"W_{name}": square[name] for name in "qkv"})
    expected = attention(*((square[name] @ X.T).T for name in "qkv"))
    np.testing.assert_allclose(found["output"], expected, rtol=1e-9)


# ---- where they come from


@pytest.mark.parametrize("give", ["--x", "--q"])
def test_one_file_holds_it_all(computed: Any, give: str) -> None:
    found, notes = computed({"x": X} | PLAIN, give=give)
    np.testing.assert_allclose(found["output"], ALONE, rtol=1e-9)
    assert list(found) == [
        *("x", "w_q", "w_k", "w_v", "q", "k", "v", "scores", "scaled", "weights", "output")
    ]
    assert found["scores"].shape == (N, N)
    assert notes == ""


@pytest.mark.parametrize(
    "flags",
    [
        ("--x", "x.npy", "--weights", "w.npz"),
        ("--q", "x.npy", "--weights", "w.npz"),
        ("--x", "x.csv", "--weights", "w.npz"),
        ("--x", "all.npz::x", "--weights", "all.npz"),
        ("--x", "all.npz::x"),
        ("--x", json.dumps(X.tolist()), "--weights", "w.npz"),
        ("--weights", "all.npz"),
        ("--q", "all.npz"),
        ("--x", "model.npz", "--weights", "model.npz::h.1.attn"),
        ("--x", "parts.npz::b"),
    ],
)
def test_two_files_or_one(call: Call, tmp_path: Path, flags: Any) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",", fmt="%.17g")
    write(tmp_path / "w.npz", PLAIN)
    write(tmp_path / "all.npz", {"x": X} | PLAIN)
    layers: dict[str, Any] = {f"h.0.attn.{name}": np.zeros_like(w) for name, w in PLAIN.items()}
    layers |= {f"h.1.attn.{name}": w for name, w in PLAIN.items()}
    write(tmp_path / "model.npz", {"x": X} | layers)
    parts = {f"b.{name}": array for name, array in ({"x": X} | PLAIN).items()}
    write(tmp_path / "parts.npz", parts | {"a.w_q": W_Q, "a.x": X})
    result = call("compute", *flags, "--format", "json")
    assert result.code == 0, result.err
    np.testing.assert_allclose(stages(result.json)["output"], ALONE, rtol=1e-9)
    if "all.npz::x" in flags:
        assert "not used" not in result.err


def test_standard_input(call: Call, tmp_path: Path) -> None:
    content = write(tmp_path / "a.json", {"x": X} | PLAIN)
    data = (tmp_path / content).read_bytes()
    result = call("compute", "--q", "-", "--format", "json", stdin=data)
    np.testing.assert_allclose(stages(result.json)["output"], ALONE, rtol=1e-9)


def test_cross_attention(call: Call, tmp_path: Path) -> None:
    values = random(N_K, 19)
    w_v = random(19, D_V)
    write(tmp_path / "a.npz", {"x": X, "context": CONTEXT} | PLAIN)
    np.save(tmp_path / "c.npy", CONTEXT)
    np.save(tmp_path / "v.npy", values)
    expected = attention(X @ W_Q, CONTEXT @ W_K, CONTEXT @ W_V)
    for flags in (("--x", "a.npz"), ("--x", "a.npz::x", "--x-kv", "c.npy", "--weights", "a.npz")):
        result = call("compute", *flags, "--format", "json")
        assert result.code == 0, result.err
        found = stages(result.json)
        np.testing.assert_allclose(found["output"], expected, rtol=1e-9)
        np.testing.assert_array_equal(found["x_kv"], CONTEXT)
    write(tmp_path / "w.npz", PLAIN | {"w_v": w_v})
    three = ("--x", "a.npz::x", "--x-kv", "c.npy", "--x-v", "v.npy", "--weights", "w.npz")
    found = stages(call("compute", *three, "--format", "json").json)
    expected = attention(X @ W_Q, CONTEXT @ W_K, values @ w_v)
    np.testing.assert_allclose(found["output"], expected, rtol=1e-9)
    assert "Cross-attention" in call("compute", "--x", "a.npz").out


NESTED = {
    "objects": {"attention": {
        "query": {"weight": W_Q.T.tolist()}, "key": {"weight": W_K.T.tolist()},
        "value": {"weight": W_V.T.tolist()},
    }},
    "weights of letters": {"weights": {"q": W_Q.tolist(), "k": W_K.tolist(), "v": W_V.tolist()}},
    "W of letters": {"W": {"Q": W_Q.tolist(), "K": W_K.tolist(), "V": W_V.tolist()}},
}  # fmt: skip


@pytest.mark.parametrize("form", NESTED)
def test_nested_objects_are_joined(computed: Any, form: str) -> None:
    document = json.dumps({"x": X.tolist()} | NESTED[form])
    found, _ = computed(document, to="a.json")
    np.testing.assert_allclose(found["output"], ALONE, rtol=1e-9)


def test_a_list_of_objects_is_a_list_of_heads(computed: Any) -> None:
    heads = [{name: w[head].tolist() for name, w in PER_HEAD.items()} for head in range(H)]
    found, notes = computed(json.dumps({"x": X.tolist(), "heads": heads}), to="a.json")
    np.testing.assert_allclose(found["concat"], heads_of(X), rtol=1e-9)
    assert "2 heads" in notes


def test_words_and_their_vectors_are_x_with_labels(call: Call, tmp_path: Path) -> None:
    words = dict(zip(("Your", "journey", "starts"), X.tolist(), strict=True))
    weights = {name: w.tolist() for name, w in PLAIN.items()}
    (tmp_path / "one.json").write_text(json.dumps({"embeddings": words} | weights))
    (tmp_path / "x.json").write_text(json.dumps(words))
    (tmp_path / "w.json").write_text(json.dumps(weights))
    for flags in (("--x", "one.json"), ("--x", "x.json", "--weights", "w.json")):
        result = call("compute", *flags, "--format", "json")
        assert result.code == 0, result.err
        np.testing.assert_allclose(stages(result.json)["output"], ALONE, rtol=1e-9)
        labels = {
            name: names for step in result.json["steps"] for name, names in step["labels"].items()
        }
        assert labels["query"] == labels["key"] == ["Your", "journey", "starts"]


def test_each_side_has_labels_of_its_own(call: Call, tmp_path: Path) -> None:
    queries, keys = ("I", "love", "AI"), tuple(f"mot {number}" for number in range(N_K))
    document = {
        "x": dict(zip(queries, X.tolist(), strict=True)),
        "x_kv": dict(zip(keys, CONTEXT.tolist(), strict=True)),
    } | {name: w.tolist() for name, w in PLAIN.items()}
    cache = {"past_k": random(2, D_K).tolist(), "past_v": random(2, D_V).tolist()}
    (tmp_path / "a.json").write_text(json.dumps(document | cache))
    steps = call("compute", "--x", "a.json", "--format", "json").json["steps"]
    labels = {step["name"]: step["labels"] for step in steps}
    assert labels["x"] == {"query": list(queries)}
    assert labels["x_kv"] == {"key": list(keys)}
    both = {"query": list(queries), "key": ["past 1", "past 2", *keys]}
    assert labels["weights"] == both
    assert labels["k"] == {"key": both["key"]}


# ---- with the other flags


def test_batches(computed: Any) -> None:
    x = random(2, N, D)
    found, _ = computed({"x": x} | PLAIN | {"w_o": W_O})
    expected = [attention(y @ W_Q, y @ W_K, y @ W_V) @ W_O for y in x]
    np.testing.assert_allclose(found["projected"], expected, rtol=1e-9)


def test_heads_split_what_is_projected(computed: Any) -> None:
    found, notes = computed({"x": X} | BESIDE | {"w_o": BESIDE_OUT}, "--heads", "2")
    np.testing.assert_allclose(found["projected"], heads_of(X) @ BESIDE_OUT, rtol=1e-9)
    assert list(found)[-2:] == ["concat", "projected"]
    assert notes == ""


def test_fewer_heads_of_k_and_v_are_found_by_their_width(computed: Any) -> None:
    w_q, w_k, w_v = random(D, 4 * D_K), random(D, 2 * D_K), random(D, 2 * D_V)
    found, notes = computed({"x": X, "w_q": w_q, "w_k": w_k, "w_v": w_v}, "--heads", "4")
    q, k, v = (
        np.split(X @ w_q, 4, axis=1),
        np.split(X @ w_k, 2, axis=1),
        np.split(X @ w_v, 2, axis=1),
    )
    expected = np.hstack([attention(q[h], k[h // 2], v[h // 2]) for h in range(4)])
    np.testing.assert_allclose(found["concat"], expected, rtol=1e-9)
    assert "2 heads of K and V" in notes
    packed = {"x": X, "qkv": np.hstack([w_q, w_k, random(D, 2 * D_K)])}
    found, _ = computed(packed, "--heads", "4", "--kv-heads", "2")
    assert found["k"].shape == (2, N, D_K)


def test_masks_scale_and_number_type(call: Call, computed: Any) -> None:
    file = {"x": X} | PLAIN
    q, k, v = X @ W_Q, X @ W_K, X @ W_V
    found, _ = computed(file, "--causal", "--scale", "0.25")
    z = np.where(np.tri(N, dtype=bool), 0.25 * q @ k.T, -np.inf)
    weights = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["output"], weights @ v, rtol=1e-9)
    found, _ = computed(file, "--kv-len", "1")
    np.testing.assert_allclose(found["output"], np.repeat(v[:1], N, axis=0), rtol=1e-9)
    mask = [[True, False, False]] * N
    found, _ = computed(file | {"mask": mask, "scale": 2.0})
    np.testing.assert_allclose(found["output"], np.repeat(v[:1], N, axis=0), rtol=1e-9)
    np.testing.assert_allclose(found["scaled"], 2 * q @ k.T, rtol=1e-9)
    found, _ = computed(file, "--dtype", "float16")
    half = X.astype(np.float16).astype(np.float32) @ W_Q.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(found["q"], half.astype(np.float16))


@pytest.mark.parametrize("in_heads", [False, True])
def test_a_cache_before_what_is_projected(computed: Any, in_heads: bool) -> None:
    past_k, past_v = random(H, 4, D_K), random(H, 4, D_V)
    wide = [x.transpose(1, 0, 2).reshape(4, -1) for x in (past_k, past_v)]
    cache = (past_k, past_v) if in_heads else wide
    found, _ = computed({"x": X, "past_k": cache[0], "past_v": cache[1]} | PER_HEAD)
    expected = [
        attention(
            X @ PER_HEAD["w_q"][h],
            np.vstack([past_k[h], X @ PER_HEAD["w_k"][h]]),
            np.vstack([past_v[h], X @ PER_HEAD["w_v"][h]]),
        )
        for h in range(H)
    ]
    np.testing.assert_allclose(found["concat"], np.hstack(expected), rtol=1e-9)
    assert found["k"].shape == (H, 4 + N, D_K)


def test_a_cache_of_one_head(computed: Any) -> None:
    past_k, past_v = random(4, D_K), random(4, D_V)
    q = X @ W_Q
    expected = attention(q, np.vstack([past_k, X @ W_K]), np.vstack([past_v, X @ W_V]))
    for shape in ((), (None,)):
        cache = {"past_k": past_k[shape], "past_v": past_v[shape]}
        found, _ = computed({"x": X} | PLAIN | cache)
        np.testing.assert_allclose(found["output"], expected, rtol=1e-9)


def test_a_trace_of_it_is_an_input_again(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "a.npz", {"x": X} | PER_HEAD | {"w_o": HEADS_OUT})
    assert call("compute", "--x", "a.npz", "--output", "t.json", "--quiet").code == 0
    again = call("compute", "--q", "t.json", "--format", "json")
    assert again.code == 0, again.err
    once = call("compute", "--x", "a.npz", "--quiet", "--format", "json")
    np.testing.assert_array_equal(stages(again.json)["output"], stages(once.json)["output"])


def test_the_output_alone_is_projected_as_well(call: Call, tmp_path: Path) -> None:
    x = random(2500, D)
    write(tmp_path / "a.npz", {"x": x} | PLAIN | {"w_o": W_O})
    assert call("compute", "--x", "a.npz", "--output", "o.npy").code == 0
    expected = attention(x @ W_Q, x @ W_K, x @ W_V) @ W_O
    np.testing.assert_allclose(np.load(tmp_path / "o.npy"), expected, rtol=1e-7)
    some = ("--rows", "2:3", "--max-size", "120MB", "--format", "json")
    result = call("compute", "--x", "a.npz", "--stage", "projected", "--stage", "q", *some)
    assert result.code == 0, result.err
    np.testing.assert_allclose(stages(result.json)["projected"], expected[1:3], rtol=1e-7)
    np.testing.assert_allclose(stages(result.json)["q"], (x @ W_Q)[1:3], rtol=1e-7)
    whole = call("compute", "--x", "a.npz", "--max-size", "120MB", "--stage", "weights", "--work")
    assert (whole.code, "16 of 2500 queries computed" in whole.err) == (0, True)


def test_what_is_too_large_says_its_size(call: Call, tmp_path: Path) -> None:
    x = np.zeros((200_000, 2), np.float32)
    write(tmp_path / "a.npz", {"x": x} | {f"w_{name}": np.zeros((2, 500)) for name in "qkv"})
    result = call("compute", "--x", "a.npz")
    assert (result.code, result.out) == (2, "")
    assert "q, k and v of 200000 tokens need" in result.err


def test_check_takes_them_too(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "a.npz", {"x": X} | PLAIN)
    np.save(tmp_path / "right.npy", ALONE)
    np.save(tmp_path / "wrong.npy", attention(X @ W_Q * np.sqrt(D_K), X @ W_K, X @ W_V))
    assert call("check", "--x", "a.npz", "--observed", "right.npy").code == 0
    wrong = call("check", "--q", "a.npz", "--observed", "wrong.npy")
    assert wrong.code == 1
    assert "scale left out" in wrong.out


def test_check_of_one_file_with_x_weights_and_the_output(call: Call, tmp_path: Path) -> None:
    heads = {"x": X, "w_o": BESIDE_OUT} | PER_HEAD
    write(tmp_path / "a.npz", heads | {"output": heads_of(X)})
    assert call("check", "--x", "a.npz").out[:10] == "it matches"
    assert (
        "SOURCE is given beside"
        in call("check", "a.npz", "--x", "a.npz", "--observed", "a.npz").err
    )
    result = call("check", "a.npz")
    assert (result.code, result.out[:10]) == (0, "it matches")
    assert "w_o is not used" in result.err
    z = np.stack([X @ PER_HEAD["w_q"][h] @ (X @ PER_HEAD["w_k"][h]).T for h in range(H)])
    e = np.exp(z / np.sqrt(D_K))
    write(tmp_path / "b.npz", heads | {"weights": e / e.sum(axis=-1, keepdims=True)})
    result = call("check", "b.npz")
    assert result.code == 0, result.out + result.err
    assert "not used: weights" not in result.err


def test_what_else_is_given_is_not_noted(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "a.npz", {"x": X} | PLAIN)
    write(tmp_path / "w.npz", {"scale": np.array(2.0)} | PLAIN)
    for flags in (
        ["--sinks", "[1]"],
        ["--past-k", "[[1, 2, 3, 4, 5, 6, 7]]", "--past-v", json.dumps([[0] * 11])],
        ["--mask", "[[true, true, false]]"],
    ):
        result = call("compute", "--x", "a.npz", *flags)
        assert (result.code, result.err) == (0, "")
    result = call("compute", "--x", "a.npz::x", "--weights", "w.npz")
    assert "w.npz: not used: scale" in result.err


def test_the_sample_of_homework(call: Call) -> None:
    result = call("compute", "--x", SAMPLES / "homework.json")
    assert (result.code, result.err) == (0, "")
    assert "Q = X W_q" in result.out
    assert "concat" not in result.out


# ---- what is not used, and what goes wrong


def test_a_buffer_of_a_model_is_no_mask(computed: Any) -> None:
    state = {
        f"W_{n}.weight": w.T for n, w in zip(("query", "key", "value"), PLAIN.values(), strict=True)
    }
    for mask in (np.triu(np.ones((N, N)), 1), np.triu(np.ones((N, N), bool), 1)):
        found, notes = computed({"x": X, "mask": mask} | state)
        np.testing.assert_allclose(found["output"], ALONE, rtol=1e-9)
        assert "mask is a buffer beside a model's weights and not used" in notes
    found, _ = computed(
        {"x": X, "mask": mask} | state, "--mask", "a.npz::mask", "--mask-means", "ignore"
    )
    np.testing.assert_allclose(found["output"][0], (X @ W_V)[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": X, "bias_k": B_K, "tril": np.tri(N)} | PLAIN, "not used: bias_k, tril"),
        ({"x": X, "k": X, "v": X} | PLAIN, "not used: k, v"),
        ({"x": X, "q": X} | PLAIN, "not used: q"),
        ({"x": X, "cross.w_q": W_Q} | PLAIN, "not used: cross.w_q"),
        ({"x": X, "h.0.mlp.c_proj.weight": W_O} | PLAIN, "not used: h.0.mlp.c_proj.weight"),
    ],
)
def test_an_array_that_no_role_takes_is_named(computed: Any, arrays: Any, says: str) -> None:
    found, notes = computed(arrays)
    np.testing.assert_allclose(found["output"], ALONE, rtol=1e-9)
    assert says in notes


def test_x_and_weights_beside_q_are_named_too(call: Call, tmp_path: Path) -> None:
    write(tmp_path / "a.npz", {"q": X, "k": X, "v": X, "x": X, "kk": X} | PLAIN)
    result = call("compute", "--q", "a.npz")
    assert result.code == 0
    assert "not used: x, w_q, w_k, w_v, kk" in result.err


def test_positions_are_not_added(computed: Any) -> None:
    found, _ = computed({"x": X} | PLAIN)
    assert "positions" not in found
    np.testing.assert_allclose(found["q"], X @ W_Q, rtol=1e-12)


EYE = [[1, 0], [0, 1]]
WRONG: list[tuple[Any, list[str], str]] = [
    ({"x": EYE}, [], "a.json holds no weights; it holds x; x needs w_q, w_k and w_v"),
    ({"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE}, ["--kv-heads", "2"], "without --heads"),
    ({"x": EYE, "w_q": EYE}, ["--weights", "[[1]]"], "holds no weights; it holds one matrix"),
    ({"x": EYE}, ["--weights", "a.json::x"], "there are no weights for x of a.json"),
    ({"x": EYE, "w_q": EYE}, [], "a.json: there is no w_k, w_v among the weights (w_q)"),
    ({"w_q": EYE, "w_k": EYE, "w_v": EYE}, [], "a.json holds no x"),
    ({"x": EYE, "W_q": EYE, "wq": EYE, "w_k": EYE, "w_v": EYE}, [], "W_q and wq both mean w_q"),
    ({"x": EYE, "qkv": [[1] * 6] * 2, "w_q": EYE}, [], "both mean w_q"),
    ({"x": EYE, "inputs": EYE, "w_q": EYE}, [], "2 arrays that could be x: x, inputs"),
    (
        {"x": EYE, "w_q": [[1, 2, 3]] * 5, "w_k": EYE, "w_v": EYE}, [],
        "w_q (5 × 3) does not fit x, which has the width 2",
    ),
    ({"x": EYE, "w_q": [[1, 0], [0]], "w_k": EYE, "w_v": EYE}, [], "a.json, w_q: row 2 has 1 entry"),
    ({"x": [[1, 0], [0]], "w_q": EYE, "w_k": EYE, "w_v": EYE}, [], "a.json, x: row 2 has 1 entry"),
    ({"x": [], "w_q": EYE, "w_k": EYE, "w_v": EYE}, [], "a.json, x is empty"),
    ({"x": [1, 0], "w_q": EYE, "w_k": EYE, "w_v": EYE}, [], "x has 1 dimension, x needs 2 to 3"),
    ({"x": EYE, "w_q": 5, "w_k": EYE, "w_v": EYE}, [], "a.json, w_q is 5, not an array"),
    ({"x": EYE, "w_q": [1, 2], "w_k": EYE, "w_v": EYE}, [], "w_q (2) has 1 dimension"),
    (
        {"x": EYE, "w_q": EYE, "w_k": [[1], [2]], "w_v": EYE}, [],
        "q and k must have the same d_k: q has 2, k has 1",
    ),
    ({"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE, "b_q": [1, 2, 3]}, [], "b_q (3) does not fit w_q"),
    (
        {"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE, "w_o": [[1, 2, 3]] * 3}, [],
        "w_o (3 × 3) does not fit the heads side by side, which has the width 2",
    ),
    ({"x": EYE, "qkv": [[1, 2]] * 2}, [], "qkv (2 × 2) cannot be cut in three, for w_q, w_k, w_v"),
    (
        {"x": EYE, "w_q": [[[1, 2]] * 2] * 3, "w_k": [[[1, 2]] * 2] * 3, "w_v": [[[1, 2]] * 2] * 3},
        ["--heads", "2"], "w_q holds 3 heads, not 2",
    ),
    ({"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE}, ["--heads", "3"], "does not divide into 3 heads"),
    ({"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE}, ["--q", "b.json"], "--q and --x are both given"),
    ({"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE}, ["--k", "b.json"], "--k and --x are both given"),
    ({"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE}, ["--layout", "hsd"], "--layout hsd is of q, k and v"),
    ({"x": EYE, "w_q": EYE, "w_k": EYE, "w_v": EYE}, ["--mask-means", "keep"], "without --mask"),
    (
        {"x": EYE, "w_q_1": EYE, "w_q_2": [[1], [2]], "w_k": EYE, "w_v": EYE}, [],
        "w_q_2 is 2 × 1, w_q_1 is 2 × 2",
    ),
    (
        {"x": EYE, "a.w_q": EYE, "a.w_k": EYE, "a.w_v": EYE, "b.w_q": EYE}, [],
        "holds the weights of 2 attentions: a, b; name one: --weights a.json::a",
    ),
    (
        {"x": EYE, "w_q": [[1, 2, 3]] * 2, "w_k": [[1, 2, 3]] * 2, "w_v": [[1, 2, 3]] * 2},
        ["--weights-axes", "out-in"], "its columns must be 2",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("document", "flags", "says"), WRONG)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    call: Call, tmp_path: Path, document: Any, flags: list[str], says: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document))
    (tmp_path / "b.json").write_text(json.dumps({"q": EYE, "k": EYE, "v": EYE}))
    result = call("compute", "--x", "a.json", *flags)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert result.err.startswith("attncli: ")
    assert says in result.err


def test_flags_that_do_not_go_together(call: Call, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps({"q": EYE, "k": EYE, "v": EYE}))
    for flags, says in (
        (["--x-kv", "b.json"], "--x-kv is given without --x"),
        (["--q", "b.json", "--weights", "b.json"], "b.json names q, and --weights is for x"),
        (["--q", "b.json", "--k", "b.json", "--weights", "b.json"], "--k and --weights are both"),
        ([], "there is nothing to compute; write attncli compute FILE"),
    ):
        result = call("compute", *flags)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert says in result.err


def test_nan_is_noted_and_goes_through(computed: Any) -> None:
    x = X.copy()
    x[1, 2] = np.nan
    found, notes = computed({"x": x} | PLAIN)
    assert "a.npz, x holds 1 NaN of 15 numbers" in notes
    assert np.isnan(found["q"][1]).all()
    assert not np.isnan(found["q"][[0, 2]]).any()


def test_check_names_weights_that_are_transposed(call: Call, tmp_path: Path) -> None:
    x, w_q = np.array([[1, 0, 1], [0, 2, 0], [1, 1, 1]]), [[1, 0, 0], [0, 2, 0], [0, 1, 1]]
    w_k, w_v = [[0, 1, 0], [2, 0, 0], [0, 0, 1]], [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    q = np.array([[1, 0, 1], [0, 4, 2], [1, 2, 2]])  # x W_qᵀ; x W_q ends in [1, 3, 1]
    scores = np.exp(q @ (x @ w_k).T / np.sqrt(3))
    output = scores / scores.sum(-1, keepdims=True) @ (x @ w_v)
    data = {"x": x.tolist(), "w_q": w_q, "w_k": w_k, "w_v": w_v, "output": output.tolist()}
    (tmp_path / "dump.json").write_text(json.dumps(data))
    result = call("check", "dump.json")
    assert result.code == 1
    start = "it differs; the cause:\n  weights of a projection transposed\n"
    assert result.out.startswith(start), result.out
    assert "     w_q\n" in result.out
