"""What tokens are called: their part of the sentence, by a tokenizer's offsets."""

from __future__ import annotations

from typing import Any

import pytest

from attncli.errors import InputError
from attncli.models.tokens import Tokens, labels_of, tokens_of
from tests.models import checkpoints

# fmt: off
PARTS: list[tuple[str, str, list[tuple[int, int]], tuple[str, ...]]] = [
    ("a bank", "? ?", [(0, 1), (1, 6)], ("a", "bank")),
    ("a b", "? ? ?", [(0, 1), (1, 2), (2, 3)], ("a", " ", "b")),
    ("שa", "? ? ?", [(0, 1), (0, 1), (1, 2)], ("ש 1/2", "ש 2/2", "a")),  # bytes of one letter
    ("🙂🙂", "? ? ? ?", [(0, 1), (0, 1), (1, 2), (1, 2)], ("🙂 1/2", "🙂 2/2") * 2),
    ("a 🙂", "? ? ?", [(0, 1), (1, 3), (2, 3)], ("a", "🙂 1/2", "🙂 2/2")),
    # a space before the first word is a token of its own
    ("river", "▁ ri ver", [(0, 1), (0, 2), (2, 5)], ("▁", "ri", "ver")),
    ("a b", "▁a ▁ b", [(0, 1), (1, 2), (2, 3)], ("a", " ", "b")),
    ("🙂", "▁ <0xF0> <0x9F>", [(0, 1), (0, 1), (0, 1)], ("▁", "🙂 1/2", "🙂 2/2")),
]
# fmt: on


@pytest.mark.parametrize(("sentence", "names", "spans", "labels"), PARTS)
def test_parts_of_the_sentence(
    sentence: str, names: str, spans: list[tuple[int, int]], labels: tuple[str, ...]
) -> None:
    assert labels_of(sentence, names.split(), spans, [False] * len(spans)) == labels


def test_special_tokens_keep_their_names() -> None:
    labels = labels_of("hi", ["[CLS]", "hi"], [(0, 0), (0, 2)], [True, False])
    assert labels == ("[CLS]", "hi")


def test_a_decoder_without_a_start() -> None:
    class NoTokenizer:
        eos_token_id = sep_token_id = None

    own: Any = NoTokenizer()
    assert Tokens(("a",), {"input_ids": [5]}).shifted(own, None).ids == [5]


class TestOfRealTokenizers:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("transformers", reason="needs the extra: attncli[models]")

    def test_bytes_and_pieces(self) -> None:
        own = tokens_of(checkpoints.byte_tokenizer(), "the cat שלום 🙂 the")
        assert (own.labels[:2], own.labels[-1]) == (("the", "cat"), " the")
        assert {"ש 1/2", "ש 2/2", "🙂 1/4", "🙂 4/4"} <= {*own.labels}
        assert "�" not in "".join(own.labels)
        pieces = tokens_of(checkpoints.piece_tokenizer(), "near it")
        assert pieces.labels[:4] == ("▁", "ne", "a", "r")

    def test_neither_padded_nor_cut(self) -> None:
        # this one pads to 31 and cuts after 7 tokens, if it is let
        own = tokens_of(checkpoints.word_tokenizer(pads=True), checkpoints.SENTENCE)
        assert own.labels == ("[CLS]", *checkpoints.SENTENCE.split(), "[SEP]")

    def test_words_that_it_does_not_know(self) -> None:
        own = tokens_of(checkpoints.word_tokenizer(), "the Ω cat")
        assert own.notes == ("1 token of 5 the model knows only as [UNK]",)
        for sentence, words in (("", "empty"), (" \n", "empty"), ("\u200b", "no tokens")):
            with pytest.raises(InputError, match=words):
                tokens_of(checkpoints.word_tokenizer(), sentence)

    def test_what_a_decoder_reads(self) -> None:
        tokenizer = checkpoints.piece_tokenizer()
        own = tokens_of(tokenizer, "cat", is_target=True)
        assert own.labels[-1] == "</s>"
        shifted = own.shifted(tokenizer, 0)
        assert shifted.labels == ("<pad>", *own.labels[:-1])
        assert shifted.ids == [0, *own.ids[:-1]]
