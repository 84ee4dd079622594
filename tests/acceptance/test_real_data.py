"""The main job end to end on real tables, in bad nights, and what the server counted of it."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import storm
from tests.acceptance.conftest import MakeDesk
from tests.acceptance.desk import Desk, interpreter, numbered, outcomes, read_rows
from tests.servers import QUICK

EXAMPLES = Path(__file__).parents[2] / "examples"
BATCHES = 20
EXPLAINED = {"succeeded", "errored_transient", "expired", "missing"}


@pytest.fixture
def real_data(request: pytest.FixtureRequest) -> Path:
    """The folder that `--data` names."""
    folder = request.config.getoption("--data")
    if not folder:
        pytest.skip("needs the real data sets: make acceptance DATA=FOLDER")
    return Path(folder)


def run_night(
    make_desk: MakeDesk,
    seed: int,
    task: Path,
    table: Path,
    *,
    within_s: float = 1.2,
    faults: Callable[[random.Random], list[dict[str, Any]]] = storm.faults,
    **how: Any,
) -> Desk:
    """Submit, tick and kill until the job is done, then check everything; the seed is in every failure's name."""
    rng = random.Random(f"night/{seed}")
    rows = read_rows(table)
    desk = make_desk(
        faults=faults(rng), seed=seed, in_process=False, timing=QUICK, profile={"create_limit_s": 2}, **how
    )
    shutil.copy(task, desk.folder / "task.yaml")
    shutil.copy(table, desk.folder / table.name)
    size = -(-len(rows) // BATCHES)
    output = desk.folder / f"merged{table.suffix}"
    job = storm.submit(
        desk,
        rng,
        desk.folder / "task.yaml",
        desk.folder / table.name,
        within_s,
        "-o",
        output,
        "--max-batch-requests",
        size,
        "--max-attempts",
        5,
    )
    (desk.folder / table.name).unlink()  # the job has its own copy
    ticks, killed = storm.night(desk, rng, job, within_s)
    print(f"{job}: seed {seed}, {ticks} ticks, {killed} killed, {desk.server.ledger()}")
    check(desk, job, rows, output)
    return desk


def check(desk: Desk, job: str, rows: list[dict[str, Any]], output: Path) -> None:
    """Promise 1 against the input, promise 2 against the server's ledger."""
    merged = read_rows(output)
    columns = list(rows[0])
    assert [{name: row[name] for name in columns} for row in merged] == rows, "every row, in order, as it was"
    assert merged == read_rows_again(desk, job, output.suffix)
    found = outcomes(merged)
    assert set(found) <= EXPLAINED and found["succeeded"] > 0.9 * len(rows), found
    assert all(row["error"] for row in merged if row["outcome"] != "succeeded")
    counted = desk.server.ledger()
    assert counted["sent_after_answered"] == counted["max_in_flight_twice"] == counted["answered_more_than_once"] == 0
    assert counted["answered_once"] == found["succeeded"], "what was answered is there, and only that"
    resent = counted["requests_sent"] - len(rows)
    assert resent <= counted["failed"] + counted["unanswered"], "each request beyond the first had its reason"
    assert desk.run("status", job, "--check", codes=(0, 3)).code == (0 if found == {"succeeded": len(rows)} else 3)


def read_rows_again(desk: Desk, job: str, suffix: str) -> list[dict[str, Any]]:
    """What `results` writes, beside what the merge at the end wrote."""
    return desk.results(job, suffix=suffix.lstrip("."))


@pytest.mark.acceptance
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_banking77_in_a_bad_night(make_desk: MakeDesk, real_data: Path, seed: int) -> None:
    run_night(make_desk, seed, EXAMPLES / "banking77.yaml", real_data / "banking77_test.csv")


@pytest.mark.acceptance
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_gsm8k_in_a_bad_night(make_desk: MakeDesk, real_data: Path, seed: int) -> None:
    run_night(make_desk, seed, EXAMPLES / "gsm8k.yaml", real_data / "gsm8k_test.jsonl")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 12))
def test_generated_rows_in_a_bad_night(make_desk: MakeDesk, tmp_path: Path, seed: int) -> None:
    table = tmp_path / "rows.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "text"])
        writer.writerows(
            (f"{row['id']}", f'{row["text"]}, "so" it goes\n{"·" * (number % 7)}')
            for number, row in enumerate(numbered(400))
        )
    run_night(make_desk, seed, _task(tmp_path), table)


@pytest.mark.long
def test_the_reviews_in_a_bad_night_with_an_interpreter_for_each_command(make_desk: MakeDesk) -> None:
    table = EXAMPLES / "reviews.csv"
    run_night(
        make_desk, 7, EXAMPLES / "reviews.yaml", table, within_s=6.0, faults=storm.short_faults, launch=interpreter
    )


def _task(folder: Path) -> Path:
    path = folder / "task.yaml"
    path.write_text(json.dumps({"model": "small", "prompt": "{{ text }}"}), encoding="utf-8")
    return path


def test_a_calm_night_answers_every_row_once(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    job = desk.submit(desk.task(), desk.table(numbered(100)), "--max-batch-requests", 5)
    assert desk.settle(job) <= 3
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 100}
    counted = desk.server.ledger()
    assert counted["requests_sent"] == counted["answered_once"] == 100 and counted["creates"] == BATCHES
