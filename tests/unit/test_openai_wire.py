from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl_adapters import openai_wire as wire
from batchctl_adapters.base import BatchError, Counts, Doubt, Phase, RemoteBatch
from batchctl_adapters.errors import Auth, Billing, Permanent, QueueFull, RemoteGone, Transient
from batchctl_adapters.openai_listing import Listing, match, sweep

ENQUEUED = (
    "Enqueued token limit reached for gpt-4o-mini in organization org-1. Limit: 2,000,000 enqueued tokens."
    " Please try again once some in_progress batches have been completed."
)


def batch(**fields: Any) -> RemoteBatch:
    return wire.parse_batch({"id": "batch_1", "status": "failed", **fields})


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("validating", Phase.WAITING),
        ("in_progress", Phase.RUNNING),
        ("PROGRESS", Phase.RUNNING),
        ("Finalizing", Phase.ENDING),
        ("cancelling", Phase.ENDING),
        ("completed", Phase.ENDED),
        ("FAILED", Phase.ENDED),
        ("expired", Phase.ENDED),
        ("cancelled", Phase.ENDED),
        ("canceled", Phase.ENDED),
        ("pre_schedule", Phase.UNKNOWN),
        ("PartiallyCompleted", Phase.UNKNOWN),
        ("JOB_STATE_PARTIALLY_SUCCEEDED", Phase.UNKNOWN),
        ("paused_by_admin", Phase.UNKNOWN),
        (None, Phase.UNKNOWN),
        ({"x": 1}, Phase.UNKNOWN),
    ],
)
def test_case_07_statuses_are_mapped_and_unknown_ones_kept_raw(status: Any, phase: Phase) -> None:
    got = batch(status=status)
    assert got.phase is phase
    assert got.raw_status == (status if isinstance(status, str) else "")
    assert got.ran_nothing is (phase is Phase.ENDED)


def test_a_whole_batch_object() -> None:
    got = batch(
        status="expired",
        created_at=1000,
        expires_at="1970-01-01T00:33:20Z",
        expired_at="3000",
        completed_at=None,
        request_counts={"total": 100, "completed": 70, "failed": 0},
        output_file_id="file-o",
        error_file_id="file-e",
        metadata={"batchctl": "s-1-1"},
        input_file_id="file-i",
    )
    assert got == RemoteBatch(
        "batch_1", "expired", Phase.ENDED, 1000.0, 2000.0, 3000.0, Counts(100, 70, 0), ("file-o", "file-e"),
        tag="s-1-1", upload_id="file-i",
    )  # fmt: skip
    assert not got.ran_nothing


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (1_780_000_000, 1.78e9),
        (1_780_000_000_000, 1.78e9),
        ("1780000000.5", 1_780_000_000.5),
        ("2026-05-28T20:26:40", 1.78e9),
        ("2026-05-28T22:26:40+02:00", 1.78e9),
        (None, None),
        (True, None),
        ("soon", None),
        (-5, None),
        (0, None),
        (float("nan"), None),
        ("inf", None),
        ([], None),
    ],
)
def test_timestamps_of_any_kind(value: Any, want: float | None) -> None:
    assert wire.parse_time(value) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, None),
        ({}, None),
        ({"total": None, "completed": None, "failed": None}, None),
        ({"total": 0, "completed": 0, "failed": 0}, Counts(0, 0, 0)),
        ({"completed": 2, "failed": 1}, Counts(3, 2, 1)),
        ({"total": 9, "completed": None, "failed": "x"}, Counts(9, 0, 0)),
        ([1], None),
    ],
)
def test_counts_may_be_null_or_in_part(value: Any, want: Counts | None) -> None:
    assert batch(request_counts=value).counts == want


def test_case_12_every_row_failed_leaves_the_error_file_alone() -> None:
    got = batch(status="completed", output_file_id=None, error_file_id="file-e")
    assert got.files == ("file-e",) and not got.ran_nothing


@pytest.mark.parametrize("shape", [lambda item: {"object": "list", "data": [item]}, lambda item: [item], lambda i: i])
def test_case_22_errors_in_every_shape(shape: Any) -> None:
    item = {"code": "duplicate_custom_id", "line": 7, "message": "dup", "param": "custom_id"}
    got = batch(request_counts=None, errors=shape(item))
    assert got.errors == (BatchError("duplicate_custom_id", "dup", 7, "custom_id"),)
    assert got.ran_nothing and got.resend is None


