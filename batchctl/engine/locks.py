"""Locks of the operating system: they end with their process, whatever became of it."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout


class Busy(Exception):
    """Another process holds the lock; the message says which and since when."""

    def __init__(self, holder: str, since: float | None) -> None:
        super().__init__(f"held by {holder}")
        self.holder, self.since = holder, since


@contextmanager
def exclusive(path: Path, *, owner: str, now: float) -> Iterator[None]:
    """Hold `path`, or raise Busy at once with what its holder wrote about itself."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    note = path.with_suffix(".owner")
    lock = FileLock(path, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder, since = _read(note)
        raise Busy(holder, since) from None
    try:
        note.write_text(json.dumps({"owner": owner, "since": now}), encoding="utf-8")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _read(note: Path) -> tuple[str, float | None]:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        return str(found["owner"]), float(found["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process", None


@dataclass(frozen=True, slots=True)
class Owner:
    """Who is at work: `<host>/<pid>/<nonce>`; holds a lock of that name for as long as it lives."""

    name: str
    lock: FileLock


@contextmanager
def ownership(folder: Path) -> Iterator[Owner]:
    """Be an owner: what it left unfinished is somebody else's business only once this lock is free."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    nonce = secrets.token_hex(4)
    lock = FileLock(folder / f"owner-{nonce}.lock", mode=0o600)
    lock.acquire(timeout=0)
    try:
        yield Owner(f"{socket.gethostname()}/{os.getpid()}/{nonce}", lock)
    finally:
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def lives(folder: Path, owner: str | None) -> bool:
    """True where the owner may still be at work: its lock is held, or it is on a host whose locks cannot be seen."""
    if not owner:
        return False
    host, _, rest = owner.partition("/")
    if host != socket.gethostname():
        return True
    path = folder / f"owner-{rest.rpartition('/')[2]}.lock"
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    path.unlink(missing_ok=True)
    lock.release()
    return False


def sweep_owners(folder: Path, *, before: float, dry: bool = False) -> tuple[int, bool]:
    """Remove locks last touched before that time (UTC epoch seconds) whose owners are dead.

    Returns their bytes, and whether another owner as old is alive. Younger locks are left alone: they may be on their
    way to be held.
    """
    size, alive = 0, False
    for path in sorted(folder.glob("owner-*.lock")):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if found.st_mtime >= before:
            continue
        lock = FileLock(path, mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            alive = True
            continue
        size += found.st_size
        if not dry:
            path.unlink(missing_ok=True)
        lock.release()
    return size, alive
