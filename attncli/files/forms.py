r"""Numbers as other tools print them, turned into the text of JSON. They are data: nothing is run.

    [1 2 3; 4 5 6]                       MATLAB: blanks between numbers, semicolons between rows
    [[1. 0.]                             a printed NumPy array
     [0. 1.]]
    np.array([[1, 0]], dtype=float32)    and tensor([[1., 0.]], device='cuda:0', grad_fn=<…>)
    \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}   LaTeX, with \frac and \sqrt
    [[1/2, .5, 1/√8]]                    fractions, roots, decimals without a zero
    {q: [[1, 0]]}                        JSON whose quotes a shell has taken
    q = [1 0]; k = [0 1];                several of them, each with its name

What is in none of these forms is refused, with its location.
"""

from __future__ import annotations

import re

from attncli.errors import InputError
from attncli.files.messages import quote
from attncli.formula.numerals import number

HINT = "a number is 0.5, .5, 1e-3, 1/2 or 1/√2, a matrix [[1, 2], [3, 4]] or [1 2; 3 4]"
_ELIDED = "print all: np.set_printoptions(threshold=10**9), torch.set_printoptions(profile='full')"
_CALL = (
    r"(?<![\w.])(?:Parameter containing:\s*+)?(?:\w+\.)*"
    r"(?:array|asarray|matrix|tensor|Tensor|FloatTensor|Array)\s*+\(\s*+(?=\[)"
)
_OPTION = r"\w++\s*+=\s*+(?:'[^']*'|\"[^\"]*\"|<[^<>]*>|\([^()]*\)|[\w.]+)"
# possessive (*+), so that no text takes long
_PIECE = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")'
    rf"|(?P<call>{_CALL})"
    r"|(?<!\w)(?P<name>[A-Za-z_]\w*+)(?=\s*+:)"
    r"|(?<!\w)(?P<variable>[A-Za-z_]\w*+)\s*+=\s*+"
    r"|(?<=:)\s*+(?P<value>[^][{}\"',:\s]+)"
    r"|(?P<list>\[(?P<body>[^][{}\"']*)\]|\])"  # a list without lists in it, or the end of others
    rf"(?P<end>\s*+(?:,\s*+{_OPTION}\s*+)*+,?\s*+\))?"  # of a call
    r"(?:\s*+;(?!\s*+,))?"
)
LATEX = re.compile(
    r"\s*(?:\\\[|\$+)?\s*\\begin\{(?P<kind>[bpvBV]?matrix|array)\}(?:\{(?P<columns>[^{}]*)\})?"
    r"(?P<body>.*)\\end\{(?P=kind)\}\s*(?:\\\]|\$+)?\s*",
    re.DOTALL,
)
"""A text that is one matrix of LaTeX, in a display or without."""
_DECIMAL = re.compile(r"([-+−]?)(\d*)(\.?)(\d*)((?:[eE][-+]?\d+)?)", re.ASCII)
_WORDS = {"true": "true", "false": "false", "none": "null", "nan": "NaN"}
_WORDS |= {f"{sign}{word}": f"{sign}Infinity" for sign in ("", "-") for word in ("inf", "infinity")}
_GAP = re.compile(r"\]\s*+,?\s*+(\.\.\.|…)")
_FAR = 200  # characters: longer gaps between lists are none that anyone prints
_NARROW = 50  # characters: NumPy and PyTorch print wider lines before they wrap a row


def as_json(text: str, origin: str) -> str:
    """The document of a text in one of these forms as JSON; what is in none of them is left."""
    if matrix := LATEX.fullmatch(text):
        text = _rows_of_latex(matrix)
    converter = _Converter(text, origin)
    plain = _PIECE.sub(converter.piece, text)
    if converter.calls or converter.separators == {",", " "}:
        return text  # a call that is not closed, or a comma that is missing: JSON refuses it
    return f"{{{plain}}}" if converter.variables else plain


