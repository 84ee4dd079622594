"""Anthropic's Message Batches of the rehearsal server, by the official SDK over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import orjson
import pytest
from anthropic import Anthropic

from batchctl.gateway.options import MESSAGES_LIMITS
from tests.contract.anthropic_document import Traffic, row_problems, strictly
from tests.servers import QUICK, RehearsalServer, rehearsal

HEADERS = {"anthropic-version": "2023-06-01"}
ZEROS = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)


@pytest.fixture
def watched() -> Iterator[Traffic]:
    traffic = Traffic()
    yield traffic
    assert traffic.violations == []


@pytest.fixture
def claude(server: RehearsalServer, watched: Traffic) -> Iterator[Anthropic]:
    with watched.client(server.root_url) as sdk:
        yield sdk


def row(custom_id: str, text: Any = None, **params: Any) -> Any:
    body = {
        "model": "claude-haiku-4-5",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": text or custom_id}],
    }
    return {"custom_id": custom_id, "params": {**body, **params}}


def rows(count: int) -> list[Any]:
    return [row(f"r{number}") for number in range(count)]


def url(server: RehearsalServer, path: str = "") -> str:
    return f"{server.base_url}/messages/batches{path}"


def raw_results(server: RehearsalServer, batch_id: str) -> list[bytes]:
    answer = httpx2.get(url(server, f"/{batch_id}/results"), headers=HEADERS)
    assert answer.status_code == 200
    return answer.content.removesuffix(b"\n").split(b"\n")


def results(server: RehearsalServer, batch_id: str) -> dict[str, Any]:
    """Each row's result by custom_id; every line is checked against the SDK's types and the document."""
    lines = raw_results(server, batch_id)
    assert [problem for line in lines for problem in row_problems(line)] == []
    found = {one["custom_id"]: one["result"] for one in map(orjson.loads, lines)}
    assert len(found) == len(lines)
    return found


def counts(batch: Any) -> dict[str, int]:
    told: dict[str, int] = batch.request_counts.to_dict()
    return told


def run(server: RehearsalServer, claude: Anthropic, requests: list[Any], *, seconds: float = 100) -> dict[str, Any]:
    batch = claude.messages.batches.create(requests=requests)
    server.advance(seconds)
    return results(server, batch.id)


def test_the_life_of_a_batch(server: RehearsalServer, claude: Anthropic) -> None:
    batch = claude.messages.batches.create(requests=rows(100))
    assert (batch.processing_status, batch.results_url, batch.ended_at) == ("in_progress", None, None)
    assert (batch.expires_at - batch.created_at).total_seconds() == 86_400
    server.advance(QUICK.queue_s + 0.5)
    running = claude.messages.batches.with_raw_response.retrieve(batch.id)
    assert counts(running.parse()) == {**ZEROS, "processing": 100}, "no other count moves before the end"
    assert running.headers["retry-after"] == "10"
    with pytest.raises(anthropic.NotFoundError):
        httpx_results(claude, batch.id)
    server.advance(100)
    ended = claude.messages.batches.retrieve(batch.id)
    assert (ended.processing_status, counts(ended)) == ("ended", {**ZEROS, "succeeded": 100})
    assert ended.results_url == url(server, f"/{batch.id}/results")
    ids = [one.custom_id for one in claude.messages.batches.results(batch.id)]
    assert sorted(ids) == sorted(f"r{number}" for number in range(100))
    ledger = server.ledger()
    assert (ledger["requests_sent"], ledger["answered_once"], ledger["uploads"]) == (100, 100, 0)


def httpx_results(claude: Anthropic, batch_id: str) -> Any:
    """The results' address itself, which the SDK asks only once it was told of it."""
    return claude.get(f"/v1/messages/batches/{batch_id}/results", cast_to=httpx2.Response)


def test_case_56_message_batches_come_back_in_another_order(server: RehearsalServer, claude: Anthropic) -> None:
    assert list(run(server, claude, rows(50))) != [f"r{number}" for number in range(50)]


