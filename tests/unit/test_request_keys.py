"""Keys of requests: what makes two rows the same, in order on disk; and the sorter below them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.engine import sorting
from batchctl.engine.keys import Keys, StoredKeys, context_of, key_of, row_of
from batchctl.engine.prepare import preparer
from batchctl.engine.sorting import BUCKETS, Sorter
from batchctl.inputs import Row
from batchctl.rowjson import parse_object, to_canonical_json
from batchctl.task import Task
from batchctl_adapters.openai_body import BodyEncoder
from batchctl_adapters.profile import Profile
from batchctl_store.spool import Spool

PROFILE = Profile(name="p", base_url="http://here/v1", models={"m": "model-1"})
TASK: dict[str, Any] = {"name": "t", "model": "m", "prompt": "{{ text }}", "output": {"labels": ["a", "b"]}}


def context(profile: Profile = PROFILE, **changes: Any) -> bytes:
    task = Task.model_validate({**TASK, **changes})
    return context_of(task, profile, task.kind)


@given(st.lists(st.binary(min_size=4, max_size=4)), st.sampled_from([8, 16_384]))
def test_records_come_back_in_order_however_few_fit_in_memory(records: list[bytes], held: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_HELD", held)
        sorter = Sorter(4)
        for record in records:
            sorter.add(record[0], record)
        assert [record for bucket in sorter.buckets() for record in bucket] == sorted(records)
        assert sum(sorter.counts()) == len(sorter) == len(records)


def test_most_records_lie_on_disk_and_leave_nothing_behind(tmp_path: Path) -> None:
    sorter = Sorter(24, tmp_path)
    for number in range(200_000):
        sorter.add(number % BUCKETS, number.to_bytes(24, "little"))
    assert sum(map(len, sorter._held)) < 256 * 16 * 1024 < 200_000 * 24
    assert len(sorter) == 200_000
    del sorter
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.sampled_from([b"one", b"two", b"three", b""]), max_size=40))
def test_stored_keys_are_those_of_the_rows(bodies: list[bytes]) -> None:
    import tempfile

    keys = Keys()
    for row, body in enumerate(bodies):
        keys.add(row, body)
    first: dict[bytes, int] = {}
    assert sorted(keys.repeated()) == [row for row, body in enumerate(bodies) if first.setdefault(body, row) != row]
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(folder)
        keys.write(spool, "keys", b"c" * 16)
        with spool.reader("keys") as reader:
            stored = StoredKeys(reader)
            records = [record for number in range(BUCKETS) for record in stored.bucket(number)]
    assert stored.context == b"c" * 16
    assert records == sorted(records)
    by_key: dict[bytes, set[bytes]] = {}
    for record in records:
        by_key.setdefault(key_of(record), set()).add(bodies[row_of(record)])
    assert sorted(map(row_of, records)) == list(range(len(bodies)))
    assert [len(same) for same in by_key.values()] == [1] * len(set(bodies))


SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}}}


@pytest.mark.parametrize(
    "changes",
    [
        {"output": {"labels": ["a", "c"]}},
        {"output": "text"},
        {"output": {"json_schema": SCHEMA}},
        {"output": "text", "kind": "responses"},
        {"output": "text", "kind": "embedding"},
        {"output": "text", "kind": "embedding", "each": "texts", "prompt": "{{ item }}"},
        {"profile": PROFILE.model_copy(update={"base_url": "http://there/v1"})},
        {"profile": PROFILE.model_copy(update={"base_url": None})},
        {"profile": PROFILE.model_copy(update={"adapter": "other"})},
        {"profile": PROFILE.model_copy(update={"endpoints": {"chat": "/v2/chat"}})},
    ],
)
def test_what_is_not_in_the_body_and_may_alter_the_answer_is_in_the_context(changes: dict[str, Any]) -> None:
    assert context(**changes) != context()


def test_a_schema_counts_with_the_order_of_its_properties() -> None:
    turned = {**SCHEMA, "properties": dict(reversed(list(SCHEMA["properties"].items())))}  # type: ignore[attr-defined]
    assert context(output={"json_schema": SCHEMA}) != context(output={"json_schema": turned})


def test_the_environment_decides_where_a_profile_without_an_address_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = PROFILE.model_copy(update={"base_url": None})
    before = context(nowhere)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
    assert context(nowhere) != before
    assert context() == context()


def test_names_and_columns_alter_nothing() -> None:
    renamed = PROFILE.model_copy(update={"name": "q", "account": "z", "models": {"n": "model-1"}, "max_requests": 7})
    assert context(renamed, name="other", expected="gold") == context()


class _Adapter:
    """Encodes as OpenAI's, and has no opinion."""

    def __init__(self) -> None:
        self.encode_body = BodyEncoder(PROFILE).body

    class capabilities:  # noqa: N801 -- the adapter's own name for it
        wire = "openai"
        mixed_models = False

    @staticmethod
    def lint(_: object) -> list[Any]:
        return []


def same(bodies: list[str]) -> list[bytes | None]:
    prepare = preparer(Task.model_validate({"samples": "requests"}), PROFILE, _Adapter())  # type: ignore[arg-type]
    return [prepare(row).same for row in rows(bodies)]


def rows(bodies: list[str]) -> Iterator[Row]:
    for number, body in enumerate(bodies):
        line = f'{{"custom_id": "r{number}", "method": "POST", "url": "/v1/chat/completions", "body": {body}}}'
        yield Row(number, number + 1, line.encode(), parse_object(line.encode()), "r.jsonl")


def test_ready_made_bodies_are_the_same_whatever_the_order_of_their_keys() -> None:
    one, other = same(
        [
            '{"model": "m", "temperature": 0.10, "messages": [{"role": "user", "content": "Hi"}]}',
            '{"messages": [{"content": "Hi", "role": "user"}],   "temperature": 0.10, "model": "m"}',
        ]
    )
    assert one == other


HI = '{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [{"x": 1, "y": 2}], "n": 1.0}'


@pytest.mark.parametrize(
    ("old", "new"),
    [("1.0", "1.00"), ('"x": 1, "y": 2', '"y": 2, "x": 1'), ("Hi", "hi"), ('"m"', '"k"'), (', "n": 1.0', "")],
)
def test_ready_made_bodies_differ_where_the_answer_may(old: str, new: str) -> None:
    first, second = same([HI, HI.replace(old, new)])
    assert first != second


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=8
)


@given(JSON)
def test_canonical_json_knows_no_order_of_keys_and_loses_nothing(value: Any) -> None:
    written = to_canonical_json(value)
    assert json.loads(written) == value
    assert to_canonical_json(_turned(value)) == written


def _turned(value: Any) -> Any:
    return {key: _turned(value[key]) for key in reversed(value)} if isinstance(value, dict) else value
