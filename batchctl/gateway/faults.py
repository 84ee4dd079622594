"""The schedule of faults: what goes wrong, where and how often, reproducible from a seed.

A fault of a request is decided when the request arrives, by the number of that request among those of its operation.
A fault of a batch is decided when the batch is created, and kept with it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Op(StrEnum):
    """Where a fault applies: one operation of the wire, any of them, or the life of a batch."""

    UPLOAD = "upload"
    LIST_FILES = "list_files"
    RETRIEVE_FILE = "retrieve_file"
    DELETE_FILE = "delete_file"
    CONTENT = "content"
    CREATE = "create"
    RETRIEVE = "retrieve"
    LIST = "list"
    CANCEL = "cancel"
    DELETE = "delete"
    ANY = "any"
    BATCH = "batch"


class Kind(StrEnum):
    """What goes wrong."""

    # of a request
    DROP = "drop"  # the connection is cut and nothing was done
    DROP_AFTER = "drop_after"  # done, then the connection is cut
    ERROR = "error"  # answered with `status`, nothing was done
    ERROR_AFTER = "error_after"  # done, and answered with `status`
    RATE_LIMIT = "rate_limit"  # 429 with Retry-After, nothing was done
    SLOW = "slow"  # done and answered after `wall_s` wall seconds
    HANG = "hang"  # done, and never answered
    HANG_BEFORE = "hang_before"  # never answered, nothing was done
    TRUNCATE = "truncate"  # `content` only: the download ends early
    FILE_NOT_VISIBLE = "file_not_visible"  # `create` only: 400 "Cannot find file"
    LIST_EMPTY = "list_empty"  # `list` and `list_files` only
    # of a batch
    LIST_LAG = "list_lag"  # in the list only `seconds` after it was created
    FAIL = "fail"  # validation fails with `code`, `message`, `line`, `param`
    UNKNOWN_STATUS = "unknown_status"  # says `raw_status` for `seconds` from in_progress on
    EXPIRE = "expire"  # answers `share` of its rows, then waits for its end
    OVERDUE = "overdue"  # starts `seconds` late and does not expire
    FILES_LATE = "files_late"  # the file ids appear `seconds` after the terminal status
    FILES_GONE = "files_gone"  # result files (`file`) are 404 `seconds` after the end
    VANISH = "vanish"  # 404 and not listed from `seconds` after creation on
    NULL_COUNTS = "null_counts"  # request_counts is null
    MISSING_ROWS = "missing_rows"  # `share` of the rows, run and in neither file
    DUPLICATE_ROWS = "duplicate_rows"  # `share` of the result lines, written twice
    MALFORMED_LINES = "malformed_lines"  # `share` of the result lines, replaced by `form` (or `extra` beside them)
    ROW_STATUS = "row_status"  # `share` of the rows answered with `status`

    @property
    def is_of_batch(self) -> bool:
        return self in _OF_BATCH


_OF_BATCH = frozenset(
    {
        Kind.LIST_LAG,
        Kind.FAIL,
        Kind.UNKNOWN_STATUS,
        Kind.EXPIRE,
        Kind.OVERDUE,
        Kind.FILES_LATE,
        Kind.FILES_GONE,
        Kind.VANISH,
        Kind.NULL_COUNTS,
        Kind.MISSING_ROWS,
        Kind.DUPLICATE_ROWS,
        Kind.MALFORMED_LINES,
        Kind.ROW_STATUS,
    }
)
_ONLY_ON = {
    Kind.TRUNCATE: {Op.CONTENT},
    Kind.FILE_NOT_VISIBLE: {Op.CREATE},
    Kind.LIST_EMPTY: {Op.LIST, Op.LIST_FILES},
}


class Fault(BaseModel):
    """One entry of the schedule.

    When: `nth` (1-based numbers among the calls of `op`, or the batches created, since the schedule was set), `every`
    n-th, `probability`; none of them: always. `times` caps how often it happens. `match` narrows a batch fault to
    batches whose metadata values or input file name contain it; `batch_id` applies it to a batch that exists.
    `seconds` are of the server's clock, `wall_s` of the wall.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    op: Op = Op.ANY
    nth: int | tuple[int, ...] | None = None
    every: int | None = Field(default=None, ge=1)
    probability: float | None = Field(default=None, ge=0, le=1)
    times: int | None = Field(default=None, ge=1)
    match: str | None = None
    batch_id: str | None = None

    status: int | None = None
    code: str | None = None
    message: str | None = None
    line: int | None = None
    param: str | None = None
    retry_after: float | None = None
    body: Literal["json", "html", "empty"] = "json"
    seconds: float = Field(default=0, ge=0)
    wall_s: float = Field(default=0, ge=0)
    share: float = Field(default=0.1, ge=0, le=1)
    raw_status: str = "paused_by_admin"
    form: Literal["bad_json", "bad_utf8", "no_custom_id", "not_object", "mixed"] = "mixed"
    extra: bool = False
    in_output: bool = False  # row_status: written to the output file, as some compatible providers do
    file: Literal["output", "error", "both"] = "both"
    at_line_end: bool = False
    length: Literal["announced", "chunked", "none"] = "announced"

    @model_validator(mode="before")
    @classmethod
    def _default_op(cls, data: Any) -> Any:
        """A batch kind needs no `op`; a kind that has only one operation neither."""
        if isinstance(data, Mapping) and "op" not in data and "kind" in data:
            try:
                kind = Kind(data["kind"])
            except ValueError:
                return data  # reported by the field itself
            if kind.is_of_batch:
                return {**data, "op": Op.BATCH}
            if kind in _ONLY_ON:
                return {**data, "op": min(_ONLY_ON[kind])}
        return data

    @model_validator(mode="after")
    def _op_fits(self) -> Fault:
        if self.kind.is_of_batch != (self.op is Op.BATCH):
            right = "of a batch: op must be batch" if self.kind.is_of_batch else "of a request: op must not be batch"
            raise ValueError(f"{self.kind} is a fault {right}")
        if self.kind in _ONLY_ON and self.op not in _ONLY_ON[self.kind]:
            raise ValueError(f"{self.kind} applies to {', '.join(sorted(_ONLY_ON[self.kind]))} only")
        return self

    def numbers(self) -> tuple[int, ...] | None:
        return (self.nth,) if isinstance(self.nth, int) else self.nth


