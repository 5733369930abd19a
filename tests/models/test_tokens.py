"""What tokens are called: their part of the sentence, by a tokenizer's offsets."""

from __future__ import annotations

from typing import Any

import pytest

from attncli.errors import InputError
from attncli.models.tokens import Tokens, labels_of, tokens_of
from tests.models import checkpoints

PARTS = {
    "words": ("a bank", [(0, 1), (1, 6)], ("a", "bank")),
    "a space alone": ("a b", [(0, 1), (1, 2), (2, 3)], ("a", " ", "b")),
    "bytes of one letter": ("שa", [(0, 1), (0, 1), (1, 2)], ("ש 1/2", "ש 2/2", "a")),
    "bytes of two letters": ("🙂🙂", [(0, 1), (0, 1), (1, 2), (1, 2)], ("🙂 1/2", "🙂 2/2") * 2),
    "a space with its bytes": ("a 🙂", [(0, 1), (1, 3), (2, 3)], ("a", "🙂 1/2", "🙂 2/2")),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_the_sentence(name: str) -> None:
    sentence, spans, expected = PARTS[name]
    assert labels_of(sentence, ["?"] * len(spans), spans, [False] * len(spans)) == expected


@pytest.mark.parametrize(
    ("sentence", "names", "spans", "expected"),
    [
        ("river", ("▁", "ri", "ver"), [(0, 1), (0, 2), (2, 5)], ("▁", "ri", "ver")),
        ("a b", ("▁a", "▁", "b"), [(0, 1), (1, 2), (2, 3)], ("a", " ", "b")),
        ("🙂", ("▁", "<0xF0>", "<0x9F>"), [(0, 1), (0, 1), (0, 1)], ("▁", "🙂 1/2", "🙂 2/2")),
    ],
)
def test_a_space_before_the_first_word_is_a_token_of_its_own(
    sentence: str, names: Any, spans: Any, expected: Any
) -> None:
    assert labels_of(sentence, names, spans, [False] * len(spans)) == expected


def test_special_tokens_keep_their_names() -> None:
    found = labels_of("hi", ["[CLS]", "hi"], [(0, 0), (0, 2)], [True, False])
    assert found == ("[CLS]", "hi")


class TestOfRealTokenizers:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip(
            "transformers", reason="needs transformers: pip install 'attncli[models]'"
        )

    def test_bytes(self) -> None:
        found = tokens_of(checkpoints.byte_tokenizer(), "the cat שלום 🙂 the")
        assert found.labels[:2] == ("the", "cat")
        assert found.labels[-1] == " the"
        assert {"ש 1/2", "ש 2/2", "🙂 1/4", "🙂 4/4"} <= {*found.labels}
        assert "�" not in "".join(found.labels)

    def test_pieces(self) -> None:
        found = tokens_of(checkpoints.piece_tokenizer(), "near it")
        assert found.labels[:4] == ("▁", "ne", "a", "r")

    def test_tokens_that_differ_by_a_space(self) -> None:
        found = tokens_of(checkpoints.byte_tokenizer(), "the cat sat on the mat")
        assert found.ids[0] != found.ids[4]
        assert found.labels == ("the", "cat", "sat", "on", " the", "mat")

    def test_neither_padded_nor_cut(self) -> None:
        # this one pads to 31 and cuts after 7 tokens, if it is let
        found = tokens_of(checkpoints.word_tokenizer(pads=True), checkpoints.SENTENCE)
        words = checkpoints.SENTENCE.split()
        assert found.labels == ("[CLS]", *words, "[SEP]")

    def test_unknown_ones_are_counted(self) -> None:
        found = tokens_of(checkpoints.word_tokenizer(), "the Ω cat")
        assert found.notes == ("1 token of 5 the model knows only as [UNK]",)

    @pytest.mark.parametrize("sentence", ["", " \n"])
    def test_no_words(self, sentence: str) -> None:
        with pytest.raises(InputError, match="the sentence is empty"):
            tokens_of(checkpoints.word_tokenizer(), sentence)

    def test_nothing_that_it_knows(self) -> None:
        with pytest.raises(InputError, match="has no tokens"):
            tokens_of(checkpoints.word_tokenizer(), "\u200b")

    def test_what_a_decoder_reads(self) -> None:
        tokenizer = checkpoints.piece_tokenizer()
        found = tokens_of(tokenizer, "cat", is_target=True)
        assert found.labels[-1] == "</s>"
        shifted = found.shifted(tokenizer, 0)
        assert shifted.labels == ("<pad>", *found.labels[:-1])
        assert shifted.ids == [0, *found.ids[:-1]]


def test_a_decoder_without_a_start() -> None:
    class NoTokenizer:
        eos_token_id = sep_token_id = None

    own: Any = NoTokenizer()
    assert Tokens(("a",), {"input_ids": [5]}).shifted(own, None).ids == [5]
