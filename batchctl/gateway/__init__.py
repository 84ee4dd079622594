"""A batch server on loopback that speaks OpenAI's Files and Batches wire, with an executor behind it.

It keeps its own state on disk and its own clock. With the rehearsal executor it rehearses a night in seconds; with a
real model behind it, it is a small batch service. Everything heavy is imported when it starts.
"""

from __future__ import annotations

from batchctl.gateway.options import ServeOptions, Timing

__all__ = ["ServeOptions", "Timing", "serve"]


def serve(options: ServeOptions) -> None:
    """Run the server until it is told to stop (SIGINT, SIGTERM, or its standard input closing where asked)."""
    from batchctl.gateway.server import run

    run(options)