def test_case_18_a_batch_that_expires_has_three_of_the_four_types(server: RehearsalServer, claude: Anthropic) -> None:
    server.post_faults([{"kind": "expire", "share": 0.5}])
    batch = claude.messages.batches.create(requests=[*rows(5), *(row(f"bad{n}", max_tokens=0) for n in range(5))])
    server.advance(86_401)
    ended = claude.messages.batches.retrieve(batch.id)
    assert ended.ended_at == ended.expires_at
    kinds = [one["type"] for one in results(server, batch.id).values()]
    assert kinds.count("expired") == 5 == counts(ended)["expired"]
    assert kinds.count("succeeded") == counts(ended)["succeeded"] and kinds.count("errored") == counts(ended)["errored"]


def test_case_18_a_canceled_batch_keeps_what_was_answered(server: RehearsalServer, claude: Anthropic) -> None:
    batch = claude.messages.batches.create(requests=rows(5_000))
    server.advance(QUICK.queue_s + 1)
    canceling = claude.messages.batches.cancel(batch.id)
    assert canceling.processing_status == "canceling" and canceling.cancel_initiated_at is not None
    assert counts(canceling) == {**ZEROS, "processing": 5_000}
    assert claude.messages.batches.cancel(batch.id).cancel_initiated_at == canceling.cancel_initiated_at
    server.advance(QUICK.cancelling_s)
    ended = claude.messages.batches.retrieve(batch.id)
    kinds = [one["type"] for one in results(server, batch.id).values()]
    assert 0 < kinds.count("succeeded") == counts(ended)["succeeded"] < 5_000
    assert kinds.count("canceled") == counts(ended)["canceled"] == 5_000 - kinds.count("succeeded")
    with pytest.raises(anthropic.BadRequestError, match="ended"):
        claude.messages.batches.cancel(batch.id)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"stream": True}, "stream"),
        ({"speed": "fast"}, "speed"),
        ({"temperature": 0.5}, "temperature: Extra inputs"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "content.0.source"),
        ({"unknown": 1}, "unknown: Extra inputs"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}, "additionalProperties"),
        ({"tool_choice": {"type": "tool", "name": "none"}, "tools": [{"name": "a", "input_schema": {}}]}, "not found"),
    ],
)
def test_wrong_params_are_errored_rows_and_no_refusal(
    server: RehearsalServer, claude: Anthropic, change: dict[str, Any], message: str
) -> None:
    found = run(server, claude, [row("bad", **change), row("good")])
    error = found["bad"]["error"]["error"]
    assert (error["type"], message in error["message"]) == ("invalid_request_error", True), error
    assert found["good"]["type"] == "succeeded"


def test_older_versions_take_sampling_parameters(server: RehearsalServer) -> None:
    body = {"requests": [row("r", temperature=0.5, top_p=0.5, top_k=3)]}
    batch = httpx2.post(url(server), json=body, headers=HEADERS).json()
    server.advance(100)
    assert results(server, batch["id"])["r"]["type"] == "succeeded"


def test_a_model_that_is_not_served_is_a_row_not_found(watched: Traffic) -> None:
    with (
        rehearsal(speed=1, timing=QUICK, in_process=True, models=("claude-a",)) as server,
        watched.client(server.root_url) as claude,
    ):
        found = run(server, claude, [row("a", model="claude-a"), row("b", model="claude-b")])
    assert found["a"]["type"] == "succeeded"
    assert found["b"]["error"]["error"] == {"type": "not_found_error", "message": "model: claude-b"}


