"""Alembic's environment: runs on the connection that `database.migrate` hands over."""

from __future__ import annotations

from alembic import context

from batchctl_store.models import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite")
context.run_migrations()
