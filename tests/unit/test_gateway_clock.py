"""The server's clock runs fast, jumps forward and never goes back."""

from __future__ import annotations

import time

import pytest

from batchctl.gateway.clock import ServerClock


def test_it_runs_at_its_speed() -> None:
    clock = ServerClock(speed=1_000, start=5_000)
    begin = time.monotonic()
    time.sleep(0.05)
    shown, passed = clock.now() - 5_000, time.monotonic() - begin
    assert 50 <= shown <= passed * 1_000 + 5
    assert clock.wall(500) == 0.5


def test_a_change_of_speed_or_a_jump_keeps_it_going_forward() -> None:
    clock = ServerClock(speed=1, start=100)
    clock.set(advance=3_600)
    assert 3_700 <= clock.now() < 3_701
    clock.set(speed=1_000_000)
    fast = clock.now()
    clock.set(speed=0.001)
    assert clock.now() >= fast >= 3_700


@pytest.mark.parametrize("change", [{"advance": -1}, {"speed": 0}, {"speed": -2}])
def test_it_never_goes_back(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="never goes back"):
        ServerClock(start=0).set(**change)
