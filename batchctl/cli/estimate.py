"""`batchctl estimate`: what a submit would send."""

from __future__ import annotations

import click

from batchctl.cli import output
from batchctl.cli.base import command, json_option
from batchctl.cli.targets import Asked, asked_options, provider_of, target
from batchctl.errors import UsageError


@command("estimate")
@asked_options
@click.option("--provider", metavar="PROFILE", help="Where it would go; default: `provider` in batchctl.toml.")
@click.option("--no-dedupe", is_flag=True, help="As in submit: rows with the same request each by itself.")
@click.option("--max-batch-requests", type=click.IntRange(1), metavar="N", help="At most N rows in a batch.")
@click.option("--max-batch-bytes", type=click.IntRange(1), metavar="N", help="At most N bytes in a batch.")
@json_option
def estimate(
    asked: Asked,
    provider: str | None,
    no_dedupe: bool,
    max_batch_requests: int | None,
    max_batch_bytes: int | None,
    as_json: bool,
) -> None:
    """Say how many requests, batches, bytes and tokens a submit would send. Sends and stores nothing.

    Bytes are measured on the lines as they would be sent. Tokens are estimated from characters, rather too many than
    too few; output tokens are at most max_output_tokens a row, where the task sets it.
    """
    from batchctl.config import load_settings
    from batchctl.engine.preview import preview
    from batchctl.engine.tokens import STATED

    settings = load_settings()
    task = asked.load()
    chosen = provider_of(provider, settings)
    with target(settings, chosen, max_requests=max_batch_requests, max_bytes=max_batch_bytes) as aim:
        found = preview(
            task,
            asked.inputs,
            input_format=asked.format,
            encoding=asked.encoding,
            sheet=asked.sheet,
            target=aim,
            task_file=asked.task,
            most_problems=3,
            dedupe=not no_dedupe,
        )
    for warning in found.warnings:
        output.warn(warning)
    if found.problems:
        raise UsageError("\n".join(found.problems), hint=f"batchctl validate {asked.words} lists every problem")
    requests, size = sum(count for count, _ in found.batches), sum(size for _, size in found.batches)
    at_most = None if task.max_output_tokens is None else task.max_output_tokens * requests
    if task.kind in ("embedding", "moderation"):
        at_most = 0  # their answers are no tokens
    if as_json:
        output.emit(
            "estimate",
            {
                "provider": chosen,
                "rows": found.rows,
                "repeated": found.repeated,
                "requests": requests,
                "batches": len(found.batches),
                "bytes": size,
                "largest_batch_bytes": max((size for _, size in found.batches), default=0),
                "input_tokens": found.input_tokens,
                "max_output_tokens": at_most,
                "token_method": STATED,
            },
        )
        return
    largest = max((size for _, size in found.batches), default=0)
    output.data(f"rows           {found.rows:,}{_repeated(found.repeated, no_dedupe=no_dedupe)}")
    output.data(f"requests       {requests:,}")
    output.data(f"batches        {len(found.batches):,} (the largest has {largest:,} bytes)")
    output.data(f"bytes          {size:,}")
    output.data(f"input tokens   about {found.input_tokens:,}")
    output.data(f"output tokens  {'not limited by the task' if at_most is None else f'at most {at_most:,}'}")
    output.say(f"tokens: {STATED}")


def _repeated(count: int, *, no_dedupe: bool) -> str:
    how = "each sent by itself" if no_dedupe else "sent once"
    return f" ({count:,} ask the same as an earlier one: {how})" if count else ""
