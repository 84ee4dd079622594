"""A full disk, for real: the store and the spool lie on a file system of a few megabytes."""

from __future__ import annotations

import base64
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import MakeDesk
from tests.acceptance.desk import PROFILE, Desk, numbered, outcomes, read_rows

DISK_MB = 8


class SmallDisk:
    """A tmpfs, and a file that takes what is left of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave not one byte."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(64 * 1024))
            except OSError:
                pass

    def free(self) -> None:
        self._filler.unlink()

    def used(self) -> int:
        """Bytes that are taken."""
        found = os.statvfs(self.folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount the small file system that this needs")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def full_desk(make_desk: MakeDesk, disk: SmallDisk) -> Desk:
    """A desk whose home is on the small disk; nothing is sent yet."""
    desk = make_desk()
    desk.elsewhere = disk.folder / "home"
    return desk


def assert_all_answered_once(desk: Desk, job: str, rows: int) -> None:
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": rows}
    counted = desk.server.ledger()
    assert counted["requests_received"] == counted["answered_once"] == rows
    assert counted["sent_after_answered"] == counted["max_in_flight_twice"] == 0


def test_an_input_that_does_not_fit_leaves_no_job_and_no_rest(full_desk: Desk, disk: SmallDisk) -> None:
    desk, noise = full_desk, random.Random(1)
    desk.run("submit", desk.task(), desk.table(numbered(1), "one.csv"), "--provider", PROFILE, "--no-tick")
    before = disk.used()
    table = desk.table({"text": base64.b85encode(noise.randbytes(8_000)).decode()} for _ in range(1_000))
    done = desk.run("submit", desk.folder / "task.yaml", table, "--provider", PROFILE, codes=(1,))
    assert "disk is full" in done.err and "nothing" in done.err
    assert len(desk.views.jobs()) == 1
    assert disk.used() < before + 500_000, "what was copied so far is gone again"
    assert desk.server.ledger()["uploads"] == 0
    job = desk.submit(desk.folder / "task.yaml", desk.table(numbered(20)), "--max-batch-requests", 5)
    desk.settle(job)
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 20}


def test_a_tick_without_room_for_results_loses_none(full_desk: Desk, disk: SmallDisk) -> None:
    desk = full_desk
    job = desk.submit(desk.task(), desk.table(numbered(40)), "--max-batch-requests", 10)
    desk.server.advance(300)
    disk.fill()
    for _ in range(2):
        done = desk.tick(codes=(1,))
        assert "disk is full" in done.err and "batchctl tick" in done.err
    assert desk.run("status", job).code == 0, "looking needs no room"
    disk.free()
    desk.settle(job)
    assert_all_answered_once(desk, job, 40)


def test_a_tick_without_room_for_its_intent_creates_nothing(full_desk: Desk, disk: SmallDisk) -> None:
    desk = full_desk
    job = desk.submit(desk.task(), desk.table(numbered(40)), "--max-batch-requests", 10, "--no-tick")
    disk.fill()
    assert "disk is full" in desk.tick(codes=(1,)).err
    assert desk.server.ledger()["creates"] == 0
    disk.free()
    desk.settle(job)
    assert_all_answered_once(desk, job, 40)


@pytest.mark.parametrize("seed", range(4))
def test_a_disk_that_fills_up_at_any_moment_costs_nothing_twice(full_desk: Desk, disk: SmallDisk, seed: int) -> None:
    desk, rng = full_desk, random.Random(f"full/{seed}")
    desk.server.post_faults([{"op": op, "kind": "slow", "wall_s": 0.05} for op in ("create", "content")])
    job = desk.submit(desk.task(), desk.table(numbered(40)), "--max-batch-requests", 10, "--no-tick")
    for _ in range(2):
        tick = desk.start("tick")
        time.sleep(rng.uniform(0.1, 1.2))
        disk.fill()
        tick.wait(0, 1)
        desk.tick(codes=(0, 1))
        disk.free()
        desk.server.advance(300)
    desk.settle(job)
    assert_all_answered_once(desk, job, 40)


def test_a_merge_without_room_is_said_and_done_later(full_desk: Desk, disk: SmallDisk) -> None:
    desk, small = full_desk, disk.folder / "out"
    desk.elsewhere = None  # the store has room, the output has not
    small.mkdir()
    job = desk.submit(desk.task(), desk.table(numbered(200)), "-o", small / "merged.csv")
    desk.server.advance(300)
    disk.fill()
    assert "merged.csv" in desk.tick().err or "No space" in desk.run("status", job).out
    assert list(small.iterdir()) == [], "no part of it is left"
    disk.free()
    desk.server.advance(10_000)
    desk.tick()
    assert len(read_rows(small / "merged.csv")) == 200
    assert desk.job(job)["state"] == "finished"
