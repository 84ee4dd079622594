"""The contract's second part: the kinds of requests besides chat. A test of a kind that is not declared is skipped."""

from __future__ import annotations

import json

import pytest

from batchctl_adapters.base import BatchAdapter, Kind, Outcome
from batchctl_adapters.vectors import unpack
from tests.contract.suite import ENOUGH, Start, collect, lines_of, look, run, send, upload


def has(adapter: BatchAdapter, *kinds: Kind) -> None:
    """Skip the test where the adapter does not declare one of these kinds."""
    missing = [kind for kind in kinds if kind not in adapter.capabilities.kinds]
    if missing:
        pytest.skip(f"no {', '.join(missing)} at this provider")


class KindsContract:
    """As `AdapterContract`, with the same fixture."""

    @pytest.mark.parametrize("kind", ["responses", "completion"])
    def test_texts_of_other_endpoints_come_back(self, start: Start, kind: Kind) -> None:
        world = start()
        adapter = world.open()
        has(adapter, kind)
        sent, _, got = run(world, adapter, 20, kind=kind, max_output_tokens=200)
        assert set(got.results) == set(sent.ids) and got.outcomes == {Outcome.SUCCEEDED: 20}
        assert all(result.text and result.usage and result.usage.output_tokens for result in got.results.values())

    @pytest.mark.parametrize("texts", [1, 3])
    def test_embeddings_are_vectors_in_the_order_of_their_texts(self, start: Start, texts: int) -> None:
        world = start()
        adapter = world.open()
        has(adapter, "embedding")
        _, _, got = run(world, adapter, 5, kind="embedding", texts=texts, params={"dimensions": 12})
        assert got.outcomes == {Outcome.SUCCEEDED: 5}
        found = {row_id: unpack(result.text or "") for row_id, result in got.results.items()}
        assert {len(vectors) for vectors in found.values()} == {texts}
        assert {len(vector) for vectors in found.values() for vector in vectors} == {12}
        assert all(result.usage and result.usage.input_tokens for result in got.results.values())
        again_as = {"params": {"dimensions": 12}, "provider_params": {"encoding_format": "base64"}}
        _, _, again = run(world, adapter, 5, kind="embedding", texts=1, **again_as)
        assert all(found[row_id][:1] == unpack(result.text or "") for row_id, result in again.results.items())

    def test_moderations_say_flagged_and_why(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        has(adapter, "moderation")
        _, _, got = run(world, adapter, 3, kind="moderation")
        assert got.outcomes == {Outcome.SUCCEEDED: 3}
        said = [json.loads(result.text or "") for result in got.results.values()]
        assert all(set(one) == {"flagged", "categories", "category_scores"} for one in said)
        assert {one["flagged"] for one in said} == {False} and all(one["categories"] for one in said)

    @pytest.mark.parametrize("kind", ["responses", "completion"])
    def test_case_69_70_what_is_inside_a_200_of_other_endpoints(self, start: Start, kind: Kind) -> None:
        world = start(shares=dict.fromkeys(("truncated", "filtered", "empty"), 0.2))
        adapter = world.open()
        has(adapter, kind)
        _, _, got = run(world, adapter, 100, kind=kind)
        assert set(got.outcomes) == {Outcome.TRUNCATED, Outcome.FILTERED, Outcome.EMPTY, Outcome.SUCCEEDED}

    def test_a_refusal_is_no_answer_of_a_response_either(self, start: Start) -> None:
        world = start(shares={"refused": 1.0})
        adapter = world.open()
        has(adapter, "responses")
        assert run(world, adapter, 5, kind="responses")[2].outcomes == {Outcome.REFUSED: 5}

    def test_case_15_an_answer_of_another_endpoint_is_no_answer(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        has(adapter, "embedding")
        _, batch, _ = run(world, adapter, 2, kind="embedding")
        assert collect(adapter, batch, "chat").outcomes == {Outcome.ERRORED: 2}

    def test_case_62_lines_and_create_say_the_same_endpoint(self, start: Start) -> None:
        world = start()
        adapter = world.open()
        has(adapter, "chat", "embedding")
        lines = lines_of(adapter, ["a"], kind="embedding")
        sent = adapter.create(upload(adapter, lines, "s-1-1"), lines, tag="s-1-1", kind="chat")
        world.server.advance(ENOUGH)
        wrong = look(adapter, sent.remote_id)
        assert wrong.ran_nothing and wrong.errors[0].code == "invalid_url"  # it is the pair that counts
        assert run(world, adapter, 1, tag="s-2-1", kind="embedding")[2].outcomes == {Outcome.SUCCEEDED: 1}

    def test_case_43_it_is_the_texts_of_embeddings_that_are_counted(self, start: Start) -> None:
        world = start(max_requests=10)
        adapter = world.open()
        has(adapter, "embedding")
        assert run(world, adapter, 5, kind="embedding", texts=2)[2].outcomes == {Outcome.SUCCEEDED: 5}
        sent = send(adapter, 6, tag="s-2-1", kind="embedding", texts=2)
        world.server.advance(ENOUGH)
        assert look(adapter, sent.batch.remote_id).ran_nothing
