"""What the engine works with, put together by `composition.py` and by nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from batchctl.clock import Clock
from batchctl.engine.planner import Limits, Timing
from batchctl.retention import Retention
from batchctl_adapters.base import BatchAdapter, Capabilities, Kind
from batchctl_adapters.profile import Profile
from batchctl_store.records import Account, Batch, Job
from batchctl_store.spool import Spool

if TYPE_CHECKING:
    from batchctl_store.repository import Repository

ID_WIDTH = 36
"""Every custom id is this long, so that a line's size is known before its submission is numbered."""

COALESCE_S = 900.0


@dataclass(slots=True)
class Engine:
    """One store, one spool, one clock, and adapters by profile name."""

    store: Repository
    spool: Spool
    clock: Clock
    home: Path
    profile: Callable[[str], Profile]
    adapter: Callable[[str], BatchAdapter]
    owner: str = ""
    notes: list[str] = field(default_factory=list)
    opened: list[BatchAdapter] = field(default_factory=list)  # adapters that were used, to be closed
    retention: Retention = field(default_factory=Retention)

    def close(self) -> None:
        """Give connections back, to providers and to the database."""
        for adapter in self.opened:
            adapter.close()
        self.opened.clear()
        self.store.close()

    @property
    def locks(self) -> Path:
        """The folder of this store's locks."""
        return self.home / "locks"

    def note(self, text: str) -> None:
        """Something the user should read at the end of the pass."""
        if text not in self.notes:
            self.notes.append(text)

    def paused(self, account: str) -> Account | None:
        """The account, where nothing is sent to it at the moment."""
        known = self.store.batches.accounts().get(account)
        return known if known is not None and known.paused_at is not None else None

    def held_back(self, account: str) -> bool:
        """True while the account is paused and not due for another try."""
        known = self.paused(account)
        return known is not None and (known.not_before is None or known.not_before > self.clock.now())

    def timing(self, profile: str) -> Timing:
        """What the planner has to know of a profile, in seconds of the clock."""
        found = self.profile(profile)
        return Timing(settle_s=self.clock.real(found.grace_s), coalesce_s=COALESCE_S)

    def limits(self, job: Job) -> Limits:
        """The provider's limits, narrowed by what the user asked for."""
        found = self.adapter(job.profile).capabilities
        return limits_of(found, kind_of(job), job.max_batch_requests, job.max_batch_bytes)


def limits_of(found: Capabilities, kind: Kind, max_requests: int | None, max_bytes: int | None) -> Limits:
    """The provider's limits for batches of a kind, narrowed by what the user asked for."""
    counted = kind == "embedding"
    return Limits(
        max_requests=min(found.max_requests, max_requests or found.max_requests),
        max_bytes=min(found.max_bytes, max_bytes or found.max_bytes),
        max_line_bytes=min(found.max_line_bytes, found.max_bytes),
        max_inputs=found.max_inputs if counted else None,
        max_request_inputs=found.max_request_inputs if counted else None,
    )


def kind_of(job: Job) -> Kind:
    """What the job's task asks for."""
    kind: Kind = json.loads(job.task)["kind"]
    return kind


def tag_of(store_id: str, batch_id: int, n: int) -> str:
    """The name a submission has everywhere: `<store>-<batch>-<n>`."""
    return f"{store_id}-{batch_id}-{n}"


def custom_id(tag: str, row: int) -> str:
    """Our id of a row in a submission, always `ID_WIDTH` long."""
    return f"{tag}-{row:0{ID_WIDTH - len(tag) - 1}d}"


def row_of(custom: str, store_id: str, batch: Batch) -> int | None:
    """The row an id names, if it is an id of this batch (of any of its tries)."""
    parts = custom.split("-")
    if len(custom) != ID_WIDTH or len(parts) != 4 or parts[0] != store_id or parts[1] != str(batch.id):
        return None
    return int(parts[3]) if parts[3].isdecimal() and parts[2].isdecimal() else None
