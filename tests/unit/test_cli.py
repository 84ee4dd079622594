"""The front door: the list of commands, exit codes, and errors for people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from batchctl import __version__
from batchctl import cli as front
from batchctl.cli import COMMANDS, cli, load, main
from batchctl.errors import TaskError, UserError

BATCHCTL = Path(sys.executable).with_name("batchctl")


def batchctl(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BATCHCTL, *args], capture_output=True, text=True, check=False)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Put a command `boom` in the list that raises `error`."""

    @click.command
    def boom() -> None:
        """Fail."""
        raise error

    monkeypatch.setattr(front, "load", lambda name: boom)
    monkeypatch.setitem(cli.commands, "boom", boom)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_listed_command_imports_and_has_help(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert command.help
    assert COMMANDS[name][1].endswith(".")
    shown = CliRunner().invoke(cli, [name, "--help"])
    assert shown.exit_code == 0, shown.output
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{name} {parameter.opts[0]} has no help"


def test_help_lists_commands_and_exit_codes() -> None:
    shown = batchctl("--help")
    assert shown.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in shown.stdout
        assert line[:30] in shown.stdout
    for code in (0, 1, 2, 3, 4, 5, 6, 130):
        assert f"  {code}  " in shown.stdout


def test_version_and_python_m() -> None:
    assert batchctl("--version").stdout == f"batchctl {__version__}\n"
    asked = [sys.executable, "-m", "batchctl", "--version"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == f"batchctl {__version__}\n"


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["nonsense"]])
def test_the_front_door_imports_no_command(args: list[str]) -> None:
    code = (
        "import sys\nfrom batchctl.cli import main\n"
        f"try: main({args!r})\nexcept SystemExit: pass\n"
        "allowed = {'batchctl.cli', 'batchctl.errors'}\n"
        "print([m for m in sys.modules if m.startswith('batchctl.') and m not in allowed])\n"
        "print([m for m in ('rich', 'sqlmodel', 'pydantic', 'yaml', 'openai') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-2:] == ["[]", "[]"]


def test_an_unknown_command_is_a_usage_error_with_a_suggestion() -> None:
    shown = batchctl("completoin")
    assert shown.returncode == 2
    assert "Did you mean 'completion'?" in shown.stderr
    assert shown.stdout == ""


def test_completion_knows_commands_and_their_arguments() -> None:
    complete = ShellComplete(cli, {}, "batchctl", "_BATCHCTL_COMPLETE")
    assert [(item.value, item.help) for item in complete.get_completions([], "comp")] == [
        ("completion", COMMANDS["completion"][1])
    ]
    assert [item.value for item in complete.get_completions(["completion"], "")] == ["bash", "zsh", "fish"]


def test_completion_prints_a_script() -> None:
    shown = batchctl("completion", "bash")
    assert shown.returncode == 0
    assert "_BATCHCTL_COMPLETE=bash_complete" in shown.stdout


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("the store is locked", hint="wait"), 1, ["error: the store is locked", "hint: wait"]),
        (TaskError(["t.yaml:3: model: missing; add it"]), 2, ["error: ", "t.yaml:3: model: missing; add it"]),
        (OSError(28, "No space left on device", "out.csv"), 1, ["error: ", "out.csv"]),
        (click.Abort(), 1, []),
        (KeyboardInterrupt(), 130, ["interrupted: no cancel was sent"]),
    ],
)
def test_errors_are_said_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: list[str],
) -> None:
    failing(monkeypatch, error)
    assert main(["boom"]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(words in shown.err for words in said)
    assert bool(shown.err) is bool(said)
    assert "Traceback" not in shown.err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, UserError("the store is locked"))
    monkeypatch.setenv("BATCHCTL_DEBUG", "1")
    with pytest.raises(UserError):
        main(["boom"])


def test_a_command_returns_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    three = click.Command("three", callback=lambda: 3)
    monkeypatch.setattr(front, "load", lambda name: three)
    monkeypatch.setitem(cli.commands, "three", three)
    assert main(["three"]) == 3


@pytest.mark.parametrize(("no_color", "styled"), [("1", False), ("", True)])
def test_no_color_is_honoured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_color: str, styled: bool
) -> None:
    failing(monkeypatch, UserError("no"))
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda stream=None, color=None: color is False)
    main(["boom"])
    assert ("\x1b[" in capsys.readouterr().err) is styled


def test_a_closed_pipe_ends_quietly() -> None:
    script = f"{BATCHCTL} completion bash | true"
    for _ in range(3):
        shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert shown.stderr == ""
