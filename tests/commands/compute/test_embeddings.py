"""attncli compute --x: embeddings and weights as they are published, against plain NumPy.

A row is a form: x @ W, or x @ W.T where PyTorch's Linear is meant.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.calls import Call, stages
from tests.commands.check.test_command import write
from tests.plain import attention
from tests.turns import in_turn

RNG = np.random.default_rng(53)
N, N_K, D, D_K, D_V, D_OUT, H = 3, 17, 5, 7, 11, 13, 2


def random(*shape: int) -> Any:
    return RNG.normal(size=shape)


def attended(q: Any, k: Any, v: Any, **convention: Any) -> Any:
    return attention({"q": q, "k": k, "v": v}, convention)["output"]


def named(pattern: str, arrays: Any, names: str = "q k v") -> dict[str, Any]:
    return {pattern.format(name): x for name, x in zip(names.split(), arrays, strict=True)}


def of_heads(pattern: str) -> Any:
    """The matrices of each head by themselves."""
    pairs = zip("qkv", PER_HEAD, strict=True)
    return {pattern.format(n, head + 1): w[head] for n, w in pairs for head in range(H)}


LONG = "query key value"
X, CONTEXT, VALUES = random(N, D), random(N_K, D), random(N_K, 19)
W_VALUES = random(19, D_V)
W = (W_Q, W_K, W_V) = (random(D, D_K), random(D, D_K), random(D, D_V))
B = (B_Q, B_K, B_V) = (random(D_K), random(D_K), random(D_V))
W_O, B_O = random(D_V, D_OUT), random(D_OUT)
LINEAR = [w.T for w in W]
PLAIN = named("w_{}", W)
ALONE = attended(*(X @ w for w in W))
BIASED = attended(*(X @ w + b for w, b in zip(W, B, strict=True))) @ W_O + B_O
CROSS = attended(X @ W_Q, CONTEXT @ W_K, CONTEXT @ W_V)

PER_HEAD = [random(H, D, D_K), random(H, D, D_K), random(H, D, D_V)]
BESIDE = [np.hstack(list(w)) for w in PER_HEAD]
HEADS = np.hstack([attended(*(X @ w[head] for w in PER_HEAD)) for head in range(H)])
HEADS_OUT = random(H, D_V, D_OUT)
BESIDE_OUT = np.vstack(list(HEADS_OUT))

W_3, B_3, SQUARE = [random(D, D_K) for _ in "qkv"], [random(D_K) for _ in "qkv"], random(D_K, D_K)
COLUMNS, ROWS, BIAS = np.hstack(W_3), np.vstack([w.T for w in W_3]), np.hstack(B_3)
STACKED = attended(*(X @ w + b for w, b in zip(W_3, B_3, strict=True)))
OUT_OF_STACK = STACKED @ SQUARE
SQUARES = [random(D, D) for _ in "qkv"]
IN_OUT, OUT_IN = attended(*(X @ w for w in SQUARES)), attended(*(X @ w.T for w in SQUARES))
HIGH = [random(D_K, D) for _ in "qkv"]
WIDE = [random(D, 4 * D_K), random(D, 2 * D_K), random(D, 2 * D_V)]
SHARED = [np.split(X @ w, n, axis=1) for w, n in zip(WIDE, (4, 2, 2), strict=True)]
GROUPED = np.hstack(
    [attended(SHARED[0][h], SHARED[1][h // 2], SHARED[2][h // 2]) for h in range(4)]
)
BATCH = random(2, N, D)
PAST = {"past_k": random(H, 4, D_K), "past_v": random(H, 4, D_V)}
WIDE_PAST = {name: x.transpose(1, 0, 2).reshape(4, -1) for name, x in PAST.items()}
PAST_K, PAST_V = (x[0] for x in PAST.values())
CACHED = attended(X @ W_Q, np.vstack([PAST_K, X @ W_K]), np.vstack([PAST_V, X @ W_V]))
CACHED_HEADS = np.hstack([
    attended(X @ w_q, np.vstack([past_k, X @ w_k]), np.vstack([past_v, X @ w_v]))
    for w_q, w_k, w_v, past_k, past_v in zip(*PER_HEAD, *PAST.values(), strict=True)
])  # fmt: skip
BUFFER = np.triu(np.ones((N, N)), 1)

# A form: what stands in the file beside x, flags, the last stage, and what a note says ("": none).
# fmt: off
FORMS: dict[str, tuple[dict[str, Any], str, Any, str]] = {
    "plain": (PLAIN, "", ALONE, ""),
    "biases": (PLAIN | named("b_{}", B) | {"w_o": W_O, "b_o": B_O}, "", BIASED, ""),
    "biases as columns": (PLAIN | named("b_{}", [b[:, None] for b in B]) | {"W_O": W_O, "bo": B_O}, "",
        BIASED, ""),
    "PyTorch": (named("{}_proj.weight", LINEAR) | named("{}_proj.bias", B)
        | {"out_proj.weight": W_O.T, "out_proj.bias": B_O}, "", BIASED, "[out, in]: X Wᵀ"),
    "[out, in] by shape": (named("w_{}", LINEAR), "", ALONE, "w_q, w_k, w_v taken as [out, in]"),
    "a .weight [in, out] by shape": (named("{}_proj.weight", W), "", ALONE, "[in, out]: X W"),
    "a list of matrices": (named("w_{}", PER_HEAD) | {"w_o": BESIDE_OUT}, "", HEADS @ BESIDE_OUT, "2 heads"),
    "W_o a list as well": (named("w_{}", PER_HEAD) | {"w_o": HEADS_OUT}, "", HEADS @ BESIDE_OUT, "2 heads"),
    "numbered": (of_heads("w_{}_{}"), "", HEADS, "2 heads"),
    "Keras": (named("mha/{}/kernel:0", [w.transpose(1, 0, 2) for w in PER_HEAD], LONG)
        | named("mha/{}/bias:0", [np.zeros((H, d)) for d in (D_K, D_K, D_V)], LONG)
        | {"mha/attention_output/kernel:0": HEADS_OUT, "mha/attention_output/bias:0": B_O}, "",
        HEADS @ BESIDE_OUT + B_O, "2 heads"),
    "GPT-2, whose Conv1D is [in, out]": ({"h.0.attn.c_attn.weight": COLUMNS, "h.0.attn.c_attn.bias": BIAS,
        "h.0.attn.c_proj.weight": SQUARE}, "", OUT_OF_STACK, "h.0.attn.c_attn.weight columns"),
    "nanoGPT, whose c_attn is a Linear": ({"attn.c_attn.weight": ROWS, "attn.c_attn.bias": BIAS,
        "attn.c_proj.weight": SQUARE.T}, "", OUT_OF_STACK, "attn.c_attn.weight rows"),
    "ONNX Runtime's": ({"weights": COLUMNS, "bias": BIAS}, "", STACKED, "weights columns"),
    "a Linear to kv": ({"to_q.weight": W_3[0].T, "to_kv.weight": np.vstack([w.T for w in W_3[1:]]),
        "to_q.bias": B_3[0], "to_kv.bias": np.hstack(B_3[1:]), "to_out.0.weight": SQUARE.T}, "",
        OUT_OF_STACK, "to_kv.weight rows w_k, w_v"),
    "a square Linear": (named("{}_proj.weight", SQUARES), "", OUT_IN, "[out, in]"),
    "a square Linear, in-out": (named("{}_proj.weight", SQUARES), "--weights-axes in-out", IN_OUT, "[in, out]"),
    "a square W": (named("w_{}", SQUARES), "", IN_OUT, ""),
    "a square W, out-in": (named("w_{}", SQUARES), "--weights-axes out-in", OUT_IN, "[out, in]"),
    "tokens as columns": ({"x": X.T} | named("W_{}", HIGH), "", attended(*((w @ X.T).T for w in HIGH)),
        "tokens columns x"),
    "tokens as columns, square": ({"x": X.T} | named("W_{}", SQUARES), "", OUT_IN, "tokens columns x"),
    "objects": ({"attention": named("{}", [{"weight": w} for w in LINEAR], LONG)}, "", ALONE, "[out, in]"),
    "weights of letters": ({"weights": named("{}", W)}, "", ALONE, ""),
    "a list of objects": ({"heads": [named("w_{}", ws) for ws in zip(*PER_HEAD, strict=True)]}, "",
        HEADS, "2 heads"),
    "batches": ({"x": BATCH, "w_o": W_O} | PLAIN, "",
        np.stack([attended(*(x @ w for w in W)) @ W_O for x in BATCH]), ""),
    "heads": (named("w_{}", BESIDE) | {"w_o": BESIDE_OUT}, "--heads 2", HEADS @ BESIDE_OUT, ""),
    "fewer heads of K and V": (named("w_{}", WIDE), "--heads 4", GROUPED, "2 heads K V"),
    "a stack with fewer heads": ({"qkv": np.hstack([*WIDE[:2], WIDE[1]])}, "--heads 4 --kv-heads 2",
        np.hstack([attended(SHARED[0][h], SHARED[1][h // 2], SHARED[1][h // 2]) for h in range(4)]), "qkv"),
    "causal": (PLAIN, "--causal --scale 0.25", attended(*(X @ w for w in W), causal=True, scale=0.25), ""),
    "a length": (PLAIN, "--kv-len 1", np.repeat((X @ W_V)[:1], N, axis=0), ""),
    "a mask": (PLAIN | {"mask": np.eye(N, dtype=bool)}, "", X @ W_V, ""),
    "a scale": (PLAIN | {"scale": 2.0}, "", attended(*(X @ w for w in W), scale=2.0), "--scale 2"),
    "a cache in heads": (named("w_{}", PER_HEAD) | PAST, "", CACHED_HEADS, "2 heads"),
    "a cache of heads side by side": (named("w_{}", PER_HEAD) | WIDE_PAST, "", CACHED_HEADS, "2 heads"),
    "a cache of one head": (PLAIN | {"past_k": PAST_K, "past_v": PAST_V}, "", CACHED, ""),
    "a cache of a list of one": (PLAIN | {"past_k": PAST_K[None], "past_v": PAST_V[None]}, "", CACHED, ""),
    "a context": (PLAIN | {"context": CONTEXT}, "", CROSS, ""),
    "a buffer of truth": (named("W_{}.weight", LINEAR, LONG) | {"mask": BUFFER > 0}, "", ALONE, "mask buffer"),
    "a buffer": (named("W_{}.weight", LINEAR, LONG) | {"mask": BUFFER}, "", ALONE, "mask buffer not used"),
    "others": (PLAIN | {"bias_k": B_K, "tril": np.tri(N)}, "", ALONE, "not used: bias_k, tril"),
    "k and v": (PLAIN | {"k": X, "v": X}, "", ALONE, "not used: k, v"),
    "another attention": (PLAIN | {"cross.w_q": W_Q}, "", ALONE, "not used: cross.w_q"),
    "another layer": (PLAIN | {"h.0.mlp.c_proj.weight": W_O}, "", ALONE, "not used: h.0.mlp.c_proj.weight"),
}
# fmt: on


@pytest.mark.parametrize(("form", "ending"), in_turn(FORMS, ["npz", "json", "safetensors"]))
def test_weights_as_they_are_published(call: Call, form: str, ending: str) -> None:
    arrays, flags, expected, note = FORMS[form]
    is_nested = any(isinstance(x, dict | list) for x in arrays.values())
    file = write("a.json" if is_nested else f"a.{ending}", {"x": X} | arrays)
    done = call("compute", "--x", file, *flags.split(), "--format", "json")
    assert done.code == 0, done.err
    result = stages(done.json)
    np.testing.assert_allclose([*result.values()][-1], expected, rtol=1e-9)
    assert bool(done.err) == bool(note)
    assert [word for word in note.split() if word not in done.err] == []
    assert "positions" not in result


SOURCES = """--x x.npy --weights w.npz|--q x.npy --weights w.npz|--x x.csv --weights w.npz|
--x all.npz::x --weights all.npz|--x all.npz::x|--q all.npz|--weights all.npz|--q -|--x parts.npz::b|
--x model.npz --weights model.npz::h.1.attn|--x words.json --weights w.npz|--x one.json"""


@pytest.mark.parametrize("flags", SOURCES.replace("\n", "").split("|"))
def test_two_files_or_one(call: Call, flags: str) -> None:
    np.save("x.npy", X)
    np.savetxt("x.csv", X, delimiter=",", fmt="%.17g")
    write("w.npz", PLAIN)
    write("all.npz", {"x": X} | PLAIN)
    layers = named("h.0.attn.w_{}", [np.zeros_like(w) for w in W]) | named("h.1.attn.w_{}", W)
    write("model.npz", {"x": X} | layers)
    write("parts.npz", {"b.x": X, "a.w_q": W_Q, "a.x": X} | named("b.w_{}", W))
    words = dict(zip(("Your", "journey", "starts"), X, strict=True))
    write("words.json", words)
    write("one.json", {"embeddings": words} | PLAIN)
    done = call("compute", *flags.split(), "--format", "json", stdin=Path("all.npz").read_bytes())
    assert done.code == 0, done.err
    np.testing.assert_allclose(stages(done.json)["output"], ALONE, rtol=1e-9)
    labels = {axis: names for step in done.json["steps"] for axis, names in step["labels"].items()}
    if ".json" in flags:
        assert labels["query"] == labels["key"] == [*words]
    assert "all.npz::x" not in flags or "not used" not in done.err


def test_cross_attention_and_labels_of_each_side(call: Call) -> None:
    write("w.npz", PLAIN)
    write("w_v.npz", PLAIN | {"w_v": W_VALUES})
    for name, x in (("x", X), ("c", CONTEXT), ("v", VALUES)):
        np.save(f"{name}.npy", x)
    of_values = attended(X @ W_Q, CONTEXT @ W_K, VALUES @ W_VALUES)
    for flags, expected in (
        ("--weights w.npz", CROSS),
        ("--x-v v.npy --weights w_v.npz", of_values),
    ):
        line = f"compute --x x.npy --x-kv c.npy {flags} --format json"
        result = stages(call(*line.split()).json)
        np.testing.assert_allclose(result["output"], expected, rtol=1e-9)
        np.testing.assert_array_equal(result["x_kv"], CONTEXT)
    words, keys = ["I", "love", "AI"], [f"mot {number}" for number in range(N_K)]
    sides = {"x": dict(zip(words, X, strict=True)), "x_kv": dict(zip(keys, CONTEXT, strict=True))}
    cache = {"past_k": PAST_K[:2], "past_v": PAST_V[:2]}
    done = call("compute", "--x", write("a.json", sides | cache | PLAIN), "--format", "json")
    labels = {step["name"]: step["labels"] for step in done.json["steps"]}
    assert (labels["x"], labels["x_kv"]) == ({"query": words}, {"key": keys})
    assert labels["weights"] == {"query": words, "key": ["past 1", "past 2", *keys]}


def test_nan_is_noted_and_goes_no_further_than_its_row(call: Call) -> None:
    x = X.copy()
    x[1, 2] = np.nan
    done = call("compute", write("a.npz", {"x": x} | PLAIN), "--format", "json")
    assert "x holds 1 NaN of 15" in done.err
    assert np.isnan(stages(done.json)["q"]).any(axis=1).tolist() == [False, True, False]


def test_a_trace_of_it_is_an_input_again(call: Call) -> None:
    file = write("a.npz", {"x": X, "w_o": HEADS_OUT} | named("w_{}", PER_HEAD))
    assert call("compute", "--x", file, "--output", "t.json", "--quiet").code == 0
    again = stages(call("compute", "--q", "t.json", "--format", "json").json)
    np.testing.assert_allclose(again["output"], np.stack(np.split(HEADS, 2, axis=1)), rtol=1e-9)


def test_the_output_alone_is_projected_as_well(call: Call) -> None:
    x = random(2500, D)
    file = write("a.npz", {"x": x, "w_o": W_O} | PLAIN)
    assert call("compute", "--x", file, "--output", "o.npy").code == 0
    expected = attended(*(x @ w for w in W)) @ W_O
    np.testing.assert_allclose(np.load("o.npy"), expected, rtol=1e-7)


def test_check_of_x_and_weights(call: Call) -> None:
    unscaled = attended(*(X @ w for w in W), scale="none")
    for name, output in (("right", ALONE), ("wrong", unscaled)):
        write(f"{name}.npz", {"x": X, "output": output} | PLAIN)
    assert call("check", "--x", "right.npz", "--observed", "right.npz").code == 0
    wrong = call("check", "--q", "wrong.npz", "--observed", "wrong.npz::output", "--single")
    assert (wrong.code, "scale left out" in wrong.out) == (1, True)
    whole = {"x": X, "w_o": BESIDE_OUT} | named("w_{}", PER_HEAD)
    write("b.npz", whole | {"output": HEADS})
    result = call("check", "b.npz")
    assert (result.code, "w_o is not used" in result.err) == (0, False)
    q, k, v = (np.stack([X @ w for w in own]) for own in PER_HEAD)
    write("c.npz", whole | {"weights": attention({"q": q, "k": k, "v": v}, {})["weights"]})
    result = call("check", "c.npz")
    assert (result.code, "not used: weights" in result.err) == (0, False)


def test_a_cache_whose_keys_and_values_do_not_fit_is_refused_by_its_shapes(call: Call) -> None:
    for past_k, past_v, words in (
        (PAST_K, PAST_V[1:], "the same number of tokens"),
        (PAST_K, PAST_V[:, 1:], "past_v (4 × "),
        (PAST_K[:, 1:], PAST_V, "past_k (4 × "),
    ):
        path = write("a.npz", {"x": X, "past_k": past_k, "past_v": past_v} | PLAIN)
        result = call("compute", "--x", path)
        assert (result.code, result.out, words in result.err) == (2, "", True), result.err


def test_what_is_used_is_not_noted_and_what_is_not_is(call: Call) -> None:
    write("a.npz", {"x": X} | PLAIN)
    write("b.npz", {"q": X, "k": X, "v": X, "x": X, "kk": X} | PLAIN)
    write("w.npz", {"scale": np.array(2.0)} | PLAIN)
    cache = f"--past-k {[[1] * D_K]} --past-v {[[0] * D_V]}".replace(", ", ",")
    for flags, note in (
        ("--x a.npz --sinks [1]", ""),
        (f"--x a.npz {cache}", ""),
        ("--x a.npz --mask [[true,true,false]]", ""),
        ("--x a.npz::x --weights w.npz", "w.npz: not used: scale"),
        ("--q b.npz", "not used: x, w_q, w_k, w_v, kk"),
    ):
        result = call("compute", *flags.split())
        assert (result.code, bool(result.err)) == (0, bool(note))
        assert note in result.err
