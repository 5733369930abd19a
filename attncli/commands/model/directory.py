"""A checkpoint's directory as on disk: config.json, safetensors, tokenizer files; read, not run.

    DIR ── or a hub cache's models--org--name ──> config, and every tensor's type and shape

Nothing here needs PyTorch, so that what cannot work is refused before it is imported. Files are
data from strangers: pickles are never read, and sizes are believed only after they are checked.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attncli.budget import check_bytes
from attncli.errors import InputError
from attncli.files.json_text import parse
from attncli.files.messages import decoded, listing, quote, safe
from attncli.files.safetensors import DTYPES

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_WIDTHS = {code: np.dtype(kind).itemsize for code, kind in DTYPES.items()} | {"C64": 8}
PROCESSOR = "preprocessor_config.json"
_TOKENIZER = re.compile(
    r"(tokenizer|vocab|merges|spiece|tekken|source|target|.*bpe).*\.(json|txt|model|spm)"
)
"""The files of a tokenizer: tokenizer.json, vocab.txt, spiece.model, source.spm …"""
_OTHERS = re.compile(r".*\.(bin|pt|pth|ckpt|h5|msgpack|gguf|onnx)")
"""The files of weights in other forms; of those the first four are pickles."""
_IN_PLACE = re.compile(r"shard-.*\.safetensors|adapter_(config\.json|model\..*)")
"""What transformers would read in place of the weights, or beside them."""
_READ = re.compile(rf"{_TOKENIZER.pattern}|(added|special)_tokens.*|.*\.jinja")
_COUNTS = (
    (re.compile(r"(n|num|encoder|decoder)(_[a-z]+)*_(layers?|hidden_groups)"), 100_000),
    (re.compile(r"num_labels|id2label|label2id"), 400),
)
"""What a config counts: layers, labels; and the bytes of memory that one takes at least."""
_PARSED = 20  # bytes of memory for each byte of JSON


class Tensor(NamedTuple):
    """What a file says of a tensor: its type, such as "F32", and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Directory:
    """A directory whose parts are all there, and fit together as far as can be seen.

    path     of the directory itself, within a hub cache of a snapshot
    config   what config.json says
    files    those that hold the weights, and nothing else is read of any
    tensors  each tensor of the weights by its name
    """

    path: Path
    config: Mapping[str, Any]
    files: Sequence[Path]
    tensors: Mapping[str, Tensor]

    @property
    def name(self) -> str:
        """What it is called in titles: of a hub cache the model's own name, org/name."""
        cache = self.path.parent.parent
        if self.path.parent.name == "snapshots" and cache.name.startswith("models--"):
            return safe(cache.name.removeprefix("models--").replace("--", "/"))
        return safe(self.path.resolve().name)

    @property
    def longest(self) -> int:
        """The most rows, or columns, that a tensor has: no model has more tokens or labels."""
        return max((size for tensor in self.tensors.values() for size in tensor.shape), default=0)

    def n_bytes(self, width: int | None = None) -> int:
        """The bytes of the weights, as stored or with so many bytes for each number."""
        tensors = self.tensors.values()
        return sum(tensor.size * (width or _WIDTHS.get(tensor.dtype, 1)) for tensor in tensors)


def open_directory(path: str) -> Directory:
    """What is in the directory of a checkpoint, or in a hub cache's folder of a model.

    Raises InputError where a part is missing, damaged, or no safetensors; SizeError where a header
    is larger than a call may take.
    """
    try:
        return _opened(path)
    except OSError as problem:
        message = f"{safe(problem.filename or path)} cannot be read: {problem.strerror}"
        raise InputError(message, "check the path, and that you may read it") from None


