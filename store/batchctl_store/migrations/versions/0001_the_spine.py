"""the spine

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


VIEWS = (
    """
    CREATE VIEW job_status AS
    SELECT j.*,
      coalesce((SELECT sum(t.count) FROM tally t WHERE t.job_id = j.id), 0) AS final_rows,
      coalesce((SELECT sum(t.count) FROM tally t WHERE t.job_id = j.id AND t.outcome = 'succeeded'), 0)
        AS succeeded_rows,
      coalesce((SELECT sum(b.requests) FROM batch b WHERE b.job_id = j.id
        AND b.state NOT IN ('collected', 'rejected', 'canceled', 'gone')), 0) AS open_rows,
      (SELECT count(*) FROM batch b WHERE b.job_id = j.id) AS batches,
      (SELECT count(*) FROM batch b WHERE b.job_id = j.id
        AND b.state NOT IN ('collected', 'rejected', 'canceled', 'gone')) AS open_batches,
      (SELECT count(*) FROM batch b WHERE b.job_id = j.id AND b.state = 'in_doubt') AS doubtful_batches,
      (SELECT min(b.window_ends_at) FROM batch b WHERE b.job_id = j.id AND b.state = 'submitted') AS window_ends_at,
      (SELECT min(coalesce(b.not_before, b.next_poll_at)) FROM batch b WHERE b.job_id = j.id
        AND b.state NOT IN ('collected', 'rejected', 'canceled', 'gone')) AS next_action_at,
      (SELECT a.pause_reason FROM account a WHERE a.name = j.account AND a.paused_at IS NOT NULL) AS account_paused,
      CASE
        WHEN j.ready_at IS NULL THEN 'preparing'
        WHEN j.finished_at IS NOT NULL AND (j.output_path IS NULL OR j.merged_at IS NOT NULL) THEN 'finished'
        WHEN j.finished_at IS NOT NULL THEN 'merging'
        WHEN j.cancel_requested_at IS NOT NULL THEN 'canceling'
        WHEN j.paused_at IS NOT NULL THEN 'paused'
        WHEN EXISTS (SELECT 1 FROM batch b WHERE b.job_id = j.id AND b.state = 'in_doubt') THEN 'in doubt'
        WHEN EXISTS (SELECT 1 FROM account a WHERE a.name = j.account AND a.paused_at IS NOT NULL)
          THEN 'account paused'
        WHEN EXISTS (SELECT 1 FROM batch b WHERE b.job_id = j.id AND b.state IN ('submitted', 'ended')) THEN 'running'
        ELSE 'queued'
      END AS state
    FROM job j
    """,
    """
    CREATE VIEW batch_status AS
    SELECT b.*, j.name AS job,
      (SELECT count(*) FROM submission s WHERE s.batch_id = b.id) AS submissions,
      (SELECT max(s.remote_id) FROM submission s WHERE s.batch_id = b.id
        AND s.n = (SELECT max(s2.n) FROM submission s2 WHERE s2.batch_id = b.id AND s2.remote_id IS NOT NULL))
        AS remote_id,
      (SELECT max(s.counted) FROM submission s WHERE s.batch_id = b.id AND s.state IN ('accepted', 'late'))
        AS counted,
      (SELECT min(s.created_at) FROM submission s WHERE s.batch_id = b.id) AS sent_at,
      coalesce((SELECT sum(t.count) FROM tally t WHERE t.job_id = b.job_id AND t.batch_id = b.id
        AND t.outcome = 'succeeded'), 0) AS succeeded_rows,
      coalesce((SELECT sum(t.count) FROM tally t WHERE t.job_id = b.job_id AND t.batch_id = b.id
        AND t.outcome <> 'succeeded'), 0) AS failed_rows
    FROM batch b JOIN job j ON j.id = b.job_id
    """,
)


def upgrade() -> None:
    op.create_table(
        "account",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("paused_at", sa.Float(), nullable=True),
        sa.Column("pause_kind", sa.String(), nullable=True),
        sa.Column("pause_reason", sa.String(), nullable=True),
        sa.Column("not_before", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("batch_id", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("target", sa.String(), nullable=True),
        sa.Column("count", sa.Integer(), nullable=True),
        sa.Column("text", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("event_job", "event", ["job_id", "id"], unique=False)

    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("task_hash", sa.String(), nullable=False),
        sa.Column("input_name", sa.String(), nullable=False),
        sa.Column("input_hash", sa.String(), nullable=False),
        sa.Column("input_format", sa.String(), nullable=False),
        sa.Column("route_hash", sa.String(), nullable=False),
        sa.Column("profile", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("columns", sa.String(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("output_path", sa.String(), nullable=True),
        sa.Column("output_known", sa.String(), nullable=True),
        sa.Column("max_batch_requests", sa.Integer(), nullable=True),
        sa.Column("max_batch_bytes", sa.Integer(), nullable=True),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("spool", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("deadline", sa.Float(), nullable=True),
        sa.Column("ready_at", sa.Float(), nullable=True),
        sa.Column("cancel_requested_at", sa.Float(), nullable=True),
        sa.Column("paused_at", sa.Float(), nullable=True),
        sa.Column("replan_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("merged_at", sa.Float(), nullable=True),
        sa.Column("merge_error", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_index("job_same", "job", ["input_hash", "task_hash", "route_hash"], unique=False)

    op.create_table(
        "setting",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "batch",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("profile", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("first_row", sa.Integer(), nullable=False),
        sa.Column("last_row", sa.Integer(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("upload_n", sa.Integer(), nullable=False),
        sa.Column("upload_tag", sa.String(), nullable=True),
        sa.Column("upload_id", sa.String(), nullable=True),
        sa.Column("uploaded_at", sa.Float(), nullable=True),
        sa.Column("raw_status", sa.String(), nullable=True),
        sa.Column("not_before", sa.Float(), nullable=True),
        sa.Column("next_poll_at", sa.Float(), nullable=True),
        sa.Column("window_ends_at", sa.Float(), nullable=True),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "ordinal"),
        sqlite_autoincrement=True,
    )
    op.create_index("batch_state", "batch", ["state"], unique=False)

    op.create_table(
        "request",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("batch_id", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "row"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "result",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("answer", sa.String(), nullable=True),
        sa.Column("finish_reason", sa.String(), nullable=True),
        sa.Column("input_tokens", sa.Integer(), nullable=True),
        sa.Column("output_tokens", sa.Integer(), nullable=True),
        sa.Column("cached_tokens", sa.Integer(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "row", "batch_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tally",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("sample", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "batch_id", "outcome", "code"),
    )
    op.create_table(
        "submission",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("tag", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("send_deadline", sa.Float(), nullable=False),
        sa.Column("upload_id", sa.String(), nullable=True),
        sa.Column("remote_id", sa.String(), nullable=True),
        sa.Column("raw_status", sa.String(), nullable=True),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("counted", sa.Integer(), nullable=True),
        sa.Column("files", sa.String(), nullable=False),
        sa.Column("looks", sa.Integer(), nullable=False),
        sa.Column("first_look_at", sa.Float(), nullable=True),
        sa.Column("fenced_at", sa.Float(), nullable=True),
        sa.Column("watch_until", sa.Float(), nullable=True),
        sa.Column("short_since", sa.Float(), nullable=True),
        sa.Column("gone_looks", sa.Integer(), nullable=False),
        sa.Column("cancel_sent_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["batch_id"],
            ["batch.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("batch_id", "n"),
        sa.UniqueConstraint("tag"),
    )
    op.create_index("ix_submission_batch_id", "submission", ["batch_id"], unique=False)
    op.create_index(
        "submission_open",
        "submission",
        ["batch_id"],
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_index("submission_remote", "submission", ["account", "remote_id"], unique=True)
    op.create_index("submission_state", "submission", ["state"], unique=False)
    for view in VIEWS:
        op.execute(view)
