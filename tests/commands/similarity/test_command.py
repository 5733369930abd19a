"""attncli similarity: lengths, angles, analogies and neighbours, and its notes."""

from pathlib import Path

import pytest

from tests.calls import SAMPLES, Call, arguments_of

THREE = f"--q {SAMPLES / 'three-tokens.json'}"
MINE, WORDS = SAMPLES / "my-examples.json", SAMPLES / "words.txt"
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("similarity dad=0.9,0.7,0.9 mom=0.2,0.7,0.9", [
            "dad · mom = 0.9·0.2 + 0.7·0.7 + 0.9·0.9 = 1.48", "‖dad‖ = √(0.9² + 0.7² + 0.9²) = 1.4526",
            "= 1.48 / (1.4526·1.1576) = 0.8802", "arccos(0.8802) = 28.3367°"]),
        ("similarity a=1,2 b=2,4 c=-2,1 --stage angles",
         ["  a       0       0      90", "  c      90      90       0"]),
        (f"similarity --analogy king queen dad --vectors {WORDS}", ["  mom"]),
        (f"similarity {FAMILY} --analogy king queen dad --stage analogy --format csv --precision 1", ["0.2,0.7,0.9"]),
        (f"similarity bank --nearest 2 --vectors {WORDS} --stage nearest --format csv", ["river"]),
        ("similarity a=3,0 b=-3,0 c=0,1 d=0,-1 --pca --stage shares --format csv --precision 1", ["0.9,0.1"]),
        ("similarity a=1,2 b=2,1 --stage lengths --format csv --precision 2", ["‖a‖,2.24,2.24"]),
    ],
)  # fmt: skip
def test_what_is_shown(call: Call, line: str, texts: list[str]) -> None:
    done = call(*arguments_of(line))
    assert (done.code, done.err) == (0, "")
    assert [text for text in texts if text not in done.out] == []
    assert "e-" not in done.out


def test_forms_of_vectors(call: Call) -> None:
    plain = call("similarity", "king=0.5,2", "dad=1,-0.25")
    assert plain.code == 0
    assert call("similarity", "king=[1/2, 2]", "dad=(1,-.25)") == plain


def test_notes_on_words(call: Call) -> None:
    small = call("similarity", "King", "dad", "--vectors", WORDS)
    assert (small.code, small.err) == (0, "")
    folded = call("similarity", "king", "dad", "--vectors", "KING=1,2 dad=2,1")
    assert (folded.code, "'king', only 'KING'" in folded.err) == (0, True)
    unused = call("examples", "003-cosines", "--vectors", WORDS)
    assert (unused.code, "--vectors" in unused.err, unused.err.count("\n")) == (0, True, 1)
    wide = [f"{word}={','.join(['1', *['0'] * 19, str(at)])}" for at, word in enumerate("abc")]
    short = call("similarity", *wide)
    assert ("too wide: step 1 (vectors)" in short.err, "1  vectors" in short.out) == (True, False)
    assert "1  vectors" in call("similarity", *wide, "--full").out
    assert call("similarity", *wide, "--format", "json").json["steps"][0]["name"] == "vectors"


def test_an_analogy_without_other_words(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a 1 0\nb 0 1\nc -1 0\n", encoding="utf-8")
    words = "similarity", "--analogy", "a", "b", "c", "--vectors", path
    saved = call(*words, "--output", tmp_path / "trace.json")
    assert (saved.code, saved.err.count("\n"), "nearest to b − a + c" in saved.err) == (0, 1, True)
    assert call("diff", tmp_path / "trace.json", tmp_path / "trace.json").code == 0
