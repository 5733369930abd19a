"""A model from a directory on disk, run on a sentence: every attention with its tokens.

    Directory ──┬── config.json      its class of transformers, never code of its own
                ├── tokenizer files  tokens, and where each stands in the sentence
                └── safetensors      weights ── capture ──> Attentions

Nothing is downloaded, and no pickle is read.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Literal

os.environ["HF_HUB_OFFLINE"] = "1"  # read when it is imported; each call below says so too
import numpy as np
import torch
import transformers
from safetensors import safe_open
from transformers.utils import logging

from attncli.budget import check_bytes
from attncli.commands.model.call import Call, Calls
from attncli.commands.model.capture import capture
from attncli.commands.model.directory import Directory
from attncli.commands.model.stacks import Attention
from attncli.commands.model.tokens import Tokens, guarded, tokenizer_of, tokens_of
from attncli.errors import InputError
from attncli.files.messages import count, explained, listing, quote

Dtype = Literal["stored", "float32"]
Shapes = list[tuple[int, int, int]]
_CAPTURE = "run it in Python, in the block of attncli.capture(model)"
_TIMES = 10  # as many numbers as its files hold; those packed in 4 bits hold 8 in one


@dataclass(frozen=True)
class Ran:
    """What a model did with a sentence.

    kind        the class of the model
    attentions  in the order in which they ran
    tokens      of the sentence, and of the target where there is one
    dtype       the number type of its weights
    n_bytes     that they take
    is_half     whether it has a decoder too, which had nothing to read
    notes       what the user should know of it
    """

    kind: str
    attentions: tuple[Attention, ...]
    tokens: Tokens
    target: Tokens | None
    dtype: str
    n_bytes: int
    is_half: bool
    notes: tuple[str, ...]


def run(
    directory: Directory,
    sentence: str,
    target: str | None = None,
    *,
    dtype: Dtype = "stored",
    before: Callable[[Shapes], None] = lambda shapes: None,
) -> Ran:
    """Runs the model once, with its own tokenizer and weights.

    target  what the decoder of an encoder-decoder model reads; without it the encoder runs alone
    dtype   of the weights: as stored, or float32
    before  is called before the weights are read, with the shapes of all scores by the config

    Raises InputError where the model cannot be loaded, lacks weights that attention depends on,
    cannot run on text alone, or has no attention.
    """
    with _quiet():
        config = _config(directory)
        kind = _class(config, directory, target)
        frame = _frame(kind, config, directory, dtype)
        tokenizer = tokenizer_of(directory.path, config, directory.longest)
        with guarded(f"the tokenizer of {directory.path} fails"):
            source = tokens_of(tokenizer, sentence)
            target_tokens = None if target is None else tokens_of(tokenizer, target, is_target=True)
            target_tokens = target_tokens and target_tokens.shifted(tokenizer, _start(config))
        for tokens in filter(None, (source, target_tokens)):
            _check_read(tokens, frame, tokenizer)
        before(_shapes(config, len(source.ids), len(target_tokens.ids) if target_tokens else 0))
        model, missing = _loaded(kind, config, directory, dtype)
        calls, n_encoder = _run(model, missing, source, target_tokens, directory)
    attentions = tuple(
        _attention(call, source, target_tokens if at >= n_encoder else None)
        for at, call in enumerate(calls)
    )
    notes = [*source.notes, *(target_tokens.notes if target_tokens else ())]
    if calls.unseen:
        more = f" and {len(calls.unseen) - 4} more" if len(calls.unseen) > 4 else ""
        notes.append(f"no attention was seen in {'; '.join(calls.unseen[:4])}{more}")
    weights = list(model.parameters())
    return Ran(
        kind=kind.__name__,
        attentions=attentions,
        tokens=source,
        target=target_tokens,
        dtype=str(weights[0].dtype).removeprefix("torch."),
        n_bytes=_n_bytes(weights),
        is_half=config.is_encoder_decoder and target_tokens is None,
        notes=tuple(notes),
    )


def _n_bytes(tensors: Iterable[Any]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars, reports and warnings of the library, which are not for our user."""
    before, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        if has_bars:
            logging.enable_progress_bar()


# ---- what is loaded


def _config(directory: Directory) -> Any:
    """The configuration; InputError for a type that transformers does not know."""
    mapping = transformers.CONFIG_MAPPING
    name = directory.config["model_type"]
    if name not in mapping:
        message = f"{directory.path} is a {quote(name)} model, which transformers "
        message += f"{transformers.__version__} does "
        if "auto_map" in directory.config:
            raise InputError(f"{message}not know: it brings code of its own, never run", _CAPTURE)
        raise InputError(f"{message}not know", "pip install --upgrade transformers, or " + _CAPTURE)
    with explained(_misfit(directory, "is not understood"), "copy it again"):
        return mapping[name].from_dict(_data_alone(directory.config))


