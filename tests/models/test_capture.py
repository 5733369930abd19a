"""What a model may be doing while it is captured, and that nothing of it is changed."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.cli.main import run
from attncli.errors import InputError
from tests.models.families import FAMILIES, WORDS, Family, inputs, made

torch = pytest.importorskip("torch", reason="needs the extra models")
transformers = pytest.importorskip("transformers", reason="needs the extra models")

LLAMA, BERT, BLOOM = FAMILIES["Llama"], FAMILIES["BERT"], FAMILIES["BLOOM"]
WAYS = [(LLAMA, "sdpa"), (LLAMA, "eager"), (BLOOM, "eager")]
"""By the interface twice, and written out."""


def title_of(x: Any) -> str:
    return x.title if isinstance(x, Family) else str(x)


def all_match(calls: Any) -> bool:
    return len(calls) > 0 and all(call.check().matches for call in calls)


# ---- how PyTorch runs


@pytest.mark.parametrize(("family", "implementation"), WAYS, ids=title_of)
def test_gradients_are_the_same(family: Family, implementation: str) -> None:
    found = []
    for is_captured in (False, True):
        model = made(family, implementation)
        if is_captured:
            with attncli.capture(model) as calls:
                output = model(**inputs(family))
            assert all_match(calls)
        else:
            output = model(**inputs(family))
        output.last_hidden_state.square().sum().backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    assert found[0]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("title", ["BERT", "GPT-2", "T5"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_dropout_in_training_is_noted_and_found(title: str, implementation: str) -> None:
    family = FAMILIES[title]
    model = made(family, implementation).train()
    torch.manual_seed(43)
    before = model(**inputs(family))[0]
    torch.manual_seed(43)
    with attncli.capture(model) as calls:
        output = model(**inputs(family))[0]
    assert torch.equal(before, output)
    for call in calls:
        assert call.notes == ("dropout 0.1 was on",)
        verdict = call.check()
        assert [bug.name for one in verdict.explanations for bug in one.bugs] == ["dropout left on"]
        assert call.notes[0] in verdict.notes


@pytest.mark.parametrize(("family", "implementation"), WAYS, ids=title_of)
def test_inference_mode(family: Family, implementation: str) -> None:
    model = made(family, implementation)
    with torch.inference_mode():
        before = model(**inputs(family))[0]
        with attncli.capture(model) as calls:
            output = model(**inputs(family))[0]
    assert torch.equal(before, output)
    assert len(calls) == 2
    assert all_match(calls)


@pytest.mark.parametrize(
    ("family", "implementation"),
    [*WAYS, (BERT, "sdpa"), (FAMILIES["Falcon"], "sdpa")],
    ids=title_of,
)
def test_autocast(family: Family, implementation: str) -> None:
    model = made(family, implementation)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = model(**inputs(family))[0]
        with attncli.capture(model) as calls:
            output = model(**inputs(family))[0]
    assert torch.equal(before, output)
    assert [call.dtype for call in calls] == ["bfloat16"] * 2
    assert all_match(calls)


@pytest.mark.parametrize(("family", "implementation"), WAYS, ids=title_of)
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # PyTorch's, compiling BLOOM
def test_compiled_models_run_without_their_compiler(family: Family, implementation: str) -> None:
    model, given = made(family, implementation), inputs(family)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(**given)
        for watched in (model, compiled):
            with attncli.capture(watched) as calls:
                compiled(**given)
            assert len(calls) == 2
            assert all_match(calls)


# ---- what is recorded


def test_a_part_of_a_model() -> None:
    model, given = made(FAMILIES["T5"], "eager"), inputs(FAMILIES["T5"])
    with torch.no_grad(), attncli.capture(model.encoder) as calls:
        model(**given)
    assert [call.name for call in calls] == [
        "block.0.layer.0.SelfAttention",
        "block.1.layer.0.SelfAttention",
    ]


def test_a_model_within_a_module() -> None:
    outer = torch.nn.ModuleDict({"inner": made(LLAMA, "sdpa")})
    with torch.no_grad(), attncli.capture(outer) as calls:
        outer["inner"](**inputs(LLAMA))
    assert [call.name for call in calls] == [f"inner.layers.{n}.self_attn" for n in (0, 1)]
    assert [call.layer for call in calls] == [0, 1]


@pytest.mark.parametrize("title", ["GPT-OSS", "T5", "BLOOM", "LLaVA"])
def test_some_layers_and_heads(title: str) -> None:
    family = FAMILIES[title]
    model, given = made(family, "eager"), inputs(family)
    with torch.no_grad():
        with attncli.capture(model) as calls:
            model(**given)
        with attncli.capture(model, layers=[1], heads=[2, 0]) as some:
            model(**given)
    whole = [call for call in calls if call.layer == 1]
    assert [call.name for call in some] == [call.name for call in whole]
    assert all_match(some)
    for few, call in zip(some, whole, strict=True):
        assert np.array_equal(few.arrays["weights"], call.arrays["weights"][:, [0, 2]])
        shared = call.arrays["q"].shape[1] // call.arrays["k"].shape[1]
        assert np.array_equal(few.arrays["k"], call.arrays["k"][:, [0, 2 // shared]])


@pytest.mark.parametrize(
    ("picked", "message"),
    [
        ({"heads": [6]}, "there are 6 heads"),
        ({"heads": [-1]}, "there are 6 heads"),
        ({"heads": []}, "heads is \\[\\]"),
        ({"layers": 1}, "layers is 1"),
        ({"layers": "x"}, "layers is 'x'"),
    ],
)
def test_heads_and_layers_that_are_none(picked: dict[str, Any], message: str) -> None:
    model = made(LLAMA, "sdpa")
    with pytest.raises(InputError, match=message), attncli.capture(model, **picked):
        model(**inputs(LLAMA))


def test_a_layer_that_is_not_there() -> None:
    model = made(LLAMA, "sdpa")
    with pytest.warns(UserWarning, match="in layers \\[7\\]"), attncli.capture(model, layers=[7]):
        model(**inputs(LLAMA))


def test_a_model_without_numbers() -> None:
    with torch.device("meta"):
        model = transformers.LlamaModel(transformers.LlamaConfig(**LLAMA.config))
    tokens = torch.zeros(2, 5, dtype=torch.long, device="meta")
    with pytest.raises(InputError, match="meta device"), attncli.capture(model):
        model(tokens)


def test_what_is_no_module() -> None:
    with pytest.raises(InputError, match="is no torch"), attncli.capture("bert-base-uncased"):
        pass


# ---- beside other models, captures and threads


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("title", ["Llama", "Falcon"])
def test_another_model_is_not_recorded(title: str, implementation: str) -> None:
    other, family = made(FAMILIES[title], implementation), FAMILIES["GPT-2"]
    model = made(family, implementation)
    with torch.no_grad(), attncli.capture(model) as calls:
        other(**inputs(LLAMA))
        model(**inputs(family))
    assert [call.name for call in calls] == ["h.0.attn", "h.1.attn"]


def test_two_captures_at_once_and_within_each_other() -> None:
    model, other = made(LLAMA, "sdpa"), made(FAMILIES["GPT-2"], "eager")
    with torch.no_grad(), attncli.capture(model) as calls, attncli.capture(other) as others:
        with attncli.capture(model) as again:
            model(**inputs(LLAMA))
        other(**inputs(LLAMA))
    assert [call.name for call in calls] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert [call.name for call in others] == ["h.0.attn", "h.1.attn"]
    assert [call.seen for call in again] == [call.seen for call in calls]
    assert all_match([*calls, *others, *again])


def test_threads_do_not_disturb_each_other() -> None:
    model, given = made(LLAMA, "sdpa"), inputs(LLAMA)

    def run() -> None:
        with torch.no_grad():
            model(**given)

    with attncli.capture(model) as calls:
        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        run()
        for thread in threads:
            thread.join()
    names = [call.name for call in calls]
    assert names.count("layers.0.self_attn") == names.count("layers.1.self_attn")
    assert set(names) == {"layers.0.self_attn", "layers.1.self_attn"}
    assert all_match(calls)


# ---- what was there is there again


def state(model: Any) -> list[Any]:
    """What a capture may have touched."""
    from torch.nn.modules import module
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    hooks = [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
    everywhere = [*module._global_forward_hooks, *module._global_forward_pre_hooks]
    registry = ALL_ATTENTION_FUNCTIONS
    names = [type(m).forward for m in model.modules()]
    functions = [registry[name] for name in registry.valid_keys()]
    return [hooks, everywhere, type(registry), names, functions, model.config.to_dict()]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("family", "implementation"), WAYS, ids=title_of)
def test_the_model_is_left_as_it_was(family: Family, implementation: str, fails: bool) -> None:
    model, given = made(family, implementation), inputs(family)
    given["input_ids"][0, 0] = WORDS if fails else 0
    before = state(model)
    if fails:
        with pytest.raises(IndexError), attncli.capture(model):
            model(**given)
    else:
        with attncli.capture(model):
            model(**given)
    assert state(model) == before


def test_a_layer_that_raises_leaves_the_modules_in_order() -> None:
    model, given = made(LLAMA, "sdpa"), inputs(LLAMA)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with torch.no_grad(), attncli.capture(model) as calls:
        hook = model.layers[1].self_attn.o_proj.register_forward_pre_hook(stop)
        with pytest.raises(KeyboardInterrupt):
            model(**given)
        hook.remove()
        model(**given)
    assert [call.name for call in calls] == [f"layers.{n}.self_attn" for n in (0, 1)] * 2


def test_the_readme_s_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(with attncli\.capture.*?)```", readme, flags=re.DOTALL)
    config = transformers.GPT2Config(vocab_size=97, n_embd=14, n_layer=5, n_head=2)
    names = {
        "attncli": attncli,
        "model": transformers.GPT2Model(config).eval(),
        "inputs": {"input_ids": torch.tensor([[2, 3, 5]])},
        "tokens": ["a", "b", "c"],
    }
    exec(example, names)  # noqa: S102 - it is ours
    assert run(["check", "dump.npz", "--quiet"]) == 0
    assert run(["compute", "dump.npz::h.3", "--quiet", "--output", "x.json"]) == 0
