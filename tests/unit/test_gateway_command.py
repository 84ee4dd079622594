"""The command that starts the server: what it takes, refuses and says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchctl.gateway.command import serve_command
from batchctl.gateway.server import read_keys
from tests.servers import rehearsal


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "refusing to listen on 0.0.0.0"),
        (["--host", "192.168.1.5"], "this machine only"),
        (["--executor", "llamacpp"], "--model FILE.gguf"),
        (["--time", "naps_s=3"], "naps_s"),
        (["--queue-limit", "many"], "NAME=NUMBER"),
        (["--share", "wrong=0.5"], "no such share"),
        (["--speed", "0"], "--speed"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(serve_command, arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_a_faults_file_must_be_a_plan(tmp_path: Path) -> None:
    plan = tmp_path / "faults.json"
    for text in ("[]", "{nope"):
        plan.write_text(text)
        assert CliRunner().invoke(serve_command, ["--faults", str(plan)]).exit_code == 2


def test_keys_files_hold_keys_and_projects(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-a one\n\nsk-b\n")
    assert read_keys(keys) == {"sk-a": "one", "sk-b": "project-3"}


def test_all_options_reach_a_child_process(tmp_path: Path) -> None:
    with rehearsal(
        speed=500,
        seed=3,
        keys={"sk-rehearsal": "p"},
        models=("m",),
        queue_limits={"*": 5},
        shares={"empty": 0.5},
        state=tmp_path / "state",
        ledger_field="custom_id",
        faults=[{"kind": "drop", "op": "upload", "nth": 9}],
    ) as server:
        assert server.process is not None
        assert server.fired() == [0]
        with server.client() as client:
            assert client.batches.list().data == []
        process = server.process
    assert process.returncode == 0, "it stops when its standard input closes"
    assert (tmp_path / "state" / "rehearsal.sqlite3").exists()


def test_it_says_where_it_listens_and_that_answers_are_canned(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "batchctl.gateway", "--stop-on-stdin-eof"]
    done = subprocess.run(command, check=False, input=b"", capture_output=True, timeout=30)
    assert done.returncode == 0
    first, second = done.stderr.decode().strip().split("\n")
    assert first.startswith("listening on http://127.0.0.1:")
    assert "canned" in second


def test_a_taken_port_is_an_error_that_says_so() -> None:
    with rehearsal(in_process=True) as server:
        port = server.root_url.rpartition(":")[2]
        result = CliRunner().invoke(serve_command, ["--port", port])
    assert result.exit_code == 2 and "cannot listen" in result.output


def test_two_servers_do_not_share_a_state(tmp_path: Path) -> None:
    with rehearsal(in_process=True, state=tmp_path):
        result = CliRunner().invoke(serve_command, ["--state", str(tmp_path)])
    assert result.exit_code == 2 and "another server" in result.output
    with rehearsal(in_process=True, state=tmp_path) as server:
        assert server.ledger()["creates"] == 0