def _rows_of_latex(matrix: re.Match[str]) -> str:
    """The rows of a matrix of LaTeX as lists; labels and sums, as attncli writes them, are none."""
    body = matrix["body"].replace("\\hline", "")
    body = re.sub(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", body)
    body = re.sub(r"\\sqrt\{([^{}]*)\}", r"√\1", body)
    has_sums = re.fullmatch(r"[^|]*\|[^|]*\|[^|]*", matrix["columns"] or "") is not None
    rows = []
    for line in body.split(r"\\"):
        cells = [cell.strip() for cell in line.split("&")]
        cells = [cell for cell in cells[: -1 if has_sums else None] if cell]
        rows.append([cell for cell in cells if not cell.startswith((r"\text", r"\Sigma"))])
    lists = (f"[{', '.join(row)}]" for row in rows if row)
    return f"[{', '.join(lists)}]"


class _Converter:
    """What is known of a text while its pieces are converted.

    calls       those that are open, such as "tensor("
    variables   names that something is assigned to
    separators  what stands between numbers and between rows: a comma, blanks, or in some both
    """

    def __init__(self, text: str, origin: str) -> None:
        self.text, self.origin = text, origin
        self.calls, self.variables = list[str](), list[str]()
        self.separators = set[str]()
        if gap := _GAP.search(text):
            self.cell(gap[1], gap.start(1))

    def piece(self, match: re.Match[str]) -> str:
        """A match of _PIECE in JSON."""
        if match["string"]:
            return match[0]
        if match["call"]:
            self.calls.append(match[0])
            return ""
        if match["name"]:
            return f'"{match[0]}"'
        if match["variable"]:
            self.variables.append(match[0])
            return f'{", " if len(self.variables) > 1 else ""}"{match["variable"]}": '
        if match["value"]:
            return f" {self.cell(match['value'], match.start('value'))}"
        return self.end_of_list(match)

    def end_of_list(self, match: re.Match[str]) -> str:
        """A list without lists in it, or the bracket that ends others; with it may end a call."""
        end = "]" if match["body"] is None else self.matrix(match["body"], match.start("body"))
        if match["end"] and not self.calls:
            end += match["end"]
        elif match["end"]:
            self.calls.pop()
        following = re.match(r"\s*(,?)\s*\[", self.text[match.end() : match.end() + _FAR])
        if following is None:
            return end
        self.separators.add(following[1] or " ")
        return end if following[1] else f"{end}, "

    def matrix(self, body: str, start: int) -> str:
        """A list without lists in it; of several rows, if it is a matrix of MATLAB's."""
        lines = [line for line in body.split("\n") if line.strip()]
        is_narrow = max(map(len, lines), default=0) <= _NARROW
        has_rows = len(lines) > 1 and len({len(line.split()) for line in lines}) == 1
        is_inner = self.text[max(start - _FAR, 0) : start - 1].rstrip().endswith(("[", "]", ","))
        if ";" not in body and (is_inner or "," in body or not (is_narrow and has_rows)):
            if len(body.split()) > 1 or "," in body:
                self.separators.add("," if "," in body else " ")
            return f"[{self.row(body, start)}]"
        rows, at = [], start
        for line in re.split(r"[;\n]", body):
            rows += [f"[{self.row(line, at)}]"] if line.strip() else []
            at += len(line) + 1
        return f"[{', '.join(rows)}]"

    def row(self, body: str, start: int) -> str:
        """Numbers with commas or blanks between them."""
        if "," in body and not all(part.strip() for part in body.split(",")):
            return body  # a comma too many, which JSON refuses
        cells = re.finditer(r"[^,]+" if "," in body else r"\S+", body)
        return ", ".join(self.cell(match[0], start + match.start()) for match in cells)

    def cell(self, text: str, start: int) -> str:
        """A number; InputError, with its location, for anything else."""
        cell = text.strip()
        if written := _number(cell):
            return written
        at = start + text.index(cell)
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        place = f"{self.origin}, line {line}, column {column}"
        if cell in ("...", "…"):
            raise InputError(f"{place}: {cell} stands for numbers that are left out", _ELIDED)
        raise InputError(f"{place}: {quote(cell, 30)} is not understood", HINT)


def _number(cell: str) -> str:
    """A number or a word as JSON writes it, or ""."""
    decimal = _DECIMAL.fullmatch(cell)
    if decimal and decimal[2].startswith("0") and len(decimal[2]) > 1:
        return ""  # 0639 may have lost its point
    if decimal and (decimal[2] or decimal[4]):
        sign, whole, point, part, power = decimal.groups()
        decimals = f".{part or 0}" if point else ""
        return f"{'' if sign in ('', '+') else '-'}{whole or 0}{decimals}{power}"
    value = number(cell)
    return _WORDS.get(cell.lower(), "") if value is None else repr(value)
