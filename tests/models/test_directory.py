"""A checkpoint's directory: what is read of it, and what is refused before torch is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attncli.budget import limited
from attncli.errors import AttncliError, InputError, SizeError
from attncli.models.directory import Tensor, open_directory, tensors_of
from tests.models.checkpoints import directory, write_safetensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return directory(tmp_path / "model")


def test_its_tensors_by_the_headers(folder: Path) -> None:
    found = open_directory(str(folder))
    assert found.tensors == {"a": Tensor("F32", (2, 3)), "b": Tensor("F32", (5,))}
    assert (found.n_bytes(), found.n_bytes(2)) == (4 * (6 + 5), 2 * (6 + 5))
    assert found.name == "model"


def test_shards_by_their_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    shards = {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}
    for name, file in shards.items():
        write_safetensors(folder / file, {name: (7,)})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    assert [*open_directory(str(folder)).tensors] == ["a", "b"]
    (folder / shards["b"]).unlink()
    with pytest.raises(InputError, match=r"model-2-of-2.safetensors is not there"):
        open_directory(str(folder))
    index.write_text(json.dumps({"weight_map": {"a": "../other/model.safetensors"}}))
    with pytest.raises(InputError, match="beside it"):
        open_directory(str(folder))
    index.write_text(json.dumps({"weight_map": [1]}))
    with pytest.raises(InputError, match="names no files"):
        open_directory(str(folder))


def hub_cache(tmp_path: Path) -> Path:
    """As a hub keeps a model: links in a snapshot to files called by their digest."""
    own = directory(tmp_path / "own")
    cache = tmp_path / "models--org--small"
    snapshot, blobs = cache / "snapshots" / "c0ffee", cache / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(own.iterdir())):
        (blobs / str(number)).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    return cache


def test_a_hub_cache_by_its_main_reference(tmp_path: Path) -> None:
    cache = hub_cache(tmp_path)
    alone = open_directory(str(cache))
    assert (alone.path.name, alone.name) == ("c0ffee", "org/small")
    (cache / "snapshots" / "beef").mkdir()
    with pytest.raises(InputError, match="no main snapshot of: beef, c0ffee"):
        open_directory(str(cache))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("c0ffee\n")
    assert open_directory(str(cache)).path.name == "c0ffee"
    (cache / "refs" / "main").write_text("../../own")
    with pytest.raises(InputError, match="no main snapshot"):
        open_directory(str(cache))
    (cache / "refs" / "main").write_bytes(b"\xff\xfec0ffee")
    with pytest.raises(InputError, match="refs/main is not text"):
        open_directory(str(cache))


def test_a_link_without_its_file(tmp_path: Path) -> None:
    cache = hub_cache(tmp_path)
    (cache / "blobs" / "1").unlink()
    with pytest.raises(
        InputError, match=r"model.safetensors is a link to a file that is not there"
    ):
        open_directory(str(cache))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "there is no directory nowhere; give the directory"),
        ("org/name", "attncli downloads nothing"),
        ("~no-such-user/model", "there is no directory ~no-such-user/model; give the directory"),
        ("config.json", "config.json is a file; give the directory that it is in"),
    ],
)
def test_no_directory(folder: Path, path: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match=said):
        open_directory(path)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("config.json", None, "holds no config.json"),
        ("config.json", "", "config.json holds no object"),
        ("config.json", "[]", "config.json holds no object"),
        ("config.json", "{", "config.json is not JSON"),
        ("config.json", "{}", "config.json names no model_type"),
        ("config.json", '{"model_type": 3}', "config.json names no model_type"),
        ("config.json", '{"model_type": "vit"}', "reads images or sound: it has no tokenizer"),
        ("tokenizer.json", None, "holds no tokenizer; copy tokenizer.json"),
        ("model.safetensors", None, "holds no weights; copy model.safetensors"),
        ("model.safetensors", "", "model.safetensors is damaged"),
    ],
)
def test_a_part_that_is_missing_or_wrong(
    folder: Path, file: str, text: str | None, said: str
) -> None:
    (folder / file).unlink()
    if text is not None:
        (folder / file).write_text(text)
    if "vit" in (text or ""):
        (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=said):
        open_directory(str(folder))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.gguf", "tf_model.h5"])
def test_weights_in_another_form(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(
        InputError, match=rf"{name}, which attncli does not read; write safetensors"
    ):
        open_directory(str(folder))


def test_weights_of_another_name(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    with pytest.raises(InputError, match="rename them"):
        open_directory(str(folder))


@pytest.mark.parametrize(
    ("config", "beside", "said"),
    [
        ({"transformers_weights": "adapter_model.bin"}, "", "adapter_model.bin"),
        ({"transformers_weights": "other.safetensors"}, "other.safetensors", "other.safetensors"),
        ({"transformers_weights": ["model.safetensors"]}, "", "transformers_weights"),
        ({}, "shard-00000-model-00001-of-00001.safetensors", "shard-00000"),
        ({}, "adapter_config.json", "adapter_config.json"),
        ({}, "adapter_model.safetensors", "adapter_model.safetensors"),
        ({}, "adapter_model.bin", "adapter_model.bin"),
        ({"num_labels": 10**9}, "", "num_labels is 1000000000"),
        ({"text_config": {"num_labels": 10**9}}, "", "text_config.num_labels is 1000000000"),
        ({"id2label": {str(n): "x" for n in range(50)}}, "", "id2label is 50"),
        ({"num_hidden_groups": 10**9}, "", "num_hidden_groups is 1000000000"),
    ],
)
def test_weights_and_sizes_that_are_not_those_of_the_files(
    folder: Path, config: dict[str, Any], beside: str, said: str
) -> None:
    directory(folder, **config)
    if beside:
        (folder / beside).write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match=said):
        open_directory(str(folder))


OTHERS = ("pytorch_model.bin", "training_args.bin", "tf_model.h5", "consolidated.safetensors")


def test_other_files_may_lie_beside(folder: Path) -> None:
    directory(folder, transformers_weights="model.safetensors", num_labels=3)
    for name in OTHERS:
        (folder / name).write_bytes(b"never read")
    assert [*open_directory(str(folder)).tensors] == ["a", "b"]


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "chat_template.jinja", "additional_chat_templates/a.jinja"]
)
def test_files_that_take_too_much(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    with (folder / name).open("wb") as file:
        file.truncate(10**9)  # of zeros, which take no room on disk
    with pytest.raises(SizeError, match=name):
        open_directory(str(folder))


def test_as_many_labels_as_rows_take_memory_too(folder: Path) -> None:
    write_safetensors(folder / "model.safetensors", {"a": (50_000,)})
    directory_of = directory(folder.parent / "other", num_labels=50_000, num_hidden_layers=1)
    (directory_of / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with limited(10**7), pytest.raises(SizeError, match="num_labels is 50000"):
        open_directory(str(directory_of))


def test_more_layers_than_tensors(folder: Path) -> None:
    # as nothing is built of it: a model of 200000 layers takes minutes
    directory(folder, num_hidden_layers=200_000)
    with pytest.raises(InputError, match=r"num_hidden_layers is 200000.*2 tensors"):
        open_directory(str(folder))
    directory(folder, text_config={"encoder_layers": 3})
    with pytest.raises(InputError, match=r"text_config.encoder_layers is 3"):
        open_directory(str(folder))


HEADERS: dict[str, tuple[dict[str, Any], int, str]] = {
    "cut off": ({}, -1, "it holds 43 bytes of numbers, its header says 44"),
    "longer": ({}, 1, "it holds 45 bytes of numbers, its header says 44"),
    "another size": ({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 24]}}, 0, "'a'"),
    "no shape": ({"a": {"dtype": "F32"}}, 0, "does not describe 'a'"),
    "a negative one": (
        {"a": {"dtype": "F32", "shape": [-2, -3], "data_offsets": [0, 24]}},
        0,
        "'a'",
    ),
    "no object": ({"a": 5}, 0, "does not describe 'a'"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_lies(tmp_path: Path, name: str) -> None:
    header, more, said = HEADERS[name]
    file = write_safetensors(tmp_path / "w.safetensors", {"a": (2, 3), "b": (5,)}, **header)
    data = file.read_bytes()
    file.write_bytes(data[:more] if more < 0 else data + bytes(more))
    with pytest.raises(InputError, match=rf"w.safetensors is damaged: .*{said}.*download it again"):
        tensors_of(file)


@pytest.mark.parametrize(
    "data", [b"", b"1234567", b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\x05" + bytes(7) + b'{"a":']
)
def test_bytes_that_are_no_safetensors(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(data)
    with pytest.raises(AttncliError, match=r"w.safetensors"):
        tensors_of(file)


def test_a_path_that_no_system_takes() -> None:
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        open_directory("x" * 5000)


def test_it_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys; from attncli.models.directory import open_directory; "
        f"open_directory({str(folder)!r}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
