"""A scripted server and an adapter to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from batchctl_adapters.openai import OpenAIAdapter
from tests.contract.odd.objects import adapter_to
from tests.scripted import Scripted, scripted


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as script:
        yield script


@pytest.fixture
def adapter(server: Scripted) -> Iterator[OpenAIAdapter]:
    opened = adapter_to(server.url)
    yield opened
    opened.close()
