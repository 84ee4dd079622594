"""`batchctl logs`: a job's history."""

from __future__ import annotations

import click

from batchctl.cli import output
from batchctl.cli.base import command, json_option
from batchctl.cli.reading import JOB, read


@command("logs")
@click.argument("job", type=JOB)
@json_option
def logs(job: str, as_json: bool) -> None:
    """Print every event of JOB, oldest first: each move of each batch, and what was seen at the provider."""
    reading = read()
    row = reading.job(job)
    events = reading.views.events(row["id"])
    if as_json:
        keys = ("kind", "text", "source", "target", "count")
        listed = [
            {
                "at": output.iso(event["at"]),
                "batch": None if event["batch"] is None else f"b{event['batch']}",
                **{key: event[key] for key in keys},
            }
            for event in events
        ]
        output.emit("logs", {"job": row["name"], "events": listed})
        return
    for event in events:
        batch = "" if event["batch"] is None else f"b{event['batch']} "
        moved = f"{event['source']} -> {event['target']}: " if event["target"] else ""
        output.data(f"{output.local(event['at'])} {batch}{moved}{event['text']}")
