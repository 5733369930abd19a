"""What a model may be doing while it is captured, and that nothing of it is changed."""

from __future__ import annotations

import re
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.cli.main import run
from attncli.errors import InputError
from tests.models.families import FAMILIES, WORDS, captured, compared, inputs, made

NEEDS = ("torch", "transformers")
torch: Any = None
transformers: Any = None
LLAMA = FAMILIES["Llama"]
OF_LLAMA = ["layers.0.self_attn", "layers.1.self_attn"]
WAYS = [("Llama", "sdpa"), ("Llama", "eager"), ("BLOOM", "eager")]
"""By the interface twice, and written out."""


def random(title: str, way: str) -> tuple[Any, dict[str, Any]]:
    """A model, and what goes in."""
    return made(FAMILIES[title], way), inputs(FAMILIES[title])


def names_of(calls: Any) -> list[str]:
    """The names of the calls, all of which match."""
    assert all(call.check().matches for call in calls)
    return [call.name for call in calls]


@pytest.mark.parametrize(("title", "way"), [("BERT", "eager"), ("GPT-2", "sdpa"), ("T5", "eager")])
def test_dropout_in_training_is_noted_and_named(title: str, way: str) -> None:
    model, given = random(title, way)
    calls, _ = compared(model.train(), **given)
    assert len(calls) == FAMILIES[title].calls
    for call in calls:
        verdict = call.check()
        assert [bug.name for one in verdict.explanations for bug in one.bugs] == ["dropout left on"]
        assert call.notes == ("dropout 0.1 was on",)
        assert call.notes[0] in verdict.notes


