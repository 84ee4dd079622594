"""A multipart upload, streamed to disk as it arrives: the file never lies in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from batchctl.gateway.wire import WireError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_MAX_FIELD = 4_096


@dataclass(slots=True)
class Form:
    """What the upload held: plain fields, and the file's name; its bytes are at the path given."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    size: int = 0


class _Receiver:
    """Callbacks of the multipart parser: the part `file` goes to `target`, others into fields."""

    def __init__(self, target: BinaryIO, max_bytes: int) -> None:
        self.form = Form()
        self.ended = False
        self._target, self._max_bytes = target, max_bytes
        self._header = b""
        self._value = b""
        self._disposition = b""
        self._name = ""
        self._data = bytearray()

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_data,
            "on_part_end": self._end,
            "on_end": self._on_end,
        }

    def _begin(self) -> None:
        self._disposition, self._name, self._data = b"", "", bytearray()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _on_headers_finished(self) -> None:
        from python_multipart.multipart import parse_options_header

        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if self._name == "file":
            self.form.filename = options.get(b"filename", b"").decode("utf-8", "replace")

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == "file":
            self.form.size += end - start
            if self.form.size <= self._max_bytes:
                self._target.write(memoryview(data)[start:end])
        elif len(self._data) < _MAX_FIELD:
            self._data += data[start:end]

    def _end(self) -> None:
        if self._name and self._name != "file":
            self.form.fields[self._name] = self._data.decode("utf-8", "replace")

    def _on_end(self) -> None:
        self.ended = True


async def receive(chunks: AsyncIterator[bytes], content_type: str, target: Path, *, max_bytes: int) -> Form:
    """Read the whole request, writing its file to `target`; bytes beyond `max_bytes` are read and thrown away.

    Raises WireError 400 where it is no multipart form.
    """
    from python_multipart.exceptions import MultipartParseError
    from python_multipart.multipart import MultipartParser, parse_options_header

    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or b"boundary" not in options:
        raise WireError(400, "The upload must be a multipart/form-data request with a boundary.")
    with target.open("wb") as sink:
        receiver = _Receiver(sink, max_bytes)
        parser = MultipartParser(options[b"boundary"], receiver.callbacks())
        try:
            async for chunk in chunks:
                parser.write(chunk)
            parser.finalize()
        except MultipartParseError as error:
            raise WireError(400, f"The upload could not be parsed: {error}") from error
    if not receiver.ended:
        raise WireError(400, "The upload ended before its last boundary.")
    return receiver.form
