"""The command that starts the server: `batchctl serve`, and `python -m batchctl.gateway`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from batchctl.errors import UserError
from batchctl.gateway.options import INSTANT, ServeOptions, Timing

_TIMES = ("validation_s", "queue_s", "row_s", "finalizing_s", "cancelling_s", "jitter")
_PATH = click.Path(path_type=Path, dir_okay=False)


def _pairs(values: tuple[str, ...], option: str) -> dict[str, float]:
    """`NAME=NUMBER` options as a dict."""
    pairs = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        try:
            pairs[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=NUMBER", param_hint=option)
    return pairs


def _faults(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        faults = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.BadParameter(f"{path} is not JSON: {error}", param_hint="--faults") from error
    if not isinstance(faults, dict):
        raise click.BadParameter(f'{path} must hold {{"faults": [...]}}', param_hint="--faults")
    return faults


def _timing(executor: str, changes: dict[str, float]) -> Timing:
    unknown = sorted(set(changes) - set(_TIMES))
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(_TIMES)}", param_hint="--time")
    plain = Timing() if executor == "rehearsal" else INSTANT
    return Timing(**{name: changes.get(name, getattr(plain, name)) for name in _TIMES})


@click.command("serve")
@click.option(
    "--executor",
    type=click.Choice(["rehearsal", "llamacpp"]),
    default="rehearsal",
    show_default=True,
    help="What answers: canned text, or a model on this machine.",
)
@click.option("--model", type=_PATH, help="The model's file (GGUF), for --executor llamacpp.")
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address; no other is taken.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="0: any free port.")
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds of the server's clock in one real second.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything that is random.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep files and batches here; without it they go with the server.",
)
@click.option("--ready-file", type=_PATH, help="Write the line with the address here once the server listens.")
@click.option(
    "--faults",
    "faults_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help='A schedule of faults: {"seed": 7, "faults": [{"op": "create", "kind": "drop_after", "nth": 1}]}.',
)
@click.option(
    "--keys-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The accepted API keys, one KEY or KEY PROJECT a line. Without it every key is accepted.",
)
@click.option("--serves", multiple=True, metavar="MODEL", help="A model name that exists; repeat. Without it all do.")
@click.option("--queue-limit", multiple=True, metavar="MODEL=TOKENS", help="Enqueued prompt tokens; MODEL * is any.")
@click.option(
    "--time",
    "times",
    multiple=True,
    metavar="NAME=SECONDS",
    help=f"How long things take on the server's clock: {', '.join(_TIMES)}.",
)
@click.option(
    "--share",
    "shares",
    multiple=True,
    metavar="KIND=SHARE",
    help="The rehearsal's share of answers that are truncated, refused, filtered, empty or restarted.",
)
@click.option(
    "--ledger-field", metavar="PATH", help="What identifies a row in the ledger (body.user); default: its body."
)
@click.option(
    "--max-file-bytes", type=click.IntRange(1), show_default="200 MB; 256 MB", help="Largest upload; largest create."
)
@click.option("--max-requests", type=click.IntRange(1), show_default="50,000; 100,000", help="Most rows in a batch.")
@click.option("--max-queued", type=click.IntRange(1), help="Most rows in Anthropic's queue; a create beyond is a 429.")
@click.option("--stop-on-stdin-eof", is_flag=True, help="Stop when standard input closes (for a child process).")
def serve_command(
    executor: str,
    model: Path | None,
    faults_file: Path | None,
    keys_file: Path | None,
    serves: tuple[str, ...],
    queue_limit: tuple[str, ...],
    times: tuple[str, ...],
    shares: tuple[str, ...],
    **plain: Any,
) -> None:
    """Serve OpenAI's Files and Batches API and Anthropic's Message Batches on this machine.

    For rehearsals and for small local models. Where an option has two defaults, the second is Anthropic's.

    GET /rehearsal/ledger says what was sent and answered, /rehearsal/clock the server's time; POST /rehearsal/faults
    replaces the schedule of faults.
    """
    from batchctl.gateway import serve

    try:
        if keys_file is not None:
            from batchctl.gateway.server import read_keys

            plain["keys"] = read_keys(keys_file)
        serve(
            ServeOptions(
                executor="llamacpp" if executor == "llamacpp" else "rehearsal",
                model=model,
                faults=_faults(faults_file),
                models=serves,
                queue_limits={name: int(limit) for name, limit in _pairs(queue_limit, "--queue-limit").items()},
                timing=_timing(executor, _pairs(times, "--time")),
                shares=_pairs(shares, "--share"),
                **plain,
            )
        )
    except UserError as error:
        hint = f"\n{error.hint}" if error.hint else ""
        click.echo(f"error: {error.message}{hint}", err=True)
        raise SystemExit(error.exit_code) from error
