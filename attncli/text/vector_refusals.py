"""What is no text of vectors, told by its first bytes, and what to do about it."""

from __future__ import annotations

import re

from attncli.errors import InputError

_PAGE = (b"<!doctype", b"<html", b"<head", b"<?xml", b"<!--")
_LFS = b"version https://git-lfs"
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {
    b"\x1f\x8b": "gzip inside another file",
    b"PK\x03\x04": "a zip inside another file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf": "a 7z file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
}
_HEADER = re.compile(rb"\d+ \d+\r?\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_JSON = re.compile(rb'\s*(\{\s*("|\}\s*$)|\[\s*["\[{])')
_JSON_TOKEN = re.compile(rb'\s*[\[{]+"*[ \t]+[-.\d]')
_SEEN = 1 << 16


def refuse(start: bytes, origin: str, damage: str = "") -> None:
    """InputError where the first bytes show that these are no vectors in text."""
    if not start and damage:
        raise InputError(f"{origin} is damaged ({damage})", "download it again")
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise InputError(f"{origin} is empty", "it should hold a word and its numbers on each line")
    if text[:16].lower().startswith(_PAGE):
        raise InputError(
            f"{origin} is a web page, not vectors", "download the file that the page links to"
        )
    if text.startswith(_LFS):
        raise InputError(
            f"{origin} is a Git LFS pointer, not the vectors themselves", "run: git lfs pull"
        )
    _refuse_binary(start, origin)


def is_json(start: bytes) -> bool:
    """Whether JSON begins here; a GloVe file may well begin with the token "{".

    >>> is_json(b'{ "king": [1]}'), is_json(b"{ 0.1 0.2")
    (True, False)
    """
    text = start.removeprefix(b"\xef\xbb\xbf")
    return bool(_JSON.match(text)) and not _JSON_TOKEN.match(text)


def _refuse_binary(start: bytes, origin: str) -> None:
    if start.startswith(_WIDE):
        raise InputError(f"{origin} is UTF-16", "save it as UTF-8")
    for magic, what in _PACKED.items():
        if start.startswith(magic):
            raise InputError(f"{origin} is {what}", "unpack it first")
    seen = start[:_SEEN]
    if b"\0" not in seen and len(_CONTROL.findall(seen)) <= len(seen) / 100:
        return
    if _HEADER.match(start):
        raise InputError(
            f"{origin} is word2vec's binary format",
            "convert it with gensim: KeyedVectors.load_word2vec_format(path, binary=True)"
            ".save_word2vec_format('vectors.txt')",
        )
    raise InputError(f"{origin} is binary, not text", "give a word and its numbers on each line")
