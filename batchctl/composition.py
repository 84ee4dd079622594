"""The one module that knows concrete adapters and the store, and puts an engine together."""

from __future__ import annotations

import ipaddress
import json
import time
import urllib.request
from functools import cache
from urllib.parse import urlsplit

from batchctl_adapters.base import BatchAdapter
from batchctl_adapters.keys import find_key
from batchctl_adapters.profile import Profile
from batchctl_adapters.registry import load_profile, open_adapter
from batchctl_adapters.waiting import Waiting
from batchctl_store.repository import Repository
from batchctl_store.spool import Spool

from batchctl.clock import Clock, FollowedClock, SystemClock, stored_clock
from batchctl.config import Settings, load_settings
from batchctl.engine.context import Engine
from batchctl.errors import UsageError, UserError

CLOCK = "clock"


def open_engine(settings: Settings | None = None, *, profile: str | None = None) -> Engine:
    """The engine over this user's store. `profile` is one that is about to be used, for its clock.

    Raises UsageError for a profile that does not exist, and where a rehearsal and a real provider would share a store.
    """
    settings = settings or load_settings()
    home = settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Repository(home / "store.db")

    @cache
    def profile_of(name: str) -> Profile:
        return load_profile(name, settings.profiles)

    clock = _clock(store, profile_of, profile)

    @cache
    def adapter_of(name: str) -> BatchAdapter:
        found = profile_of(name)
        key = find_key(found, key_file=settings.key_files.get(name))
        return Waiting(open_adapter(found, key), sleep=clock.sleep)

    return Engine(
        store=store, spool=Spool(home / "spool"), clock=clock, home=home, profile=profile_of, adapter=adapter_of
    )


def _clock(store: Repository, profile_of: object, profile: str | None) -> Clock:
    assert callable(profile_of)
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
    host = url.hostname or ""
    if not _loopback(host):
        raise UsageError(f"profile {profile.name}: only a loopback rehearsal server's clock is followed, not {host!r}")
    try:
        with urllib.request.urlopen(f"http://{url.netloc}/rehearsal/clock", timeout=10) as answer:
            found = json.load(answer)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no rehearsal server answers at {profile.base_url}: {error}",
            hint="start one with `batchctl serve`, or choose another provider",
        ) from error
    return FollowedClock(server=float(found["now"]), machine=time.time(), speed=float(found["speed"]))


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