def _opened(path: str) -> Directory:
    folder = _folder(path)
    config = _object(folder / CONFIG)
    if not isinstance(config.get("model_type"), str):
        hint = "it must be the config.json of a model of transformers"
        raise InputError(f"{folder / CONFIG} names no model_type", hint)
    tensors: dict[str, Tensor] = {}
    files = _files_of_weights(folder, config.get("transformers_weights"))
    for file in files:
        tensors |= tensors_of(file)
    if not tensors:
        raise InputError(f"{folder} holds no tensors", "save the model again")
    directory = Directory(folder, config, files, tensors)
    _check_counts(directory)
    names = [file.name for file in folder.iterdir()]
    for file in (*folder.iterdir(), *folder.glob("*/*.jinja")):
        if _READ.fullmatch(file.name):
            check_bytes(_PARSED * _size(file), f"{file} takes")
    if not any(map(_TOKENIZER.fullmatch, names)):
        if PROCESSOR in names or "vocab_size" not in _names(config):
            hint = "run it in Python, in the block of attncli.capture(model)"
            raise InputError(f"{folder} reads images or sound: it has no tokenizer", hint)
        hint = "copy tokenizer.json and tokenizer_config.json of the model into it"
        raise InputError(f"{folder} holds no tokenizer", hint)
    return directory


def _folder(path: str) -> Path:
    """The directory that holds config.json. InputError where there is none."""
    folder = Path(os.path.expanduser(path))  # Path's own raises where there is no such user
    if not folder.exists():
        hint = "give the directory of a model on disk, with config.json in it"
        if re.fullmatch(r"[\w.-]+/[\w.-]+", path):
            hint = f"attncli downloads nothing: {hint}"
        raise InputError(f"there is no directory {safe(path)}", hint)
    if not folder.is_dir():
        raise InputError(f"{safe(path)} is a file", "give the directory that it is in")
    snapshots = folder / "snapshots"
    if snapshots.is_dir() and not (folder / CONFIG).exists():
        folder = _snapshot(folder, snapshots)
    if not (folder / CONFIG).exists():
        hint = "give the directory of one model, as save_pretrained writes it"
        raise InputError(f"{folder} holds no {CONFIG}", hint)
    return folder


def _snapshot(folder: Path, snapshots: Path) -> Path:
    """The snapshot of refs/main, or the only one (huggingface.co/docs/hub/local-cache)."""
    there = sorted(file.name for file in snapshots.iterdir() if file.is_dir())
    main = folder / "refs" / "main"
    name = decoded(main.read_bytes(), "utf-8", str(main)).strip() if main.is_file() else ""
    if name in there:
        return snapshots / name
    if len(there) == 1:
        return snapshots / there[0]
    message = f"{folder} names no main snapshot of: {listing(there, 3) if there else 'none'}"
    raise InputError(message, "give one of them: its folder in snapshots")


def _object(file: Path) -> dict[str, Any]:
    """The object in a JSON file. InputError where there is none."""
    size = _size(file)
    check_bytes(_PARSED * size, f"{file} takes")
    entries = parse(file.read_bytes(), str(file)) if size else None
    if not isinstance(entries, dict):
        raise InputError(f"{file} holds no object", "copy it again")
    return entries


def _size(file: Path) -> int:
    """The bytes of a file. InputError for a link whose file is gone."""
    if not file.is_file():
        problem = "is a link to a file that is not there" if file.is_symlink() else "is not there"
        raise InputError(f"{file} {problem}", "download the model again")
    return file.stat().st_size


def _names(config: Mapping[str, Any]) -> set[str]:
    """All names in a config, those in its parts too."""
    inner = (_names(value) for value in config.values() if isinstance(value, dict))
    return {*config}.union(*inner)


def _check_counts(directory: Directory) -> None:
    """Raises for more layers than tensors, more labels than rows of any, and for too many."""
    limits = (len(directory.tensors), "tensors"), (directory.longest, "rows in the largest tensor")
    for (names, width), (most, unit) in zip(_COUNTS, limits, strict=True):
        for key, count in _counts(directory.config, names):
            message = f"{directory.path / CONFIG} says {key} is {count}"
            if count > most:
                hint = "one of the two is of another model; copy both again"
                raise InputError(f"{message}, but there are {most} {unit}", hint)
            check_bytes(width * count, f"{message}, which takes")


