"""Images of a row: a column's paths and URLs become parts of the user's message, files read and checked here.

Limits are those that the providers' documents state for one request (OpenAI, "Images and vision": PNG, JPEG, WEBP and
GIF, 500 images, 50 MB in all); nothing is resized or converted.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from batchctl.errors import InputError
from batchctl.inputs import Row
from batchctl.inputs.sources import DATASET

MAX_FILE_BYTES = 20_000_000
MAX_ROW_BYTES = 50_000_000  # of all images of a row, as base64
MAX_IMAGES = 500  # of a row

Part = dict[str, Any]
"""`{"type": "image", "url": ...}` or `{"type": "image", "media_type": "image/png", "data": BASE64}`."""

_URLS = ("http://", "https://")
_DATA = "data:"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|file:")
_KINDS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_OTHERS = (
    (b"%PDF", "a PDF"),
    (b"BM", "a BMP image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"<", "markup (SVG, HTML)"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
)


class ImageProblem(ValueError):
    """What is wrong with an image, and what to do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class Images:
    """The images of a task's columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)

    def parts(self, row: Row) -> list[Part]:
        """The row's images in the order of the columns. Raises InputError that names row, line and column."""
        found: list[Part] = []
        for column in self._columns:
            try:
                if column not in row.values:
                    raise ImageProblem("the row has no such column", "add it, or mend the task's `images`")
                found += [self.part(text, folder_of(row.file)) for text in _named(row.values[column])]
                _check_sum(found)
            except ImageProblem as problem:
                what = f"row {row.number}: column {column!r}: {problem.what}"
                raise InputError(row.file, row.line, what, hint=problem.hint) from None
        if not found:
            what = f"row {row.number}: no image in {', '.join(map(repr, self._columns))}"
            raise InputError(row.file, row.line, what, hint="give a path or a URL, or leave the row out")
        return found

    def part(self, text: str, folder: Path) -> Part:
        """One image: a URL, `data:` with base64, or a path that counts from `folder`. Raises ImageProblem."""
        if text.startswith(_URLS):
            return {"type": "image", "url": text}
        if text.startswith(_DATA):
            data = _decoded(text)
        elif _SCHEME.match(text):
            raise ImageProblem(f"{_shown(text)} is neither a path nor an http URL", "give one of the two")
        else:
            data = _read(folder / text, text)
        return {"type": "image", "media_type": _media_type(data, text), "data": base64.b64encode(data).decode("ascii")}


def folder_of(file: str) -> Path:
    """Where relative paths of a table's rows count from: the table's own folder."""
    return Path() if file.startswith(DATASET) else Path(file).parent


def _named(cell: Any) -> Iterator[str]:
    """The images of one cell: a text, a list of texts, or nothing."""
    for one in cell if isinstance(cell, list) else [cell]:
        if one is not None and not isinstance(one, str):
            raise ImageProblem(f"{_shown(str(one))} is neither a path nor a URL", "give a text, or a list of texts")
        if one and one.strip():
            yield one


def _check_sum(parts: Sequence[Part]) -> None:
    size = sum(len(part.get("data", "")) for part in parts)
    if size > MAX_ROW_BYTES:
        what = f"the row's images have {size:,} bytes as base64, the limit is {MAX_ROW_BYTES:,}"
        raise ImageProblem(what, "make them smaller, or give URLs")
    if len(parts) > MAX_IMAGES:
        raise ImageProblem(f"the row has more than {MAX_IMAGES} images", "split it into several rows")


def _read(path: Path, text: str) -> bytes:
    try:
        if not path.is_file():
            kind = "is a folder" if path.is_dir() else "there is no such file" if not path.exists() else "is no file"
            hint = f"check the path; relative ones count from the table's folder ({path.parent})"
            raise ImageProblem(f"{_shown(text)}: {kind}", hint)
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            what = f"{_shown(text)} has {size:,} bytes, the limit is {MAX_FILE_BYTES:,}"
            raise ImageProblem(what, "make the image smaller, or give a URL")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, ImageProblem):
            raise
        said = error.strerror if isinstance(error, OSError) else None
        raise ImageProblem(f"{_shown(text)} cannot be read: {said or error}", "check the path") from None


def _decoded(text: str) -> bytes:
    head, comma, body = text.partition(",")
    try:
        if not comma or not head.endswith(";base64"):
            raise binascii.Error
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise ImageProblem(f"{_shown(text)} is no base64 data URL", "write data:image/png;base64,...") from None
    if len(data) > MAX_FILE_BYTES:
        what = f"an image of {len(data):,} bytes, the limit is {MAX_FILE_BYTES:,}"
        raise ImageProblem(what, "make the image smaller, or give a URL")
    return data


def _media_type(data: bytes, text: str) -> str:
    """By what the file holds; its name may say anything."""
    for magic, kind in _KINDS:
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    start = data[:64].lstrip()
    seen = next((name for magic, name in _OTHERS if start.startswith(magic)), None)
    if data[4:8] == b"ftyp":
        seen = "a HEIC or AVIF image, or a film"
    what = "is empty" if not data else f"is {seen}" if seen else "is no image"
    raise ImageProblem(f"{_shown(text)} {what}", "convert it to PNG, JPEG, WEBP or GIF")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
