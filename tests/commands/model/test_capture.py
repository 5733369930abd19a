"""Models that are captured: each family's attention, how it may run, and that nothing is changed."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import attncli
from attncli.cli.main import run
from attncli.errors import InputError
from tests.commands.model.families import FAMILIES, ROWS, TOKENS, captured, compared, inputs, made

NEEDS = ("torch", "transformers")
torch: Any = None
transformers: Any = None
LLAMA = FAMILIES["Llama"]
OF_LLAMA = ["layers.0.self_attn", "layers.1.self_attn"]
WAYS = [("Llama", "sdpa"), ("Llama", "eager"), ("BLOOM", "eager")]
"""By the interface twice, and written out."""

PAGE = Path(__file__).parents[3] / "attncli" / "help" / "models.md"


def test_the_manual_names_the_families_that_are_tested() -> None:
    _, _, after = PAGE.read_text(encoding="utf-8").partition("\n## Which models\n")
    rows = [line for line in after.partition("\n#")[0].splitlines() if line.startswith("| ")]
    cells = [("family", "what is captured", "where")]
    for row in ROWS:
        names = ", ".join(one.title for one in row.families)
        cells.append((names, row.captured, row.seen.partition(";")[0]))
    assert rows == [f"| {' | '.join(row)} |" for row in cells]
    assert len(FAMILIES) == sum(len(row.families) for row in ROWS)  # none is there twice


def own_weights(output: Any) -> list[Any]:
    """The weights that a model returns, in the order in which they are computed."""
    if "decoder_attentions" not in output:
        return list(output.attentions)
    both = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.get("encoder_attentions", ()), *(weights for pair in both for weights in pair)]


LOADED = [(family.title, way) for family in FAMILIES.values() for way in family.loaded]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("title", "way"), LOADED)
def test_every_attention_is_the_models_own(title: str, way: str, dtype: str) -> None:
    family = FAMILIES[title]
    model, given = made(family, way, dtype), inputs(family, dtype)
    gives_weights = (way, dtype) == ("eager", "float32")
    given |= {"output_attentions": True} if gives_weights else {}
    with torch.no_grad():
        calls, output = compared(model, **given)
    assert (len(calls), calls.unseen) == (family.calls, ())
    (row,) = (row for row in ROWS if family in row.families)
    for call in calls:
        assert call.seen.split(" (")[0] in row.seen
        assert (call.dtype, call.check().matches) == (dtype, True), call
    if gives_weights:
        returned = [call for call in calls if family.returns in call.name]
        assert returned
        for call, weights in zip(returned, own_weights(output), strict=True):
            shares = weights.numpy()
            assert np.ptp(shares, axis=-1).max() > 0.5  # they are not all the same,
            assert np.median(shares.max(-1)) < 0.99  # and more than one key has a share
            # float32 rounds scores of up to 20 by 1e-6 each
            np.testing.assert_allclose(call.trace()["weights"].value, shares, rtol=2e-5, atol=1e-37)


GENERATING = [
    ("Llama", "sdpa", None), ("Llama", "sdpa", "static"), ("Llama", "eager", "static"),
    ("Mistral", "sdpa", None), ("Mistral", "eager", None), ("Gemma 3", "sdpa", "static"),
    ("Gemma 2", "eager", None), ("GPT-OSS", "eager", None), ("DeepSeek-V3", "sdpa", None),
    ("BLOOM", "eager", None), ("Falcon", "sdpa", None), ("Falcon", "eager", None),
    ("GPT-J", "eager", None),
]  # fmt: skip


@pytest.mark.parametrize(("title", "way", "cache"), GENERATING)
@pytest.mark.parametrize("left", [False, True])
def test_tokens_are_generated_with_a_cache(
    title: str, way: str, cache: str | None, left: bool
) -> None:
    kind = FAMILIES[title].kind.replace("TextModel", "Model").replace("Model", "ForCausalLM")
    model, given = made(FAMILIES[title]._replace(kind=kind), way), inputs(LLAMA, left=True)
    if not left:
        given["attention_mask"] = torch.ones_like(given["attention_mask"])
    given |= {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    given |= {"cache_implementation": cache, "disable_compile": True} if cache else {}
    with attncli.capture(model) as calls:
        tokens = model.generate(**given)
    assert torch.equal(tokens, model.generate(**given))
    assert [call.step for call in calls] == [0, 0, 1, 1, 2, 2]
    assert [call.shape[-2] for call in calls] == [TOKENS, TOKENS, 1, 1, 1, 1]
    for call in calls:
        assert call.arrays["q"].shape[1] == call.arrays["output"].shape[1]  # no heads are packed
        assert call.check().matches, call


CAUSAL, SCALE, WINDOW = ("causal mask left out",), ("scale left out",), ("window left out",)
# Without a mask function of its own, it is given no mask and has to make the window itself.
FORGETFUL: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("Llama", "", "", ()), ("GPT-2", "", "eager_mask", ()), ("Mistral", "", "sdpa_mask", ()),
    ("Llama", "mask", "eager_mask", CAUSAL), ("GPT-2", "mask", "", CAUSAL),
    ("Mistral", "", "", WINDOW), ("Mistral", "mask", "sdpa_mask", CAUSAL + WINDOW),
    ("Llama", "scale", "sdpa_mask", SCALE), ("Mistral", "scale", "eager_mask", SCALE),
]  # fmt: skip


@pytest.mark.parametrize(("title", "forgets", "mask_of", "bugs"), FORGETFUL)
def test_a_function_that_forgets_something_is_caught(
    title: str, forgets: str, mask_of: str, bugs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

    def own(_: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **__: Any) -> Any:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        scores = q @ k.mT * (1 if forgets == "scale" else scaling)
        if forgets != "mask":
            if mask is None:
                mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            small = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~mask, small) if mask.dtype == torch.bool else scores + mask
        weights = scores.softmax(-1)
        return (weights @ v).transpose(1, 2).contiguous(), weights

    monkeypatch.setitem(AttentionInterface._global_mapping, "own", own)
    if mask_of:
        made_mask = getattr(masking_utils, mask_of)
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, "own", made_mask)
    model, given = made(FAMILIES[title], "eager"), inputs(FAMILIES[title])
    model.set_attn_implementation("own")
    given.pop("attention_mask")
    for call in captured(model, given):
        assert (call.convention.window is not None) == (title == "Mistral")
        assert call.seen == "attention interface (own)"
        verdict = call.check()
        assert tuple(bug.name for one in verdict.explanations for bug in one.bugs) == bugs
        assert verdict.matches == (not bugs)


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
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, dtype == "bfloat16"):
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
    picks = [("heads", x) for x in ([6], [-1], [], [0.5])]
    for name, pick in [*picks, *(("layers", x) for x in (1, "x", ["0"]))]:
        with pytest.raises(InputError, match=name):
            captured(model, given, **{name: pick})
    with pytest.warns(UserWarning, match="7"):
        captured(model, given, layers=[7])
    with torch.device("meta"):
        empty = transformers.LlamaModel(transformers.LlamaConfig(**LLAMA.config))
        tokens = torch.zeros(2, 5, dtype=torch.long)
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


def test_threads_do_not_disturb_each_other() -> None:
    model, given = random("Llama", "sdpa")
    both, recorded = threading.Barrier(2, timeout=60), {}

    def capture(n_runs: int) -> None:
        with torch.no_grad(), attncli.capture(model) as recorded[n_runs]:
            both.wait()
            for _ in range(n_runs):
                model(**given)
            both.wait()

    with attncli.capture(model) as calls, ThreadPoolExecutor(3) as threads:
        assert len([*threads.map(lambda _: model(**given), range(3))]) == 3
        model(**given)
    assert {*names_of(calls)} == {*OF_LLAMA}
    with ThreadPoolExecutor(2) as threads:
        [*threads.map(capture, (1, 3))]
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
    given["input_ids"][0, 0] = 97 if fails else 0
    before = state(model)
    with pytest.raises(IndexError) if fails else nullcontext():
        captured(model, given)
    assert state(model) == before


def test_captures_that_end_in_the_order_in_which_they_began() -> None:
    model, given = random("Llama", "sdpa")
    before = state(model)
    first, second = attncli.capture(model), attncli.capture(model)
    calls, others = first.__enter__(), second.__enter__()
    for ended in (first, second):
        model(**given)
        ended.__exit__(None, None, None)
    assert state(model) == before
    model(**given)
    assert (len(calls), len(others)) == (2, 4)

    backend = Mock(side_effect=lambda graph, _: graph)
    assert torch.compile(lambda x: 2 * x, backend=backend)(torch.ones(3)).tolist() == [2, 2, 2]
    assert backend.call_count == 1  # PyTorch's compiler is on again
    # a layer that raises leaves the modules in order
    with torch.no_grad(), attncli.capture(model) as calls:
        last = model.layers[1].self_attn.o_proj
        hook = last.register_forward_pre_hook(Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            model(**given)
        hook.remove()
        model(**given)
    assert names_of(calls) == OF_LLAMA * 2


def test_the_example_of_the_manual_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"(?s)```python\n(# also.*?)```", PAGE.read_text(encoding="utf-8"))
    config = transformers.GPT2Config(vocab_size=97, n_embd=14, n_layer=5, n_head=2)
    names = {"attncli": attncli, "model": transformers.GPT2Model(config).eval()}
    names |= {"inputs": {"input_ids": torch.tensor([[2, 3, 5]])}, "tokens": [*"abc"]}
    exec(example, names)  # noqa: S102 - it is ours
    assert run(["check", "dump.npz", "--quiet"]) == 0
    assert run(["compute", "dump.npz::h.3", "--quiet", "--output", "x.json"]) == 0
