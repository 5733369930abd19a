"""What is wrong with a program is said in one line, with its place; and what costs too much."""

from __future__ import annotations

import random
import time
import tracemalloc

import numpy as np
import pytest

import attncli
from attncli import budget
from attncli.budget import limited
from attncli.errors import AttncliError, SizeError
from attncli.programs.text import ProgramError
from attncli.programs.variants import variants
from tests.programs.references import inputs_of

X = inputs_of("sinks")
# what is written → what is said, and the part of the text that the caret is below
CASES = {
    "S[b,h,i,j] = sum[d](q[b,h,i,d] * kk[b,h,j,d])": ("did you mean k?", "kk"),
    "A[i,j] = sofmax[j](q[0,0,i,j])": ("did you mean softmax", "sofmax[j]"),
    "A[i] = q[0,0,i]": ("4 axes", "q[0,0,i]"),
    "A[b,h,i] = sum[d](q[b,h,i,d] * v[b,h,i,d])": (
        "d is 11 in v[b,h,i,d], but 7 in q",
        "v[b,h,i,d]",
    ),
    "A[b] = prefix[b] where 3": ("'='", "w"),
    "A[b] = prefix[b] +": ("expected here", "+"),
    "A[b] = prefix": ("needs its axes: prefix[", "prefix"),
    "A[b] = prefix[b] * alpha": ('"alpha" is no parameter', "alpha"),
    "A[b] = prefix[c]": ("c is no letter on the left", "prefix[c]"),
    "A[b] = 1 + (prefix[b] < 2)": ("a condition, and should be a number", "prefix[b] < 2"),
    "A[b] = 1 if prefix[b] else 0": ("a number, and should be a condition", "prefix[b]"),
    "A[b] = tanh(prefix[b], 2)": ("tanh is of one number", "tanh(prefix[b], 2)"),
    "A[b] = sum[j](prefix[b])": ("j does not occur", "sum[j]"),
    "A[b] = sum[j](sum[j](tau[j]) * prefix[b] * j)": ("a sum around this already", "sum[j](tau"),
    "A[b] = softmax[j](tau[j])": ("softmax is over j", "softmax[j]"),
    "A[b] = prefix[b] @ tau[b]": ("multiplied by index", "@"),
    "A[b] = prefix[b] * size[z]": ("how long is z?", "z"),
    "A[b,b] = prefix[b]": ("each once", "b,b"),
    "A[b] = prefix[b - 1]": (
        "outside the array, whose places are 0 to 1, where b = 0",
        "prefix[b - 1]",
    ),
    "A[b] = prefix[b / 2]": ("between two places", "prefix[b / 2]"),
    "A[b] = prefix[0 / 0 * b]": ("between two places", "prefix[0 / 0 * b]"),
    "A[b] = prefix[7]": ("no entry 7 among 2", "prefix[7]"),
    "A[b] = prefix[b]\nA[b] = prefix[b]": ("is there already", "A"),
    "size[h] = 2.5": ("whole number", "h"),
    "A = prefix[0]": ("is one number", "A"),
    "lambda[b] = prefix[b]": ("a word of the language", "lambda"),
    "A[b] = sum[c](prefix[c] where c = b)": ('a condition has "=="', "c"),
    "A[b] = __import__('os')": ("no function is called", "__import__"),
    "A[b] = (lambda: 1)()": ("not a part of the language", "("),
    "A[b] = prefix[b]; B[b] = 2": ("the next on a line of its own", ";"),
    "A[b] = 1 if prefix[b] > 0 && prefix[b] < 2 else 0": ('write "and"', "&&"),
    "A[b] = 1 if !(prefix[b] != 0) else 0": ('write "not"', "!("),
    "A[b] = prefix[b] * sqrt(d_k)": ("write size[d]", "d_k"),
    "A[b] = prefix[b] + q[b][0]": ("in one bracket: q[i,d]", "q[b][0]"),
    "A[b] = sum[i](1 if i > prefix[b])": ("the other case is expected here", ")"),
    "A[b] = 1 if (prefix[b] < 2) < 1 else 0": ("a condition, and should be", "prefix[b] < 2"),
    "A[b,i] = q[b,...,i]": ("the first axes", "q[b,...,i]"),
    "A[b] = prefix[_]": ("an axis of one entry, this has 2", "prefix[_]"),
    "A[b] = max(prefix[b])": ("max is over letters: max[j]", "max(prefix[b])"),
    "A[b] = sum[jj](prefix[b])": ("each once: sum[i,j]", "jj"),
    "A[b] = softmax[b](prefix[b], empty=one)": ("zero, nan or uniform", "softmax[b]"),
    "A[b] = prefix[b·2]": ("there is no entry 2 among 1", "prefix[b·2]"),
    "A[b] = prefix[b·0·1]": ("letters are side by side", "b·0·1"),
    "A[b] = " + "-(" * 130 + "b" + ")" * 130: ("within each other", "-("),
    "size[h] = 2\nA[b,h] = q[b,h,0,0]": ("h is 3 in q[b,h,0,0], but size[h] = 2", "q[b,h,0,0]"),
    "A[b,g,r] = q[b,g·r,0,0]": ("say how long one of them is, such as size[g]", "q[b,g·r,0,0]"),
    "size[g] = 2\nsize[r] = 2\nA[b,g,r] = q[b,g·r,0,0]": ("an axis of 3 is not 2 · 2", "q[b,g·r"),
    "x = 0 < 1": ("this is a condition", "x = 0"),
    "x = inf - inf": ("this is no number", "x = inf"),
    "x = 2 * size[d]": ("d is known within stages alone", "d]"),
    "exp = 2": ('"exp" is there already', "exp"),
    "b = 2\nA[b] = prefix[b]": ("b is a parameter, and a letter here", "b]"),
    "A[b] = A[b] + prefix[b]": ("a line cannot read itself", "A[b] +"),
    "A[b] = prefix[b] + " + " + ".join("abcdefghijklmnopqrstuvwxyz"): ("a stage of its own", "A"),
}