class FaultPlan(BaseModel):
    """The JSON of `--faults` and of `POST /rehearsal/faults`; `seed` None keeps the server's seed."""

    model_config = ConfigDict(extra="forbid")

    seed: int | None = None
    faults: list[Fault] = Field(default_factory=list)


class FaultSchedule:
    """Decides, call by call, which fault happens. Thread-safe; each fault counts its own calls from 1."""

    def __init__(self, plan: FaultPlan, seed: int) -> None:
        self._lock = threading.Lock()
        self._seed = seed
        self.replace(plan)

    def replace(self, plan: FaultPlan) -> None:
        """Install another plan; all numbers begin anew."""
        with self._lock:
            if plan.seed is not None:
                self._seed = plan.seed
            self._faults = [fault for fault in plan.faults if fault.batch_id is None]
            self._seen = [0] * len(self._faults)
            self._fired = [0] * len(self._faults)

    def on_request(self, op: Op) -> Fault | None:
        """The first fault that happens to this call; every fault of its operation counts the call."""
        with self._lock:
            chosen: Fault | None = None
            for index, fault in enumerate(self._faults):
                if fault.op in (op, Op.ANY) and self._is_due(index, fault) and chosen is None:
                    self._fired[index] += 1
                    chosen = fault
            return chosen

    def on_batch(self, texts: list[str]) -> list[Fault]:
        """The faults that a new batch carries; `texts` are its metadata values and its file's name."""
        chosen = []
        with self._lock:
            for index, fault in enumerate(self._faults):
                if fault.op is not Op.BATCH or (fault.match and not any(fault.match in text for text in texts)):
                    continue
                if self._is_due(index, fault):
                    self._fired[index] += 1
                    chosen.append(fault)
        return chosen

    def _is_due(self, index: int, fault: Fault) -> bool:
        """Count one more call and say whether the fault is due on it; the draw depends on seed and number only."""
        self._seen[index] += 1
        n = self._seen[index]
        numbers = fault.numbers()
        return (
            (fault.times is None or self._fired[index] < fault.times)
            and (numbers is None or n in numbers)
            and (fault.every is None or n % fault.every == 0)
            and (fault.probability is None or random.Random(f"{self._seed}/{index}/{n}").random() < fault.probability)
        )

    def report(self) -> dict[str, Any]:
        """The plan with what happened: `seen` calls and `fired` faults for each entry."""
        with self._lock:
            entries = [
                {**fault.model_dump(mode="json", exclude_defaults=True), "seen": seen, "fired": fired}
                for fault, seen, fired in zip(self._faults, self._seen, self._fired, strict=True)
            ]
            return {"seed": self._seed, "faults": entries}
