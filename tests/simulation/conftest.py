"""Worlds for tests: made from one template, dropped when the test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.simulation import invariants
from tests.simulation.world import World, Worlds

Make = Callable[..., World]


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    with Worlds() as found:
        yield found


@pytest.fixture
def make(worlds: Worlds) -> Iterator[Make]:
    """Makes worlds; at the end of the test every invariant has to hold in each of them."""
    made: list[World] = []

    def one(**settings: Any) -> World:
        made.append(worlds.make(**settings))
        return made[-1]

    yield one
    for world in made:
        found = invariants.thorough(world)
        worlds.drop(world)
        assert not found


@pytest.fixture
def world(make: Make) -> World:
    return make()
