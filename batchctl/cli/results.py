"""`batchctl results`: one output row for each input row, and the accounting."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from batchctl.cli import output
from batchctl.cli.base import FAILED_ROWS, PAUSED, command, json_option, on_interrupt
from batchctl.cli.reading import JOB
from batchctl.errors import UsageError
from batchctl.outputs.files import Format

if TYPE_CHECKING:
    from batchctl.outputs.joining import Accounting


@command("results", exits=(FAILED_ROWS, PAUSED))
@click.argument("job", type=JOB)
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), help="A file; default: to stdout.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(get_args(Format)),
    help="Default: what the file's name ends in, JSONL to stdout. `openai`: the lines of a batch's output file.",
)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="EXPR",
    help="Only rows that it holds for, such as outcome!=succeeded, attempts>1, error~timeout; repeat: all hold.",
)
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Only N rows, picked by chance.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Another one picks another sample.")
@click.option("--follow", is_flag=True, help="Write rows as they become final, as JSONL, until the job is finished.")
@click.option("--id", "id_column", metavar="COLUMN", help="The custom_id of `openai` lines; default: custom_id, id.")
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
@click.option("--partial", is_flag=True, help="Write an unfinished job as it stands now.")
@json_option
def results(
    job: str,
    target: Path | None,
    format_: Format | None,
    conditions: tuple[str, ...],
    sample: int | None,
    seed: int,
    follow: bool,
    id_column: str | None,
    force: bool,
    partial: bool,
    as_json: bool,
) -> int:
    """Write JOB's rows, in input order, with answer, outcome, error, tokens, attempts and batch.

    The accounting goes to stderr: rows in = sum of the outcomes, whatever rows are written.

    With --follow rows come in the order in which they become final, each once; a row that will be sent again is not
    final. It only reads: `tick` (from cron) or `wait` does the work meanwhile. docs/results.md has examples.
    """
    from batchctl.cli import passes
    from batchctl.outputs.delivery import deliver, require_finished, require_free
    from batchctl.outputs.picking import Pick

    on_interrupt("no file was written; nothing is lost")
    if as_json and target is None:
        raise UsageError("--json needs -o: without it the rows themselves go to stdout")
    if id_column is not None and format_ != "openai":
        raise UsageError("--id is for --format openai", hint="the other formats have every column of the input")
    if format_ == "parquet" and target is None and sys.stdout.isatty():
        raise UsageError("Parquet is no text for a terminal", hint="name a file: -o FILE.parquet")
    if target is not None:
        require_free(target, force=force)
    pick = Pick(conditions, sample, seed)
    code = None
    with passes.opened(offline=True) as engine:
        found = passes.named(engine, job)
        if follow:
            from batchctl.cli.trailing import trail

            code, accounting = trail(engine, found, pick, target, format_)
        else:
            if not partial:
                require_finished(found)
            to = sys.stdout.buffer if target is None else target
            accounting = deliver(engine, found, to, format=format_, pick=pick, id_column=id_column)
    for note in accounting.notes:
        output.say(f"note: {note}")
    if as_json:
        output.emit(
            "results",
            {"job": found.name, "output": str(target), "written": accounting.written, **accounting_json(accounting)},
        )
    else:
        _say(accounting, target)
    return code or (0 if accounting.succeeded == accounting.rows else FAILED_ROWS)


def _say(accounting: Accounting, target: Path | None) -> None:
    for line in accounting_lines(accounting):
        output.say(line)
    if accounting.written < accounting.rows:
        output.say(f"{output.counted(accounting.written, 'row')} of {accounting.rows:,} written")
    if target is not None:
        output.say(f"written to {target}")


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