def test_case_22_an_error_as_a_text() -> None:
    assert batch(errors="it broke").errors == (BatchError(None, "it broke"),)
    assert batch(errors=None).errors == batch(errors=[]).errors == batch(errors={"data": None}).errors == ()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ({"code": "token_limit_exceeded", "line": None, "message": ENQUEUED}, "queue_full"),
        ({"code": "limit", "message": "Too many enqueued requests: at most 1,000,000"}, "queue_full"),
        ({"code": "billing_hard_limit_reached", "message": "Billing hard limit has been reached"}, "billing"),
        ({"code": "invalid_request", "message": "Cannot find file file-1, or organization x has no access"}, "file"),
        ({"code": "invalid_request", "message": "The file file-1 was not found"}, "file"),
        ({"code": "server_error", "message": "Something went wrong"}, "transient"),
        ({"code": "mismatched_model", "line": 2, "message": "two models"}, None),
        ({"code": "model_not_found", "message": "The model does not exist"}, None),
        ({"code": "invalid_json_line", "line": 1, "message": "server_error"}, None),
    ],
)
def test_case_36_38_why_a_batch_that_ran_nothing_may_be_sent_again(error: Any, why: str | None) -> None:
    assert batch(errors={"data": [error]}).resend == why
    assert batch(status="in_progress", errors={"data": [error]}).resend is None


def test_errors_of_two_kinds_are_not_resent() -> None:
    queue, other = {"code": "token_limit_exceeded"}, {"code": "model_not_found", "message": "m"}
    assert batch(errors=[queue, queue]).resend == "queue_full"
    assert batch(errors=[queue, other]).resend is None


ERRORS = [
    (400, "bad", "invalid_value", Permanent),
    (401, "Incorrect API key provided: sk-abc***xyz.", "invalid_api_key", Auth),
    (403, "not allowed", None, Auth),
    (402, "pay", None, Billing),
    (404, "The model `x` does not exist", "model_not_found", Permanent),
    (408, "", None, Transient),
    (413, "too large", None, Permanent),
    (422, "bad", None, Permanent),
    (429, "Rate limit reached", "rate_limit_exceeded", Transient),
    (429, "You exceeded your current quota", "insufficient_quota", Billing),
    (429, ENQUEUED, None, QueueFull),
    (429, "too many enqueued requests", None, QueueFull),
    (400, ENQUEUED, "token_limit_exceeded", QueueFull),
    (400, "Billing hard limit has been reached", "billing_hard_limit_reached", Billing),
    (500, "oops", None, Transient),
    (503, "oops", None, Transient),
    (307, "", None, Permanent),
]


@pytest.mark.parametrize(("status", "message", "code", "kind"), ERRORS)
def test_answers_are_classified(status: int, message: str, code: str | None, kind: type) -> None:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    got = wire.classify(status, body, {}, what="create", clean=str)
    assert type(got) is kind
    assert (got.status, got.code) == (status, code)
    assert message in got.message and "create" in got.message


