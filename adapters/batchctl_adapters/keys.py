"""Keys: where they come from, and a type that cannot be printed by accident."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from .errors import Auth
from .profile import Profile

REDACTED = "**redacted**"
_KEY_LIKE = re.compile(r"\bsk-[A-Za-z0-9_*-]{6,}")
"""Keys that providers echo in part (`sk-ab***yz`) are cut as well as our own."""


class Secret:
    """A key. `str`, `repr` and formatting give `**redacted**`; only `reveal()` gives the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return REDACTED

    def __reduce__(self) -> str:
        raise TypeError("a key is not pickled")

    def reveal(self) -> str:
        """The key itself, for the one place that puts it into a header."""
        return self._value

    def scrub(self, text: str) -> str:
        """`text` without this key and without anything that looks like part of one."""
        if self._value:
            text = text.replace(self._value, REDACTED)
        return _KEY_LIKE.sub(REDACTED, text)


def find_key(profile: Profile, environ: Mapping[str, str], key_file: Path | None = None) -> Secret:
    """The profile's key: its environment variable first, then `key_file`, which holds the key alone, mode 600.

    A profile without `key_env` on a loopback address needs none and gets an empty Secret. Raises Auth, saying how to
    mend it, where a key is needed and missing, malformed, or in a file that others may read.
    """
    if profile.key_env and (value := environ.get(profile.key_env, "").strip()):
        return _checked(value, f"the environment variable {profile.key_env}")
    if key_file is not None and key_file.exists():
        return _checked(_read(key_file), f"the key file {key_file}")
    if profile.key_env is None and is_loopback(profile.base_url):
        return Secret("")
    ways = []
    if profile.key_env:
        ways.append(f"set {profile.key_env}")
    if key_file is not None:
        ways.append(f"write the key to {key_file} and run: chmod 600 {key_file}")
    ways = ways or ["name the environment variable that holds it as key_env in the profile"]
    raise Auth(f"profile {profile.name}: no key; {' or '.join(ways)}", code="no_key")


def is_loopback(base_url: str | None) -> bool:
    """True where the URL's host is this machine, by name or by address."""
    host = (urlsplit(base_url or "").hostname or "").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            if os.name == "posix" and (mode := stat.S_IMODE(os.fstat(file.fileno()).st_mode)) & 0o077:
                raise Auth(
                    f"key file {path} has mode {mode:03o}: others may read it; run: chmod 600 {path}",
                    code="key_file_mode",
                )
            return file.read(65_536).decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise Auth(f"key file {path} cannot be read: {err}", code="key_file") from None


def _checked(value: str, where: str) -> Secret:
    # A line end or a blank inside would break out of the header, and a non-ASCII character would not fit into it.
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise Auth(f"{where} does not hold a key: one word of ASCII characters is expected", code="bad_key")
    return Secret(value)


class MissingKey(Secret):
    """No key was found: an adapter can still encode and state its limits, and each call to the provider says why."""

    __slots__ = ("_error",)

    def __init__(self, error: Auth) -> None:
        super().__init__("")
        self._error = error

    def reveal(self) -> str:
        raise self._error
