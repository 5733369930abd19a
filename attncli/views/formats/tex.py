r"""Text as LaTeX: formulas as mathematics, words as words, and nothing that LaTeX would obey.

Only what LaTeX with amsmath, KaTeX and MathJax all render: within mathematics a label is `\text`
of its plain characters, with `\_` and the like outside of it, where MathJax knows them too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from attncli.views.text import END, LABEL, NUMBER, plain

BOX = r"\boxed{\rule{0pt}{1.1em}\hspace{3em}}"
"""What stands for a number that is left out of an equation: room to write it."""

MOST_OPEN = 200  # parentheses of a formula: what has more is no formula, and is written as text
FUNCTIONS = {"softmax", "sin", "cos", "tanh", "exp", "max", "min", "arccos", "angle", "LayerNorm"}
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
# In mathematics: what stands for a character that is no letter, digit or plain sign there.
_SYMBOLS = {
    **_GREEK,
    **{char: f"\\{char}" for char in "{}$&#%_"},
    **{char: f"{{}}_{{{digit}}}" for digit, char in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{"·": r"\cdot ", "×": r"\times ", "−": "-", "∞": r"\infty ", "→": r"\to ", "√": r"\surd "},
    "∘": r"\circ ",
    **{"…": r"\dots ", "⋮": r"\vdots ", "⋱": r"\ddots ", "‖": r"\|", "°": r"{}^{\circ}"},
    **{"²": "{}^{2}", "³": "{}^{3}", "ᵀ": r"{}^{\mathsf T}", "'": "{}'"},
    **{"␣": r"{\sqcup}", "`": r"\grave{\ }"},
    **{"\\": r"\backslash ", "^": r"{\wedge}", "~": r"{\sim}", '"': r"\text{''}"},
}
# In a label < and > are no relations, and ' is no prime; in OT1 they and | are other characters.
_IN_LABEL = {**_SYMBOLS, "<": "{<}", ">": "{>}", "|": "{|}", "'": r"\text{'}", "-": r"\text{-}"}
_ACCENTS = {chr(0x301): r"\acute", chr(0x308): r"\ddot"}
# In text: characters that mean something to LaTeX; the symbols stand between $ and $ there.
_ESCAPES = {
    **{char: f"${tex.strip()}$" for char, tex in _SYMBOLS.items() if not char.isascii()},
    **{char: f"\\{char}" for char in "{}$&#%_"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}"},
    "…": r"\dots{}",
}
_LIGATURES = {"--", "''", ",,", "<<", ">>"}  # pairs that LaTeX would make one character

_TOKEN = re.compile(
    rf"{NUMBER}(?P<number>[^{END}]*){END}|{LABEL}(?P<label>[^{END}]*){END}"
    r"|(?P<digits>\d+(?:\.\d+)?(?:e-?\d+)?)"
    r"|(?P<word>[A-Za-z]+)(?:_(?P<below>[A-Za-z0-9]+)|(?P<small>[₀-₉]+))?"
    r"|(?P<space> +)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<sign>.)",
    re.DOTALL,
)
_GRADIENT = re.compile("d[A-Zbs]")  # the letter of a stage, with a d before it
_NUMBER = re.compile(r"(\(?-?[\d.]+)(?:e(-?\d+))?(\)?)")
_RAISED = "²³ᵀ°'"
_SIGNS = "=+-−·×∘/,:;<>|()[]{}"  # a parenthesis among them has no other one

Token = re.Match[str]


def escape(text: str) -> str:
    r"""Text, outside of mathematics, in which no character means anything to LaTeX.

    >>> escape("50 % of $x_1$ -- λ")
    '50 \\% of \\$x\\_1\\$ -{}- $\\lambda$'
    """
    found, before = "", " "
    for char in unicodedata.normalize("NFC", text):
        if char == '"':
            found += "``" if before in " (" else "''"
        else:
            found += "{}" * (before + char in _LIGATURES)
            found += f"${greek}$" if (greek := _accented(char)) else _ESCAPES.get(char, char)
        before = char
    return found


def is_other(char: str) -> bool:
    """Whether pdflatex may have no letter for a character: it is neither Latin nor one of ours."""
    return char > "\u02af" and char not in _ESCAPES and not _accented(char)


def _accented(char: str) -> str:
    """A Greek letter with an accent, as mathematics; "" for anything else."""
    parts = unicodedata.normalize("NFD", char)
    if len(parts) == 1 or parts[0] not in _GREEK:
        return ""
    return f"{_ACCENTS.get(parts[1], '')}{{{_GREEK[parts[0]].strip()}}}"


def label(text: str) -> str:
    r"""A label within mathematics.

    >>> label("the"), label("x_1"), label("")
    ('\\text{the}', '\\text{x}\\_\\text{1}', '')
    """
    found = []
    chars = unicodedata.normalize("NFC", text)
    for is_plain, run in groupby(chars, lambda char: not (char in _IN_LABEL or _accented(char))):
        if is_plain:
            found.append(f"\\text{{{''.join(run)}}}")
        else:
            found += [_accented(char) or _IN_LABEL[char] for char in run]
    return "".join(found)


def number(text: str) -> str:
    r"""A number within mathematics; "" is one that is left out.

    >>> number("-0.5"), number("2.5e-7"), number("(-1e9)"), number("inf")
    ('-0.5', '2.5 \\cdot 10^{-7}', '(-10^{9})', '\\infty')
    """
    if not text:
        return BOX
    found = _NUMBER.fullmatch(text)
    if found is None:
        return label(text) if "inf" not in text else text.replace("inf", r"\infty")
    mantissa, power, close = found.groups()
    if power is None:
        return text
    before = mantissa[:-1] if mantissa.strip("(-") == "1" else f"{mantissa} \\cdot "
    return f"{before}10^{{{power}}}{close}"


# ---- formulas


def prose(formula: str) -> str:
    r"""A formula within text: the words in it are text, what is between them mathematics.

    >>> prose("A = softmax(Z) over keys")
    '$A = \\operatorname{softmax}(Z)$ over keys'
    """
    tokens = list(_TOKEN.finditer(formula))
    kinds, depth = [], 0
    for at, token in enumerate(tokens):
        depth += bool(token["open"]) - bool(token["close"])
        following = tokens[at + 1][0] if at + 1 < len(tokens) else ""
        is_word = depth <= 0 and _is_word(token) and following[:1] not in ("(", "[")
        is_between = token["space"] or token[0] in (",", ":", ";")
        kinds.append("word" if is_word else "between" if is_between else "mathematics")
    found, text = [], ""
    pairs = groupby(zip(kinds, tokens, strict=True), lambda pair: pair[0])
    runs = [(kind, "".join(token[0] for _, token in run)) for kind, run in pairs]
    for at, (kind, run) in enumerate(runs):
        beside = {other for other, _ in runs[max(at - 1, 0) : at + 2]}
        if kind == "mathematics" or (kind == "between" and "word" not in beside):
            text += run
            continue
        found += [_inline(text), escape(run)]
        text = ""
    return "".join([*found, _inline(text)])


def _inline(text: str) -> str:
    """Mathematics within text; nothing between two $ would begin a display."""
    tex = math(text, display=False)
    return f"${tex}$" if tex else ""


def _is_word(token: Token) -> bool:
    """Whether it is a word of a language, not a letter, a function or a number's name."""
    word = token["word"] or ""
    is_symbol = word in FUNCTIONS or word.isupper() or word == "inf" or _GRADIENT.fullmatch(word)
    return len(word) > 1 and not is_symbol and not (token["below"] or token["small"])


