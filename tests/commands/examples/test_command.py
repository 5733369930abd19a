"""attncli examples: what they show, verified, and those of a file."""

import json
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from attncli.commands.examples.titles import titles
from attncli.formats.markdown import escape
from tests.calls import ROOT, SAMPLES, Call, arguments_of

THREE = f"--q {SAMPLES / 'three-tokens.json'}"
MINE, WORDS = SAMPLES / "my-examples.json", SAMPLES / "words.txt"
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("examples", [*(f"({number:03})" for number in range(5)), "004-first-example"]),
        ("examples 004-first-example --stage weights", ["q1  0.4011  0.4011  0.1978  1"]),
        ("examples 004-second-example --format markdown", ["| claim | basis | expected |", "differs"]),
        ("examples 004-first-example --format mermaid", ["flowchart TD", "weights<br/>"]),
        ("examples why", ["claimed     [1, 1, 2, 3, 4, 8, 16, 23]", "claimed     below 0.4", "--sweep d_k"]),
        ("examples 003-yogurt --query Yogurt", ["Mango", "69.59", "weight·V1"]),
        ("examples 000-pca", ["--vectors FILE computes", "● politics", "to see “5 2D vectors”:"]),
        ("examples --verify", ["ok ", "each as recorded"]),
        ("examples 004 --verify", ["12 examples, each as recorded", "  printed     6 reproduced, 3 agree as rounded, 7 differ"]),
        (f"examples --verify --file {MINE}", ["ok "]),
        (f"examples exercise-2 --file {MINE} --vectors {WORDS}", ["cosine: agrees as rounded"]),
    ],
)  # fmt: skip
def test_what_is_shown(call: Call, line: str, texts: list[str]) -> None:
    done = call(*arguments_of(line))
    assert (done.code, done.err) == (0, "")
    assert [text for text in texts if text not in done.out] == []


def test_verified_examples_are_json_for_scripts(call: Call) -> None:
    document = call("examples", "--verify", "--format", "json").json
    assert document["ok"] is True
    verdicts = {claim["verdict"] for own in document["examples"] for claim in own["claims"]}
    assert verdicts == {"agrees", "reproduced", "agrees as rounded", "differs", "not printed"}


def names_of(text: str) -> list[str]:
    """The examples of a list, or those that are computed, in their order."""
    return re.findall(r"^ {0,2}((?:\d{3}|why)-[a-z-]+)  ", text, re.MULTILINE)


ARTICLE = [title.name for title in titles() if title.article.id == "004"]


def test_an_article_is_computed_in_its_order_with_the_command_of_each_number(call: Call) -> None:
    done = call("examples", "004")
    assert (done.code, done.err, names_of(done.out)) == (0, "", ARTICLE)
    assert 'echo \'{"w_q": [[0], [0], [6]]' in done.out
    weights = done.out.index("weights of query 1: differs")
    assert done.out.index("printed     [0.42, 0.42, 0.16]", weights) < done.out.index("recomputed  [0.4011", weights)  # fmt: skip
    assert "\n12 examples\n" in done.out
    assert call("examples", "raj shaikh").out == call("examples", "Shaikh").out == done.out


def test_examples_are_found_by_author_and_by_word(call: Call) -> None:
    assert names_of(call("examples", "prasad").out)[0] == "001-bank-without-positions"
    found = names_of(call("examples", "softmax").out)
    assert {"000-softmax-gaps", "001-softmax-gradients", "003-softmax-columns", "why-scale"} < {*found}  # fmt: skip
    assert len(found) == len({*found})
    assert names_of(call("examples", "Yogurt MANGO").out)
    done = call("examples", "sofmax")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("ending", ["html", "md", "json"])
def test_an_article_as_a_file(call: Call, ending: str) -> None:
    done = call("examples", "004", "--output", f"004.{ending}")
    assert (done.code, done.out, done.err) == (0, "", "")
    text = Path(f"004.{ending}").read_text("utf-8")
    at = [text.index(f'"{name}"' if ending != "md" else f"## {escape(name)}") for name in ARTICLE]
    assert at == sorted(at)
    assert "Numerical Example" in text
    for basis in ("printed", "claimed", "shown here"):
        assert basis in text


ACTING = "<script>alert(1)</script>|`````\n[red]x"


