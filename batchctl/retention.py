"""What is kept, and how long: `[retention]` in batchctl.toml (docs/retention.md). Plain data, read at no cost."""

from __future__ import annotations

import re
from dataclasses import dataclass

DAY = 86_400.0
NEVER = "never"
HOW = 'write a number and s, m, h, d or w, such as "30d", or "never"'
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": DAY, "w": 7 * DAY}
_SPAN = re.compile(r"(\d{1,6})([smhdw])")


@dataclass(frozen=True, slots=True)
class Retention:
    """Ages count from a job's end: finished, and merged where an output is wished for. Seconds; None: for ever."""

    auto: bool = True  # `tick` collects, at most once a day
    files_s: float | None = 30 * DAY  # requests as they were sent, and results as they were received
    jobs_s: float | None = None  # the whole job, answers included
    keep_remote_files: bool = False  # leave a merged job's files at the provider to their own expiry


def parse_span(text: str) -> float | None:
    """Seconds of a span like `30d`; None for `never`. Raises ValueError that says how to write one."""
    if text == NEVER:
        return None
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(HOW)
    return int(match[1]) * _UNITS[match[2]]
