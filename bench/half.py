#!/usr/bin/env python3
"""One half of batchctl's own work, measured in a process of its own.

half.py build ROWS.jsonl HOME    input to planned batches, with their lines in the spool
half.py merge HOME               local result files to the output file, row by row checked
Prints one JSON object: rows, cpu and wall seconds, peak RSS in MB. No server: nothing is sent.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchctl.engine.context import Engine
    from batchctl_store.records import Batch

TASK = """\
model: m
system: Answer positive or negative.
prompt: "{{ text }}"
max_output_tokens: 8
"""


def engine_at(home: Path) -> Engine:
    """batchctl over a store of its own."""
    from batchctl.composition import open_engine
    from batchctl.config import load_settings

    (home / "batchctl.toml").write_text(
        '[profiles.bench]\nextends = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n', encoding="utf-8"
    )
    return open_engine(load_settings(home, {**os.environ, "BATCHCTL_HOME": str(home)}))


def build(rows: Path, home: Path) -> int:
    """What `submit --no-tick` does."""
    from batchctl.engine.intake import Order, create_job
    from batchctl.task import load_task

    home.mkdir(parents=True, exist_ok=True)
    (home / "task.yaml").write_text(TASK, encoding="utf-8")
    order = Order(load_task(home / "task.yaml"), rows, profile="bench", output=home / "out.jsonl")
    return create_job(engine_at(home), order).rows


def answer(home: Path) -> None:
    """Not timed: bring every batch to `ended`, with its shuffled answers fetched."""
    from batchctl.engine.context import custom_id, tag_of
    from batchctl_store.records import BatchState, SubmissionState

    engine, rnd = engine_at(home), random.Random(11)
    store = engine.store
    for batch in store.batches.load():
        tag = tag_of(store.store_id, batch.id, 1)
        store.batches.begin_upload(batch, tag=tag, n=1, owner="bench", now=0.0)
        ready = {BatchState.UPLOADING}
        store.batches.move(batch.id, BatchState.READY, sources=ready, now=0.0, text="", upload_id="file-1")
        opened = store.batches.begin_submit(
            store.batches.get(batch.id), tag=tag, n=1, owner="bench", now=0.0, send_deadline=0.0
        )
        store.batches.resolve(
            store.batches.get(batch.id),
            opened,
            to=BatchState.SUBMITTED,
            submission_to=SubmissionState.ACCEPTED,
            now=0.0,
            text="",
            submission_values={"remote_id": f"batch_{batch.id}"},
        )
        store.batches.note_submission(opened, files=("file-2",), counted=batch.requests, ended_at=0.0)
        store.batches.move(batch.id, BatchState.ENDED, sources={BatchState.SUBMITTED}, now=0.0, text="")
        _write_answers(engine, batch, [custom_id(tag, row) for row in store.rows.of_batch(batch)], rnd, tag)


def _write_answers(engine: Engine, batch: Batch, ids: list[str], rnd: random.Random, tag: str) -> None:
    rnd.shuffle(ids)
    body = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "usage": {"prompt_tokens": 90, "completion_tokens": 1, "total_tokens": 91},
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "positive"}}],
    }
    job = engine.store.jobs.get(batch.job_id)
    with engine.spool.writer(f"{job.spool}/results/{tag}-0") as writer:
        for custom in ids:
            response = {"status_code": 200, "request_id": "q", "body": body}
            writer.append(json.dumps({"id": "r", "custom_id": custom, "error": None, "response": response}).encode())


def merge(home: Path) -> int:
    """What a tick does once results are there: collect every batch, finish, merge."""
    from batchctl.engine.tick import run_pass

    engine = engine_at(home)
    run_pass(engine)
    job = engine.store.jobs.all()[0]
    if job.merged_at is None or engine.store.rows.tally(job.id) != {"succeeded": job.rows}:
        sys.exit(f"the merge did not end well: {job}")
    return job.rows


def main() -> None:
    """Run one half and print what it took."""
    step, *paths = sys.argv[1:]
    folders = [Path(path) for path in paths]
    if step == "answer":
        answer(folders[0])
        return
    wall, cpu = time.perf_counter(), time.process_time()
    rows = build(*folders) if step == "build" else merge(folders[0])
    print(
        json.dumps(
            {
                "rows": rows,
                "cpu_s": round(time.process_time() - cpu, 2),
                "wall_s": round(time.perf_counter() - wall, 2),
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
