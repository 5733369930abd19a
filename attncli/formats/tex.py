r"""Text as LaTeX: formulas as mathematics, words as words, and nothing that LaTeX would obey.

Only what LaTeX with amsmath, KaTeX and MathJax all render: within mathematics a label is `\text`
of its plain characters, with `\_` and the like outside of it, where MathJax knows them too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby

from attncli.page.text import END, FRACTION, LABEL, NUMBER, OVER, plain

BOX = r"\boxed{\rule{0pt}{1.1em}\hspace{3em}}"
"""What stands for a number that is left out of an equation: room to write it."""

FUNCTIONS = ("softmax", "sin", "cos", "tanh", "exp", "ln", "log", "max", "arccos", "angle")
_SMALL = """alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi o pi rho
varsigma sigma tau upsilon varphi chi psi omega"""
_LARGE = "A B Gamma Delta E Z H Theta I K Lambda M N Xi O Pi P Sigma T Upsilon Phi X Psi Omega"
_GREEK = {
    char: f"\\{name} " if len(name) > 1 else f"\\mathrm{{{name}}}"
    for chars, names in (
        ("αβγδεζηθικλμνξοπρςστυφχψω", _SMALL),
        ("ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ", _LARGE),
    )
    for char, name in zip(chars, names.split(), strict=True)
}
_ACCENTS = {chr(0x301): r"\acute", chr(0x308): r"\ddot"}
_GREEK |= {
    char: f"{_ACCENTS[accents[0]]}{{{_GREEK[letter].strip()}}}"
    for char in map(chr, range(0x386, 0x3CF))
    for letter, *accents in [[*unicodedata.normalize("NFD", char)]]
    if accents and letter in _GREEK
}
# In mathematics: what stands for a character that is no letter, digit or plain sign there.
_SYMBOLS = {
    **_GREEK,
    **{char: f"\\{char}" for char in "{}$&#%_"},
    **{char: f"{{}}_{{{digit}}}" for digit, char in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{"·": r" \cdot ", "×": r"\times ", "−": "-", "∞": r"\infty ", "→": r"\to ", "√": r"\surd "},
    **{"∘": r"\circ ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx "},
    **{"…": r"\dots ", "⋮": r"\vdots ", "⋱": r"\ddots ", "‖": r"\|", "°": r"{}^{\circ}"},
    **{"²": "{}^{2}", "³": "{}^{3}", "ᵀ": r"{}^{\mathsf T}", "'": "{}'"},
    **{"␣": r"{\sqcup}", "`": r"\grave{\ }"},
    **{"\\": r"\backslash ", "^": r"{\wedge}", "~": r"{\sim}", '"': r"\text{''}"},
}
# In a label < and > are no relations, and ' is no prime; in OT1 they and | are other characters.
_IN_LABEL = {**_SYMBOLS, "<": "{<}", ">": "{>}", "|": "{|}", "'": r"\text{'}", "-": r"\text{-}"}
_SPECIAL = re.compile(f"([{re.escape(''.join(_IN_LABEL))}])")
# In text: characters that mean something to LaTeX; the symbols stand between $ and $ there.
_ESCAPES = {
    **{char: f"${tex.strip()}$" for char, tex in _SYMBOLS.items() if not char.isascii()},
    **{char: f"\\{char}" for char in "{}$&#%_"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}"},
    "…": r"\dots{}",
}
_LIGATURE = re.compile("-(?=-)|'(?=')|,(?=,)")  # what LaTeX would make one character with the next

_WORD = rf"(?!(?:{'|'.join(FUNCTIONS)}|inf|d[bs])\b)[A-Za-z][a-z]+(?![\w([])"  # of a language
_TOKEN = re.compile(
    rf"{NUMBER}(?P<number>[^{END}]*){END}|{LABEL}(?P<label>[^{END}]*){END}"
    r"|(?P<digits>\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<gradient>\bd(?=[A-Zα-ω]|[bs](?![a-z])))"
    rf"|(?P<words>(?:[,:;] (?:a )?|(?<![-+−·∘/]) )?{_WORD}(?:(?:[,:;] a |[,:;]? ){_WORD})*[,:;]? ?)"
    r"|(?P<word>[A-Za-z]+)(?:_(?P<below>[A-Za-z0-9]+)|(?P<small>[₀-₉]+))?"
    rf"| *(?P<over>{OVER}) */ *|(?P<open>[(\[{{{FRACTION}])|(?P<close>[)\]}}{END}])|(?P<sign>.)",
    re.DOTALL,
)
_NUMBER = re.compile(r"(\(?-?[\d.]+)(?:e(-?\d+))?(\)?)")
_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def escape(text: str) -> str:
    r"""Text, outside of mathematics, in which no character means anything to LaTeX.

    >>> escape("50 % of $x_1$ -- λ")
    '50 \\% of \\$x\\_1\\$ -{}- $\\lambda$'
    """
    chars = unicodedata.normalize("NFC", text)
    text = _LIGATURE.sub(r"\g<0>{}", "".join(_ESCAPES.get(char, char) for char in chars))
    return re.sub(r'(?<![^ (])"', "``", text).replace('"', "''")


def is_other(char: str) -> bool:
    """Whether pdflatex may have no letter for a character: it is neither Latin nor one of ours."""
    return char > "\u02af" and char not in _ESCAPES


def label(text: str) -> str:
    r"""A label within mathematics.

    >>> label("the"), label("x_1"), label("")
    ('\\text{the}', '\\text{x}\\_\\text{1}', '')
    """
    parts = _SPECIAL.split(unicodedata.normalize("NFC", text))
    return "".join(_IN_LABEL.get(part) or f"\\text{{{part}}}" for part in parts if part)


def number(text: str) -> str:
    r"""A number within mathematics; "" is one that is left out.

    >>> number("-0.5"), number("2.5e-7"), number("(-1e9)"), number("inf")
    ('-0.5', '2.5 \\cdot 10^{-7}', '(-10^{9})', '\\infty')
    """
    if not text:
        return BOX
    match = _NUMBER.fullmatch(text)
    if match is None:
        return label(text) if "inf" not in text else text.replace("inf", r"\infty")
    mantissa, power, close = match.groups()
    if power is None:
        return text
    before = mantissa[:-1] if mantissa.strip("(-") == "1" else f"{mantissa} \\cdot "
    return f"{before}10^{{{power}}}{close}"


# ---- formulas

Piece = tuple[str, str, str]
"""A piece of mathematics: what opens a group, what is in it, what closes it; or "", a sign, ""."""
_WORDS, _SLASH = r"\text{", ("", "/ ", "")
_COMMANDS = {_SYMBOLS["√"]: r"\sqrt", _SYMBOLS["^"]: "{}^"}  # of what is right after these


def math(text: str) -> str:
    r"""A formula or an equation as mathematics; its marks say which slash is a fraction.

    >>> print(math("dQ Kᵀ / √d_k"))
    \mathrm{d}Q K{}^{\mathsf T} / \sqrt{d_{k}}
    """
    return _joined(_pieces(text))


def prose(formula: str) -> str:
    r"""A formula within text: the words in it are text, what is between them mathematics.

    >>> prose("A = softmax(Z) over keys")
    '$A = \\operatorname{softmax}(Z)$ over keys'
    """
    result = ""
    for is_text, run in groupby(_pieces(formula), lambda piece: piece[0] == _WORDS):
        pieces = [*run]
        tex = "".join(piece[1] for piece in pieces) if is_text else _joined(pieces)
        result += tex if is_text or not tex else f"${tex}$"
    return result


def _pieces(text: str) -> list[Piece]:
    """Every token, or all from a parenthesis to the one that closes it, as one piece."""
    levels: list[list[Piece]] = [[]]
    openers: list[str] = []
    for token in _TOKEN.finditer(text):
        if token["open"]:
            openers.append(token[0])
            levels.append([])
            continue
        if token["close"] and openers and (openers[-1] == FRACTION) == (token[0] == END):
            piece = _group(openers.pop(), levels.pop(), token[0])
        else:
            piece = _piece(token)
        command = _COMMANDS.get(levels[-1][-1][1]) if levels[-1] else None
        if command and token[0] != " ":
            levels[-1][-1] = (f"{command}{{", _bare([piece]), "}")
        else:
            levels[-1].append(piece)
    for opener, pieces in zip(openers, levels[1:], strict=True):  # what nothing closes
        levels[0] += [("", _sign(opener), ""), *pieces]
    return levels[0]


def _group(opener: str, pieces: list[Piece], closer: str) -> Piece:
    """What is in parentheses, or a fraction."""
    if _SLASH in pieces and opener == FRACTION:
        at = pieces.index(_SLASH)
        return r"\frac", f"{{{_bare(pieces[:at])}}}{{{_bare(pieces[at + 1 :])}}}", ""
    inner = _joined(pieces)
    is_high = r"\frac" in inner or r"\sqrt" in inner
    left, right = (r"\left", r"\right") if is_high else ("", "")
    return f"{left}{_sign(opener)}", inner, f"{right}{_sign(closer)}"


def _piece(token: re.Match[str]) -> Piece:
    """A token by itself."""
    kind, word = token.lastgroup or "", token["word"]
    match kind:
        case "words":
            return _WORDS, token[0], "}"
        case "over":
            return _SLASH
        case "number" | "digits":
            return "", number(token[kind]), ""
        case "label":
            return "", label(token[kind]), ""
        case "gradient":
            return "", r"\mathrm{d}", ""
        case "open" | "close" | "sign":
            return "", _sign(token[0]), ""
    tex = word
    if word in FUNCTIONS:
        tex = f"\\operatorname{{{word}}}"
    elif word == "inf":
        tex = r"\infty "
    elif len(word) > 1:
        tex = f"\\{'mathit' if word.isupper() else 'text'}{{{word}}}"
    if below := token["below"] or (token["small"] or "").translate(_DIGITS):
        is_text = len(below) > 1 and not below.isdigit()
        tex += f"_{{\\text{{{below}}}}}" if is_text else f"_{{{below}}}"
    return "", tex, ""


def _sign(char: str) -> str:
    """A character that is no letter; a mark that has no other one is left out."""
    char = plain(char)
    return _SYMBOLS.get(char) or (char if char.isascii() else label(char))


def _bare(pieces: list[Piece]) -> str:
    """The pieces without the parentheses around all of them."""
    is_group = len(pieces) == 1 and pieces[0][0] in ("(", r"\left(")
    return pieces[0][1] if is_group else _joined(pieces)


def _joined(pieces: Iterable[Piece]) -> str:
    return re.sub(" {2,}", " ", "".join(map("".join, pieces))).strip(" ")