def test_texts_of_a_file_do_nothing_on_a_page(call: Call) -> None:
    document = json.loads(MINE.read_text())
    first = document["examples"][0]
    document["source"] = dict.fromkeys(("id", "title", "author", "date"), ACTING)
    first |= dict.fromkeys(("name", "title", "note", "place"), ACTING)
    first["figures"] = [{"figure": ACTING, "options": "--format mermaid"}]
    first["run"] = "similarity --pca '<script>`````=1,2' b=2,1 c=0,1"
    first["claims"] = [{"claim": ACTING, "stage": "coordinates", "why": ACTING, "printed": "NaN"}]
    first["claims"][0] |= {"at": {"word": "b", "component": 1}}
    document["examples"] = [first]
    Path("mine.json").write_text(json.dumps(document))
    for form in ("html", "markdown"):
        done = call("examples", "--verify", "--file", "mine.json", "--format", form)
        assert (done.code, done.err) == (1, "")
        assert "alert(1)" in done.out
        outside = re.sub(r"(?ms)^(`{6,}).*?^\1$", "", done.out)  # what stands in a fence
        assert not re.search(r"(?<!\\)<script", outside)


def test_a_page_of_an_article_is_opened(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Mock(return_value=True)
    monkeypatch.setattr("webbrowser.open", browser)
    done = call("examples", "004", "--open")
    assert (done.code, done.out, done.err) == (0, "", "")
    (address,) = browser.call_args.args
    assert "Raj Shaikh" in Path(address.removeprefix("file://")).read_text("utf-8")


def test_what_is_for_one_example_is_refused_for_several(call: Call) -> None:
    for line, message in {
        "004 --stage weights": "--stage is for one example, not for 12; name one example",
        "004 --output a.svg": "the format svg is for one example, not for 12",
        "softmax --output a.html": "the format html has no effect on the list of examples",
        "softmax --work": "--work has no effect on the list of examples",
    }.items():
        done = call("examples", *line.split())
        assert (done.code, done.out, message in done.err) == (2, "", True)
    assert [*Path().iterdir()] == []


def test_a_list_imports_no_more_than_a_computation() -> None:
    lines = "import sys; from attncli.__main__ import main; sys.argv = ['attncli', 'examples', 'softmax']"
    code = (
        f"{lines}\ntry:\n    main()\nexcept SystemExit:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "why-scale" in done.stdout
    loaded = {*done.stderr.split()}
    assert {x for x in loaded if x.startswith("pydantic")} == set()
    assert "attncli.commands.examples.judge" not in loaded


def test_a_file_names_examples_that_come_with_attncli(call: Call) -> None:
    document = json.loads(MINE.read_text())
    document["examples"].insert(1, {"see": "why-scale"})
    Path("mine.json").write_text(json.dumps(document))
    out = call("examples", "--file", "mine.json").out
    assert out.index("exercise-1") < out.index("why-scale") < out.index("exercise-2")
    document["examples"][1]["see"] = "why-scales"
    Path("mine.json").write_text(json.dumps(document))
    done = call("examples", "--file", "mine.json")
    assert (done.code, done.out) == (2, "")
    assert "mine.json: attncli has no example 'why-scales'" in done.err


def test_examples_of_a_file(call: Call) -> None:
    document = json.loads(MINE.read_text())
    weights, output = document["examples"][0]["claims"]
    weights["printed"] = ["0.76", "0.33"]
    Path("changed.json").write_text(json.dumps(document))
    done = call("examples", "--verify", "--file", "changed.json")
    assert (done.code, done.err, "FAILED" in done.out) == (1, "", True)
    weights["printed"] = ["0.7", "0.3"]
    del output["ways"], output["verdict"]
    Path("mine.json").write_text(json.dumps(document))
    out = call("examples", "exercise-1", "--file", "mine.json").out
    assert "from the printed weights: [7, 3]" in out  # v is [[10, 0], [0, 10]]


def test_names_of_a_file_do_nothing_on_the_screen(call: Call) -> None:
    document = json.loads(MINE.read_text())
    document["examples"][1]["name"] = "red\x1b[31m"
    claims = [{"claim": "", "stage": "dots"}]
    changes = {
        "run": "similarity nowhere --vectors \x1b[31m",
        "needs": "\x1b[31m",
        "claims": claims,
    }
    document["examples"][0] |= changes
    Path("mine.json").write_text(json.dumps(document))
    Path("words.txt").write_text("other 1 2\n")
    for flags in ("red[31m", "exercise-1 --stage dots", "exercise-1 --vectors words.txt"):
        done = call("examples", *flags.split(), "--file", "mine.json")
        assert (done.code, "\\x1b[31m'" in done.err) == (2, True)
        assert done.err.strip().isprintable()


def test_the_file_of_the_manual(call: Call) -> None:
    """σ(1/√2) is 0.67, σ(1) is 0.73: weights and outputs of two values 10 apart."""
    manual = (ROOT / "attncli" / "help" / "learning.md").read_text("utf-8")
    (text,) = re.findall(r"```json\n(.*?)```", manual, re.DOTALL)
    Path("sheet.json").write_text(text)
    done = call("examples", "causal", "--file", "sheet.json", "--verify")
    assert (done.code, done.err) == (0, "")
    assert "weights of token 2: agrees as rounded" in done.out
    assert "without the scale: [2.6894, 7.3106]" in done.out