class Node(NamedTuple):
    """A piece of mathematics: an operand of a fraction, a sign between operands, or a space."""

    tex: str
    kind: Literal["operand", "sign", "space"]
    inner: str = ""  # what is between its parentheses, where it is nothing else


def math(text: str, *, display: bool = True) -> str:
    """A formula or an equation with its marks as mathematics, on a line of its own if `display`."""
    tokens = list(_TOKEN.finditer(text))
    if sum(bool(token["open"]) for token in tokens) > MOST_OPEN:
        return label(plain(text))
    return _joined(_nodes(tokens, display), display)


def _nodes(tokens: list[Token], display: bool) -> list[Node]:
    """Every token, or all from a parenthesis to the one that closes it, as one node."""
    nodes: list[Node] = []
    at = 0
    while at < len(tokens):
        token, at = tokens[at], at + 1
        if token[0] in ("√", "^") and at < len(tokens) and not tokens[at]["space"]:
            if end := _closing(tokens, at):
                inner, at = _joined(_nodes(tokens[at + 1 : end], False), False), end + 1
            else:
                inner, at = _node(tokens[at]).tex, at + 1
            is_raised = token[0] == "^"
            _append(nodes, f"{{}}^{{{inner}}}" if is_raised else f"\\sqrt{{{inner}}}", is_raised)
        elif end := _closing(tokens, at - 1):
            is_called = at > 1 and bool(tokens[at - 2]["word"] or tokens[at - 2]["close"])
            before = nodes.pop().tex if is_called and nodes[-1].kind == "operand" else ""
            nodes.append(_group(tokens[at - 1 : end + 1], display, before))
            at = end + 1
        elif token[0] in _RAISED:
            _append(nodes, _SYMBOLS[token[0]], is_raised=True)
        else:
            nodes.append(_node(token))
    return nodes


