"""The one clock. Everything that waits, expires or is late asks it; nothing else reads the time.

Against a loopback rehearsal server the client follows that server's clock, so that a 24-hour window, the poll
cadence and back-off keep their proportions in a night of seconds.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """UTC epoch seconds. `real` turns seconds of the machine into seconds of this clock."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None:
        """Wait until `seconds` of this clock have passed."""
        ...

    def real(self, seconds: float) -> float:
        """How much of this clock passes while the machine's own clock passes `seconds`."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def real(self, seconds: float) -> float:
        return seconds


@dataclass(frozen=True, slots=True)
class FollowedClock:
    """A rehearsal server's clock, remembered by an anchor so that offline commands can follow it too."""

    server: float  # the server's time at the anchor
    machine: float  # this machine's time at the anchor
    speed: float

    def now(self) -> float:
        return self.server + (time.time() - self.machine) * self.speed

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds / self.speed))

    def real(self, seconds: float) -> float:
        return seconds * self.speed

    def dumps(self) -> str:
        """The anchor as text, for the store."""
        return json.dumps({"server": self.server, "machine": self.machine, "speed": self.speed})

    @classmethod
    def loads(cls, text: str) -> FollowedClock:
        """The inverse of `dumps`."""
        return cls(**json.loads(text))


def stored_clock(text: str | None) -> Clock:
    """The clock an offline command uses: the followed one where the store follows one."""
    return FollowedClock.loads(text) if text else SystemClock()
