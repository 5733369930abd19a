"""check --probe: a kernel's own weights, from an input whose values are the identity."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.calls import Call, call

__all__ = ["call"]

N_Q, N_K, D = 7, 13, 5


def kernel(path: Path, *, scale: float, mask: Any, bias: Any = 0.0) -> Any:
    """An attention in plain NumPy, on what a file holds."""
    arrays = np.load(path)
    scores = arrays["q"] @ np.swapaxes(arrays["k"], -1, -2) * scale + bias
    powers = np.where(mask, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0)
    return powers / powers.sum(axis=-1, keepdims=True) @ arrays["v"]


def inputs(folder: Path, *lead: int) -> Path:
    rng, path = np.random.default_rng(3), folder / "in.npz"
    q, k, v = (rng.normal(size=(*lead, n, D)) for n in (N_Q, N_K, N_K))
    np.savez(path, q=q, k=k, v=v)
    return path


QUERIES, KEYS = np.arange(N_Q)[:, None], np.arange(N_K)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_the_weights_of_a_kernel_are_read(
    lead: tuple[int, ...], call: Call, tmp_path: Path
) -> None:
    """Its limit counts for three queries at once, it lacks a key, and has another scale."""
    probe, yours = tmp_path / "probe.npz", tmp_path / "yours.npz"
    written = call("check", "--q", inputs(tmp_path, *lead), "--probe", probe)
    assert (written.code, written.err) == (0, "")
    mask = (KEYS <= QUERIES // 3 * 3 + 2) & (KEYS != 1)
    np.savez(yours, output=kernel(probe, scale=0.5, mask=mask))
    data = call("check", "--q", probe, "--observed", yours, "--causal", "--format", "json").json
    n_matrices = int(np.prod(lead))
    right = KEYS <= QUERIES
    assert data["probe"]["n_extra"] == (mask & ~right).sum() * n_matrices
    assert data["probe"]["n_missing"] == (right & ~mask).sum() * n_matrices
    text = " ".join(data["probe"]["sentences"])
    assert "is 0.5; it should be 0.44721" in text  # 1/√5
    assert "q2 does not see k2" in text
    assert data["probe"]["drawing"][2].split() == ["q1", "#............", "#.+.........."]


def test_a_right_kernel_matches(call: Call, tmp_path: Path) -> None:
    probe, yours = tmp_path / "probe.npz", tmp_path / "yours.npz"
    call("check", "--q", inputs(tmp_path, 2, 3), "--probe", probe)
    np.savez(yours, output=kernel(probe, scale=D**-0.5, mask=KEYS <= QUERIES))
    assert call("check", "--q", probe, "--observed", yours, "--causal").code == 0


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        (-0.25 * np.abs(QUERIES - KEYS), "a bias of +0.25 for each key to the right"),
        (np.where(KEYS == 4, np.log(2), 0.0), "k5 counts 2 times"),
    ],
)
def test_a_bias_is_read(bias: Any, words: str, call: Call, tmp_path: Path) -> None:
    probe, yours = tmp_path / "probe.npz", tmp_path / "yours.npz"
    call("check", "--q", inputs(tmp_path, 2, 3), "--probe", probe)
    np.savez(yours, output=kernel(probe, scale=D**-0.5, mask=KEYS <= QUERIES, bias=bias))
    text = call("check", "--q", probe, "--observed", yours, "--causal", "--single").out
    assert words in text
    assert "is 0.44721, as it should be" in text


def test_a_layout_is_kept(call: Call, tmp_path: Path) -> None:
    rng, path, probe = np.random.default_rng(5), tmp_path / "in.npz", tmp_path / "probe.npz"
    q, k, v = (rng.normal(size=(2, n, 3, D)) for n in (N_Q, N_K, N_K))
    np.savez(path, q=q, k=k, v=v)
    assert call("check", "--q", path, "--probe", probe, "--layout", "bshd").code == 0
    arrays = np.load(probe)
    assert arrays["q"].shape == (6, N_Q, 3, D)  # 13 keys in blocks of 5
    assert arrays["v"].shape == (6, N_K, 3, D)
    assert (arrays["v"][1].sum(axis=(1, 2)) == np.where((KEYS > 4) & (KEYS < 10), 3, 0)).all()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--probe", "probe.txt"], "neither npz nor safetensors"),
        (["--probe", "."], "npz"),
        (["--probe", "in.npz"], "exists already"),
        (["--probe", "new.npz", "--observed", "in.npz"], "beside --observed"),
        (["--probe", "new.npz", "--positions", "rope-halves"], "nothing is done"),
    ],
)
def test_what_is_refused(
    more: list[str], words: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs(tmp_path, 2, 3)
    done = call("check", "--q", "in.npz", *more)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "new.npz").exists()


def test_an_input_is_needed_and_a_file_may_be_replaced(call: Call, tmp_path: Path) -> None:
    probe = tmp_path / "probe.npz"
    assert "add --q" in call("check", "--probe", probe).err
    for _ in range(2):
        assert call("check", "--q", inputs(tmp_path), "--probe", probe, "--force").code == 0