def _group(tokens: list[Token], display: bool, before: str) -> Node:
    """What is in parentheses, and the function or name right before them."""
    inner = _joined(_nodes(tokens[1:-1], display), display)
    first, last = (_SYMBOLS.get(token[0], token[0]) for token in (tokens[0], tokens[-1]))
    if r"\frac" in inner or r"\sqrt" in inner:
        first, last = f"\\left{first}", f"\\right{last}"
    is_alone = tokens[0][0] == "(" and not before
    return Node(f"{before}{first}{inner}{last}", "operand", inner if is_alone else "")


def _append(nodes: list[Node], tex: str, is_raised: bool) -> None:
    """One more operand; what is raised belongs to the operand before it."""
    if is_raised and nodes and nodes[-1].kind == "operand":
        tex = nodes.pop().tex + tex
    nodes.append(Node(tex, "operand"))


def _closing(tokens: Sequence[Token], at: int) -> int:
    """Where the parenthesis that is opened here is closed; 0 where it is not, or none is here."""
    depth = 0
    for here in range(at, len(tokens)):
        depth += bool(tokens[here]["open"]) - bool(tokens[here]["close"])
        if depth <= 0:
            return here if here > at else 0
    return 0


def _node(token: Token) -> Node:
    """A token by itself."""
    if token["number"] is not None:
        return Node(number(token["number"]), "operand")
    if token["label"] is not None:
        return Node(label(token["label"]), "operand")
    if token["digits"]:
        return Node(number(token["digits"]), "operand")
    if token["space"]:
        return Node(" ", "space")
    if word := token["word"]:
        tex = word
        if word in FUNCTIONS:
            tex = f"\\operatorname{{{word}}}"
        elif word == "inf":
            tex = r"\infty "
        elif _GRADIENT.fullmatch(word):
            tex = f"\\mathrm{{d}}{word[1]}"
        elif len(word) > 1:
            tex = f"\\{'mathit' if word.isupper() else 'text'}{{{word}}}"
        below = token["below"] or "".join(str(ord(c) - ord("₀")) for c in token["small"] or "")
        if below:
            name = below if len(below) == 1 or below.isdigit() else f"\\text{{{below}}}"
            tex += f"_{{{name}}}"
        return Node(tex, "operand")
    char = token[0]
    tex = _SYMBOLS.get(char) or (char if char.isascii() else label(char))
    return Node(tex, "sign" if char in _SIGNS else "operand")


def _joined(nodes: list[Node], display: bool) -> str:
    """The nodes; a space where one is beside a word, for mathematics has its own."""
    nodes = _with_fractions(nodes) if display else nodes
    found = ""
    for at, node in enumerate(nodes):
        if node.kind != "space":
            before = " " * (node.kind == "sign" and node.tex != ",")
            found += f"{before}{node.tex}{' ' * (node.kind == 'sign')}"
            continue
        beside = (*nodes[max(at - 1, 0) : at], *nodes[at + 1 : at + 2])
        is_in_words = any(other.tex.startswith(r"\text{") for other in beside)
        is_between = len(beside) == 2 and all(other.kind == "operand" for other in beside)
        found += r"\ " if is_in_words and is_between else " "
    return re.sub(r"(?<!\\) +(?=\{\}| )", "", found).strip()


def _with_fractions(nodes: list[Node]) -> list[Node]:
    """The product before each slash above what follows it up to a space."""
    found: list[Node] = []
    rest = list(nodes)
    while rest:
        node = rest.pop(0)
        start = _start_of_product(found)
        skipped = 1 if rest[:1] and rest[0].kind == "space" else 0
        end = skipped
        while end < len(rest) and rest[end].kind == "operand":
            end += 1
        if node.tex != "/" or end == skipped or start == len(found):
            found.append(node)
            continue
        last = len(found) - (found[-1].kind == "space")
        above, below = found[start:last], rest[skipped:end]
        top, bottom = (
            run[0].inner if len(run) == 1 and run[0].inner else _joined(run, display=False)
            for run in (above, below)
        )
        found[start:] = [Node(f"\\frac{{{top}}}{{{bottom}}}", "operand")]
        rest = rest[end:]
    return found


def _start_of_product(nodes: Sequence[Node]) -> int:
    """Where the product begins that these nodes end with; spaces within it do not end it."""
    start = at = len(nodes)
    while at and (nodes[at - 1].kind != "sign" or nodes[at - 1].tex == _SYMBOLS["·"]):
        at -= 1
        start = at if nodes[at].kind == "operand" else start
    return start
