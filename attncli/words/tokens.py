"""Tokens: a sentence split into words and punctuation.

| kind | rule |
|---|---|
| word | letters, marks, digits and _ of any script: naïve, हिन्दी, السلام, GPT2 |
| inside a word | one ' ’ · before a letter, and one hyphen: don't, l'eau, well-known |
| number | one . or , between digits: 3.14, 1,000 |
| abbreviation | single letters with full stops: U.S., e.g. |
| Han, Hiragana | each character is a token, as they are written without spaces: 銀 行 で |
| emoji | one token each: families (ZWJ), flags, skin tones, keycaps |
| dots, dashes | a run of one of them is one token: ... -- |
| padding | <pad>, <PADDING> and [PAD] are one token |
| anything else | each character is a token: , . ! ( € |

Katakana and Hangul stay together as words, and so do Thai, Lao, Khmer and Myanmar, which only a
dictionary can split. White space, zero-width spaces and invisible direction marks separate tokens
and are dropped; nothing else is.
Source: Unicode Standard Annex #29, section 4 (word boundaries), and Technical Standard #51,
section 1.4.9 (emoji sequences), both simplified.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from attncli.errors import InputError

PAD = "<pad>"
"""The token that fills a sentence up."""

_PADDING = re.compile(r"<pad(?:ding)?>|\[pad\]", re.IGNORECASE)

# Tokens are matched in the string of the characters' kinds, one letter each:
#   W letter, number or _   D digit   M mark or other format character   J joiner (ZWJ, ZWNJ)
#   I Han or Hiragana       E emoji   T skin tone   R half a flag   K keycap   S white space
#   A apostrophe   H hyphen   N full stop   C other separator of numbers   P anything else
_PIECE = (  # compiled where a sentence is read, not where this module is
    r"[DP]M?K[MJK]*"  # keycap
    r"|(?:WM*N){2,12}(?:WM*(?!N))?(?![WDMJK])"  # U.S. or U.S.A
    r"|[WD][MJK]*(?:(?:A(?=W)|H)?[WD][MJK]*|(?<=D)[NC](?=D))*"  # don't, well-known, 3.14
    r"|RR[MJK]*"  # flag
    r"|[ET][MT]*(?:J[EP][MT]*)*[MTJK]*"  # emoji, or several joined into one
    r"|(?:N{2,}|H{2,})[MJK]*"  # ... or --
    r"|[^S][MJK]*"  # one character, with its marks
)
_KIND_OF = {
    ".": "N",
    "_": "W",
    "\u20e3": "K",
    **dict.fromkeys(",\u066b\u066c", "C"),
    **dict.fromkeys("'\u2019\uff07\u00b7\u05f3\u05f4", "A"),
    **dict.fromkeys("-\u2010\u2011\u05be", "H"),
    **dict.fromkeys("\u200c\u200d", "J"),
    # zero-width space, byte order mark and direction marks
    **dict.fromkeys("\u200b\ufeff\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e", "S"),
    **dict.fromkeys("\u2066\u2067\u2068\u2069", "S"),
}
_KIND_OF_CATEGORY = {"So": "E", "Nd": "D", "Cf": "M", "L": "W", "N": "W", "M": "M"}
_HAN_OR_HIRAGANA = (
    "[\u3005\u3007\u3041-\u3096\u309d-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


def tokenize(sentence: str, lowercase: bool = False) -> tuple[str, ...]:
    """A sentence as words and punctuation, by the rules at the top of this module.

    >>> tokenize("She didn't visit the bank, near 3.14 rivers...")
    ('She', "didn't", 'visit', 'the', 'bank', ',', 'near', '3.14', 'rivers', '...')
    >>> tokenize("took<PADDING>")
    ('took', '<PADDING>')
    >>> tokenize("Terry's A+", lowercase=True)
    ("terry's", 'a', '+')
    """
    tokens: list[str] = []
    for at, part in enumerate(re.split(f"({_PADDING.pattern})", sentence, flags=_PADDING.flags)):
        if at % 2:
            tokens.append(part)
            continue
        kinds = part.translate({ord(character): _kind(character) for character in set(part)})
        tokens += (part[slice(*match.span())] for match in re.finditer(_PIECE, kinds))
    if not tokens:
        raise InputError("the sentence is empty", "give it at least one word")
    return tuple(token.lower() for token in tokens) if lowercase else tuple(tokens)


def is_padding(token: str) -> bool:
    """Whether a token only fills a sentence up.

    >>> [is_padding(token) for token in ("<pad>", "<PADDING>", "[PAD]", "pad")]
    [True, True, True, False]
    """
    return _PADDING.fullmatch(token) is not None


def _kind(character: str) -> str:
    """The letter of a character's kind, from its code point or its general category."""
    if character in _KIND_OF:
        return _KIND_OF[character]
    if character.isspace():
        return "S"
    if re.match(_HAN_OR_HIRAGANA, character):
        return "I"
    if "\U0001f3fb" <= character <= "\U0001f3ff":
        return "T"
    if "\U0001f1e6" <= character <= "\U0001f1ff":
        return "R"
    if "\U0001f300" <= character <= "\U0001faff":  # emoji also where Unicode's data are older
        return "E"
    category = unicodedata.category(character)
    return _KIND_OF_CATEGORY.get(category) or _KIND_OF_CATEGORY.get(category[0], "P")


def number_of(names: Sequence[str], at: int) -> str:
    """What tells an entry from others of the same name, its number from 1; else "".

    >>> number_of(["bank", "river", "bank"], 2), number_of(["bank", "river", "bank"], 1)
    (' (3)', '')
    """
    return f" ({at + 1})" if names and names.count(names[at]) > 1 else ""


def called(words: Sequence[str], at: int) -> str:
    """A word in a sentence: in quotation marks, with its number where it occurs several times."""
    return f'"{words[at]}"{number_of(words, at)}'


def numbers_of(names: Sequence[str]) -> list[str]:
    """`number_of` each of the names."""
    count = Counter(names)
    return [f" ({at})" if count[name] > 1 else "" for at, name in enumerate(names, 1)]
