"""Settings: `batchctl.toml`, found upwards from the working directory, and the environment. Keys are never in it.

provider = "mine"                 # the profile used where --provider is not given
[profiles.mine]                   # a profile of your own, or changes to a built-in one
base_url = "https://..."
[keys.mine]
key_file = "~/.config/mine.key"   # mode 600; a relative path counts from this file
[retention]                       # what is kept, how long: docs/retention.md
files = "30d"
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchctl.errors import UsageError
from batchctl.retention import HOW, Retention, parse_span

FILE_NAME = "batchctl.toml"
_TOP = ("provider", "profiles", "keys", "retention")
_RETENTION = ("auto", "files", "jobs", "keep_remote_files")
_SECRETS = ("key", "api_key", "token", "secret", "password")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user has set. A plain dataclass: reading it must cost `status` nothing."""

    home: Path  # where the store and the spool lie
    path: Path | None = None  # the file they came from
    provider: str | None = None  # the default profile's name
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    key_files: Mapping[str, Path] = field(default_factory=dict)  # by profile
    retention: Retention = field(default_factory=Retention)


def load_settings(start: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings for `start` (default: the working directory). Raises UsageError that names file, key and fix."""
    home = data_home(os.environ if environ is None else environ)
    path = _find(start or Path.cwd())
    if path is None:
        return Settings(home)
    content = _read(path)
    for key in content:
        if key not in _TOP:
            raise _wrong(path, key, "unknown key", _near(key, _TOP))
    provider = content.get("provider")
    if provider is not None and not (isinstance(provider, str) and provider):
        raise _wrong(path, "provider", "must be a profile's name", 'write provider = "openai"')
    return Settings(
        home, path, provider, _profiles(path, content), _key_files(path, content), _retention(path, content)
    )


def data_home(environ: Mapping[str, str]) -> Path:
    """The folder of the store: BATCHCTL_HOME, or the platform's data folder."""
    if given := environ.get("BATCHCTL_HOME"):
        return Path(given).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("batchctl", appauthor=False)


def _find(start: Path) -> Path | None:
    folder = start.absolute()
    return next((place / FILE_NAME for place in (folder, *folder.parents) if (place / FILE_NAME).is_file()), None)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}", hint="check its permissions") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}", hint="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}", hint='text needs quotes: provider = "openai"') from None


def _tables(path: Path, content: Mapping[str, Any], key: str, example: str) -> dict[str, dict[str, Any]]:
    tables = content.get(key, {})
    if not isinstance(tables, dict):
        raise _wrong(path, key, "must be a table", example)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise _wrong(path, f"{key}.{name}", "must be a table", example)
        for secret in _SECRETS:
            if secret in table:
                what = "a key does not belong in this file"
                raise _wrong(path, f"{key}.{name}.{secret}", what, f"put it in a file of mode 600 and {_KEY_EXAMPLE}")
    return tables


_KEY_EXAMPLE = 'write [keys.PROFILE] key_file = "PATH"'


def _profiles(path: Path, content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return _tables(path, content, "profiles", 'write [profiles.NAME] and below it base_url = "..."')


def _key_files(path: Path, content: Mapping[str, Any]) -> dict[str, Path]:
    found = {}
    for name, table in _tables(path, content, "keys", _KEY_EXAMPLE).items():
        for key in table:
            if key != "key_file":
                raise _wrong(path, f"keys.{name}.{key}", "unknown key", _near(key, ("key_file",)))
        value = table.get("key_file")
        if not isinstance(value, str) or not value:
            raise _wrong(path, f"keys.{name}.key_file", "must be a path", _KEY_EXAMPLE)
        found[name] = path.parent / Path(value).expanduser()
    return found


def _retention(path: Path, content: Mapping[str, Any]) -> Retention:
    table, default = content.get("retention", {}), Retention()
    if not isinstance(table, dict):
        raise _wrong(path, "retention", "must be a table", 'write [retention] and below it files = "30d"')
    for key in table:
        if key not in _RETENTION:
            raise _wrong(path, f"retention.{key}", "unknown key", _near(key, _RETENTION))

    def flag(key: str, otherwise: bool) -> bool:
        value = table.get(key, otherwise)
        if not isinstance(value, bool):
            raise _wrong(path, f"retention.{key}", "must be true or false", f"write {key} = true")
        return value

    def span(key: str, otherwise: float | None) -> float | None:
        value = table.get(key)
        if value is None:
            return otherwise
        try:
            return parse_span(value if isinstance(value, str) else "")
        except ValueError:
            raise _wrong(path, f"retention.{key}", f"{value!r} is no span of time", HOW) from None

    return Retention(
        auto=flag("auto", default.auto),
        files_s=span("files", default.files_s),
        jobs_s=span("jobs", default.jobs_s),
        keep_remote_files=flag("keep_remote_files", default.keep_remote_files),
    )


def _near(key: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f"did you mean {near[0]}?" if near else f"known are: {', '.join(known)}"


def _wrong(path: Path, key: str, what: str, fix: str) -> UsageError:
    return UsageError(f"{path}: {key}: {what}", hint=fix)
