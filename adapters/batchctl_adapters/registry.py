"""Profiles by name, built in or the user's own, and the adapter that a profile names.

Third parties add an adapter under the entry-point group `batchctl.adapters`: a callable
`(Profile, Secret) -> BatchAdapter`.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import metadata, resources
from typing import Any, cast

from pydantic import ValidationError

from .base import BatchAdapter
from .keys import Secret, is_loopback
from .profile import Profile

ENTRY_POINTS = "batchctl.adapters"

UserProfiles = Mapping[str, Mapping[str, Any]]
"""The `[profiles.NAME]` tables of the user's settings."""


class ProfileError(ValueError):
    """A profile is unknown or wrong; the message names the file, the profile and the key, and what to change."""


def profile_names(user: UserProfiles) -> list[str]:
    """All names that `load_profile` takes, sorted."""
    return sorted({*_built_in(), *user})


def load_profile(name: str, user: UserProfiles, *, source: str = "batchctl.toml") -> Profile:
    """The profile `name`. `source` is the user's file, for messages. Raises ProfileError.

    A user's profile may say `extends = "NAME"`; one that has a built-in one's name extends that. Keys given replace
    those of the base, except that `models` are added to the base's. `window_s` follows from `completion_window` where
    it is not given.
    """
    data = _resolve(name, user, source, ())
    data["name"] = name
    where = f"{source if name in user else f'built-in {name}.toml'}: profile {name}"
    try:
        profile = Profile.model_validate(data)
    except ValidationError as err:
        raise ProfileError("\n".join(_problem(where, item) for item in err.errors())) from None
    if profile.follow_clock and not is_loopback(profile.base_url):
        raise ProfileError(f"{where}: follow_clock: only for a server on this machine, and base_url is another")
    window_s = _seconds(profile.completion_window)
    if window_s is None:
        raise ProfileError(f"{where}: completion_window: {profile.completion_window!r} is not like '24h' or '7d'")
    return profile if "window_s" in data else profile.model_copy(update={"window_s": window_s})


def open_adapter(profile: Profile, key: Secret) -> BatchAdapter:
    """The adapter that `profile.adapter` names. Raises ProfileError where nothing installed has that name."""
    installed = {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINTS)}
    if (entry := installed.get(profile.adapter)) is None:
        hint = _suggest(profile.adapter, installed)
        raise ProfileError(f"profile {profile.name}: adapter: {profile.adapter!r} is not installed{hint}")
    factory = cast(Callable[[Profile, Secret], BatchAdapter], entry.load())
    return factory(profile, key)


@cache
def _built_in() -> Mapping[str, str]:
    """Name -> TOML text."""
    folder = resources.files(__package__) / "profiles"
    files = (file for file in folder.iterdir() if file.name.endswith(".toml"))
    return {file.name.removesuffix(".toml"): file.read_text("utf-8") for file in files}


def _resolve(name: str, user: UserProfiles, source: str, above: tuple[str, ...]) -> dict[str, Any]:
    """The profile's keys with those of its bases under them; `above` are the user's profiles that led here."""
    built_in = _built_in()
    if name not in user or (name in above and name in built_in):
        if name not in built_in:
            asked_by = f"{source}: profile {above[-1]}: extends: " if above else ""
            raise ProfileError(f"{asked_by}no profile is called {name!r}{_suggest(name, profile_names(user))}")
        return tomllib.loads(built_in[name])
    if name in above:
        raise ProfileError(f"{source}: profile {name}: extends: goes round in a circle: {' -> '.join((*above, name))}")
    own = dict(user[name])
    base = own.pop("extends", name if name in built_in else None)
    if base is None:
        return own
    if not isinstance(base, str):
        raise ProfileError(f"{source}: profile {name}: extends: must be the name of a profile")
    merged = _resolve(base, user, source, (*above, name))
    if isinstance(models := own.get("models"), Mapping):
        own["models"] = {**merged.get("models", {}), **models}
    return {**merged, **own}


def _seconds(window: str) -> float | None:
    match = re.fullmatch(r"(\d{1,4})([hd])", window)
    return float(match[1]) * {"h": 3600, "d": 86_400}[match[2]] if match else None


def _problem(where: str, item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        what = f"unknown setting{_suggest(key, Profile.model_fields, listed=False)}"
    else:
        what = f"{item['msg']} (it is {item['input']!r})"
    return f"{where}: {key}: {what}"


def _suggest(name: str, known: Iterable[str], *, listed: bool = True) -> str:
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return hint + (f"{'' if hint else '.'} There are: {', '.join(known) or 'none'}" if listed else "")
