"""Hugging Face datasets, from folders on this machine: no network."""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path

import pytest

from batchctl.errors import InputError, UserError
from batchctl.inputs import open_table


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of the hub, and nothing is cached outside the test's folder."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    import datasets.config
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def refusal(name: str) -> str:
    with pytest.raises(InputError) as caught:
        list(open_table(name).rows())
    return f"{caught.value.message} ({caught.value.hint})"


def test_a_folder_of_files_is_streamed_split_by_split() -> None:
    folder = Path("reviews")
    folder.mkdir()
    for split, count in (("train", 3), ("test", 2)):
        lines = [json.dumps({"text": f"{split} {n}", "n": n, "tags": ["a"]}) for n in range(count)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    table = open_table("hf:reviews:test")
    rows = list(table.rows())
    assert [row.values for row in rows] == [{"text": f"test {n}", "n": n, "tags": ["a"]} for n in range(2)]
    assert [(row.number, row.line, row.file) for row in rows] == [(0, 1, "hf:reviews:test"), (1, 2, "hf:reviews:test")]
    assert (table.columns, table.row_count, table.stem) == (("text", "n", "tags"), 2, "reviews")
    again = open_table("hf:./reviews:default:test")
    assert len(list(again.rows())) == 2
    assert again.sha256 == table.sha256
    assert "hf:reviews:dev: cannot be opened" in refusal("hf:reviews:dev")


def test_what_save_to_disk_wrote_is_read_with_its_types() -> None:
    from datasets import Dataset, DatasetDict

    rows = {"at": [dt.datetime(2024, 1, 2)], "n": [None], "x": [1.5], "o": [{"a": [1]}]}
    DatasetDict({"train": Dataset.from_dict(rows)}).save_to_disk("saved")
    (row,) = open_table("hf:saved:train").rows()
    assert row.raw == b'{"at":"2024-01-02T00:00:00","n":null,"x":1.5,"o":{"a":[1]}}'
    assert "has no split 'test' (there are: train)" in refusal("hf:saved:test")


def test_bytes_and_numbers_that_json_does_not_have_are_refused_by_column() -> None:
    from datasets import Dataset

    Dataset.from_dict({"b": [b"x"]}).save_to_disk("bytes")
    assert "hf:bytes:train: column 'b' holds bytes" in refusal("hf:bytes:train")
    Dataset.from_dict({"x": [1.0, float("nan"), 2.0]}).save_to_disk("nan")
    assert "hf:nan:train:2: column 'x': NaN is no number" in refusal("hf:nan:train")
    told: list[InputError] = []
    assert [row.number for row in open_table("hf:nan:train").rows(told.append)] == [0, 2]


@pytest.mark.parametrize("name", ["hf:", "hf:x", "hf::y", "hf:a:b:c:d"])
def test_a_dataset_is_named_with_its_split(name: str) -> None:
    assert "write hf:NAME:SPLIT" in refusal(name)


def test_a_dataset_that_is_not_there_is_named() -> None:
    assert "hf:nobody/nothing:test: cannot be opened" in refusal("hf:nobody/nothing:test")


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="needs datasets") as caught:
        list(open_table("hf:x:y").rows())
    assert caught.value.hint == "pip install 'batchctl[hf]'"
