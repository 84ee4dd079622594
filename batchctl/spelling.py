"""Times, durations, numbers and paths as people and `--json` read them."""

from __future__ import annotations

import os
from datetime import UTC, datetime


def cut_path(path: str, room: int) -> str:
    """A path in at most `room` characters: from here where that is shorter, its end where it is too long."""
    here = os.path.relpath(path)
    shown = here if not here.startswith("..") and len(here) < len(path) else path
    return shown if len(shown) <= room else f"…{shown[-(room - 1) :]}"


def duration(seconds: float | None) -> str:
    """`40s`, `12m`, `2h05m`, `3d04h`; `-` for none, a leading minus for what is over."""
    if seconds is None:
        return "-"
    sign, whole = ("-", int(-seconds)) if seconds <= -1 else ("", max(0, int(seconds)))
    minutes, hours, days = whole // 60, whole // 3_600, whole // 86_400
    if whole < 100:
        return f"{sign}{whole}s"
    if minutes < 100:
        return f"{sign}{minutes}m"
    if hours < 48:
        return f"{sign}{hours}h{minutes % 60:02d}m"
    return f"{sign}{days}d{hours % 24:02d}h"


def iso(at: float | None) -> str | None:
    """A time as `--json` has it: UTC, ISO 8601, whole seconds."""
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
