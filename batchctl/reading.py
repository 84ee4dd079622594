"""Reading the store without the engine: what status, jobs, logs and completion pay for is this and nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchctl.clock import Clock, stored_clock
from batchctl.config import Settings, load_settings
from batchctl.errors import UsageError
from batchctl_store.views import Views

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """A store to look at, and what time it is there."""

    settings: Settings
    views: Views
    clock: Clock

    @property
    def now(self) -> float:
        """UTC epoch seconds of the clock that this store follows."""
        return self.clock.now()

    def job(self, name: str) -> Row:
        """The `job_status` row of the job called `name`, or with that number.

        Raises UsageError, with the names that come closest, where there is none.
        """
        found = self.views.jobs(name)
        if found:
            return found[0]
        names = [row["name"] for row in self.views.jobs()]
        if not names:
            raise UsageError(f"there is no job {name!r}, nor any other", hint="start one with `batchctl submit`")
        import difflib

        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        raise UsageError(
            f"there is no job {name!r}",
            hint=f"did you mean {' or '.join(near)}?" if near else "`batchctl jobs` lists them",
        )


def read() -> Reading:
    """The user's store, as it stands."""
    settings = load_settings()
    views = Views(settings.home / "store.db")
    return Reading(settings, views, stored_clock(views.setting("clock")))