def _data_alone(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same without what names code: its own, or kernels to be loaded for attention."""
    return {
        name: _data_alone(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name != "auto_map" and not name.endswith(("_implementation", "_implementation_internal"))
    }


def _class(config: Any, directory: Directory, target: str | None) -> Any:
    """The class of the model; InputError where it does not read text, or not such a target."""
    try:
        kind = transformers.MODEL_MAPPING[type(config)]
    except KeyError:
        message = f"{directory.path} is a {quote(config.model_type)}, which is no model by itself"
        raise InputError(message, _CAPTURE) from None
    kind = kind[0] if isinstance(kind, (list, tuple)) else kind
    reads = getattr(kind, "input_modalities", "text")
    reads = [reads] if isinstance(reads, str) else list(reads)
    if "text" not in reads or getattr(kind, "main_input_name", "input_ids") != "input_ids":
        others = " and ".join(x for x in reads if x != "text") or "no text"
        raise InputError(f"{kind.__name__} reads {others}, a sentence is not enough", _CAPTURE)
    if target is not None and not config.is_encoder_decoder:
        raise InputError(f"{kind.__name__} has no decoder to read --target", "leave it out")
    return kind


def _frame(kind: Any, config: Any, directory: Directory, dtype: Dtype) -> Any:
    """The model without numbers; InputError if far larger than its files, SizeError for memory."""
    convention = {} if dtype == "stored" else {"dtype": torch.float32}
    with explained(_misfit(directory, "builds no model"), "copy it again"), torch.device("meta"):
        frame = kind._from_config(config, **convention)
    n_asked = sum(x.numel() for x in frame.parameters())
    n_held = sum(tensor.size for tensor in directory.tensors.values())
    if n_asked > _TIMES * n_held:
        message = _misfit(
            directory, f"describes {n_asked:.3g} weights, its files hold {n_held:.3g}"
        )
        raise InputError(message, "copy config.json and the weights of one model")
    packed = hasattr(config, "quantization_config")
    sized = (*frame.buffers(), *(() if packed else frame.parameters()))
    check_bytes(_n_bytes(sized), _misfit(directory, "describes a model that takes"))
    return frame


def _shapes(config: Any, n_source: int, n_target: int) -> Shapes:
    """(heads, queries, keys) of every attention, in the names that configs of text models share."""
    text = config.get_text_config()
    n_heads, n_layers = (getattr(text, f"num_{x}", 1) for x in ("attention_heads", "hidden_layers"))
    n_heads, n_layers = (x if isinstance(x, int) else 1 for x in (n_heads, n_layers))
    of_target = [(n_heads, n_target, n) for n in (n_target, n_source) if n_target]
    return [(n_heads, n_source, n_source), *of_target] * n_layers


def _misfit(directory: Directory, problem: str) -> str:
    return f"{directory.path / 'config.json'} {problem}"


def _loaded(kind: Any, config: Any, directory: Directory, dtype: Dtype) -> tuple[Any, set[str]]:
    """The model, and the names of its weights that no file holds."""
    convention = {"dtype": "auto" if dtype == "stored" else torch.float32}
    with explained(f"{directory.path} cannot be loaded", _CAPTURE):
        model, report = kind.from_pretrained(
            None,  # no directory: it would read what else is there
            config=config,
            state_dict=_weights(directory),
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are named below
            **convention,
        )
    for name, stored, expected in sorted(report["mismatched_keys"]):
        sizes = (" × ".join(map(str, shape)) for shape in (stored, expected))
        message = (
            f"{name} is {next(sizes)} in {directory.path}, but {next(sizes)} by its config.json"
        )
        raise InputError(message, "take both of one model")
    model.eval()
    return model, {*report["missing_keys"]}


def _weights(directory: Directory) -> dict[str, Any]:
    """The tensors of the files that were checked, by their names."""
    weights: dict[str, Any] = {}
    for file in directory.files:
        with safe_open(file, "pt") as opened:  # mapped into memory
            weights |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return weights


def _start(config: Any) -> int | None:
    """The token that a decoder begins with."""
    names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    numbers = (getattr(config, name, None) for name in names)
    return next((number for number in numbers if isinstance(number, int)), None)


def _check_read(tokens: Tokens, model: Any, tokenizer: Any) -> None:
    """InputError for more tokens than positions, or for a token that has no embedding."""
    n_positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    limits = (n_positions, tokenizer.model_max_length)
    most = min((x for x in limits if isinstance(x, (int, float)) and x > 0), default=math.inf)
    if len(tokens.ids) > most:
        message = f"the sentence has {count(len(tokens.ids), 'token')}, the model {most} positions"
        raise InputError(message, "give a shorter one")
    n_words = math.inf
    with suppress(AttributeError, NotImplementedError):  # of several models in one
        n_words = model.get_input_embeddings().weight.shape[0]
    if max(tokens.ids) >= n_words:
        message = f"the tokenizer gives token {max(tokens.ids)}, the model has {n_words}"
        raise InputError(message, "take the tokenizer of the same model")


# ---- what is run


class _Began:
    """How many calls had been captured when each module began."""

    def __init__(self, model: Any, missing: set[str], calls: Calls) -> None:
        modules = dict(model.named_modules())
        self.missing, self.calls = missing, calls
        self.at: dict[str, int] = {}
        for name in {owner for key in missing for owner in _owners(key)} & modules.keys():
            modules[name].register_forward_pre_hook(partial(self._note, name))

    def _note(self, name: str, *_: Any) -> None:
        self.at.setdefault(name, len(self.calls))

    def needed(self) -> list[str]:
        """The missing weights on which a captured attention may depend.

        Those of a module that began before the last of them was over; of one whose function was
        never called, as its weights may be read all the same, those of the module around it.
        """
        n_calls = len(self.calls)
        began = {k: [self.at[n] for n in _owners(k) if n in self.at] for k in sorted(self.missing)}
        return [key for key, numbers in began.items() if numbers and numbers[0] < n_calls]


def _owners(key: str) -> list[str]:
    """The module of a weight and those around it, the outermost excepted unless it is its own."""
    parts = key.split(".")[:-1]
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)] or [""]


def _run(
    model: Any, missing: set[str], source: Tokens, target: Tokens | None, directory: Directory
) -> tuple[Calls, int]:
    """The calls of a run, and how many are the encoder's.

    Raises InputError where there are none, or where weights are missing that they depend on.
    """
    encoder = model.get_encoder() if model.config.is_encoder_decoder else None
    runs = model if encoder is None or target else encoder
    takes = signature(runs.forward).parameters
    inputs = {name: ids for name, ids in source.inputs.items() if name in takes}
    inputs |= {"decoder_input_ids": target.ids} if target else {}
    n_encoder: list[int] = []
    kind, hint = type(model).__name__, "if it needs more than text, " + _CAPTURE
    with (
        explained(f"{kind} of {directory.path} could not run", hint),
        capture(model) as calls,
        torch.no_grad(),
    ):
        began = _Began(model, missing, calls)
        if encoder is not None:
            encoder.register_forward_hook(lambda *_: n_encoder.append(len(calls)))
        runs(**{name: torch.tensor([ids]) for name, ids in inputs.items()})
    if needed := began.needed():
        message = f"{directory.path} lacks weights that attention depends on: {listing(needed, 3)}"
        raise InputError(message, "they would be random; take the files of one model")
    if not calls and calls.unseen:
        message = f"no attention was seen in {kind}: {'; '.join(calls.unseen[:2])}"
        raise InputError(message, "it computes attention in a way of its own; choose another model")
    if not calls:
        raise InputError(f"{kind} has no attention", "choose a model that has some")
    return calls, n_encoder[0] if n_encoder else len(calls)


def _attention(call: Call, source: Tokens, target: Tokens | None) -> Attention:
    """A call with the names of its queries and keys.

    Of a decoder's, keys that are as many as the sentence's tokens are the sentence's, but not if
    none of the target's tokens sees a later one: then it is the target that attends to itself.
    """
    n_q, n_k = call.shape[-2:]
    tokens = target or source
    if target is None or n_k != len(source.labels) or _is_causal(call, n_q, n_k):
        fits = n_q == n_k == len(tokens.labels)
        return Attention(call, tokens.labels, tokens.labels, tokens.ids if fits else None)
    return Attention(call, tokens.labels, source.labels, None)


def _is_causal(call: Call, n_q: int, n_k: int) -> bool:
    """Whether no query sees a later key."""
    mask = call.arrays.get("mask")
    if n_q != n_k or n_q < 2 or call.convention.causal or mask is None:
        return n_q == n_k and call.convention.causal
    if mask.shape[-2:] != (n_q, n_k):
        return False
    later = mask[..., *np.triu_indices(n_q, 1)]
    return bool((~later if mask.dtype == bool else np.isneginf(later)).all())