def _counts(
    config: Mapping[str, Any], names: re.Pattern[str], prefix: str = ""
) -> Iterator[tuple[str, int]]:
    """Every count of this name that is in a config, in the parts of it too."""
    for name, value in config.items():
        if isinstance(value, (int, dict)) and names.fullmatch(name):
            yield f"{prefix}{name}", len(value) if isinstance(value, dict) else value
        elif isinstance(value, dict):
            yield from _counts(value, names, f"{prefix}{name}.")


# ---- weights


def _files_of_weights(folder: Path, weights_name: object) -> list[Path]:
    """model.safetensors, or the files of its index; `weights_name`: by the config."""
    names_there = sorted(file.name for file in folder.iterdir())
    for name in filter(_IN_PLACE.fullmatch, names_there):
        message = f"{folder} holds {safe(name)}, an adapter or a part of a distributed checkpoint"
        raise InputError(message, "save the whole model: merge_and_unload, save_pretrained")
    if weights_name not in (None, WEIGHTS if WEIGHTS in names_there else INDEX):
        message = f"{folder / CONFIG} names {quote(str(weights_name))} as transformers_weights"
        raise InputError(message, f"attncli reads {WEIGHTS} or {INDEX}; take that name out")
    if WEIGHTS in names_there:
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        names = _object(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(x, str) for x in names.values()):
            raise InputError(f"{folder / INDEX} names no files", "download the model again")
        shards = sorted(set(names.values()))
        for shard in shards:
            if "/" in shard or "\\" in shard or not shard.endswith(".safetensors"):
                message = f"{folder / INDEX} names {quote(shard)}"
                raise InputError(message, "its files are safetensors beside it; download it again")
        return [folder / shard for shard in shards]
    if others := [name for name in names_there if _OTHERS.fullmatch(name)]:
        message = f"{folder} holds its weights as {listing(others, 2)}, which attncli does not read"
        raise InputError(message, 'write safetensors: model.save_pretrained("…") in Python')
    if any(name.endswith(".safetensors") for name in names_there):
        message = f"{folder} holds neither {WEIGHTS} nor {INDEX}"
        raise InputError(message, "the weights of a whole model are called so; rename them")
    raise InputError(f"{folder} holds no weights", f"copy {WEIGHTS} into it")


def tensors_of(file: Path) -> dict[str, Tensor]:
    """The type and shape of every tensor in a safetensors file, by its header.

    The header is held against the size of the file: what is damaged or cut off is refused here,
    and named. Raises InputError, SizeError for a header that takes too much.
    """
    size = _size(file)
    with file.open("rb") as opened:
        n_header = int.from_bytes(opened.read(8), "little")
        if size < 8 or n_header > size - 8:
            raise _damaged(file, f"its header has {n_header} bytes, the file {size}")
        check_bytes(_PARSED * n_header, f"the header of {file} takes")
        try:
            header = parse(opened.read(n_header), "its header") if n_header else None
        except InputError as problem:
            raise _damaged(file, problem.message) from None
    if not isinstance(header, dict):
        raise _damaged(file, "its header is no object")
    tensors, end = {}, 0
    header.pop("__metadata__", None)
    for name, entry in header.items():
        try:
            tensor = Tensor(str(entry["dtype"]), tuple(map(int, entry["shape"])))
            start, stop = map(int, entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise _damaged(file, f"its header does not describe {quote(name)}") from None
        width = _WIDTHS.get(tensor.dtype)
        if min(0, start, *tensor.shape) < 0 or (width and stop - start != tensor.size * width):
            raise _damaged(file, f"{quote(name)} has another size than its shape says")
        tensors[name], end = tensor, max(end, stop)
    if end != size - 8 - n_header:
        detail = f"it holds {size - 8 - n_header} bytes of numbers, its header says {end}"
        raise _damaged(file, detail)
    return tensors


def _damaged(file: Path, detail: str) -> InputError:
    return InputError(f"{file} is damaged: {detail}", "download it again")
