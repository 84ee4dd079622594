"""Alembic's migrations. `HEAD` lets an up-to-date store open without importing Alembic."""

HEAD = "0004"
