"""rows that take the answer of another row

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("repeated", "reused", "following"):
        op.add_column("job", sa.Column(name, sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("request", sa.Column("source_job", sa.Integer(), nullable=True))
    op.add_column("request", sa.Column("source_row", sa.Integer(), nullable=True))
    op.create_index(
        "request_source",
        "request",
        ["source_job", "source_row"],
        unique=False,
        sqlite_where=sa.text("source_row IS NOT NULL"),
        postgresql_where=sa.text("source_row IS NOT NULL"),
    )