@pytest.mark.parametrize("text", CASES)
def test_the_message_says_what_and_the_caret_where(text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        attncli.attend_by(f"first[b] = prefix[b]\n{text}", X)
    message, (line, below) = str(caught.value), caught.value.excerpt
    said, part = CASES[text]
    assert "\n" not in message
    if said != "'='":
        assert said in message
        assert line[below.index("^") :].startswith(part) or part in line
    assert f"line {2 + text.count(chr(10))}: " in message


def test_an_axis_of_one_entry_has_no_third() -> None:
    with pytest.raises(ProgramError, match="there is no entry 2 among 1"):
        attncli.attend_by("A[] = x[2]", {"x": np.ones(1)})


def test_an_empty_array_is_named() -> None:
    with pytest.raises(ProgramError, match=r"x is empty: its shape is \(0, 3\)"):
        attncli.attend_by("A[d] = max[i](x[i,d])", {"x": np.zeros((0, 3))})


def test_where_and_if_keep_a_place_out() -> None:
    text = "A[b] = prefix[b - 1] if b > 0 else 9\nsize[c] = 2"
    text += "\nB[b] = sum[c](prefix[c - 1] where 0 < c <= b)"
    trace = attncli.attend_by(text + "\nC[b] = A[b] + B[b] + 0 * prefix[b]", X)
    assert trace["A"].value.tolist() == [9, 2]
    assert trace["B"].value.tolist() == [0, 2]


def test_what_is_not_used_is_a_remark() -> None:
    text = "beta = 2\nsize[z] = 3\nidle[b] = prefix[b]\nA[b] = prefix[b]"
    notes = attncli.attend_by(text, X).notes
    assert [note.rpartition("line reads ")[2] for note in notes] == ["beta", "size[z]", "idle"]
    assert all("no line reads" in note for note in notes)


def test_what_costs_too_much_is_refused_before_it_is_computed() -> None:
    x = {"q": np.zeros((1, 1, 3000, 2))}
    text = "A[i,j,l] = sum[d](q[0,0,i,d] * q[0,0,j,d] + q[0,0,l,d])"
    tracemalloc.start()
    # 3000³ sums of two terms each: while they are summed, 8 · 3000³ · (2 + 1) bytes
    with pytest.raises(SizeError, match=r"line 1 need 648(\.\d)? GB.* i 3000 · j 3000 · l 3000"):
        attncli.attend_by(text, x)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


PIECES = ("[", "]", "(", ")", "where", "if", "else", "sum[j]", "prod[l]", "softmax[j]", "**", "-",
          "/", "i", "j", "h", "1e9", "inf", "size[d]", "9", ",", "=", "#", "\n", "...", "q", "λ", "·",
          "not", "~", "'", "and", "0", "max(", "_", "<=", "%", "//", ":", "exp")  # fmt: skip


def mutated(text: str, r: random.Random) -> str:
    """A program with a few of its words taken out, doubled, swapped, or put in."""
    for _ in range(r.randrange(1, 4)):
        at = r.randrange(len(text))
        match r.randrange(4):
            case 0:
                text = text[:at] + text[at + r.randrange(1, 6) :]
            case 1:
                text = text[:at] + r.choice(PIECES) + text[at:]
            case 2:
                end = at + r.randrange(1, 30)
                text = text[:end] + text[at:end] * r.randrange(1, 4) + text[end:]
            case _:
                other = r.randrange(len(text))
                text = text[:at] + text[other : other + 12] + text[at + 3 :]
    return text


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (0, 250),
        *(pytest.param(n, n + 500, marks=pytest.mark.exhaustive) for n in range(250, 10_250, 500)),
    ],
)
def test_a_mutated_program_ends_in_numbers_or_in_one_line(first: int, last: int) -> None:
    texts, slowest = [*variants().items()], 0.0
    for seed in range(first, last):
        r = random.Random(seed)  # noqa: S311
        name, text = r.choice(texts)
        program = mutated(text, r)
        start = time.perf_counter()
        tracemalloc.start()
        try:
            with limited(2 * 10**8), np.errstate(all="ignore"):
                attncli.attend_by(program, inputs_of(name), origin="mine")
        except AttncliError as error:
            is_one_line = "\n" not in str(error)
        else:
            is_one_line = True
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        slowest = max(slowest, time.perf_counter() - start)
        assert is_one_line, program
        assert peak < 2 * 10**8, program
    assert slowest < 10  # with memory traced, on any machine


def test_what_else_a_process_holds_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_resident", lambda: 3 * 10**9)  # a notebook with a model in it
    q = np.eye(3)
    trace = attncli.attend(q, q, q, formulas="scores: S[i,j] = sum[d](q[i,d] * k[j,d])")
    np.testing.assert_array_equal(trace["scores"].value, q)
