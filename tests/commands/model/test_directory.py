"""A checkpoint's directory: what is read of it, and what is refused before torch is imported."""

import json
from pathlib import Path
from typing import Any

import pytest

from attncli.budget import limited
from attncli.commands.model.directory import open_directory
from attncli.errors import AttncliError, InputError, SizeError
from tests.commands.model.checkpoints import directory, write_safetensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return directory(tmp_path / "model")


def refused(folder: Path | str, *words: str, error: type[AttncliError] = InputError) -> None:
    """That the directory is refused, with these words."""
    with pytest.raises(error) as problem:
        open_directory(str(folder))
    assert [word for word in words if word not in str(problem.value)] == []


def test_its_tensors_by_the_headers(folder: Path) -> None:
    others = ("pytorch_model.bin", "training_args.bin", "tf_model.h5", "consolidated.safetensors")
    for name in others:
        (folder / name).write_bytes(b"never read")
    own = open_directory(str(directory(folder, transformers_weights="model.safetensors")))
    assert own.tensors == {"a": ("F32", (2, 3)), "b": ("F32", (5,))}
    assert (own.n_bytes(), own.n_bytes(2)) == (4 * (6 + 5), 2 * (6 + 5))
    assert own.name == "model"


def test_shards_by_their_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    shards = {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}
    for name, file in shards.items():
        write_safetensors(folder / file, {name: (7,)})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    assert [*open_directory(str(folder)).tensors] == ["a", "b"]
    (folder / shards["b"]).unlink()
    refused(folder, "model-2-of-2.safetensors is not there")
    wrong = {"beside it": {"a": "../other/model.safetensors"}, "safetensors": {"a": "model.bin"}}
    for words, names in {**wrong, "names no files": [1]}.items():
        index.write_text(json.dumps({"weight_map": names}))
        refused(folder, words)


def test_a_hub_cache_by_its_main_reference(tmp_path: Path) -> None:
    """As a hub keeps a model: links in a snapshot to files called by their digest."""
    own, cache = directory(tmp_path / "own"), tmp_path / "models--org--small"
    snapshot, blobs, main = cache / "snapshots" / "c0ffee", cache / "blobs", cache / "refs" / "main"
    for new in (snapshot, blobs, main.parent):
        new.mkdir(parents=True)
    for number, file in enumerate(sorted(own.iterdir())):
        (blobs / str(number)).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    alone = open_directory(str(cache))
    assert (alone.path.name, alone.name) == ("c0ffee", "org/small")
    (cache / "snapshots" / "beef").mkdir()
    refused(cache, "no main snapshot", "beef, c0ffee")
    main.write_text("../../own")
    refused(cache, "no main snapshot")
    main.write_bytes(b"\xff\xfec0ffee")
    refused(cache, "not text")
    main.write_text("c0ffee\n")
    assert open_directory(str(cache)).path.name == "c0ffee"
    (blobs / "1").unlink()
    refused(cache, "model.safetensors", "link")


def test_no_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    wrong = {"nowhere": "no directory", "org/name": "downloads nothing", "config.json": "is a file"}
    wrong |= {"~no-such-user/model": "~no-such-user/model", "x" * 5000: "name too long"}
    for path, words in wrong.items():
        refused(path, words)


MANY = 10**9
# a file, and what is in it (None: it is not there); a word of the refusal is the last
FILES: list[tuple[str, str | None, str]] = [
    ("config.json", None, "config.json"), ("config.json", "", "no object"),
    ("config.json", "[]", "no object"), ("config.json", "{", "not JSON"),
    ("config.json", '{"model_type": 3}', "model_type"), ("tokenizer.json", None, "tokenizer.json"),
    ("model.safetensors", None, "model.safetensors"), ("model.safetensors", "", "damaged"),
]  # fmt: skip
BESIDE = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin",
          "shard-00000-model-00001-of-00001.safetensors")  # fmt: skip
CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"transformers_weights": "adapter_model.bin"}, "adapter_model.bin"),
    ({"transformers_weights": ["model.safetensors"]}, "transformers_weights"),
    ({"num_labels": MANY}, "num_labels is 1000000000"), ({"num_hidden_groups": MANY}, "groups is"),
    ({"text_config": {"num_labels": MANY}}, "text_config.num_labels is 1000000000"),
    ({"id2label": {str(n): "x" for n in range(50)}}, "id2label is 50"),
    ({"num_hidden_layers": 200_000}, "num_hidden_layers is 200000"),  # takes minutes
    ({"text_config": {"encoder_layers": 3}}, "text_config.encoder_layers is 3"),
]  # fmt: skip


def test_parts_that_are_missing_or_wrong_or_of_something_else(folder: Path) -> None:
    for name, text, words in FILES:
        before = (folder / name).read_bytes()
        (folder / name).unlink()
        if text is not None:
            (folder / name).write_text(text)
        refused(folder, words)
        (folder / name).write_bytes(before)
    weights = (folder / "model.safetensors").read_bytes()
    for name in BESIDE:
        (folder / name).write_bytes(weights)
        refused(folder, name.split("-model")[0])
        (folder / name).unlink()
    (folder / "o.safetensors").write_bytes(weights)
    refused(directory(folder, transformers_weights="o.safetensors"), "o.safetensors")
    (folder / "o.safetensors").unlink()
    for config, words in CONFIGS:
        refused(directory(folder, **config), words)


def test_weights_in_another_form_or_of_another_name_and_no_text(folder: Path) -> None:
    at = folder / "model.safetensors"
    for name in ("pytorch_model.bin", "model.gguf", "tf_model.h5", "other.safetensors"):
        at = at.rename(folder / name)
        refused(folder, "rename" if "safetensors" in name else "does not read")
    at.rename(folder / "model.safetensors")
    (folder / "tokenizer.json").unlink()
    (folder / "config.json").write_text('{"model_type": "vit"}')
    refused(folder, "images or sound")


def test_what_takes_too_much(folder: Path) -> None:
    templates = folder / "additional_chat_templates"
    templates.mkdir()
    for file in (folder / "tokenizer.json", folder / "chat_template.jinja", templates / "a.jinja"):
        before = file.read_bytes() if file.exists() else b""
        with file.open("wb") as opened:
            opened.truncate(10**9)  # of zeros, which take no room on disk
        refused(folder, file.name, error=SizeError)
        file.write_bytes(before)
    directory(folder, num_labels=50_000)  # as many as rows
    write_safetensors(folder / "model.safetensors", {"a": (50_000,)})
    with limited(10**7):
        refused(folder, "num_labels", error=SizeError)


def test_a_header_that_lies_and_bytes_that_are_no_safetensors(folder: Path) -> None:
    file, entry = folder / "model.safetensors", {"dtype": "F32", "data_offsets": [0, 24]}
    wrong = {**entry, "shape": (2, 2)}, {**entry, "shape": (-2, -3)}, {"dtype": "F32"}, 5
    sizes: list[tuple[dict[str, Any], int, str]] = [({}, 43, "43"), ({}, 45, "45")]  # of 44 bytes
    for header, size, words in [*sizes, *(({"a": one}, 44, "'a'") for one in wrong)]:
        write_safetensors(file, {"a": (2, 3), "b": (5,)}, **header)
        file.write_bytes(file.read_bytes()[:-44] + bytes(size))
        refused(folder, "model.safetensors", "damaged", words)
    for data in (b"1234567", b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\x05" + bytes(7) + b'{"a":'):
        file.write_bytes(data)
        refused(folder, "model.safetensors", error=AttncliError)
