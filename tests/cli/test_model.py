"""attncli model: what it shows of a checkpoint, in every form, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import zlib
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from attncli.stages import KINDS
from attncli.trace import Stage, Trace
from attncli.views.model import EVEN, HALF, findings
from attncli.views.select import Block
from tests.cli.conftest import Call
from tests.models import checkpoints

SENTENCE = "on the mat the cat sat"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="needs transformers: pip install 'attncli[models]'")
    return checkpoints.gpt2(tmp_path_factory.mktemp("models") / "gpt2")


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="needs transformers: pip install 'attncli[models]'")
    return checkpoints.t5(tmp_path_factory.mktemp("models") / "t5")


class TestSummary:
    def test_every_measure_and_what_it_means(self, call: Call, gpt2: Path) -> None:
        done = call("model", gpt2, SENTENCE)
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[0].startswith("What each head of gpt2 does")
        assert lines[0].endswith("3 layers · 5 heads")
        for name in ("entropy", "first", "previous", "itself", "induction"):
            assert f"  {name} " in done.out
        assert '6 tokens: "on" "the" "mat" "the" "cat" "sat"' in lines
        assert "modules, counted from 0: h.0.attn … h.2.attn" in lines
        assert "the token before gets the most from L" in done.out

    def test_without_a_repetition_it_says_what_cannot_be_seen(self, call: Call, gpt2: Path) -> None:
        assert "induction heads cannot be seen" in call("model", gpt2, "the cat").out

    def test_one_head_in_every_layer(self, call: Call, gpt2: Path) -> None:
        out = call("model", gpt2, SENTENCE, "--head", "4").out
        assert out.count("head 4 of 5") == 2 * 3  # above the weights and the sentences
        assert out.count("  weights  ") == 3
        assert "scores" not in out

    @pytest.mark.parametrize("form", ["json", "npz"])
    def test_the_exact_forms_hold_every_stage_of_every_layer(
        self, call: Call, gpt2: Path, form: str
    ) -> None:
        assert call("model", gpt2, SENTENCE, "--output", f"m.{form}").code == 0
        one = call("compute", f"m.{form}::layer.2", "--stage", "weights", "--format", "json")
        other = call(
            "model", gpt2, SENTENCE, "--layer", "2", "--stage", "weights", "--format", "json"
        )
        assert one.json["steps"][-1]["value"] == other.json["steps"][-1]["value"]

    @pytest.mark.parametrize(
        "form", ["csv", "tsv", "markdown", "mermaid", "latex", "svg", "html", "table"]
    )
    def test_every_other_form(self, call: Call, gpt2: Path, form: str) -> None:
        done = call("model", gpt2, SENTENCE, "--format", form)
        assert done.code == 0
        assert ("L3" if form != "mermaid" else "previous") in done.out
        assert ("layer.3" in done.out) == (form == "html")

    def test_html_has_the_weights_of_all_heads(self, call: Call, gpt2: Path) -> None:
        out = call("model", gpt2, SENTENCE, "--format", "html").out
        maps = out.partition('id="maps">')[2].partition("<")[0]
        assert len(zlib.decompress(b64decode(maps))) == 3 * 5 * 6 * 6 * 4

    def test_twelve_heads_fit_into_eighty_columns(
        self, call: Call, tmp_path_factory: pytest.TempPathFactory, gpt2: Path
    ) -> None:
        folder = tmp_path_factory.mktemp("models") / "m"
        checkpoints.gpt2(folder, n_embd=24, n_layer=12, n_head=12)
        out = call("model", folder, SENTENCE, "--width", "80").out
        assert any(line.split()[-1:] == ["H12"] and " H1 " in line for line in out.splitlines())


class TestLayer:
    def test_every_stage_with_the_tokens(self, call: Call, gpt2: Path) -> None:
        done = call("model", gpt2, SENTENCE, "--layer", "3", "--head", "5")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("Attention of layer 3: h.2.attn")
        for name in ("scores", "scaled", "masked", "weights", "output"):
            assert f"  {name} " in done.out
        assert "head 5 of 5" in done.out
        assert '"sat" attends to ' in done.out

    def test_of_many_heads_the_first(self, call: Call, gpt2: Path) -> None:
        out = call("model", gpt2, SENTENCE, "--layer", "3").out
        assert "head 1 of 5" in out
        assert "head 2 of 5" not in out
        assert "--head 2" in out

    def test_an_encoder_and_a_decoder(self, call: Call, t5: Path) -> None:
        done = call("model", t5, "the cat", "--target", "the mat", "--layer", "1")
        assert done.code == 0
        for name in ("encoder", "decoder.self_attention", "decoder.enc_dec_attention"):
            assert f"({name})" in done.out
        alone = call("model", t5, "the cat")
        assert "the encoder alone: --target SENTENCE is for the decoder" in alone.out

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (("--layer", "4"), "there is no layer 4; choose from 1 to 3"),
            (("--layer", "3", "--head", "6"), "there is no head 6; choose from 1 to 5"),
            (("--head", "6"), "there is no head 6; choose from 1 to 5"),
            (("--stage", "wights"), "there is no stage 'wights'; did you mean weights?"),
            (("--target", "the mat"), "GPT2Model has no decoder to read --target; leave it out"),
        ],
    )
    def test_what_is_not_there(
        self, call: Call, gpt2: Path, flags: tuple[str, ...], said: str
    ) -> None:
        done = call("model", gpt2, SENTENCE, *flags)
        assert (done.code, done.out, done.err) == (2, "", f"attncli: {said}\n")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "the stages of 2 attentions need"),
        (("--check",), "the stages of 2 attentions need"),
        (("--layer", "1"), "the stages of 1 attention need"),
        (("--target", "the mat"), "the stages of 6 attentions need"),
    ],
)
def test_a_sentence_that_is_too_long_is_refused_before_it_is_run(
    call: Call, t5: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], said: str
) -> None:
    import transformers

    monkeypatch.setattr(transformers.T5Model, "from_pretrained", None)  # else it would run
    done = call("model", t5, "the cat " * 750, *flags)  # 7 tokens each, and 5 heads
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "1 GB are allowed" in done.err or "are free" in done.err


@pytest.mark.parametrize("form", ["table", "markdown", "latex", "html"])
@pytest.mark.parametrize("more", [(), ("--stage", "entropy"), ("--blank",)])
def test_a_summary_has_no_arithmetic(
    call: Call, gpt2: Path, form: str, more: tuple[str, ...]
) -> None:
    done = call("model", gpt2, SENTENCE, "--format", form, "--work", *more)
    assert (done.code, done.out) == (2, "")
    assert "--work is for " in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("form", ["table", "html"])
@pytest.mark.parametrize("chosen", [("--head", "2"), ("--stage", "weights"), ("--full",)])
def test_arithmetic_of_weights(call: Call, gpt2: Path, form: str, chosen: tuple[str, ...]) -> None:
    done = call("model", gpt2, SENTENCE, "--format", form, "--work", *chosen)
    assert (done.code, done.err) == (0, "")
    assert "the largest score" in done.out


WRONG = [
    (("--stage", "nope"), "nope"),
    (("--stage", "weights", "--head", "99"), "head 99"),
    (("--layer", "9"), "layer 9"),
    (("--layer", "1", "--rows", "90:"), "rows"),
    (("--layer", "1", "--cell", "zebra,the"), "zebra"),
    (("--blank=nope",), "nope"),
    (("--output", "there.json"), "there.json exists already"),
    (("--output", "no-folder/x.json"), "no-folder"),
    (("--check", "--layer", "9"), "layer 9"),
    (("--check", "--output", "there.json"), "there.json exists already"),
]


@pytest.mark.parametrize(("flags", "said"), WRONG)
def test_a_wrong_call_leaves_no_dump(
    call: Call, gpt2: Path, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    (tmp_path / "there.json").write_text("{}")
    done = call("model", gpt2, SENTENCE, "--dump", "d.npz", *flags)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert [file.name for file in tmp_path.iterdir()] == ["there.json"]


def test_a_reader_that_goes_away_leaves_the_dump(gpt2: Path, tmp_path: Path) -> None:
    for form in ("table", "markdown"):
        file, flags = tmp_path / f"{form}.npz", f"--full --format {form}"
        line = f"{sys.executable} -m attncli model {gpt2} a {flags} --dump {file} | true"
        subprocess.run(["bash", "-c", line], capture_output=True, check=False)
        assert file.exists()


def test_a_reader_that_goes_away(gpt2: Path) -> None:
    line = (
        f"{sys.executable} -m attncli model {gpt2} '{SENTENCE}' | head -1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


# ---- without torch


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), 'DIR and SENTENCE are missing; write attncli model DIR "…"'),
        (("m",), 'there is no SENTENCE; write attncli model DIR "…"'),
        (("m", " "), "the sentence is empty; give it at least one word"),
        (("m", "a", "--target", ""), "--target is empty; give it at least one word"),
        (("nowhere", "a"), "there is no directory nowhere; give the directory of a model on disk"),
        (("m", "a", "--dump", "no/d.npz"), "no/d.npz cannot be written: No such file or directory"),
        (("m", "a", "--cell", "a,a"), "--cell is for weights, not for a summary; add --layer N"),
        (("m", "a", "--max-size", "1MB"), "the weights of m take 2 MB, 1 MB are allowed"),
    ],
)
def test_refused_before_torch_is_imported(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    folder = checkpoints.directory(tmp_path / "m")
    checkpoints.write_safetensors(folder / "model.safetensors", {"a": (500_000,)})
    done = call("model", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"attncli: {said}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_the_extra(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    if package == "transformers":
        pytest.importorskip("torch", reason="without it torch is named")
    checkpoints.directory(tmp_path / "m")
    monkeypatch.delitem(sys.modules, "attncli.models.checkpoint", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    done = call("model", "m", "a")
    what = f"attncli model needs the package {package}; pip install 'attncli[models]'"
    assert (done.code, done.err) == (2, f"attncli: {what}\n")


# ---- the sentences of the summary


def summary(**tables: list[list[float]]) -> Block:
    labels = {"layer": ("L1", "L2"), "head": ("H1", "H2")}
    stages = [
        Stage(name, KINDS[name].symbol, "", np.array(table), ("layer", "head"), labels)
        for name, table in tables.items()
    ]
    even = Stage("even", "", "", np.array([2.0, 2.0]), ("layer",))
    return Block(Trace("", (*stages, even)))


def test_which_head_gives_a_token_the_most() -> None:
    said = [*findings(summary(entropy=[[1.0, 0.5], [1.5, 1.2]], first=[[0.1, 0.6], [0.9, 0.2]]))]
    assert said == [
        "spreads its weight: L1H2 the most narrowly (0.5 bits), L2H1 the most widely (1.5 bits)",
        "the first token gets the most from L2H1: 90.0 %; more than half from "
        "L2H1 and L1H2 (attention sinks)",
    ]


def test_half_is_more_than_all_others_together() -> None:
    (_, said) = findings(summary(entropy=[[1.0, 1.0], [1.0, 1.0]], first=[[HALF, 0.1], [0.2, 0.3]]))
    assert said.endswith("50.0 %; from no head more than half")


def test_heads_that_spread_their_weight_evenly() -> None:
    almost, enough = 2.0 * EVEN - 0.01, 2.0 * EVEN + 0.01
    _, said = findings(summary(entropy=[[almost, enough], [0.1, 2.0]]))
    assert said == "nearly equal weights on all tokens: L2H2 and L1H2"
    # the constant's reason: of 16 keys of which one has 22 % and the others share the rest
    for most, is_even in ((0.22, True), (0.24, False)):
        shares = np.array([most, *[(1 - most) / 15] * 15])
        assert (-(shares * np.log2(shares)).sum() >= EVEN * 4) == is_even
