"""The OpenAI adapter under the contract, against the rehearsal server; its requests against OpenAI's description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from batchctl.task import KINDS
from batchctl_adapters.base import BatchAdapter, Kind
from batchctl_adapters.errors import Transient
from batchctl_adapters.keys import Secret
from batchctl_adapters.profile import Profile
from batchctl_adapters.registry import load_profile, open_adapter
from tests.contract.suite import AdapterContract, Start, World
from tests.contract.suite_kinds import KindsContract
from tests.scripted import Reply, scripted
from tests.servers import QUICK, rehearsal

SPEC = Path(__file__).parents[1] / "specs" / "openai-batch-slim.json"


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(**options: Any) -> World:
            served = {"speed": 0.001, "in_process": True, "timing": QUICK, **options}
            server = stack.enter_context(rehearsal(**served))

            def connect(key: str = "sk-rehearsal", **settings: Any) -> BatchAdapter:
                base = load_profile("rehearsal", {})
                profile = Profile(**{**base.model_dump(), "base_url": server.base_url, **settings})
                adapter = open_adapter(profile, Secret(key))
                stack.callback(adapter.close)
                return adapter

            return World(server, connect)

        yield begin


class TestOpenAI(AdapterContract):
    """All of it: OpenAI-like endpoints leave nothing out."""


class TestOpenAIKinds(KindsContract):
    """All of it."""


@pytest.mark.parametrize("kind", KINDS)
def test_case_62_create_names_the_endpoint_of_its_kind(kind: Kind) -> None:
    with scripted() as server:
        server.on("POST", "/v1/batches", Reply(body={"id": "batch_1", "object": "batch", "status": "validating"}))
        endpoints = {one: f"/spelled/otherwise/{one}" for one in KINDS}
        profile = Profile(**{**load_profile("openai", {}).model_dump(), "base_url": server.url, "endpoints": endpoints})
        adapter = open_adapter(profile, Secret("k"))
        adapter.create("file-1", [], tag="s-1-1", kind=kind)
        assert server.seen[0].json()["endpoint"] == endpoints[kind]
        assert json.loads(adapter.encode_line("a", b"{}", kind=kind))["url"] == endpoints[kind]
        adapter.close()


def test_case_62_a_kind_that_the_profile_no_longer_has_is_not_sent() -> None:
    with scripted() as server:
        settings = {"base_url": server.url, "endpoints": {"chat": "/v1/chat/completions"}}
        profile = Profile(**{**load_profile("openai", {}).model_dump(), **settings})
        adapter = open_adapter(profile, Secret("k"))
        with pytest.raises(Transient, match="no endpoint for embedding any more") as caught:
            adapter.create("file-1", [], tag="s-1-1", kind="embedding")
        assert caught.value.code == "not_sent" and not server.seen
        adapter.close()


def test_the_create_request_is_as_openai_describes_it() -> None:
    spec = json.loads(SPEC.read_text())
    schema = {"$ref": "#/components/schemas/CreateBatchRequest", "components": spec["components"]}
    batch = {"id": "batch_1", "object": "batch", "status": "validating", "created_at": 1}
    with scripted() as server:
        server.on("POST", "/v1/batches", Reply(body=batch))
        profile = Profile(**{**load_profile("openai", {}).model_dump(), "base_url": server.url})
        adapter = open_adapter(profile, Secret("k"))
        adapter.create("file-1", [], tag="s-1-1")
        adapter.close()
        sent = server.seen[0].json()
    validator = jsonschema_rs.Draft202012Validator(schema)
    validator.validate(sent)
    with pytest.raises(jsonschema_rs.ValidationError):  # the description does refuse something
        validator.validate({**sent, "completion_window": "5m"})
