"""The tokens of a model's own tokenizer as a reader knows them: parts of the sentence.

Byte-level tokens are bytes, which one by one decode to nothing that can be read. So a token is
named by the part of the sentence that it stands for, and a special one by its own name.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from attncli.budget import check_bytes
from attncli.errors import InputError
from attncli.files.messages import count, explained, quote


@dataclass(frozen=True)
class Tokens:
    """The tokens of a sentence.

    labels  their names
    inputs  what the model reads: input_ids, and what else the tokenizer gives
    notes   what the user should know of them
    """

    labels: tuple[str, ...]
    inputs: dict[str, list[int]]
    notes: tuple[str, ...] = ()

    @property
    def ids(self) -> list[int]:
        """Their numbers."""
        return self.inputs["input_ids"]

    def shifted(self, tokenizer: Any, start: int | None) -> Tokens:
        """What a decoder reads to say them: a start before them, and not the end after them."""
        ids, labels = list(self.ids), list(self.labels)
        ends = {tokenizer.eos_token_id, tokenizer.sep_token_id}
        if len(ids) > 1 and ids[-1] in ends:
            ids, labels = ids[:-1], labels[:-1]
        if start is not None:
            ids, labels = [start, *ids], [tokenizer.convert_ids_to_tokens(start), *labels]
        return replace(self, labels=tuple(labels), inputs={"input_ids": ids})


_ADDS = ("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json")
"""The files that may add tokens."""
_ADDED = 5000  # bytes of memory for each


def tokenizer_of(path: Path, config: Any, longest: int) -> Any:
    """The tokenizer in a model's directory, by transformers; nothing is downloaded or run.

    Raises InputError where it cannot be read, adds more than the `longest` tokens of the model, or
    knows no words: a class without its files is made all the same.
    """
    from transformers import AutoTokenizer

    with guarded(f"the tokenizer of {path} cannot be read"):
        for file in filter(Path.is_file, map(path.joinpath, _ADDS)):
            entries = json.loads(file.read_bytes())
            many = max(len(x) for x in (entries, *entries.values()) if isinstance(x, (dict, list)))
            if many > longest:
                message = f"{file} adds {many} tokens, the largest tensor has {longest} rows"
                raise InputError(message, "take both of one model")
            check_bytes(_ADDED * many, f"{file} adds {many} tokens, which take")
        tokenizer = AutoTokenizer.from_pretrained(
            path, config=config, local_files_only=True, trust_remote_code=False
        )
    if set(tokenizer.get_vocab()) <= {*tokenizer.all_special_tokens}:
        hint = "copy tokenizer.json of the model into it"
        raise InputError(f"the tokenizer of {path} knows no words", hint)
    return tokenizer


@contextmanager
def guarded(message: str) -> Iterator[None]:
    """What a tokenizer's files make its library say or raise is an InputError: `message`, and why.

    Its code in Rust writes to the process's own standard output and error, which go nowhere in the
    block, and where it panics it raises what is no Exception.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    descriptors, nothing = (os.dup(1), os.dup(2)), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        with explained(message, "copy its files again"):
            yield
    finally:
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(nothing)


def tokens_of(tokenizer: Any, sentence: str, *, is_target: bool = False) -> Tokens:
    """The tokens of a sentence, neither padded nor cut; InputError where all are special."""
    option = "--target" if is_target else "the sentence"
    if not sentence.strip():
        raise InputError(f"{option} is empty", "give it at least one word")
    if not sentence.isascii() and any("\ud800" <= char <= "\udfff" for char in sentence):
        raise InputError(f"{option} is no text: {quote(sentence)}", "write it in UTF-8")
    encoding = tokenizer(
        **{"text_target" if is_target else "text": sentence},
        padding=False,
        truncation=False,
        return_offsets_mapping=tokenizer.is_fast,
        return_special_tokens_mask=True,
    )
    special, spans = encoding.pop("special_tokens_mask"), encoding.pop("offset_mapping", None)
    inputs = {name: list(encoding[name]) for name in encoding}
    ids = inputs["input_ids"]
    if all(special):
        raise InputError(f"{option} has no tokens that the model knows", "give it another word")
    names = tokenizer.convert_ids_to_tokens(ids)
    for at, span in enumerate(spans or ()):
        text = tokenizer.decode([ids[at]]) if span[0] == span[1] and not special[at] else ""
        names[at] = text if text and "\ufffd" not in text else names[at]  # a space, trimmed
    notes: tuple[str, ...] = ()
    if unknown := [name for name, x in zip(names, ids, strict=True) if x == tokenizer.unk_token_id]:
        amount = count(len(unknown), "token")
        notes = (f"{amount} of {len(ids)} the model knows only as {unknown[0]}",)
    if spans is None:
        return Tokens(tuple(names), inputs, notes)
    labels = labels_of(sentence, names, spans, [bool(x) for x in special])
    texts = [tokenizer.decode([x]) for x in ids]
    return Tokens(told_apart(labels, ids, names, texts), inputs, notes)


def told_apart(
    labels: Sequence[str], ids: Sequence[int], names: Sequence[str], texts: Sequence[str]
) -> tuple[str, ...]:
    """The same, but two tokens of the same letters as what they decode to, or the tokenizer's name.

    >>> told_apart(("the", "the"), (5, 7), ("the", "Ġthe"), ("the", " the"))
    ('the', ' the')
    >>> told_apart(("at", "at"), (5, 7), ("at", "##at"), ("at", "##at"))
    ('at', '##at')
    """
    ids_of: dict[str, set[int]] = defaultdict(set)
    for label, token in zip(labels, ids, strict=True):
        ids_of[label].add(token)
    return tuple(
        (text if text.strip() == label else name)
        if len(ids_of[label]) > 1 and name.endswith(label)
        else label
        for label, name, text in zip(labels, names, texts, strict=True)
    )


def labels_of(
    sentence: str, names: Sequence[str], spans: Sequence[tuple[int, int]], special: Sequence[bool]
) -> tuple[str, ...]:
    """What each token is called: its part of the sentence, without spaces around it.

    names  the tokenizer's own, which special tokens keep, and those that stand for no part
    spans  the first character of each, and the one after its last

    Tokens that share a character, of which each is some of the bytes, are numbered: 🙂 1/2, 🙂 2/2.
    A ▁ that no space of the sentence stands for, before its first word, shares none.
    """
    spans = [
        (start, start if name == "▁" and sentence[start:stop].strip() else stop)
        for name, (start, stop) in zip(names, spans, strict=True)
    ]
    parts: list[str] = []
    for name, (start, stop), is_special in zip(names, spans, special, strict=True):
        part = sentence[start:stop]
        parts.append(name if is_special or not part else part.strip() or part)
    shares = [max(a[0], b[0]) < min(a[1], b[1]) for a, b in pairwise(spans)]
    first = 0
    while first < len(parts):
        last = first + 1
        while last < len(parts) and shares[last - 1]:
            last += 1
        if last - first > 1:
            start, stop = spans[first][0], max(spans[at][1] for at in range(first, last))
            whole = sentence[start:stop].strip()
            parts[first:last] = [f"{whole} {n}/{last - first}" for n in range(1, last - first + 1)]
        first = last
    return tuple(parts)