def test_a_404_of_the_api_is_gone_and_one_from_in_between_is_not() -> None:
    def kind(body: bytes) -> type:
        return type(wire.classify(404, body, {}, what="look", clean=str, gone=True))

    assert kind(b'{"error":{"message":"No batch found"}}') is RemoteGone
    assert kind(b"<html>not found</html>") is Transient


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT", "date": "Mon, 30 Nov 2026 12:00:00 GMT"}, 30),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT", "date": "Mon, 30 Nov 2026 12:01:00 GMT"}, 0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT"}, None),
        ({"retry-after": "soon", "date": "now"}, None),
        ({"retry-after": "-4"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    got = wire.classify(429, b"", headers, what="poll", clean=str)
    assert isinstance(got, Transient) and got.retry_after == seconds


DOUBT = Doubt("s-1-1", "file-1", since=1000.0, known_ids=frozenset({"old"}), control="file-1")


def remote(
    remote_id: str, upload_id: str | None = "file-1", tag: str | None = "s-1-1", at: float = 1000
) -> RemoteBatch:
    return RemoteBatch(remote_id, "in_progress", Phase.RUNNING, created_at=at, tag=tag, upload_id=upload_id)


def matched(*batches: RemoteBatch, doubt: Doubt = DOUBT, by_tag: bool = True, unreadable: int = 0) -> str:
    got = match(Listing({b.remote_id: b for b in batches}, unreadable), doubt, by_tag=by_tag)
    return type(got).__name__


def test_only_file_and_tag_together_are_a_match() -> None:
    assert matched(remote("a")) == "Found"
    assert matched(remote("a"), remote("old")) == "Found"
    assert matched(remote("old")) == "Absent"
    assert matched(remote("a", upload_id="file-2", tag="s-2-1")) == "Absent"
    assert matched(remote("a", tag="s-1-0")) == "Absent"  # an older submission of the same file
    assert matched() == "Absent"


def test_half_a_match_several_and_unreadable_entries_prove_nothing() -> None:
    assert matched(remote("a", tag=None)) == "Unsure"
    assert matched(remote("a", upload_id="file-2")) == "Unsure"
    assert matched(remote("a"), remote("b")) == "Unsure"
    assert matched(unreadable=1) == "Unsure"
    assert matched(remote("a"), unreadable=1) == "Found"


def test_without_metadata_the_file_decides() -> None:
    assert matched(remote("a", tag=None), by_tag=False) == "Found"
    assert matched(remote("a", upload_id="file-2"), by_tag=False) == "Absent"


def pages(*items: list[Any], more: Any = ...) -> Any:
    """A fake list endpoint: pages by the last id, and the calls made."""
    calls: list[str | None] = []

    def fetch(after: str | None) -> dict[str, Any]:
        number = len(calls)
        calls.append(after)
        page: dict[str, Any] = {"data": items[number] if number < len(items) else []}
        return page if more is ... else {**page, "has_more": more if number >= len(items) - 1 else True}

    return fetch, calls


def item(number: int, at: Any = 5000) -> dict[str, Any]:
    return {"id": f"b{number}", "status": "completed", "created_at": at}


def swept(fetch: Any, **options: Any) -> Listing:
    listing = Listing()
    sweep(fetch, listing, **{"stop": lambda: False, **options})
    return listing


def test_the_list_is_read_to_its_end_with_or_without_has_more() -> None:
    for more in (False, ...):
        fetch, calls = pages([item(1), item(2)], [item(3)], more=more)
        assert list(swept(fetch).batches) == ["b1", "b2", "b3"]
        assert calls[:2] == [None, "b2"]


def test_the_list_is_read_to_the_first_batch_older_than_asked_with_room_for_skew() -> None:
    fetch, calls = pages([item(1)], [item(2, at=950)], [item(3, at=600)], [item(4)], more=False)
    assert list(swept(fetch, until=1000).batches) == ["b1", "b2", "b3"]
    assert len(calls) == 3


def test_the_list_is_read_back_from_the_newest() -> None:
    fetch, _ = pages([item(1, at=None), item(2, at=9000)], [item(3, at=8000)], [item(4, at=1)], [item(5)], more=False)
    assert list(swept(fetch, back=3600).batches) == ["b1", "b2", "b3", "b4"]


def test_a_list_that_goes_round_is_not_a_complete_look() -> None:
    fetch, _ = pages([item(1)], [item(1)], more=True)
    with pytest.raises(Transient, match="nothing new"):
        swept(fetch)


def test_entries_that_cannot_be_read_are_counted() -> None:
    fetch, _ = pages([item(1), {"status": "x"}, None, {"id": 5}], more=False)
    assert swept(fetch).unreadable == 3
    with pytest.raises(Transient, match="no data"):
        swept(lambda after: {"object": "list"})


KEYS = st.sampled_from(
    [
        "id",
        "status",
        "errors",
        "data",
        "code",
        "message",
        "line",
        "param",
        "request_counts",
        "total",
        "completed",
        "failed",
        "metadata",
        "batchctl",
        "created_at",
        "expires_at",
        "completed_at",
        "output_file_id",
        "error_file_id",
        "input_file_id",
        "filename",
        "bytes",
        "error",
        "has_more",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=6),
    max_leaves=20,
)


@given(JSON, JSON, JSON, JSON)
def test_remote_objects_of_any_json_never_crash(one: Any, two: Any, three: Any, four: Any) -> None:
    whole = {"id": "b", "status": one, "errors": two, "request_counts": three, "metadata": four, "created_at": one}
    assert wire.parse_batch(whole | {"output_file_id": two, "completed_at": three}).remote_id == "b"
    file = {"id": "f", "filename": one, "bytes": two, "status": three, "created_at": four}
    assert wire.parse_upload(file).upload_id == "f"
    for value in (one, two):
        with contextlib.suppress(ValueError):
            wire.parse_batch(value)
        with contextlib.suppress(ValueError):
            wire.parse_upload(value)
    with contextlib.suppress(Transient):
        swept(pages([one, two], [three])[0])


@given(st.integers(0, 999), st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()), st.text())
def test_any_failure_is_classified(status: int, body: bytes, wait: str) -> None:
    assert isinstance(wire.classify(status, body, {"retry-after": wait, "date": wait}, what="x", clean=str), Exception)
