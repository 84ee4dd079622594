"""`batchctl results`: one output row for each input row, and the accounting."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchctl.cli import output
from batchctl.cli.base import FAILED_ROWS, command, json_option, on_interrupt
from batchctl.cli.reading import JOB
from batchctl.errors import UsageError, UserError

if TYPE_CHECKING:
    from batchctl.merge import Accounting


@command("results", exits=(FAILED_ROWS,))
@click.argument("job", type=JOB)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    help="A .csv, .jsonl or .parquet file; default: JSONL to stdout.",
)
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
@click.option("--partial", is_flag=True, help="Write an unfinished job as it stands now.")
@json_option
def results(job: str, target: Path | None, force: bool, partial: bool, as_json: bool) -> int:
    """Write JOB's rows, in input order, with answer, outcome, error, tokens, attempts and batch.

    The accounting goes to stderr: rows in = sum of the outcomes.
    """
    from batchctl.cli import passes
    from batchctl.engine.cleaning import wrote_whole
    from batchctl.merge import write_results

    on_interrupt("no file was written; nothing is lost")
    if as_json and target is None:
        raise UsageError("--json needs -o: without it the rows themselves go to stdout")
    if target is not None and target.exists() and not force:
        raise UsageError(f"{target} exists", hint="name another file, or replace it with --force")
    with passes.opened(offline=True) as engine:
        found = passes.named(engine, job)
        if found.finished_at is None and not partial:
            raise UserError(
                f"job {found.name} is not finished: {found.final_rows:,} of {found.rows:,} rows are final",
                hint=f"wait for it with `batchctl wait {found.name}`, or write it as it stands with --partial",
            )
        if target is not None:
            accounting = write_results(engine, found, target)
            wrote_whole(engine, found, str(target))
        else:
            with tempfile.TemporaryDirectory(dir=engine.home) as folder:
                whole = Path(folder) / "rows.jsonl"
                accounting = write_results(engine, found, whole)
                with whole.open("rb") as rows:
                    shutil.copyfileobj(rows, sys.stdout.buffer)
                sys.stdout.buffer.flush()
    if as_json:
        output.emit("results", {"job": found.name, "output": str(target), **accounting_json(accounting)})
    else:
        for line in accounting_lines(accounting):
            output.say(line)
        if target is not None:
            output.say(f"written to {target}")
    return 0 if accounting.succeeded == accounting.rows else FAILED_ROWS


def accounting_lines(accounting: Accounting) -> list[str]:
    """The accounting, for people."""
    sums = " + ".join(f"{count:,} {outcome}" for outcome, count in _sorted(accounting.outcomes))
    lines = [
        f"{accounting.rows:,} rows in = {sums}",
        f"tokens: {accounting.input_tokens:,} in, {accounting.output_tokens:,} out",
    ]
    if accounting.accuracy is not None:
        lines.append(
            f"accuracy: {accounting.accuracy:.3f} ({accounting.correct:,} of {accounting.judged:,} answers as expected)"
        )
    return lines


def accounting_json(accounting: Accounting) -> dict[str, Any]:
    """The accounting as `--json` has it."""
    return {
        "rows": accounting.rows,
        "outcomes": dict(_sorted(accounting.outcomes)),
        "input_tokens": accounting.input_tokens,
        "output_tokens": accounting.output_tokens,
        "judged": accounting.judged,
        "correct": accounting.correct,
        "accuracy": accounting.accuracy,
    }


def _sorted(outcomes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(outcomes.items(), key=lambda item: (item[0] != "succeeded", -item[1], item[0]))
