"""Uploads are parsed as they stream, wherever the chunks are cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchctl.gateway.upload import Form, receive
from batchctl.gateway.wire import WireError
from tests.contract.requests import rows

_TYPE = "multipart/form-data; boundary=XX"


def _form(data: bytes, *, file_first: bool) -> bytes:
    file = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a b.jsonl"\r\n\r\n' + data + b"\r\n"
    purpose = b'--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    return (file + purpose if file_first else purpose + file) + b"--XX--\r\n"


def _receive(body: bytes, target: Path, *, step: int, content_type: str = _TYPE, max_bytes: int = 10_000) -> Form:
    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(body), step):
            yield body[begin : begin + step]

    return asyncio.run(receive(chunks(), content_type, target, max_bytes=max_bytes))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), step=st.integers(1, 400), file_first=st.booleans())
def test_any_bytes_in_any_chunks(tmp_path: Path, data: bytes, step: int, file_first: bool) -> None:
    data = data.replace(b"--XX", b"")
    target = tmp_path / "upload"
    form = _receive(_form(data, file_first=file_first), target, step=step)
    assert (form.filename, form.size, form.fields) == ("a b.jsonl", len(data), {"purpose": "batch"})
    assert target.read_bytes() == data


def test_bytes_beyond_the_limit_are_counted_and_not_kept(tmp_path: Path) -> None:
    form = _receive(_form(b"x" * 5_000, file_first=True), tmp_path / "upload", step=700, max_bytes=1_000)
    assert form.size == 5_000
    assert (tmp_path / "upload").stat().st_size <= 1_000


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("application/json", b"{}"), ("multipart/form-data", b""), (_TYPE, b"no boundary here"), (_TYPE, b"--XX\r\nbad")],
)
def test_what_is_no_form_is_refused(tmp_path: Path, content_type: str, body: bytes) -> None:
    with pytest.raises(WireError):
        _receive(body, tmp_path / "upload", step=100, content_type=content_type)


def test_a_form_that_ends_early_is_refused(tmp_path: Path) -> None:
    whole = _form(rows(3), file_first=True)
    for cut in range(0, len(whole) - 4, 7):
        with pytest.raises(WireError):
            _receive(whole[:cut], tmp_path / "upload", step=50)