@pytest.mark.parametrize(("title", "way"), [*WAYS, ("BERT", "sdpa"), ("Falcon", "sdpa")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_mode_and_autocast(title: str, way: str, dtype: str) -> None:
    model, given = random(title, way)
    is_cast = dtype == "bfloat16"
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_cast):
        calls, _ = compared(model, **given)
    assert [call.dtype for call in calls] == [dtype] * len(names_of(calls)) == [dtype] * 2


@pytest.mark.parametrize(("title", "way"), WAYS)
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # PyTorch's, compiling BLOOM
def test_compiled_models_run_without_their_compiler(title: str, way: str) -> None:
    model, given = random(title, way)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(**given)
        for watched in (model, compiled):
            with attncli.capture(watched) as calls:
                compiled(**given)
            assert len(names_of(calls)) == 2


def test_a_part_of_a_model_and_a_model_within_a_module() -> None:
    model, given = random("T5", "eager")
    with torch.no_grad(), attncli.capture(model.encoder) as calls:
        model(**given)
    assert names_of(calls) == [f"block.{n}.layer.0.SelfAttention" for n in (0, 1)]
    outer = torch.nn.ModuleDict({"inner": made(LLAMA, "sdpa")})
    with attncli.capture(outer) as calls:
        outer["inner"](**inputs(LLAMA))
    assert names_of(calls) == [f"inner.{name}" for name in OF_LLAMA]
    assert [call.layer for call in calls] == [0, 1]


@pytest.mark.parametrize("title", ["GPT-OSS", "T5", "BLOOM", "LLaVA"])
def test_some_layers_and_heads(title: str) -> None:
    model, given = random(title, "eager")
    whole = [call for call in captured(model, given) if call.layer == 1]
    some = captured(model, given, layers=[1], heads=[2, 0])
    assert names_of(some) == names_of(whole) != []
    for few, call in zip(some, whole, strict=True):
        assert np.array_equal(few.arrays["weights"], call.arrays["weights"][:, [0, 2]])
        shared = call.arrays["q"].shape[1] // call.arrays["k"].shape[1]
        assert np.array_equal(few.arrays["k"], call.arrays["k"][:, [0, 2 // shared]])


def test_what_cannot_be_captured() -> None:
    model, given = random("Llama", "sdpa")
    picks: list[dict[str, Any]] = [{"heads": x} for x in ([6], [-1], [], [0.5])]
    for pick in [*picks, *({"layers": x} for x in (1, "x", ["0"]))]:
        with pytest.raises(InputError, match=r"heads|layers"):
            captured(model, given, **pick)
    with pytest.warns(UserWarning, match="7"):
        captured(model, given, layers=[7])
    with torch.device("meta"):
        empty = transformers.LlamaModel(transformers.LlamaConfig(**LLAMA.config))
    tokens = torch.zeros(2, 5, dtype=torch.long, device="meta")
    with pytest.raises(InputError, match="meta device"):
        captured(empty, {"input_ids": tokens})
    with pytest.raises(InputError, match="torch"):
        captured("bert-base-uncased", {})


@pytest.mark.parametrize(("title", "way"), [("Llama", "sdpa"), ("Falcon", "eager")])
def test_two_captures_at_once_and_within_each_other(title: str, way: str) -> None:
    (model, given), other = random(title, way), made(FAMILIES["GPT-2"], way)
    with torch.no_grad(), attncli.capture(model) as calls, attncli.capture(other) as others:
        again = captured(model, given)
        other(**given)
    assert names_of(calls) == names_of(again) != names_of(others) == ["h.0.attn", "h.1.attn"]
    assert [call.seen for call in again] == [call.seen for call in calls]
    assert len(again) == 2


def in_threads(*functions: Any) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_do_not_disturb_each_other() -> None:
    model, given = random("Llama", "sdpa")
    with attncli.capture(model) as calls:
        in_threads(*[lambda: model(**given)] * 3)
        model(**given)
    assert {*names_of(calls)} == {*OF_LLAMA}
    of_each = threading.Barrier(2, timeout=60)
    recorded: dict[int, Any] = {}

    def capture(n_runs: int) -> None:
        with torch.no_grad(), attncli.capture(model) as recorded[n_runs]:
            of_each.wait()
            for _ in range(n_runs):
                model(**given)
            of_each.wait()

    in_threads(lambda: capture(1), lambda: capture(3))
    assert {n_runs: len(names_of(calls)) for n_runs, calls in recorded.items()} == {1: 2, 3: 6}


def state(model: Any) -> list[Any]:
    """What a capture may have touched."""
    from torch.nn.modules import module
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as REGISTRY

    hooks = [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
    everywhere = [*module._global_forward_hooks, *module._global_forward_pre_hooks]
    forwards = [type(m).forward for m in model.modules()]
    functions = [REGISTRY[name] for name in REGISTRY.valid_keys()]
    return [hooks, everywhere, type(REGISTRY), forwards, functions, model.config.to_dict()]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("title", "way"), WAYS)
def test_the_model_is_left_as_it_was(title: str, way: str, fails: bool) -> None:
    model, given = random(title, way)
    given["input_ids"][0, 0] = WORDS if fails else 0
    before = state(model)
    with pytest.raises(IndexError) if fails else nullcontext():
        captured(model, given)
    assert state(model) == before


def test_captures_that_end_in_the_order_in_which_they_began() -> None:
    (model, given), graphs = random("Llama", "sdpa"), []
    before = state(model)
    first, second = attncli.capture(model), attncli.capture(model)
    calls, others = first.__enter__(), second.__enter__()
    for ended in (first, second):
        model(**given)
        ended.__exit__(None, None, None)
    assert state(model) == before
    model(**given)
    assert (len(calls), len(others)) == (2, 4)

    backend = lambda graph, _: graphs.append(graph) or graph  # noqa: E731 - one expression
    assert torch.compile(lambda x: 2 * x, backend=backend)(torch.ones(3)).tolist() == [2, 2, 2]
    assert len(graphs) == 1  # PyTorch's compiler is on again


def test_a_layer_that_raises_leaves_the_modules_in_order() -> None:
    model, given = random("Llama", "sdpa")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with torch.no_grad(), attncli.capture(model) as calls:
        hook = model.layers[1].self_attn.o_proj.register_forward_pre_hook(stop)
        with pytest.raises(KeyboardInterrupt):
            model(**given)
        hook.remove()
        model(**given)
    assert names_of(calls) == OF_LLAMA * 2


def test_the_readme_s_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(with attncli\.capture.*?)```", readme, flags=re.DOTALL)
    config = transformers.GPT2Config(vocab_size=97, n_embd=14, n_layer=5, n_head=2)
    names = {"attncli": attncli, "model": transformers.GPT2Model(config).eval()}
    names |= {"inputs": {"input_ids": torch.tensor([[2, 3, 5]])}, "tokens": [*"abc"]}
    exec(example, names)  # noqa: S102 - it is ours
    assert run(["check", "dump.npz", "--quiet"]) == 0
    assert run(["compute", "dump.npz::h.3", "--quiet", "--output", "x.json"]) == 0