def test_answers_have_the_shape_that_was_asked_for(server: RehearsalServer, claude: Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"label": {"enum": ["good", "bad"]}},
        "required": ["label"],
        "additionalProperties": False,
    }
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}}
    text = {"type": "text", "text": "[answer: bad]", "cache_control": {"type": "ephemeral"}}
    tool = {"name": "grade", "input_schema": schema}
    found = run(
        server,
        claude,
        [
            row("json", [picture, text], output_config={"format": {"type": "json_schema", "schema": schema}}),
            row("tool", [text], tools=[tool], tool_choice={"type": "tool", "name": "grade"}, system=[text]),
            row("any", [text], tools=[tool], tool_choice={"type": "any"}),
            row("cut", [text], max_tokens=1),
        ],
    )
    messages = {custom_id: one["message"] for custom_id, one in found.items()}
    assert orjson.loads(messages["json"]["content"][0]["text"]) == {"label": "bad"}
    assert messages["json"]["stop_reason"] == "end_turn"
    for name in ("tool", "any"):
        [call] = messages[name]["content"]
        assert (call["type"], call["name"], call["input"]) == ("tool_use", "grade", {"label": "bad"})
        assert messages[name]["stop_reason"] == "tool_use"
    assert messages["cut"]["stop_reason"] == "max_tokens"
    assert messages["cut"]["usage"]["service_tier"] == "batch"


@pytest.mark.parametrize(("share", "stop"), [("refused", "refusal"), ("filtered", "refusal"), ("empty", "end_turn")])
def test_answers_without_content(watched: Traffic, share: str, stop: str) -> None:
    with (
        rehearsal(speed=1, timing=QUICK, in_process=True, shares={share: 1.0}) as server,
        watched.client(server.root_url) as claude,
    ):
        message = run(server, claude, rows(1))["r0"]["message"]
    assert (message["content"], message["stop_reason"]) == ([], stop)


def test_lists_are_paged_both_ways_and_show_no_other_wire(server: RehearsalServer, claude: Anthropic) -> None:
    made = [claude.messages.batches.create(requests=rows(1)).id for _ in range(25)][::-1]
    with server.client() as other:
        assert list(other.batches.list()) == []
    page = claude.messages.batches.list()
    assert (len(page.data), page.has_more, page.first_id, page.last_id) == (20, True, made[0], made[19])
    assert [one.id for one in claude.messages.batches.list(limit=7)] == made
    before = claude.messages.batches.list(before_id=made[10], limit=4)
    assert ([one.id for one in before.data], before.has_more) == (made[6:10], True)
    assert claude.messages.batches.list(before_id=made[4], limit=4).has_more is False
    for limit in (0, 1_001):
        with pytest.raises(anthropic.BadRequestError):
            claude.messages.batches.list(limit=limit)
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.batches.list(after_id="msgbatch_none")


def test_a_batch_is_deleted_once_it_has_ended(server: RehearsalServer, claude: Anthropic) -> None:
    batch = claude.messages.batches.create(requests=rows(1))
    with pytest.raises(anthropic.BadRequestError, match="cannot be deleted"):
        claude.messages.batches.delete(batch.id)
    server.advance(100)
    assert claude.messages.batches.delete(batch.id).id == batch.id
    for ask in (claude.messages.batches.retrieve, claude.messages.batches.delete, claude.messages.batches.cancel):
        with pytest.raises(anthropic.NotFoundError):
            ask(batch.id)
    assert list(claude.messages.batches.list()) == []
    assert server.ledger()["answered_once"] == 1, "the ledger forgets nothing"


