"""The one module that knows concrete adapters and the store, and puts an engine together."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Callable
from functools import cache
from urllib.parse import urlsplit

from batchctl.clock import Clock, FollowedClock, SystemClock, stored_clock
from batchctl.config import Settings, load_settings
from batchctl.engine.context import Engine
from batchctl.errors import UsageError, UserError
from batchctl_adapters.base import BatchAdapter
from batchctl_adapters.errors import Auth
from batchctl_adapters.keys import MissingKey, find_key, is_loopback
from batchctl_adapters.profile import Profile
from batchctl_adapters.registry import ProfileError, load_profile, open_adapter
from batchctl_adapters.waiting import Waiting
from batchctl_store.repository import Repository
from batchctl_store.spool import Spool

CLOCK = "clock"


def open_engine(settings: Settings | None = None, *, profile: str | None = None, offline: bool = False) -> Engine:
    """The engine over this user's store. `profile` is one that is about to be used, for its clock.

    With `offline` nothing is asked of anybody: the clock is the one the store followed last.
    Raises UsageError for a profile that does not exist, and where a rehearsal and a real provider would share a store.
    """
    settings = settings or load_settings()
    home = settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Repository(home / "store.db")

    @cache
    def profile_of(name: str) -> Profile:
        return find_profile(settings, name)

    clock = stored_clock(store.setting(CLOCK)) if offline else _clock(store, profile_of, profile)

    opened: list[BatchAdapter] = []

    @cache
    def adapter_of(name: str) -> BatchAdapter:
        opened.append(Waiting(_adapter(settings, profile_of(name)), sleep=clock.sleep))
        return opened[-1]

    return Engine(
        store=store,
        spool=Spool(home / "spool"),
        clock=clock,
        home=home,
        profile=profile_of,
        adapter=adapter_of,
        opened=opened,
        retention=settings.retention,
    )


def find_profile(settings: Settings, name: str) -> Profile:
    """The profile called `name`. Raises UsageError where there is none or it is wrong."""
    try:
        return load_profile(name, settings.profiles, source=str(settings.path or "batchctl.toml"))
    except ProfileError as error:
        raise UsageError(str(error)) from None


def open_encoder(settings: Settings, profile: Profile) -> BatchAdapter:
    """The profile's adapter without a store, for its limits and its words: nothing is to be sent through it."""
    return _adapter(settings, profile)


def _adapter(settings: Settings, profile: Profile) -> BatchAdapter:
    try:
        key = find_key(profile, os.environ, settings.key_files.get(profile.name))
    except Auth as error:
        key = MissingKey(error)  # encoding and limits need no key; a call says what is missing
    return open_adapter(profile, key)


def require_key(settings: Settings, profile: Profile) -> None:
    """Raises UsageError where the profile's key is missing or malformed, before anything is read or stored."""
    try:
        find_key(profile, os.environ, settings.key_files.get(profile.name))
    except Auth as error:
        raise UsageError(error.message) from None


def _clock(store: Repository, profile_of: Callable[[str], Profile], profile: str | None) -> Clock:
    open_jobs = store.jobs.all(open_only=True)
    names = {job.profile for job in open_jobs} | ({profile} if profile else set())
    followed = sorted(name for name in names if profile_of(name).follow_clock)
    if not followed:
        return SystemClock() if profile or not store.setting(CLOCK) else stored_clock(store.setting(CLOCK))
    strangers = sorted(name for name in names if not profile_of(name).follow_clock)
    if strangers:
        raise UsageError(
            f"{followed[0]} follows a rehearsal server's clock and cannot share a store with {strangers[0]}",
            hint="rehearse in a store of its own: BATCHCTL_HOME=/some/folder batchctl ...",
        )
    clock = follow(profile_of(followed[0]))
    store.put_setting(CLOCK, clock.dumps())
    return clock


def follow(profile: Profile) -> FollowedClock:
    """The clock of a rehearsal server on this machine.

    Raises UsageError for any other host, UserError where no server answers.
    """
    url = urlsplit(profile.base_url or "")
    if not is_loopback(profile.base_url):
        raise UsageError(
            f"profile {profile.name}: only a loopback rehearsal server's clock is followed, not that of {url.hostname}"
        )
    try:
        with urllib.request.urlopen(f"http://{url.netloc}/rehearsal/clock", timeout=10) as answer:
            found = json.load(answer)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no rehearsal server answers at {profile.base_url}: {error}",
            hint="start one with `batchctl serve`, or choose another provider",
        ) from error
    return FollowedClock(server=float(found["now"]), machine=time.time(), speed=float(found["speed"]))
