"""Settings: found upwards, said plainly where they are wrong, and never a place for keys."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from batchctl.config import load_settings
from batchctl.errors import UsageError
from batchctl.retention import DAY, Retention


def write(folder: Path, text: str) -> Path:
    path = folder / "batchctl.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(UsageError) as caught:
        load_settings(folder, {})
    assert caught.value.hint
    assert caught.value.message.startswith(f"{path}: ")
    return caught.value.message.removeprefix(f"{path}: ") + f" ({caught.value.hint})"


def test_a_file_is_found_upwards_and_the_nearest_counts(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    outer = write(tmp_path, 'provider = "outer"')
    assert (load_settings(below, {}).provider, load_settings(below, {}).path) == ("outer", outer)
    write(tmp_path / "a", 'provider = "inner"')
    assert load_settings(below, {}).provider == "inner"


def test_everything_that_can_be_set(tmp_path: Path) -> None:
    text = """
        provider = "mine"
        [profiles.mine]
        base_url = "http://localhost:8000/v1"
        models = {small = "m-1"}
        [keys.mine]
        key_file = "keys/mine"
        [keys.other]
        key_file = "/etc/other.key"
        [retention]
        auto = false
        files = "36h"
        jobs = "52w"
        keep_remote_files = true
    """
    write(tmp_path, text)
    settings = load_settings(tmp_path, {"BATCHCTL_HOME": str(tmp_path / "home")})
    assert settings.home == tmp_path / "home"
    assert settings.profiles == {"mine": {"base_url": "http://localhost:8000/v1", "models": {"small": "m-1"}}}
    assert settings.key_files == {"mine": tmp_path / "keys/mine", "other": Path("/etc/other.key")}
    assert settings.retention == Retention(False, 36 * 3_600, 364 * DAY, True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.provider = "x"  # type: ignore[misc]


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    assert (settings.path, settings.provider, settings.profiles, settings.key_files) == (None, None, {}, {})
    assert settings.home.is_absolute()
    assert settings.home.name == "batchctl"
    assert load_settings(tmp_path, {"BATCHCTL_HOME": "here"}).home == Path.cwd() / "here"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("provider = openai", "not TOML"),
        ('provdier = "x"', "provdier: unknown key (did you mean provider?)"),
        ("provider = 3", "provider: must be a profile's name"),
        ('profiles = "x"', "profiles: must be a table"),
        ("[profiles]\nmine = 1", "profiles.mine: must be a table"),
        ("[keys.mine]\nkey_flie = 'x'", "keys.mine.key_flie: unknown key (did you mean key_file?)"),
        ("[keys.mine]\nkey_file = 1", "keys.mine.key_file: must be a path"),
        ("[keys.mine]", "keys.mine.key_file: must be a path"),
        ("retention = 3", "retention: must be a table"),
        ("[retention]\nfile = '3d'", "retention.file: unknown key (did you mean files?)"),
        ("[retention]\nauto = 'no'", "retention.auto: must be true or false"),
        ("[retention]\nfiles = 30", "retention.files: 30 is no span of time"),
        ("[retention]\njobs = '1 year'", "retention.jobs: '1 year' is no span of time"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["[keys.mine]\nkey = 'sk-123'", "[profiles.mine]\napi_key = 'sk-123'", "[keys]\nmine = 'sk-123'"]
)
def test_a_key_in_the_file_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    message = refusal(tmp_path, text)
    assert "key_file" in message
    assert "sk-123" not in message


def test_settings_are_cheap_to_read() -> None:
    code = (
        "import sys, batchctl.config; print([m for m in ('pydantic', 'yaml', 'jinja2', 'orjson') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
