"""A watched server for contract tests: the official SDK over real HTTP, every exchange checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.contract.openapi import Traffic
from tests.servers import QUICK, RehearsalServer, rehearsal


@pytest.fixture
def traffic() -> Iterator[Traffic]:
    """What went over the wire; the test fails where any of it violates the document."""
    watched = Traffic()
    yield watched
    assert watched.violations == []


@pytest.fixture
def server() -> Iterator[RehearsalServer]:
    """A server whose clock moves in real time and by hand; `QUICK` timing, seed 0."""
    with rehearsal(speed=1, timing=QUICK, in_process=True) as running:
        yield running


@pytest.fixture
def client(server: RehearsalServer, traffic: Traffic) -> Iterator[OpenAI]:
    with traffic.client(server.base_url) as sdk:
        yield sdk
