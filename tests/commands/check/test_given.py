"""What check and assert_attention are given: layouts, keywords, tensors, other observed inputs."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncli import Convention, attend
from attncli.commands.check.diagnose import check
from attncli.commands.check.verdict import report_text
from attncli.testing import assert_attention
from tests.attention.test_attend import OnlyDLPack

RNG = np.random.default_rng(43)
B, H, N_Q, N_K, D, D_V = 2, 3, 5, 7, 11, 13
Q, K, V = (RNG.normal(size=x) for x in ((B, H, N_Q, D), (B, H, N_K, D), (B, H, N_K, D_V)))
PAST_K, PAST_V = RNG.normal(size=(B, H, 2, D)), RNG.normal(size=(B, H, 2, D_V))
MASK = RNG.random((N_Q, N_K)) < 0.6
MASK[:, 0] = True


def output(**convention: Any) -> Any:
    return attend(Q, K, V, **convention)["output"].value


def turned(*arrays: Any) -> list[Any]:
    return [np.swapaxes(x, -2, -3) for x in arrays]


def test_keywords_are_the_convention() -> None:
    right, causal = output(causal=True, scale=0.25), Convention(causal=True)
    assert check(right, Q, K, V, convention=causal, scale=np.float64(0.25)).matches
    assert_attention(right, Q, K, V, causal=True, scale=0.25)
    with pytest.raises(AssertionError, match="--causal") as failure:
        assert_attention(right, Q, K, V, scale=0.25)
    assert str(failure.value) == str(check(right, Q, K, V, scale=0.25))
    weights, own = attend(Q, K, V)["weights"].value, dict[str, Any](stage="weights")
    assert_attention(weights + 1e-3, Q, K, V, **own, atol=2e-3)
    with pytest.raises(AssertionError, match="mask left out"):
        assert_attention(weights, Q, K, V, mask=MASK, **own)


# ---- layouts


def test_the_output_has_the_layout_of_the_inputs_or_of_the_other_stages() -> None:
    heads_first = output(causal=True)
    right, q, k, v = turned(heads_first, Q, K, V)
    convention: dict[str, Any] = {"layout": "bshd", "causal": True}
    dump = {"q": q, "k": k, "v": v, "output": right}
    for observed in (right, heads_first, dump):
        assert check(observed, q, k, v, **convention).matches
    assert check({**dump, "v": v + 1}, q, k, v, **convention).first_difference == "v"
    assert check(right[0], q[0], k[0], v[0], layout="shd", causal=True).matches
    one_head = attend(Q[:, :1], K[:, :1], V[:, :1])["output"].value[:, 0]
    assert check(one_head, Q[:, 0], K[:, 0], V[:, 0], layout="bsd").matches
    (one,) = check(right, q, k, v, layout="bshd", pairs=False).explanations
    assert one.name == "causal mask where none is wanted"
    past = dict(zip(("past_k", "past_v"), turned(PAST_K, PAST_V), strict=True))
    cached = turned(output(past_k=PAST_K, past_v=PAST_V, causal=True))[0]
    assert check(cached, q, k, v, **past, **convention).matches
    assert check(right[:, [3, 0]], q, k, v, rows=[3, 0], **convention).matches
    assert check(right[:, [3, 0], 1], q, k, v, rows=[3, 0], heads=1, **convention).matches


def test_more_heads_than_tokens_without_a_match_name_the_layout() -> None:
    x = RNG.normal(size=(1, 17, 2, 8))  # (batch, tokens, heads, d)
    right = attend(x, x, x, layout="bshd")["output"].value
    verdict = check(np.swapaxes(right, 1, 2), x, x, x, pairs=False)
    assert verdict.explanations[0].name == "heads and tokens exchanged in the inputs"
    verdict = check(RNG.normal(size=x.shape), x, x, x, pairs=False)
    assert verdict.status == "no match"
    assert "layout='bshd'" in report_text(verdict)
    assert "say layout" not in report_text(check(right * 0.9, x, x, x, layout="bshd", pairs=False))


# ---- tensors


@pytest.mark.parametrize("kind", [np.ndarray.tolist, OnlyDLPack])
def test_right_numbers_pass_and_others_do_not(kind: Any) -> None:
    small = [x.astype(np.float32) for x in (Q, K, V)]
    right = attend(*small)["output"].value.astype(np.float32)
    assert_attention(kind(right), *map(kind, small))
    with pytest.raises(AssertionError):
        assert_attention(kind(2 * right), *map(kind, small))


def test_float8_inputs_and_outputs() -> None:
    small = [x.astype(ml_dtypes.float8_e4m3fn) for x in (Q, K, V)]
    right = attend(*small)["output"].value
    assert check(right.astype(np.float32), *small).matches
    seen = right.astype(ml_dtypes.float8_e4m3fn)
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "no match"),
        ({"rtol": 2.0**-4, "atol": 2.0**-10}, "match"),
    ]
    for convention, status in cases:
        verdict = check(seen, *small, pairs=False, **convention)
        assert (verdict.status, "pass rtol" in str(verdict.notes)) == (status, not convention)


# ---- observed inputs


def test_all_inputs_that_differ_are_named() -> None:
    dump = {"q": Q, "k": K + 0.5, "v": V[..., :4], "mask": ~MASK, "output": output(mask=~MASK)}
    verdict = check(dump, Q, K, V, mask=MASK)
    assert (verdict.status, verdict.first_difference) == ("no match", "k")
    for words, note in zip(("up to 0.5", "2 × 3 × 7 × 4", "mask"), verdict.notes, strict=True):
        assert words in note
    cases = {"mask": MASK, "kv_len": [4, 7], "sinks": [0.1, 0.2, 0.3], "past_k": PAST_K}
    for name, value in cases.items():
        verdict = check({name: value, "output": output()}, Q, K, V)
        assert (verdict.status, verdict.first_difference) == ("no match", name)
        assert "observed" in verdict.notes[0]


def test_inputs_of_the_same_numbers_are_no_difference() -> None:
    """In another number type, another form of a mask, or with the cache in them."""
    whole, lowest = np.broadcast_to(MASK, (B, H, N_Q, N_K)), np.finfo(np.float32).min
    added = (np.where(MASK, 0.0, number) for number in (-np.inf, lowest))
    for mask in (MASK[None, None], MASK.astype(np.int64), whole, *added):
        assert check({"mask": mask, "output": output(mask=MASK)}, Q, K, V, mask=MASK).matches
    dump = {"q": Q.astype(np.float16), "kv_len": N_K, "mask": np.ones((N_Q, N_K), bool)}
    assert check({**dump, "output": output()}, Q, K, V).matches
    convention: dict[str, Any] = {
        "causal": True,
        "past_k": PAST_K,
        "past_v": PAST_V,
        "kv_len": [8, 9],
    }
    trace = attend(Q, K, V, **convention)  # its k has the cache, its mask all that restricts
    dump = {name: trace[name].value for name in trace}
    assert check(dump, Q, K, V, **convention).matches
    assert not check({**dump, "k": trace["k"].value + 1}, Q, K, V, **convention).matches
