#!/usr/bin/env python3
"""Fill a store with many jobs whose batches are all out: crowd.py HOME BASE_URL JOBS BATCHES ROWS [--requests].

Every job has ROWS rows in BATCHES batches, submitted as `batch_open_<n>`, n from 1 over all of them. With --requests
each row is stored too. Written as SQL: making them through the engine would take hours.
"""

from __future__ import annotations

import argparse
import sqlite3
import time
from pathlib import Path

TASK = '{"kind": "chat", "model": "m", "prompt": "{{ text }}"}'
SETTINGS = '[profiles.bench]\nextends = "openai"\nbase_url = "%s"\n'
COUNTING = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"


def fill(home: Path, url: str, *, jobs: int, batches: int, rows: int, requests: bool = False) -> None:
    """Make the store, and a settings file beside it whose profile `bench` is at `url`."""
    from batchctl_store.repository import Repository

    home.mkdir(parents=True, exist_ok=True)
    (home / "batchctl.toml").write_text(SETTINGS % url, encoding="utf-8")
    store = Repository(home / "store.db")
    store_id = store.store_id
    store.close()
    now, each = time.time(), rows // batches
    values = {"now": now, "task": TASK, "rows": rows, "batches": batches, "each": each, "store": store_id}
    connection = sqlite3.connect(home / "store.db")
    with connection:
        connection.execute(
            f"{COUNTING} INSERT INTO job (id, name, created_at, task, task_hash, input_name, input_hash, input_format,"
            " route_hash, profile, account, model, columns, rows, max_attempts, spool, ready_at)"
            " SELECT i, 'reviews-' || i, :now, :task, 't', 'reviews.jsonl', 'i' || i, 'jsonl', 'r', 'bench', 'bench',"
            " 'm', '[\"id\", \"text\"]', :rows, 3, 'jobs/' || i, :now FROM n",
            {**values, "count": jobs},
        )
        connection.execute(
            f"{COUNTING} INSERT INTO batch (id, job_id, ordinal, profile, account, state, first_row, last_row,"
            " requests, bytes, created_at, updated_at, upload_n, upload_tag, upload_id, uploaded_at, next_poll_at,"
            " window_ends_at, refusals)"
            " SELECT i, (i - 1) / :batches + 1, (i - 1) % :batches + 1, 'bench', 'bench', 'submitted',"
            " (i - 1) % :batches * :each, (i - 1) % :batches * :each + :each - 1, :each, :each * 500, :now, :now, 1,"
            " :store || '-' || i || '-1', 'file-0', :now, :now, :now + 86400, 0 FROM n",
            {**values, "count": jobs * batches},
        )
        connection.execute(
            "INSERT INTO submission (batch_id, account, n, tag, state, owner, created_at, send_deadline, upload_id,"
            " remote_id, raw_status, files, looks, gone_looks) SELECT id, account, 1, upload_tag, 'accepted', 'bench',"
            " :now, :now, upload_id, 'batch_open_' || id, 'validating', '[]', 0, 0 FROM batch",
            {"now": now},
        )
        connection.execute(
            "INSERT INTO event (at, job_id, batch_id, kind, text)"
            " SELECT :now, job_id, id, 'batch', 'created: batch_open_' || id FROM batch",
            {"now": now},
        )
        for job in range(1, jobs + 1 if requests else 1):
            connection.execute(
                f"{COUNTING} INSERT INTO request (job_id, row, state, batch_id, attempts, size)"
                " SELECT :job, i - 1, 'assigned', (i - 1) / :each + 1 + (:job - 1) * :batches, 1, 500 FROM n",
                {**values, "job": job, "count": each * batches},
            )
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("url")
    for name in ("jobs", "batches", "rows"):
        parser.add_argument(name, type=int)
    parser.add_argument("--requests", action="store_true", help="store each row too")
    options = parser.parse_args()
    fill(
        options.home,
        options.url,
        jobs=options.jobs,
        batches=options.batches,
        rows=options.rows,
        requests=options.requests,
    )


if __name__ == "__main__":
    main()
