"""What every adapter has to do, tested through its public door against a provider that really answers over HTTP.

A test file for one adapter subclasses `AdapterContract` and gives the fixture `start`: a factory of Worlds, each a
server with the options asked for and adapters that talk to it. Times are the server's: it stands nearly still until
`advance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from batchctl_adapters.base import (
    ASKED_IN_MESSAGES,
    Absent,
    BadLine,
    BatchAdapter,
    Doubt,
    Found,
    Kind,
    Outcome,
    Output,
    Phase,
    RemoteBatch,
    Request,
    Result,
    Unsure,
)
from batchctl_adapters.errors import (
    AdapterError,
    Auth,
    Billing,
    Permanent,
    QueueFull,
    RemoteGone,
    SubmitUnknown,
    Transient,
)
from tests.servers import RehearsalServer

DAY = 86_400.0
ENOUGH = 3_600.0
"""Seconds in which a small batch ends, in every test that lets it."""


@dataclass(frozen=True)
class World:
    """A provider, and a way to open adapters to it; settings replace those of the adapter's profile."""

    server: RehearsalServer
    open: Callable[..., BatchAdapter]


Start = Callable[..., World]


@dataclass(frozen=True)
class Sent:
    """A batch on its way, and what was sent."""

    batch: RemoteBatch
    upload_id: str | None
    tag: str
    ids: list[str]


@dataclass(frozen=True)
class Collected:
    results: dict[str, Result]
    order: list[str]
    bad_lines: int

    @property
    def outcomes(self) -> Counter[Outcome]:
        return Counter(result.outcome for result in self.results.values())


def lines_of(
    adapter: BatchAdapter, ids: Iterable[str], *, kind: Kind = "chat", texts: int = 1, **request: Any
) -> list[bytes]:
    """Lines of requests of a kind; those that are not asked in messages have so many texts."""
    lines = []
    for row_id in ids:
        text = f"Row {row_id}: é\u2028 good or bad?"
        if kind in ASKED_IN_MESSAGES:
            one = Request("m", [{"role": "user", "content": text}], kind=kind, **request)
        else:
            one = Request("m", [], kind=kind, input=[f"{text} {number}" for number in range(texts)], **request)
        lines.append(adapter.encode_line(row_id, adapter.encode_body(one), kind=kind))
    return lines


def upload(adapter: BatchAdapter, lines: list[bytes], tag: str) -> str | None:
    uploaded = adapter.upload(lines, name=tag, size=sum(map(len, lines)))
    return uploaded.upload_id if uploaded is not None else None


def send(adapter: BatchAdapter, rows: int = 10, tag: str = "s-1-1", *, kind: Kind = "chat", **request: Any) -> Sent:
    ids = [f"{tag}_{number}" for number in range(rows)]
    lines = lines_of(adapter, ids, kind=kind, **request)
    upload_id = upload(adapter, lines, tag)
    return Sent(adapter.create(upload_id, lines, tag=tag, kind=kind), upload_id, tag, ids)


def look(adapter: BatchAdapter, remote_id: str) -> RemoteBatch:
    return adapter.poll([remote_id]).batches[remote_id]


def collect(adapter: BatchAdapter, batch: RemoteBatch, kind: Kind = "chat") -> Collected:
    results: dict[str, Result] = {}
    order: list[str] = []
    bad = 0
    for handle in batch.files:
        body = b"".join(adapter.fetch(handle))
        assert body.endswith(b"\n") or not body
        for line in body.split(b"\n")[:-1]:
            try:
                result = adapter.parse(line, kind=kind)
            except BadLine:
                bad += 1
                continue
            order.append(result.custom_id)
            results[result.custom_id] = result
    return Collected(results, order, bad)


def run(
    world: World, adapter: BatchAdapter, rows: int = 10, *, kind: Kind = "chat", **request: Any
) -> tuple[Sent, RemoteBatch, Collected]:
    sent = send(adapter, rows, kind=kind, **request)
    world.server.advance(ENOUGH)
    batch = look(adapter, sent.batch.remote_id)
    assert batch.phase is Phase.ENDED
    return sent, batch, collect(adapter, batch, kind)


def doubt(world: World, upload_id: str | None, tag: str = "s-1-1", known: Iterable[str] = ()) -> Doubt:
    return Doubt(tag, upload_id, world.server.now(), frozenset(known), upload_id)


