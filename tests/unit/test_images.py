"""Images of rows: read and checked here, in no provider's words, and wrong ones named by row and column."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl import images
from batchctl.engine.tokens import tokens_of_messages
from batchctl.errors import InputError
from batchctl.images import Images
from batchctl.inputs import Row
from batchctl.render import Renderer
from batchctl.task import Task
from batchctl_adapters.base import Request
from batchctl_adapters.openai_body import BodyEncoder
from batchctl_adapters.openai_parts import with_parts
from batchctl_adapters.profile import Profile

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
KINDS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0rest",
    "image/gif": b"GIF89a-rest",
    "image/webp": b"RIFF\x04\0\0\0WEBPVP8 ",
}


def row(values: dict[str, Any], file: str = "t.jsonl") -> Row:
    return Row(4, 6, json.dumps(values).encode(), values, file)


def task(**fields: Any) -> Task:
    return Task.model_validate({"model": "m", "prompt": "What is {{ name }}?", "images": ["photo"], **fields})


def content(values: dict[str, Any], file: str = "t.jsonl", **fields: Any) -> Any:
    return Renderer(task(**fields), "m").request(row({"name": "it", **values}, file)).messages[-1]["content"]


def refusal(values: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(InputError) as caught:
        content(values, **fields)
    return f"{caught.value.message} ({caught.value.hint})"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_sent_with_the_type_of_its_content(kind: str) -> None:
    Path("photo.txt").write_bytes(KINDS[kind])
    assert content({"photo": "photo.txt"}) == [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "media_type": kind, "data": base64.b64encode(KINDS[kind]).decode()},
    ]


def test_paths_count_from_the_tables_folder(here: Path) -> None:
    Path("data/pics").mkdir(parents=True)
    Path("data/pics/a.png").write_bytes(PNG)
    assert len(content({"photo": "pics/a.png"}, file="data/t.csv")) == 2
    assert len(content({"photo": str(here / "data/pics/a.png")}, file="elsewhere/t.csv")) == 2
    for file in ("-", "hf:data/x:train"):
        assert len(content({"photo": "data/pics/a.png"}, file=file)) == 2
    assert "row 4: column 'photo': 'pics/a.png': there is no such file (check" in refusal({"photo": "pics/a.png"})


def test_urls_are_sent_as_they_are_and_lists_are_several_images() -> None:
    Path("a.png").write_bytes(PNG)
    urls = ["https://x.org/a b.png?c=d", "http://x.org/i"]
    found = content(
        {"photo": [*urls, None, "a.png"], "second": "", "third": urls[0]}, images=["photo", "second", "third"]
    )
    assert [part.get("url", "file") for part in found[1:]] == [*urls, "file", urls[0]]


def test_data_urls_are_checked_like_files() -> None:
    text = f"data:image/jpeg;base64,{base64.b64encode(PNG).decode()}"
    assert content({"photo": text})[1] == {"type": "image", "media_type": "image/png", "data": text.partition(",")[2]}
    for wrong in ("data:image/png,x", "data:image/png;base64,!!", "data:"):
        assert "is no base64 data URL" in refusal({"photo": wrong})
    assert "is no image" in refusal({"photo": "data:image/png;base64,AAAA"})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty (convert it to PNG, JPEG, WEBP or GIF)"),
        (b"hello", "is no image"),
        (b"%PDF-1.7", "is a PDF"),
        (b"BM....", "is a BMP image"),
        (b"  <svg/>", "is markup (SVG, HTML)"),
        (b"\0\0\0\x18ftypheic", "is a HEIC or AVIF image"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    ],
)
def test_what_is_no_image_is_refused(data: bytes, expected: str) -> None:
    Path("a.png").write_bytes(data)
    assert f"t.jsonl:6: row 4: column 'photo': 'a.png' {expected}" in refusal({"photo": "a.png"})


def test_what_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe")
    assert "'folder': is a folder" in refusal({"photo": "folder"})
    assert "'pipe': is no file" in refusal({"photo": "pipe"})
    assert "there is no such file" in refusal({"photo": "x" * 80})
    assert "cannot be read: File name too long" in refusal({"photo": "x" * 300})
    assert "cannot be read: embedded null" in refusal({"photo": "a\0b"}) or "no such file" in refusal({"photo": "a\0b"})
    assert "is neither a path nor an http URL" in refusal({"photo": "s3://bucket/a.png"})
    assert "is neither a path nor an http URL" in refusal({"photo": "file:///a.png"})
    assert "'7' is neither a path nor a URL (give a text" in refusal({"photo": 7})


def test_limits_of_files_and_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_FILE_BYTES", 1_000)
    monkeypatch.setattr(images, "MAX_ROW_BYTES", 3_000)
    monkeypatch.setattr(images, "MAX_IMAGES", 3)
    Path("big.png").write_bytes(PNG.ljust(1_001, b"."))
    Path("good.png").write_bytes(PNG.ljust(1_000, b"."))
    assert "'big.png' has 1,001 bytes, the limit is 1,000" in refusal({"photo": "big.png"})
    data = base64.b64encode(Path("big.png").read_bytes()).decode()
    assert "an image of 1,001 bytes, the limit is 1,000" in refusal({"photo": f"data:image/png;base64,{data}"})
    assert len(content({"photo": ["good.png"] * 2})) == 3
    assert "have 4,008 bytes as base64, the limit is 3,000" in refusal({"photo": ["good.png"] * 3})
    assert "more than 3 images" in refusal({"photo": ["https://x.org/a"] * 4})


def test_a_row_without_any_image_is_refused() -> None:
    assert "row 4: no image in 'photo', 'b'" in refusal({"photo": "", "b": None}, images=["photo", "b"])
    assert "column 'b': the row has no such column" in refusal({"photo": "https://x.org/a"}, images=["photo", "b"])


def test_a_prompt_that_comes_out_empty_is_left_out() -> None:
    assert content({"photo": "https://x.org/a"}, prompt="{% if false %}x{% endif %}") == [
        {"type": "image", "url": "https://x.org/a"}
    ]


@given(data=st.binary(max_size=20) | st.sampled_from([*KINDS.values(), b"%PDF", b"RIFF"]))
def test_any_bytes_are_an_image_or_a_named_error(data: bytes) -> None:
    Path("f").write_bytes(data)
    try:
        (part,) = Images(["f"]).parts(row({"f": "f"}))
    except InputError as error:
        assert "column 'f'" in error.message
    else:
        assert base64.b64decode(part["data"]) == data
        assert data[:3] == KINDS[part["media_type"]][:3]


def test_images_in_openais_words() -> None:
    message = {
        "role": "user",
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "url": "https://x.org/i"},
            {"type": "image", "media_type": "image/png", "data": "QUJD"},
        ],
    }
    assert with_parts(message)["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "https://x.org/i"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ]
    assert with_parts(message, "input")["content"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "https://x.org/i"},
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD"},
    ]
    body = json.loads(BodyEncoder(Profile(name="p")).body(Request("m", [message, message])))
    assert body["messages"] == [with_parts(message)] * 2
    with pytest.raises(ValueError, match="cannot have a part of type 'audio'"):
        with_parts({"role": "user", "content": [{"type": "audio"}]})
    assert 2_500 * 2 < tokens_of_messages([message]) < 2_500 * 2 + 20
