"""attncli model --check and --dump: is the model's own output exact attention of its q, k and v?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Call
from tests.models import checkpoints

SENTENCE = "on the mat the cat sat"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="needs attncli[models]")
    return checkpoints.gpt2(tmp_path_factory.mktemp("models") / "gpt2")


def test_each_attention_has_a_line(call: Call, gpt2: Path, tmp_path: Path) -> None:
    done = call("model", gpt2, SENTENCE, "--check")
    assert (done.code, done.err) == (0, "")
    first, *lines = done.out.splitlines()
    assert first == "3 of 3 match"
    assert lines == [f"  h.{n}.attn  it matches" for n in range(3)]
    one = call("model", gpt2, SENTENCE, "--check", "--layer", 2)
    assert one.out.splitlines() == ["1 of 1 matches", "  h.1.attn  it matches"]
    path = tmp_path / "report.json"
    assert call("model", gpt2, SENTENCE, "--check", "--output", path, "--quiet").out == ""
    assert json.loads(path.read_text())["matches"] is True


def test_a_wrong_kernel_is_named(call: Call, gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def forgets_the_mask(module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", forgets_the_mask)
    done = call("model", gpt2, SENTENCE, "--check")
    assert done.code == 1
    first, *lines = done.out.splitlines()
    assert first == "0 of 3 match"
    assert ["causal mask left out" in line for line in lines[:3]] == [True] * 3
    data = call("model", gpt2, SENTENCE, "--check", "--format", "json").json
    assert [x["matches"] for x in data["attentions"].values()] == [False] * 3


def test_what_is_dumped_is_checked(call: Call, gpt2: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump.npz"
    done = call("model", gpt2, SENTENCE, "--layer", 3, "--head", 5, "--dump", dump)
    assert (done.code, "h.2.attn" in done.out) == (0, True)
    with np.load(dump) as file:
        assert file["h.2.attn.q"].shape[-2] == 6  # tokens
        names = {name.partition(".attn.")[2] for name in file.files}
    assert names == {"q", "k", "v", "output", "convention", "title"}
    assert call("check", dump).out.splitlines()[0] == "3 of 3 match"
    again = call("model", gpt2, SENTENCE, "--dump", dump)
    assert (again.code, again.out, "--force" in again.err) == (2, "", True)
    assert call("model", gpt2, SENTENCE, "--check", "--dump", dump, "--force").code == 0
    shown = call("model", gpt2, SENTENCE, "--dump", dump, "--force")
    assert (shown.code, shown.err, "each head of gpt2" in shown.out) == (0, "", True)
