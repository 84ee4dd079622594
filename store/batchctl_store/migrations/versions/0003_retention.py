"""what was let go, here and at the provider

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("keep_remote", sa.Boolean(), nullable=False, server_default=sa.text("0")))
    op.add_column("job", sa.Column("written_at", sa.Float(), nullable=True))
    op.add_column("job", sa.Column("trimmed_at", sa.Float(), nullable=True))
    op.add_column("batch", sa.Column("cleaned_at", sa.Float(), nullable=True))
    op.add_column("batch", sa.Column("clean_at", sa.Float(), nullable=True))
    op.add_column("batch", sa.Column("clean_tries", sa.Integer(), nullable=False, server_default=sa.text("0")))
