"""attncli check: what arrays are called in files, and what they are read as."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.calls import Call

RNG = np.random.default_rng(43)
Q, K, V = (RNG.normal(size=(3, *shape)) for shape in ((5, 2), (7, 2), (7, 11)))


def stages() -> dict[str, np.ndarray[Any, Any]]:
    """Every stage, by plain NumPy."""
    scores = Q @ K.swapaxes(1, 2)
    scaled = scores / np.sqrt(2)
    powers = np.exp(scaled)
    weights = powers / powers.sum(axis=-1, keepdims=True)
    lse = np.log(powers.sum(axis=-1))
    return {
        "scores": scores,
        "scaled": scaled,
        "weights": weights,
        "lse": lse,
        "output": weights @ V,
    }


NAMES = {
    "output": "attn_output attn_out attention_output out o O attn attention context context_layer "
    "result observed Attn-Output Z",
    "weights": "attn_weights attention_weights attn_output_weights attn_probs attention_probs "
    "probs p_attn attentions attn attention A P Attention_Probs",
    "scores": "logits attn_logits attn_scores attention_scores qk S",
    "scaled": "logits attn_scores scaled_attention_logits Z",
    "lse": "softmax_lse logsumexp L",
}


@pytest.mark.parametrize("stage", NAMES)
def test_names_that_libraries_have_for_stages_are_read(call: Call, stage: str) -> None:
    for name in NAMES[stage].split():
        arrays: dict[str, Any] = {name: stages()[stage]}
        np.savez("a.npz", query_states=Q, key_states=K, value_states=V, **arrays)
        result = call("check", "a.npz")
        assert (result.code, f"{stage} matches" in result.out) == (0, True), (name, result)
        assert name in result.err + result.out  # a note says what it was read as


def test_a_stage_is_asked_for_by_any_of_its_names(call: Call) -> None:
    np.savez("in.npz", q=Q, k=K, v=V)
    np.savez("a.npz", attn_weights=stages()["weights"], other=Q)
    for asked in ("weights", "attn_probs", "Weights", "A"):
        result = call("check", "in.npz", "--observed", "a.npz", "--stage", asked)
        assert (result.code, "weights matches" in result.out) == (0, True), result
    assert call("check", "in.npz", "--observed", "a.npz", "--stage", "nonsense").code == 2


def test_a_file_in_which_nothing_is_known_lists_what_it_holds(call: Call) -> None:
    np.savez("a.npz", q=Q, k=K, v=V, y1=stages()["output"], y2=np.zeros((2, 13)))
    result = call("check", "a.npz")
    assert (result.code, "y1 (3 × 5 × 11), y2 (2 × 13)" in result.err) == (2, True), result.err
    many: dict[str, Any] = {f"y{n}": np.zeros(n + 1) for n in range(40)}
    np.savez("b.npz", q=Q, k=K, v=V, **many)
    assert "more" in (err := call("check", "b.npz").err)
    assert err.count("y") < 20
    np.savez("c.npz", y1=np.zeros((2, 3)), y2=np.zeros((2, 13)))
    err = call("check", "a.npz", "--observed", "c.npz").err
    assert "y1 (2 × 3), y2 (2 × 13)" in err


def test_a_context_is_that_of_cross_attention_beside_x(call: Call) -> None:
    """And the output beside q, k and v."""
    x, context, w = RNG.normal(size=(3, 5)), RNG.normal(size=(7, 5)), np.eye(5)
    powers = np.exp(x @ context.T / np.sqrt(5))
    output = powers / powers.sum(axis=-1, keepdims=True) @ context
    np.savez("a.npz", x=x, context=context, w_q=w, w_k=w, w_v=w, attn_output=output)
    assert call("check", "a.npz").code == 0


def test_a_name_that_may_be_anything_is_left_out_beside_others(call: Call) -> None:
    np.savez("a.npz", q=Q, k=K, v=V, output=stages()["output"], y=np.arange(3.0), a=np.zeros(2))
    result = call("check", "a.npz")
    assert (result.code, "a is not compared" in result.out) == (0, True), result
    assert "not compared, as they do not follow from what is given: y" in result.err
    np.savez("b.npz", q=Q, k=K, v=V, attn_output=stages()["output"][:, 1:])
    assert "the shape is wrong" in call("check", "b.npz").out


def test_two_names_of_one_stage_are_refused(call: Call) -> None:
    output = stages()["output"]
    np.savez("a.npz", q=Q, k=K, v=V, attn_output=output, out=output)
    result = call("check", "a.npz")
    assert (result.code, "output" in result.err) == (2, True)


def module(*, factor: float = 2**-0.5) -> dict[str, Any]:
    """What nn.MultiheadAttention gives of x: in float32, of two heads, by its state dict."""
    x, w, b = RNG.normal(size=(3, 7, 4)), RNG.normal(size=(12, 4)), RNG.normal(size=12)
    w_o, b_o = RNG.normal(size=(4, 4)), RNG.normal(size=4)
    q, k, v = np.split(x @ w.T + b, 3, axis=-1)
    heads, maps = [], []
    for h in (slice(0, 2), slice(2, 4)):
        powers = np.exp(q[..., h] @ k[..., h].swapaxes(1, 2) * factor)
        maps.append(powers / powers.sum(axis=-1, keepdims=True))
        heads.append(maps[-1] @ v[..., h])
    arrays = {
        "x": x,
        "in_proj_weight": w,
        "in_proj_bias": b,
        "out_proj.weight": w_o,
        "out_proj.bias": b_o,
        "attn_output": np.concatenate(heads, axis=-1) @ w_o.T + b_o,
        "attn_output_weights": (maps[0] + maps[1]) / 2,
    }
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def test_a_module_of_pytorch_matches_by_its_output_and_its_weights(call: Call) -> None:
    arrays = module()
    np.savez("a.npz", **arrays)
    for more in ([], ["--layout", "bsd"]):
        result = call("check", "a.npz", "--heads", "2", *more)
        said = "it matches: attn_output_weights is the mean over the 2 heads"
        assert (result.code, said in result.out) == (0, False), result
        assert "the mean over the 2 heads" in result.out
        assert "after the output projection" in result.out
        assert "not used" not in result.err
    np.save("y.npy", arrays.pop("attn_output"))
    np.savez("in.npz", **{x: y for x, y in arrays.items() if x != "attn_output_weights"})
    for stage in ([], ["--stage", "projected"], ["--stage", "output"]):
        assert call("check", "in.npz", "--observed", "y.npy", "--heads", "2", *stage).code == 0


def test_a_dump_with_the_projection_is_checked_with_it(call: Call) -> None:
    """Of q, k and v that were made of x, with w_o beside them."""
    np.savez("a.npz", **module())
    for name in ("o.npz", "o.json"):
        assert call("compute", "a.npz", "--heads", "2", "-o", name).code == 0
        result = call("check", name)
        assert (result.code, "projected matches" in result.out) == (0, True), result


def test_a_wrong_scale_in_a_module_is_named_from_its_output(call: Call) -> None:
    arrays = module(factor=1.0)
    del arrays["attn_output_weights"]
    np.savez("a.npz", **arrays)
    result = call("check", "a.npz", "--heads", "2", "--single")
    assert (result.code, "scale left out" in result.out) == (1, True), result


def test_what_a_student_does_with_in_proj_weight_is_named(call: Call) -> None:
    """x W for x Wᵀ, and the heads not split: two slips at once, seen in the mean over heads."""
    x, w = RNG.normal(size=(5, 4)), RNG.normal(size=(12, 4))
    powers = np.exp(x @ w[:4] @ (x @ w[4:8]).T / np.sqrt(2))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    np.savez("a.npz", x=x, in_proj_weight=w, weights=weights)
    result = call("check", "a.npz", "--heads", "2", "--single")
    assert (result.code, "heads not split" in result.out) == (1, True), result
    assert "w_q and w_k" in result.out
    assert "the other way round: W for Wᵀ" in result.out


# ---- sheets: one table of names, and one reader, for marks and for checks

SHEET: dict[str, Any] = {  # worked by hand, as in article 004
    "q": [[1, 0], [0, 1], [1, 1]],
    "k": [[1, 1], [1, 0], [0, 1]],
    "v": [[10, 0], [0, 10], [5, 5]],
    "S": [[1, 1, 0], [1, 0, 1], [2, 1, 1]],
    "Z": [[0.71, 0.71, 0], [0.71, 0, 0.71], [1.41, 0.71, 0.71]],
    "A": [[0.4, 0.4, 0.2], [0.4, 0.2, 0.4], [0.5, 0.25, 0.25]],
    "O": [[5, 5], [6.02, 3.98], [6.28, 3.72]],
}


def test_letters_are_known_to_check_and_names_to_marks(call: Call) -> None:
    Path("a.json").write_text(json.dumps(SHEET))
    assert call("check", "a.json").code == 0
    assert "24 numbers" not in call("check", "a.json").out
    names = {"S": "raw_scores", "A": "attn_weights", "O": "context_layer", "Z": "scaled_scores"}
    other = {names.get(name, name): x for name, x in SHEET.items()}
    Path("b.json").write_text(json.dumps(other))
    for sheet in ("a.json", "b.json"):
        assert call("check", sheet, "--by-hand").out == "all right: 33 numbers\n"
    assert call("check", "b.json").code == 0


CSV = """scores,k1,k2,k3
q1,1,1,0
q2,1,0,1
q3,3,1,1

