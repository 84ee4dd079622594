"""Help, completion and documents: each command, each option, each exit code."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from batchctl.cli import COMMANDS, cli, load, main
from batchctl.cli.base import EXITS, Command
from batchctl.cli.reference import reference
from tests.acceptance.shell import ROOT, Shell, documented

WITHOUT_JSON = {"serve", "completion"}


def test_docs_cli_md_is_current() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference(), (
        "run: python -m batchctl.cli.reference > docs/cli.md"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = page.partition(f"## batchctl {name}\n")[2].partition("\n## ")[0]
    command = load(name)
    assert command.name == name
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, param
            assert all(option in section for option in param.opts)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "serve"])
def test_every_help_lists_its_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    command = load(name)
    assert isinstance(command, Command)
    codes = text.partition("Exit codes:")[2]
    for code in command.exits:
        assert f"{code} " in codes and EXITS[code] in codes


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_fits_a_terminal_of_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.split("\n") if len(line) > 80] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json_and_a_schema(name: str) -> None:
    options = [option for param in load(name).params for option in param.opts]
    assert ("--json" in options) == (name not in WITHOUT_JSON)
    assert (name in documented()["$defs"]) == (name not in WITHOUT_JSON)


def test_outcomes_of_retry_are_the_adapters(shell: Shell) -> None:
    from batchctl.cli.retry import OUTCOMES
    from batchctl_adapters.base import Outcome

    assert set(OUTCOMES) == {outcome.value for outcome in Outcome} - {"succeeded"}
    assert shell("retry", "x", "--where", "succeeded").code == 2


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_scripts(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", f"/bin/{name}")
    assert main(["completion"]) == 0
    assert "_BATCHCTL_COMPLETE" in capsys.readouterr().out
    monkeypatch.delenv("SHELL")
    assert main(["completion"]) == 2


def test_job_names_complete_from_the_store(shell: Shell) -> None:
    from click.shell_completion import ShellComplete

    shell.submit("--no-tick")
    found = ShellComplete(cli, {}, "batchctl", "_BATCHCTL_COMPLETE").get_completions(["status"], "mo")
    assert [(item.value, item.help) for item in found] == [("moods-1", "queued")]


def test_serve_is_listed_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    assert "--executor" in capsys.readouterr().out


def test_examples_are_found() -> None:
    from batchctl.cli.demo import examples

    assert (examples() / "reviews.yaml").is_file()
    assert Path(examples() / "reviews.csv").is_file()
