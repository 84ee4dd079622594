"""`batchctl serve`: the gateway's own command, listed with the others."""

from __future__ import annotations

from batchctl.gateway.command import serve_command as serve

__all__ = ["serve"]
