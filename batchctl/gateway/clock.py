"""The server's clock: wall time that can run faster and be moved forward, and never goes back."""

from __future__ import annotations

import threading
import time


class ServerClock:
    """`now` is UTC epoch seconds as the server counts them; it begins at `start` (default: the wall clock)."""

    def __init__(self, speed: float = 1.0, start: float | None = None) -> None:
        if speed <= 0:
            raise ValueError("the clock's speed must be above 0")
        self._lock = threading.Lock()
        self._speed = speed
        self._origin = time.time() if start is None else start
        self._since = time.monotonic()

    @property
    def speed(self) -> float:
        """Server seconds in one wall second."""
        return self._speed

    def now(self) -> float:
        with self._lock:
            return self._origin + (time.monotonic() - self._since) * self._speed

    def wall(self, seconds: float) -> float:
        """How many wall seconds `seconds` of this clock take."""
        return seconds / self._speed

    def set(self, *, speed: float | None = None, advance: float = 0.0) -> None:
        """Change the speed from now on, or jump `advance` seconds (>= 0) forward."""
        if (speed is not None and speed <= 0) or advance < 0:
            raise ValueError("speed must be above 0 and advance not negative: this clock never goes back")
        with self._lock:
            moment = time.monotonic()
            self._origin += (moment - self._since) * self._speed + advance
            self._since = moment
            if speed is not None:
                self._speed = speed
