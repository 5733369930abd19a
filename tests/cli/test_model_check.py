"""attncli model --check and --dump: is the model's own output exact attention of its q, k and v?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Call
from tests.models import checkpoints

transformers = pytest.importorskip("transformers", reason="needs attncli[models]")

SENTENCE = "on the mat the cat sat"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.gpt2(tmp_path_factory.mktemp("models") / "gpt2")


@pytest.fixture
def forgets_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sdpa of this process is one that forgets every mask."""
    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def wrong(module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", wrong)


def test_each_attention_has_a_line(call: Call, gpt2: Path) -> None:
    done = call("model", gpt2, SENTENCE, "--check")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "3 of 3 match",
        "  h.0.attn  it matches",
        "  h.1.attn  it matches",
        "  h.2.attn  it matches",
    ]
    one = call("model", gpt2, SENTENCE, "--check", "--layer", 2)
    assert one.out.splitlines() == ["1 of 1 matches", "  h.1.attn  it matches"]


@pytest.mark.usefixtures("forgets_the_mask")
def test_a_wrong_kernel_is_named(call: Call, gpt2: Path) -> None:
    done = call("model", gpt2, SENTENCE, "--check")
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[:2] == ["0 of 3 match", "  h.0.attn  it differs; the cause: causal mask left out"]
    assert lines[5:8] == ["h.0.attn", "it differs; the cause:", "  causal mask left out"]
    data = call("model", gpt2, SENTENCE, "--check", "--format", "json").json
    assert [x["matches"] for x in data["attentions"].values()] == [False] * 3


def test_what_is_dumped_is_checked(call: Call, gpt2: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump.npz"
    done = call("model", gpt2, SENTENCE, "--layer", 3, "--head", 5, "--dump", dump)
    assert done.code == 0
    assert "Attention of layer 3: h.2.attn" in done.out
    with np.load(dump) as file:
        assert file["h.2.attn.q"].shape[-2] == 6  # tokens
        assert {name.partition(".attn.")[2] for name in file.files} == {
            "q", "k", "v", "output", "convention", "title",
        }  # fmt: skip
    assert call("check", dump).out.splitlines()[0] == "3 of 3 match"
    again = call("model", gpt2, SENTENCE, "--dump", dump)
    assert (again.code, again.out) == (2, "")
    assert "exists already; replace it with --force" in again.err
    assert call("model", gpt2, SENTENCE, "--check", "--dump", dump, "--force").code == 0
    shown = call("model", gpt2, SENTENCE, "--dump", dump, "--force")
    assert (shown.code, shown.err) == (0, "")
    assert "What each head of gpt2 does" in shown.out
    both = call("model", gpt2, SENTENCE, "--dump", dump, "--output", dump, "--force")
    assert (both.code, both.out) == (2, "")
    assert "--output and --dump name one file; name two" in both.err


def test_a_report_goes_to_a_file(call: Call, gpt2: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert call("model", gpt2, SENTENCE, "--check", "--output", path, "--quiet").out == ""
    assert json.loads(path.read_text())["matches"] is True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--check", "--head", "1"), "--head has no effect with --check"),
        (("--check", "--work"), "--work has no effect with --check"),
        (("--check", "--format", "svg"), "a report is no svg; use --format json"),
        (("--check", "--layer", "4"), "there is no layer 4; choose from 1 to 3"),
        (("--dump", "dump.txt"), "dump.txt is neither npz nor safetensors; end it in .npz"),
        (("--force",), "--force has no effect without --output"),
    ],
)
def test_wrong_calls(call: Call, gpt2: Path, words: tuple[str, ...], message: str) -> None:
    done = call("model", gpt2, SENTENCE, *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