def test_case_11_results_are_archived_after_29_days(server: RehearsalServer, claude: Anthropic) -> None:
    batch = claude.messages.batches.create(requests=rows(1))
    server.advance(29 * 86_400 - 10)
    assert claude.messages.batches.retrieve(batch.id).results_url
    server.advance(10)
    old = claude.messages.batches.retrieve(batch.id)
    assert old.results_url is None and old.archived_at is not None
    assert (old.archived_at - old.created_at).days == 29
    with pytest.raises(anthropic.NotFoundError):
        httpx_results(claude, batch.id)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([row("a" * 65)], "requests.0.custom_id: String should have at most 64 characters"),
        ([row("doc/1:2.txt")], "requests.0.custom_id: String should match pattern"),
        ([row("é")], "should match pattern"),
        ([row("a\n")], "should match pattern"),
        ([row("dup"), row("dup")], "Duplicate custom_id found: dup"),
        ([], "at least 1 item"),
        ([{"custom_id": "a"}], "requests.0.params: Field required"),
        ([{**row("a"), "metadata": {}}], "requests.0.metadata: Extra inputs"),
    ],
)
def test_case_58_wrong_envelopes_are_refused_whole(
    server: RehearsalServer, claude: Anthropic, requests: list[Any], message: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.batches.create(requests=requests)
    assert message in caught.value.message
    claude.messages.batches.create(requests=[row("a" * 64)])
    assert server.ledger()["creates"] == 1


def test_case_42_too_many_requests_or_bytes_are_413(watched: Traffic) -> None:
    assert (MESSAGES_LIMITS.max_requests, MESSAGES_LIMITS.max_bytes) == (100_000, 256_000_000)
    limits: dict[str, Any] = {"max_requests": 3, "max_file_bytes": 2_000}
    with rehearsal(in_process=True, **limits) as server, watched.client(server.root_url) as claude:
        claude.messages.batches.create(requests=rows(3))
        for requests in (rows(4), [row("a", "x" * 2_000)]):
            with pytest.raises(anthropic.APIStatusError) as caught:
                claude.messages.batches.create(requests=requests)
            assert caught.value.status_code == 413
            assert isinstance(caught.value.body, dict) and caught.value.body["error"]["type"] == "request_too_large"


@pytest.mark.parametrize("version", [None, "2020-01-01"])
def test_a_version_is_required(server: RehearsalServer, version: str | None) -> None:
    headers = {} if version is None else {"anthropic-version": version}
    for answer in (httpx2.get(url(server), headers=headers), httpx2.post(url(server), json={}, headers=headers)):
        body = answer.json()
        assert (answer.status_code, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
        assert "anthropic-version" in body["error"]["message"] and body["request_id"] == answer.headers["request-id"]


def test_a_key_opens_its_own_workspace_only(watched: Traffic) -> None:
    keys = {"sk-ant-first": "one", "sk-ant-other": "two"}
    with rehearsal(speed=1, timing=QUICK, in_process=True, keys=keys) as server:
        first, other, wrong = (watched.client(server.root_url, key) for key in (*keys, "sk-ant-wrong"))
        batch = first.messages.batches.create(requests=rows(1))
        assert list(other.messages.batches.list()) == []
        with pytest.raises(anthropic.NotFoundError):
            other.messages.batches.retrieve(batch.id)
        with pytest.raises(anthropic.AuthenticationError, match="x-api-key"):
            wrong.messages.batches.list()
        for key, status in (("sk-ant-first", 200), ("sk-ant-wrong", 401), ("", 401)):
            assert httpx2.get(url(server), headers={**HEADERS, "x-api-key": key}).status_code == status
        for sdk in (first, other, wrong):
            sdk.close()


def test_a_full_queue_is_429_with_the_time_to_wait(watched: Traffic) -> None:
    with (
        rehearsal(speed=1, timing=QUICK, in_process=True, max_queued=5) as server,
        watched.client(server.root_url) as claude,
    ):
        claude.messages.batches.create(requests=rows(3))
        with pytest.raises(anthropic.RateLimitError) as caught:
            claude.messages.batches.create(requests=rows(3))
        assert caught.value.response.headers["retry-after"] == "60"
        server.advance(100)
        claude.messages.batches.create(requests=rows(3))


@pytest.mark.parametrize(("kind", "stored"), [("drop", 0), ("drop_after", 1), ("error", 0), ("error_after", 1)])
def test_case_26_27_a_message_batch_without_an_answer_may_exist(
    server: RehearsalServer, claude: Anthropic, kind: str, stored: int
) -> None:
    server.post_faults([{"op": "create", "kind": kind, "status": 529, "nth": 1}])
    expected = anthropic.APIConnectionError if kind.startswith("drop") else anthropic.APIStatusError
    with pytest.raises(expected):
        claude.messages.batches.create(requests=rows(1))
    assert len(list(claude.messages.batches.list())) == stored == server.ledger()["creates"]


def test_faults_of_requests_and_lists(server: RehearsalServer, claude: Anthropic) -> None:
    faults: list[dict[str, Any]] = [
        {"op": "retrieve", "kind": "rate_limit", "nth": 1, "retry_after": 7},
        {"op": "delete", "kind": "error"},
    ]
    server.post_faults([*faults, {"kind": "list_lag", "seconds": 60}])
    batch = claude.messages.batches.create(requests=rows(1))
    assert claude.messages.batches.list().data == []
    with pytest.raises(anthropic.RateLimitError) as limited:
        claude.messages.batches.retrieve(batch.id)
    assert limited.value.response.headers["retry-after"] == "7"
    server.advance(60)
    assert [one.id for one in claude.messages.batches.list()] == [batch.id]
    with pytest.raises(anthropic.InternalServerError):
        claude.messages.batches.delete(batch.id)


@pytest.mark.parametrize("length", ["announced", "chunked", "none"])
def test_case_20_results_end_early(server: RehearsalServer, claude: Anthropic, length: str) -> None:
    batch = claude.messages.batches.create(requests=rows(100))
    server.advance(100)
    whole = len(raw_results(server, batch.id))
    server.post_faults([{"kind": "truncate", "share": 0.5, "length": length, "at_line_end": True, "times": 1}])
    seen, broken = 0, False
    try:
        for _ in claude.messages.batches.results(batch.id):
            seen += 1
    except httpx2.HTTPError:
        broken = True
    assert (0 < seen < whole, broken) == (True, length != "none")
    assert len(raw_results(server, batch.id)) == whole


def test_faults_of_rows(server: RehearsalServer, claude: Anthropic) -> None:
    server.post_faults([{"kind": "row_status", "status": 529, "share": 0.2}, {"kind": "missing_rows", "share": 0.1}])
    found = run(server, claude, rows(50))
    errors = [one["error"]["error"]["type"] for one in found.values() if one["type"] == "errored"]
    assert len(found) == 45 and set(errors) == {"overloaded_error"}
    server.post_faults([{"kind": "fail", "message": "Your credit balance is too low", "match": "only"}])
    failed = run(server, claude, [row("only1"), row("only2")])
    assert {one["error"]["error"]["message"] for one in failed.values()} == {"Your credit balance is too low"}


def test_faults_of_a_batch(server: RehearsalServer, claude: Anthropic) -> None:
    server.post_faults([{"kind": "files_late", "seconds": 60}, {"kind": "files_gone", "seconds": 600}])
    batch = claude.messages.batches.create(requests=rows(1))
    server.advance(20)
    assert claude.messages.batches.retrieve(batch.id).results_url is None
    server.advance(60)
    assert claude.messages.batches.retrieve(batch.id).results_url
    server.advance(600)
    assert claude.messages.batches.retrieve(batch.id).archived_at is not None


def test_message_batches_survive_kill_9(tmp_path: Any, watched: Traffic) -> None:
    kept: dict[str, Any] = {"speed": 1, "timing": QUICK, "state": tmp_path / "state"}
    with rehearsal(**kept) as server, watched.client(server.root_url) as claude:
        batch = claude.messages.batches.create(requests=rows(500))
        server.advance(QUICK.queue_s + 1)
        server.kill()
    with rehearsal(**kept) as server:
        server.advance(100)
        assert len(results(server, batch.id)) == 500
        assert server.ledger()["answered_once"] == 500


def test_the_check_can_fail() -> None:
    """A wrong answer is seen by the SDK's types and by the document: the check is no decoration."""
    watched = Traffic()
    request = httpx2.Request("GET", "http://x/v1/messages/batches/b")
    watched.on_response(httpx2.Response(200, json={"id": "b", "processing_status": "done"}, request=request))
    watched.on_response(
        httpx2.Response(404, json={"error": {"type": "not_found_error"}, "request_id": "x"}, request=request)
    )
    assert len(watched.violations) > 4
    assert row_problems(b'{"custom_id":"a","result":{"type":"errored","error":{"type":"invalid_request_error"}}}')
    assert strictly(anthropic.types.Message, b"{}")
