"""attncli model: what it shows of a checkpoint, in every form, and what is refused."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.cli.main import run
from attncli.commands.model.page import findings
from attncli.page.select import Block
from attncli.trace import Stage, Trace
from tests.calls import Call
from tests.commands.model import checkpoints

SENTENCE = "on the mat the cat sat"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="needs transformers: pip install 'attncli[models]'")
    folder = tmp_path_factory.mktemp("models")
    checkpoints.gpt2(folder / "gpt2")
    checkpoints.gpt2(folder / "wide", n_embd=24, n_layer=12, n_head=12)
    checkpoints.t5(folder / "t5")
    return folder


@pytest.fixture
def model(call: Call, models: Path, tmp_path: Path) -> Call:
    """Runs attncli model in a folder with the models and a file."""
    for path in models.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "there.json").write_text("{}")
    return lambda *arguments: call("model", *arguments)


# fmt: off
SHOWN = [  # a call: what it shows, and what not
        (f"gpt2 '{SENTENCE}'",
         "gpt2|3 layers · 5 heads|  entropy |  first |  previous |  itself |  induction |"
         '6 tokens: "on" "the" "mat" "the" "cat" "sat"|h.0.attn … h.2.attn|the token before', "  q "),
        ("gpt2 'the cat'", "induction heads cannot be seen", ""),
        (f"gpt2 '{SENTENCE}' --head 4", "head 4 of 5|  weights  ", "scores|head 1 of 5"),
        (f"gpt2 '{SENTENCE}' --layer 3 --head 5",
         "layer 3: h.2.attn|  scores |  scaled |  masked |  weights |  output |head 5 of 5|"
         '"sat" attends to ', "head 1 of 5"),
        (f"gpt2 '{SENTENCE}' --layer 3", "head 1 of 5|--head 2", "head 2 of 5"),
        ("t5 'the cat' --target 'the mat' --layer 1",
         "encoder.block.0.layer.0.SelfAttention|(decoder.self_attention)|(decoder.enc_dec_attention)", ""),
        ("t5 'the cat'", "the encoder alone|--target", ""),
        (f"gpt2 '{SENTENCE}' --work --head 2", "each exp", ""),
]
# fmt: on


@pytest.mark.parametrize(("line", "there", "absent"), SHOWN)
def test_what_is_shown(model: Call, line: str, there: str, absent: str) -> None:
    done = model(*shlex.split(line))
    assert (done.code, done.err) == (0, "")
    assert [words for words in there.split("|") if words not in done.out] == []
    assert [words for words in absent.split("|") if words and words in done.out] == []


def test_every_form(model: Call, call: Call) -> None:
    for form in ("csv", "tsv", "markdown", "mermaid", "latex", "svg", "html", "table"):
        done = model("gpt2", SENTENCE, "--format", form)
        assert (done.code, ("L3" if form != "mermaid" else "previous") in done.out) == (0, True)
        assert ("layer.3" in done.out) == (form == "html")
        if form == "html":  # the weights of all layers and heads
            stages = json.loads(done.out.partition('id="data">')[2].partition("<")[0])["stages"]
            shapes = [x["shape"] for x in stages if x["id"].endswith(".weights")]
            assert shapes == 3 * [[5, 6, 6]]
    own = ("--stage", "weights", "--format", "json")
    layer = model("gpt2", SENTENCE, "--layer", "2", *own).json["steps"][-1]["value"]
    for form in ("json", "npz"):  # hold every stage of every layer
        assert model("gpt2", SENTENCE, "--output", f"m.{form}").code == 0
        assert call("compute", f"m.{form}::layer.2", *own).json["steps"][-1]["value"] == layer


def test_twelve_heads_fit_into_eighty_columns(model: Call) -> None:
    out = model("wide", SENTENCE, "--width", "80").out
    assert any(line.split()[-1:] == ["H12"] and " H1 " in line for line in out.splitlines())


@pytest.mark.parametrize(
    ("line", "words"),
    [

        ("--stage wights", "did you mean weights?"), ("--layer 9", "no layer 9; choose from 1 to 3"),
        ("--layer 3 --head 6", "no head 6; choose from 1 to 5"), ("--blank=nope", "nope"),
        ("--layer 1 --cell zebra,the", "zebra"), ("--target mat", "no decoder to read --target"),
        ("--output there.json", "there.json exists already"), ("--work", "--work is for "),
        ("--check --output there.json", "there.json exists already"), ("--output d.npz", "name two"),
        ("--output no-folder/x.json", "no-folder"), ("--check --format svg", "a report is no svg"),
        ("--check --head 1", "--head has no effect with --check"),
    ],
)  # fmt: skip
def test_a_wrong_call_leaves_no_dump(model: Call, tmp_path: Path, line: str, words: str) -> None:
    before = {*tmp_path.iterdir()}
    done = model("gpt2", SENTENCE, "--dump", "d.npz", *line.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err
    assert {*tmp_path.iterdir()} == before


def test_a_sentence_that_is_too_long_is_not_run(
    model: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.setattr(transformers.T5Model, "from_pretrained", None)  # else it would run
    for flags, n in {"": 2, "--check": 2, "--layer 1": 1, "--target mat": 6}.items():
        done = model("t5", "the cat " * 750, *flags.split())  # 7 tokens each, and 5 heads
        assert (done.code, done.out) == (2, "")
        assert f"{n} attention" in done.err
        assert "are allowed" in done.err or "are free" in done.err


def test_a_reader_that_goes_away_leaves_the_dump(
    model: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form in ("table", "markdown"):
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "w") as pipe, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", pipe)
            line = f"model gpt2 a --full --format {form} --dump {form}.npz"
            assert run(line.split()) == 0
        assert (tmp_path / f"{form}.npz").exists()


# ---- --check and --dump: is the model's own output exact attention of its q, k and v?


def test_each_attention_has_a_line(model: Call, tmp_path: Path) -> None:
    done = model("gpt2", SENTENCE, "--check")
    lines = ["3 of 3 match", *(f"  h.{n}.attn  it matches" for n in range(3))]
    assert (done.code, done.err, done.out.splitlines()) == (0, "", lines)
    one = model("gpt2", SENTENCE, "--check", "--layer", 2)
    assert one.out.splitlines() == ["1 of 1 matches", "  h.1.attn  it matches"]
    path = tmp_path / "report.json"
    assert model("gpt2", SENTENCE, "--check", "--output", path, "--quiet").out == ""
    assert json.loads(path.read_text())["matches"] is True


def test_a_wrong_kernel_is_named(model: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def forgets_the_mask(module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", forgets_the_mask)
    done = model("gpt2", SENTENCE, "--check")
    assert (done.code, done.out.splitlines()[0]) == (1, "0 of 3 match")
    assert done.out.count("causal mask left out") >= 3
    data = model("gpt2", SENTENCE, "--check", "--format", "json").json
    assert [x["matches"] for x in data["attentions"].values()] == [False] * 3


def test_what_is_dumped_is_checked(model: Call, call: Call, tmp_path: Path) -> None:
    dump = tmp_path / "dump.npz"
    done = model("gpt2", SENTENCE, "--layer", 3, "--head", 5, "--dump", dump)
    assert (done.code, "h.2.attn" in done.out) == (0, True)
    own = {n.partition(".attn.")[2]: x.shape for n, x in np.load(dump).items() if "h.2" in n}
    assert own.keys() == {"q", "k", "v", "output", "convention", "title"}
    assert own["q"][-2] == 6  # tokens
    assert call("check", dump).out.splitlines()[0] == "3 of 3 match"
    again = model("gpt2", SENTENCE, "--dump", dump)
    assert (again.code, again.out, "--force" in again.err) == (2, "", True)
    for flags in ((), ("--check",)):
        shown = model("gpt2", SENTENCE, "--dump", dump, "--force", *flags)
        assert (shown.code, shown.err, "gpt2" in shown.out) == (0, "", not flags)


# ---- without torch


@pytest.mark.parametrize(
    ("line", "words"),
    [

        ("m", "no SENTENCE"), ("m ''", "the sentence is empty"), ("m a --cell a,a", "--cell is for weights"),
        ("nowhere a", "there is no directory nowhere"), ("m a --dump no/d.npz", "no/d.npz cannot be written"),
        ("m a --max-size 1MB", "m take 2 MB, 1 MB are allowed"),
    ],
)  # fmt: skip
def test_refused_before_torch_is_imported(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    folder = checkpoints.directory(tmp_path / "m")
    checkpoints.write_safetensors(folder / "model.safetensors", {"a": (500_000,)})
    done = call("model", *shlex.split(line))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err


def test_without_the_extra(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.directory(tmp_path / "m")
    monkeypatch.delitem(sys.modules, "attncli.commands.model.checkpoint", raising=False)
    for package in ("transformers", "torch"):  # without torch it is named
        monkeypatch.setitem(sys.modules, package, None)
        done = call("model", "m", "a")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "pip install 'attncli[models]'" in done.err
    assert "the package torch;" in done.err


# ---- the sentences of the summary


def sentences(**tables: list[list[float]]) -> list[str]:
    axes, labels = ("layer", "head"), {"layer": ("L1", "L2"), "head": ("H1", "H2")}
    stages = [Stage(name, "", "", np.array(table), axes, labels) for name, table in tables.items()]
    even = Stage("even", "", "", np.array([2.0, 2.0]), ("layer",))
    return [*findings(Block(Trace("", (*stages, even))))]


def test_which_heads_are_named() -> None:
    narrow, first = sentences(entropy=[[1.0, 0.5], [1.5, 1.2]], first=[[0.1, 0.6], [0.9, 0.2]])
    assert ["L1H2 the most narrowly" in narrow, "L2H1 the most widely" in narrow] == [True] * 2
    assert "L2H1: 90.0 %" in first
    assert "half from L2H1 and L1H2" in first
    (_, half) = sentences(entropy=[[1.0, 1.0], [1.0, 1.0]], first=[[0.5, 0.1], [0.2, 0.3]])
    assert "from no head more than half" in half
    # of 16 keys one has 22 % (or 24 %) and the others share the rest: evenly enough, or not
    bits = []
    for most in (0.22, 0.24):
        shares = np.array([most, *[(1 - most) / 15] * 15])
        bits.append(-(shares * np.log2(shares)).sum() / 2)  # of the 2 bits of `even`
    _, evenly = sentences(entropy=[[bits[1], bits[0]], [0.1, 2.0]])
    assert evenly.endswith("on all tokens: L2H2 and L1H2")
