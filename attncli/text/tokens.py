"""Tokens: a sentence cut into words and punctuation, and padded.

| kind | rule |
|---|---|
| word | letters, marks, digits and _ of any script: naïve, हिन्दी, السلام, GPT2 |
| inside a word | one ' ’ · before a letter stays, and one hyphen: don't, l'eau, well-known |
| number | one . or , between digits stays: 3.14, 1,000 |
| abbreviation | single letters with full stops: U.S., e.g. |
| Han, Hiragana | each character is a token, for they write without spaces: 銀 行 で |
| emoji | a whole one: families (ZWJ), flags, skin tones, keycaps |
| dots, dashes | a run of one of them is one token: ... -- |
| anything else | each character is a token: , . ! ( € |

Katakana and Hangul run together as words; so do Thai, Lao, Khmer and Myanmar, whose words only a
dictionary can part. White space, zero-width spaces and invisible direction marks part tokens and
are dropped; nothing else is.
Source: Unicode Standard Annex #29, section 4 (word boundaries), and Technical Standard #51,
section 1.4.9 (emoji sequences), both simplified.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError

PAD = "<pad>"
"""The token that fills a sentence up; a sentence's own "<pad>" is cut into three tokens."""

# Tokens are found in the string of the characters' kinds, one letter each:
#   W letter, number or _   D digit   M mark or other format character   J joiner (ZWJ, ZWNJ)
#   I Han or Hiragana       E emoji   T skin tone   R half a flag   K keycap   S white space
#   A apostrophe   H hyphen   N full stop   C other separator of numbers   P anything else
_TOKEN = re.compile(
    r"[DP]M?K[MJK]*"  # keycap
    r"|(?:WM*N){2,12}(?:WM*(?!N))?(?![WDMJK])"  # U.S. or U.S.A
    r"|[WD][MJK]*(?:(?:A(?=W)|H)?[WD][MJK]*|(?<=D)[NC](?=D))*"  # don't, well-known, 3.14
    r"|RR[MJK]*"  # flag
    r"|[ET][MT]*(?:J[EP][MT]*)*[MTJK]*"  # emoji, or several joined into one
    r"|(?:N{2,}|H{2,})[MJK]*"  # ... or --
    r"|[^S][MJK]*"  # one character, with its marks
)
_SINGLE = {
    ".": "N",
    "_": "W",
    **dict.fromkeys(",\u066b\u066c", "C"),
    **dict.fromkeys("'\u2019\uff07\u00b7\u05f3\u05f4", "A"),
    **dict.fromkeys("-\u2010\u2011\u05be", "H"),
    **dict.fromkeys("\u200c\u200d", "J"),
    "\u20e3": "K",
    # Zero-width space, byte order mark and direction marks.
    **dict.fromkeys("\u200b\ufeff\u061c\u200e\u200f", "S"),
    **dict.fromkeys("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", "S"),
}
_HAN_AND_HIRAGANA = (
    (0x3005, 0x3005),
    (0x3007, 0x3007),
    (0x3041, 0x3096),
    (0x309D, 0x309F),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)


def tokenize(sentence: str, lowercase: bool = False) -> tuple[str, ...]:
    """A sentence as words and punctuation, by the rules at the top of this module.

    Raises InputError where the sentence holds nothing but spaces.

    >>> tokenize("She didn't visit the bank, near 3.14 rivers...")
    ('She', "didn't", 'visit', 'the', 'bank', ',', 'near', '3.14', 'rivers', '...')
    >>> tokenize("Terry's A+", lowercase=True)
    ("terry's", 'a', '+')
    """
    kind_of = {character: _kind(character) for character in set(sentence)}
    kinds = "".join(map(kind_of.__getitem__, sentence))
    tokens = tuple(sentence[found.start() : found.end()] for found in _TOKEN.finditer(kinds))
    if not tokens:
        raise InputError("the sentence is empty", "give it at least one word")
    return tuple(token.lower() for token in tokens) if lowercase else tokens


def _kind(character: str) -> str:
    """The letter of a character's kind, from its code point or its general category."""
    if character in _SINGLE:
        return _SINGLE[character]
    code = ord(character)
    if character.isspace():
        return "S"
    if any(first <= code <= last for first, last in _HAN_AND_HIRAGANA):
        return "I"
    if 0x1F3FB <= code <= 0x1F3FF:
        return "T"
    if 0x1F1E6 <= code <= 0x1F1FF:
        return "R"
    return _kind_of_category(unicodedata.category(character), code)


def _kind_of_category(category: str, code: int) -> str:
    # The emoji block as a whole, so that a newer emoji is one even to an older Unicode.
    if category == "So" or 0x1F300 <= code <= 0x1FAFF:
        return "E"
    if category == "Nd":
        return "D"
    if category[0] in "LN":
        return "W"
    return "M" if category[0] == "M" or category == "Cf" else "P"


def pad(tokens: Sequence[str], n: int) -> tuple[tuple[str, ...], npt.NDArray[np.bool_]]:
    """The tokens filled up to n with `<pad>`, and the key mask [n]: True for those that are real.

    The mask is `attend`'s, where True means "may attend".
    Raises InputError where there are more than n tokens.

    >>> tokens, mask = pad(("the", "bank"), 3)
    >>> tokens, mask.tolist()
    (('the', 'bank', '<pad>'), [True, True, False])
    """
    if n < len(tokens):
        raise InputError(
            f"{len(tokens)} tokens cannot be padded to {n}", f"pad to {len(tokens)} or more"
        )
    return (*tokens, *[PAD] * (n - len(tokens))), np.arange(n) < len(tokens)
