"""`python -m batchctl.gateway`: the server by itself."""

from __future__ import annotations

from batchctl.gateway.command import serve_command

if __name__ == "__main__":
    serve_command(prog_name="python -m batchctl.gateway")