def lost_create(world: World, adapter: BatchAdapter) -> Doubt:
    """Upload, create with a fault that the server was told to have; what the store would know then."""
    lines = lines_of(adapter, ["a"])
    upload_id = upload(adapter, lines, "s-1-1")
    known = doubt(world, upload_id)
    with pytest.raises(SubmitUnknown):
        adapter.create(upload_id, lines, tag="s-1-1")
    return known


class AdapterContract:
    """The suite. See the module's docstring."""

    # A batch's life

    def test_case_56_results_come_in_another_order_and_are_known_by_id(self, start: Start) -> None:
        world = start()
        sent, batch, got = run(world, world.open(), 50)
        assert set(got.results) == set(sent.ids) and got.outcomes == {Outcome.SUCCEEDED: 50}
        assert got.order != sent.ids
        assert batch.counts is not None and batch.counts.total == 50
        assert (batch.tag, batch.upload_id) == (sent.tag, sent.upload_id)
        assert all(result.text and result.usage and result.usage.input_tokens for result in got.results.values())

    def test_case_58_the_longest_ids_come_back_whole(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        ids = ["a" * 64, "A-_0" * 16, "Z"]
        lines = lines_of(adapter, ids)
        upload_id = upload(adapter, lines, "s-1-1")
        remote_id = adapter.create(upload_id, lines, tag="s-1-1").remote_id
        world.server.advance(ENOUGH)
        assert set(collect(adapter, look(adapter, remote_id)).results) == set(ids)

    def test_a_batch_goes_through_its_phases(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        sent = send(adapter, 1000)
        seen: set[Phase] = {sent.batch.phase}
        assert seen == {Phase.WAITING}
        for _ in range(15):
            world.server.advance(2)
            seen.add(look(adapter, sent.batch.remote_id).phase)
        assert seen == {Phase.WAITING, Phase.RUNNING, Phase.ENDING, Phase.ENDED}
        ended = look(adapter, sent.batch.remote_id)
        assert ended.created_at is not None and ended.ended_at is not None and ended.expires_at is not None
        assert ended.created_at < ended.ended_at < ended.expires_at
        assert ended.expires_at - ended.created_at == pytest.approx(adapter.capabilities.window_s, abs=2)

    def test_labels_are_asked_for_and_come_back(self, start: Start) -> None:
        world = start()
        _, _, got = run(world, world.open(), 10, output=Output("labels", ("good", "bad")))
        assert {'"good"' in (r.text or "") or '"bad"' in (r.text or "") for r in got.results.values()} == {True}

    def test_case_69_70_what_is_inside_a_200(self, start: Start) -> None:
        shares = dict.fromkeys(("truncated", "refused", "filtered", "empty"), 0.2)
        world = start(shares=shares)
        _, _, got = run(world, world.open(), 200)
        wanted = {Outcome.TRUNCATED, Outcome.REFUSED, Outcome.FILTERED, Outcome.EMPTY, Outcome.SUCCEEDED}
        assert set(got.outcomes) == wanted and got.outcomes.total() == 200

    def test_case_12_every_row_failed(self, start: Start) -> None:
        world = start(faults=[{"kind": "row_status", "share": 1, "status": 400, "message": "invalid temperature"}])
        _, batch, got = run(world, world.open(), 9)
        assert got.outcomes == {Outcome.ERRORED: 9} and not batch.ran_nothing
        assert {result.error for result in got.results.values()} == {"invalid temperature"}

    @pytest.mark.parametrize("in_output", [False, True])
    @pytest.mark.parametrize("status", [0, 429, 500])
    def test_case_13_15_rows_are_judged_by_their_content(self, start: Start, status: int, in_output: bool) -> None:
        world = start(faults=[{"kind": "row_status", "share": 0.3, "status": status, "in_output": in_output}])
        sent, _, got = run(world, world.open())
        assert got.outcomes == {Outcome.SUCCEEDED: 7, Outcome.ERRORED_TRANSIENT: 3}
        assert set(got.results) == set(sent.ids)

    def test_case_16_bad_lines_do_not_hide_the_good_ones(self, start: Start) -> None:
        world = start(faults=[{"kind": "malformed_lines", "share": 0.4}])
        _, _, got = run(world, world.open())
        assert (len(got.results), got.bad_lines) == (6, 4)

    def test_case_03_what_was_done_before_expiry_is_there(self, start: Start) -> None:
        world = start(faults=[{"kind": "expire", "share": 0.7}])
        adapter = world.open()
        sent = send(adapter, 100)
        world.server.advance(DAY + ENOUGH)
        batch = look(adapter, sent.batch.remote_id)
        assert batch.phase is Phase.ENDED and batch.resend is None
        got = collect(adapter, batch)
        assert got.outcomes == {Outcome.SUCCEEDED: 70, Outcome.EXPIRED: 30}
        assert set(got.results) == set(sent.ids)

    def test_case_04_05_what_was_done_before_cancelling_is_there(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        sent = send(adapter, 4000)
        world.server.advance(25)
        adapter.cancel(sent.batch.remote_id)
        assert look(adapter, sent.batch.remote_id).phase is Phase.ENDING
        adapter.cancel(sent.batch.remote_id)
        world.server.advance(ENOUGH)
        batch = look(adapter, sent.batch.remote_id)
        assert batch.phase is Phase.ENDED
        got = collect(adapter, batch)
        assert set(got.outcomes) == {Outcome.SUCCEEDED, Outcome.CANCELED} and set(got.results) <= set(sent.ids)
        adapter.cancel(sent.batch.remote_id)  # ended: no error

    def test_case_07_an_unknown_status_is_kept_and_does_not_end_the_batch(self, start: Start) -> None:
        world = start(faults=[{"kind": "unknown_status", "raw_status": "paused_by_admin", "seconds": ENOUGH}])
        adapter = world.open()
        sent = send(adapter, 1000)
        world.server.advance(20)
        batch = look(adapter, sent.batch.remote_id)
        assert (batch.phase, batch.raw_status) == (Phase.UNKNOWN, "paused_by_admin")
        world.server.advance(2 * ENOUGH)
        assert look(adapter, sent.batch.remote_id).phase is Phase.ENDED

    def test_counts_may_be_missing_and_files_late(self, start: Start) -> None:
        world = start(faults=[{"kind": "null_counts"}, {"kind": "files_late", "seconds": 2 * ENOUGH}])
        adapter = world.open()
        sent = send(adapter)
        world.server.advance(ENOUGH)
        batch = look(adapter, sent.batch.remote_id)
        assert (batch.phase, batch.counts, batch.files) == (Phase.ENDED, None, ())
        world.server.advance(2 * ENOUGH)
        assert len(collect(adapter, look(adapter, sent.batch.remote_id)).results) == 10

    # Limits

    def test_case_40_a_file_at_the_limit_goes_and_one_byte_more_does_not(self, start: Start) -> None:
        size = sum(map(len, lines_of(start().open(), [f"s-1-1_{number}" for number in range(10)])))
        world = start(max_file_bytes=size)
        assert run(world, world.open())[2].outcomes == {Outcome.SUCCEEDED: 10}
        with pytest.raises(Permanent):
            send(start(max_file_bytes=size - 1).open())

    def test_case_40_a_request_more_than_allowed_sinks_the_batch(self, start: Start) -> None:
        world = start(max_requests=10)
        assert run(world, world.open(), 10)[2].outcomes == {Outcome.SUCCEEDED: 10}
        adapter = world.open()
        sent = send(adapter, 11)
        world.server.advance(ENOUGH)
        batch = look(adapter, sent.batch.remote_id)
        assert batch.ran_nothing and batch.resend is None and batch.errors[0].message

    def test_case_22_a_rejected_file_names_its_line(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        lines = lines_of(adapter, ["a", "b", "a"])
        sent = adapter.create(upload(adapter, lines, "s-1-1"), lines, tag="s-1-1")
        world.server.advance(ENOUGH)
        batch = look(adapter, sent.remote_id)
        assert batch.ran_nothing and batch.resend is None
        assert [(error.code, error.line) for error in batch.errors] == [("duplicate_custom_id", 3)]

    def test_case_36_a_full_queue_may_be_sent_again_later_with_the_same_file(self, start: Start) -> None:
        world = start(queue_limits={"*": 30})
        adapter = world.open()
        sent = send(adapter, 20)
        world.server.advance(ENOUGH)
        batch = look(adapter, sent.batch.remote_id)
        assert batch.ran_nothing and batch.resend == "queue_full" and "nqueued" in batch.errors[0].message

    # Create in doubt

    @pytest.mark.parametrize(
        "fault",
        [
            {"kind": "drop_after"},
            {"kind": "error_after", "status": 502, "body": "html"},
            {"kind": "error_after", "status": 500},
            {"kind": "hang"},
        ],
    )
    def test_case_26_27_a_create_whose_answer_was_lost_is_found(self, start: Start, fault: dict[str, Any]) -> None:
        world = start(faults=[{"op": "create", "times": 1, **fault}])
        adapter = world.open(create_limit_s=1.0)
        known = lost_create(world, adapter)
        found = adapter.find(known)
        assert isinstance(found, Found) and found.batch.tag == known.tag
        assert world.server.ledger()["creates"] == 1
        world.server.advance(ENOUGH)
        assert look(adapter, found.batch.remote_id).phase is Phase.ENDED

    @pytest.mark.parametrize("fault", [{"kind": "drop"}, {"kind": "error", "status": 503}, {"kind": "hang_before"}])
    def test_case_26_a_create_that_never_happened_is_absent(self, start: Start, fault: dict[str, Any]) -> None:
        world = start(faults=[{"op": "create", "times": 1, **fault}])
        adapter = world.open(create_limit_s=1.0)
        known = lost_create(world, adapter)
        assert isinstance(adapter.find(known), Absent)
        assert world.server.ledger()["creates"] == 0

    def test_a_list_that_lags_shows_it_later(self, start: Start) -> None:
        world = start(faults=[{"op": "create", "kind": "drop_after"}, {"kind": "list_lag", "seconds": 600}])
        adapter = world.open()
        known = lost_create(world, adapter)
        assert isinstance(adapter.find(known), Absent)  # one look is no proof
        assert not adapter.poll([], watch=[known.tag]).late
        world.server.advance(601)
        assert isinstance(adapter.find(known), Found)
        assert adapter.poll([], watch=[known.tag]).late[known.tag].tag == known.tag

    def test_with_another_projects_key_nothing_is_proved(self, start: Start) -> None:
        world = start(keys={"sk-one-key": "p1", "sk-two-key": "p2"}, faults=[{"op": "create", "kind": "drop_after"}])
        known = lost_create(world, world.open("sk-one-key"))
        assert isinstance(world.open("sk-two-key").find(known), Unsure)
        assert isinstance(world.open("sk-one-key").find(known), Found)

    def test_an_older_batch_of_the_same_file_is_not_the_lost_one(self, start: Start) -> None:
        world = start(faults=[{"op": "create", "kind": "drop", "nth": 2}])
        adapter = world.open()
        sent = send(adapter)
        known = Doubt("s-1-2", sent.upload_id, world.server.now(), frozenset({sent.batch.remote_id}), sent.upload_id)
        with pytest.raises(SubmitUnknown):
            adapter.create(sent.upload_id, [], tag="s-1-2")
        assert isinstance(adapter.find(known), Absent)
        again = adapter.create(sent.upload_id, [], tag="s-1-2")
        found = adapter.find(known)
        assert isinstance(found, Found) and found.batch.remote_id == again.remote_id

    def test_the_lost_batch_is_found_pages_back(self, start: Start) -> None:
        world = start(faults=[{"op": "create", "kind": "drop_after", "nth": 1}])
        adapter = world.open()
        known = lost_create(world, adapter)
        for number in range(120):
            adapter.create(known.upload_id, [], tag=f"s-2-{number}")
        assert isinstance(adapter.find(known), Found)

    # Refusals and failures

    @pytest.mark.parametrize(
        ("fault", "kind"),
        [
            ({"kind": "error", "status": 429, "code": "insufficient_quota"}, Billing),
            ({"kind": "error", "status": 403}, Auth),
            ({"kind": "error", "status": 400, "message": "Enqueued token limit reached"}, QueueFull),
            ({"kind": "error", "status": 404, "message": "The model does not exist"}, Permanent),
            ({"kind": "file_not_visible"}, Transient),
            ({"kind": "rate_limit", "retry_after": 7}, Transient),
        ],
    )
    def test_case_30_36_45_a_refused_create_is_certain(self, start: Start, fault: dict[str, Any], kind: type) -> None:
        world = start(faults=[{"op": "create", **fault}])
        adapter = world.open()
        with pytest.raises(AdapterError) as caught:
            send(adapter)
        assert type(caught.value) is kind
        if "retry_after" in fault:
            assert isinstance(caught.value, Transient) and caught.value.retry_after == 7
        assert world.server.fired() == [1] and world.server.ledger()["creates"] == 0

    def test_a_key_that_is_not_known_is_auth_everywhere(self, start: Start) -> None:
        world = start(keys={"sk-good-key": "p"})
        sent = send(world.open("sk-good-key"))
        stranger = world.open("sk-stranger")
        calls: list[Callable[[], object]] = [
            lambda: send(stranger),
            lambda: stranger.create(sent.upload_id, [], tag="s-1-2"),
            lambda: stranger.poll([sent.batch.remote_id]),
            lambda: stranger.find(doubt(world, sent.upload_id)),
            lambda: stranger.cancel(sent.batch.remote_id),
            lambda: list(stranger.fetch("file-x")),
            lambda: list(stranger.list_uploads("")),
        ]
        for call in calls:
            with pytest.raises(Auth) as caught:
                call()
            assert "sk-stranger" not in str(caught.value)

    def test_case_09_a_batch_that_vanished_is_gone(self, start: Start) -> None:
        world = start(faults=[{"kind": "vanish", "seconds": 60, "nth": 1}])
        adapter = world.open()
        lost, kept = send(adapter), send(adapter, tag="s-2-1")
        world.server.advance(61)
        got = adapter.poll([lost.batch.remote_id, kept.batch.remote_id])
        assert got.gone == {lost.batch.remote_id} and set(got.batches) == {kept.batch.remote_id}

    def test_case_11_results_past_their_retention_are_gone(self, start: Start) -> None:
        world = start(faults=[{"kind": "files_gone", "seconds": ENOUGH}])
        adapter = world.open()
        _, batch, _ = run(world, adapter)
        world.server.advance(2 * ENOUGH)
        with pytest.raises(RemoteGone):
            b"".join(adapter.fetch(batch.files[0]))

    @pytest.mark.parametrize("at_line_end", [False, True])
    @pytest.mark.parametrize("length", ["announced", "chunked"])
    def test_case_20_a_download_cut_short_is_noticed(self, start: Start, length: str, at_line_end: bool) -> None:
        fault = {"kind": "truncate", "share": 0.5, "length": length, "at_line_end": at_line_end, "times": 1}
        world = start(faults=[fault])
        adapter = world.open()
        sent = send(adapter)
        world.server.advance(ENOUGH)
        batch = look(adapter, sent.batch.remote_id)
        with pytest.raises(Transient):
            collect(adapter, batch)
        assert len(collect(adapter, batch).results) == 10

    @pytest.mark.parametrize("op", ["retrieve", "upload", "content", "cancel", "delete_file", "list_files"])
    def test_case_73_retry_after_is_passed_on(self, start: Start, op: str) -> None:
        world = start()
        adapter = world.open()
        sent, batch, _ = run(world, adapter)
        world.server.post_faults([{"op": op, "kind": "rate_limit", "retry_after": 33}])
        calls: dict[str, Callable[[], object]] = {
            "retrieve": lambda: adapter.poll([sent.batch.remote_id]),
            "upload": lambda: upload(adapter, [b"{}\n"], "x"),
            "content": lambda: list(adapter.fetch(batch.files[0])),
            "cancel": lambda: adapter.cancel(sent.batch.remote_id),
            "delete_file": lambda: adapter.delete_upload(sent.upload_id or ""),
            "list_files": lambda: list(adapter.list_uploads("")),
        }
        with pytest.raises(Transient) as caught:
            calls[op]()
        assert (caught.value.status, caught.value.retry_after) == (429, 33)
        assert world.server.fired() == [1]

    # Housekeeping

    def test_case_73_many_batches_are_polled_in_few_calls(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        sent = [send(adapter, 1, tag=f"s-{number}-1") for number in range(25)]
        before = sum(world.server.ledger()["calls"].values())
        got = adapter.poll([one.batch.remote_id for one in sent])
        assert len(got.batches) == 25
        assert sum(world.server.ledger()["calls"].values()) - before == 1

    def test_several_uploads_run_at_once(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        tags = [f"s-{number}-1" for number in range(8)]
        with ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda tag: upload(adapter, lines_of(adapter, [tag] * 100), tag), tags))
        assert len(set(got)) == 8 and len(list(adapter.list_uploads("s-"))) == 8

    def test_uploads_are_listed_by_prefix_and_deleted_once_or_twice(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        uploads = {tag: upload(adapter, lines_of(adapter, ["a"]), tag) for tag in ("s-1-1", "s-2-1", "x-1-1")}
        assert {one.upload_id for one in adapter.list_uploads("s-")} == {uploads["s-1-1"], uploads["s-2-1"]}
        for _ in range(2):
            adapter.delete_upload(uploads["s-1-1"] or "")
        assert [one.upload_id for one in adapter.list_uploads("s-")] == [uploads["s-2-1"]]

    def test_case_32_result_files_are_deleted_as_uploads_are_and_their_batch_stays(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        sent, batch, _ = run(world, adapter)
        for file in (sent.upload_id or "", *batch.files):
            adapter.delete_upload(file)
            adapter.delete_upload(file)
        with pytest.raises(RemoteGone):
            b"".join(adapter.fetch(batch.files[0]))
        assert look(adapter, batch.remote_id).files == batch.files