weights,k1,k2,k3
q1,0.40,0.40,0.20
q2,{blank}
q3,0.67,0.16,0.16
"""


def test_a_csv_is_a_sheet(call: Call) -> None:
    """With several stages, as attncli writes them, or one that its corner or --stage names."""
    Path("in.json").write_text(json.dumps({name: SHEET[name] for name in "qkv"}))
    Path("s.csv").write_text(CSV.format(blank=",,"))
    result = call("check", "s.csv", "--q", "in.json", "--by-hand")
    assert (result.code, "S[q3,k1] is 3, should be 2" in result.out) == (1, True), result
    assert "3 cells left blank" in result.out
    assert "empty cell" in call("check", "s.csv", "--q", "in.json").err
    assert call("compute", "in.json", "-o", "all.csv").code == 0
    assert call("compute", "in.json", "--stage", "weights", "-o", "w.csv").code == 0
    Path("bare.csv").write_text("0.40,0.40,0.20\n0.40,0.20,0.40\n0.50,0.25,0.25\n")
    for sheet in (["all.csv"], ["w.csv"], ["bare.csv", "--stage", "weights"]):
        for by_hand in ([], ["--by-hand"]):
            result = call("check", "in.json", "--observed", *sheet, *by_hand)
            assert result.code == 0, (sheet, by_hand, result)
    assert "holds no q" in call("check", "s.csv", "--by-hand").err


def test_a_csv_of_several_heads_is_one_stage(call: Call) -> None:
    np.savez("in.npz", q=Q, k=K, v=V)
    assert call("compute", "in.npz", "-o", "all.csv").code == 0
    result = call("check", "in.npz", "--observed", "all.csv")
    assert (result.code, "output matches" in result.out) == (0, True), result


def test_diff_reads_the_same_names(call: Call) -> None:
    np.savez("a.npz", weights=stages()["weights"], output=stages()["output"])
    np.savez("b.npz", attn_probs=stages()["weights"], attn_output=stages()["output"])
    assert call("diff", "a.npz", "b.npz").code == 0


def test_batch_and_tokens_exchanged_as_without_batch_first(call: Call) -> None:
    """It is said, and is no match: whoever forgot batch_first has these numbers, too."""
    arrays = module()
    for name in ("x", "attn_output"):
        arrays[name] = arrays[name].swapaxes(0, 1)
    for left_out in ("", "attn_output", "attn_output_weights"):
        np.savez("a.npz", **{name: x for name, x in arrays.items() if name != left_out})
        result = call("check", "a.npz", "--heads", "2", "--single")
        assert (result.code, "without batch_first" in result.out) == (1, True), result
