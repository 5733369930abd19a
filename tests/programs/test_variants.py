"""Every variant that ships: beside its paper in loops, by finite differences, in every format."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.formats import FORMATS
from attncli.programs.variants import variants
from tests.programs.references import REFERENCES, inputs_of
from tests.turns import in_turn

NAMES = sorted(variants())
TEXTS: Any = ("table", "markdown", "latex", "html", "mermaid", "json", "csv", "tsv")


def test_every_variant_has_a_reference_and_says_its_source() -> None:
    assert sorted(REFERENCES) == NAMES
    for text in variants().values():
        assert text.startswith("# ")
        assert any(year in text.partition("\n")[0] for year in map(str, range(2014, 2027)))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_what_its_paper_says(name: str) -> None:
    x = inputs_of(name)
    trace = attncli.attend_by(name, x)
    last = trace[[*trace][-1]].value
    np.testing.assert_allclose(last, REFERENCES[name](x), rtol=1e-11, atol=1e-12)
    assert trace.notes == ()


@pytest.mark.parametrize("name", ["entmax", "sparsemax", "stick-breaking", "differential"])
def test_it_is_what_its_paper_says_where_keys_are_alike(name: str) -> None:
    x = inputs_of(name)
    for own in (x[n] for n in x if n.startswith("k")):
        own[..., 1, :] = own[..., 0, :]
    trace = attncli.attend_by(name, x)
    last = trace[[*trace][-1]].value
    np.testing.assert_allclose(last, REFERENCES[name](x), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    x, rng = inputs_of(name, seed=1), np.random.default_rng(2)
    trace = attncli.attend_by(name, x, d_output="random")
    last = next(n for n in reversed([*trace]) if not n.startswith("d_"))
    d = np.random.default_rng(0).standard_normal(trace[last].value.shape)
    gradients = {n[2:]: trace[n].value for n in trace if n[2:] in x and n.startswith("d_")}
    assert len(gradients) >= 3
    for of, gradient in gradients.items():
        assert gradient.shape == x[of].shape
        for at in rng.permutation([*np.ndindex(*gradient.shape)])[:2]:
            losses = []
            for step in (1e-6, -1e-6):
                moved = {**x, of: x[of].astype(float)}
                moved[of][tuple(at)] += step
                losses.append((attncli.attend_by(name, moved)[last].value * d).sum())
            slope = (losses[0] - losses[1]) / 2e-6
            assert gradient[tuple(at)] == pytest.approx(slope, rel=2e-6, abs=2e-7), (of, at)


def test_what_follows_from_no_input_has_no_gradient() -> None:
    for name, constant in (("alibi", "slopes"), ("rope", "frequency"), ("entmax", "rank")):
        trace = attncli.attend_by(name, inputs_of(name, n=3), d_output="ones")
        assert constant in trace
        assert f"d_{constant}" not in trace


@pytest.mark.parametrize(("name", "half"), in_turn(NAMES, [0, 1]))
def test_it_goes_through_every_format_and_back(name: str, half: int) -> None:
    """Half of the formats, in turn."""
    x = inputs_of(name, n=3)
    trace = attncli.attend_by(name, x, d_output="ones")
    assert {*TEXTS} <= {*FORMATS}
    for form in TEXTS[half::2]:
        assert attncli.render(trace, form)
    lines = attncli.render(trace, "table", work=True)
    computed = [stage for _, stage in trace.stages() if stage.expression]
    assert sum(f"{stage.symbol}[" in lines for stage in computed) > len(computed) / 2
    given = {n: stage.value for n, stage in trace.stages() if not stage.expression}
    again = attncli.attend_by(trace.program, given)
    for own, stage in trace.stages():
        np.testing.assert_array_equal(stage.value, again[own].value)


def test_what_if_computes_what_follows_again() -> None:
    x = inputs_of("stick-breaking")
    trace = attncli.attend_by("stick-breaking", x)
    new = trace.again(k=np.zeros_like(x["k"]))
    assert new["weights"].value[0, 0, 2, :2].tolist() == [0.25, 0.5]
    assert json.loads(attncli.render(new, "json"))["title"]


def by_flex(mod: Any, x: dict[str, Any], **more: Any) -> Any:
    """What flex_attention, eager, makes of a score_mod or a mask."""
    torch = pytest.importorskip("torch", reason="flex_attention is PyTorch's")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (torch.from_numpy(x[name]) for name in "qkv")
    mask = more.get("mask")
    b, h, n = q.shape[:3]
    block = create_block_mask(mask, b, h, n, n, device="cpu") if mask else None
    return flex_attention(q, k, v, score_mod=mod, block_mask=block).numpy()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["alibi", "softcap", "documents", "prefix-lm", "dilated-window"])
def test_flex_attention_gives_the_same(name: str) -> None:
    torch = pytest.importorskip("torch", reason="flex_attention is PyTorch's")
    x = inputs_of(name)
    doc, prefix = torch.from_numpy(x["doc"]), torch.from_numpy(x["prefix"])
    mods: dict[str, Any] = {
        "alibi": lambda s, b, h, i, j: s - 2 ** (-8 * (h.double() + 1) / 3) * (i - j),
        "softcap": lambda s, b, h, i, j: 1.5 * torch.tanh(s / 1.5),
    }
    masks: dict[str, Any] = {
        "alibi": lambda b, h, i, j: j <= i,
        "softcap": lambda b, h, i, j: j <= i,
        "documents": lambda b, h, i, j: (j <= i) & (doc[b, i] == doc[b, j]),
        "prefix-lm": lambda b, h, i, j: (j <= i) | (j < prefix[b]),
        "dilated-window": lambda b, h, i, j: ((i - j).abs() <= 4) & ((i - j) % 2 == 0),
    }
    theirs = by_flex(mods.get(name), x, mask=masks[name])
    ours = attncli.attend_by(name, x)["output"].value
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)
