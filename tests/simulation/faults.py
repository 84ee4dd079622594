"""How a modelled provider misbehaves: probabilities and spells, drawn from a seed, over after `heal_at`.

Each seed draws a few kinds of trouble and leaves the others out, so that runs differ in kind and not only in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from random import Random
from typing import Literal

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0

SpellKind = Literal["storm", "auth", "billing", "rotated"]

ROW_KINDS = ("bad_request", "rate_limited", "server_error", "truncated", "filtered", "refused", "empty", "invalid")
"""What may become of a row beside an answer; see `remote.RESULTS`."""


@dataclass(frozen=True, slots=True)
class Spell:
    """A time in which every call meets the same trouble. Seconds of the simulated clock."""

    kind: SpellKind
    start: float
    end: float


@dataclass(slots=True)
class Faults:
    """Probabilities of each kind of trouble, per call, per batch or per row."""

    # calls
    call_fails: float = 0.0  # any call but create: Transient, nothing done
    upload_reply_lost: float = 0.0  # the file is stored, the client sees Transient
    upload_vanishes: float = 0.0  # the file is not there when the batch is created
    create_lost: float = 0.0  # the batch is created, the client sees SubmitUnknown
    create_undone: float = 0.0  # SubmitUnknown, and no batch
    create_refused: float = 0.0  # 429
    file_not_visible: float = 0.0  # the create is refused because the file is not visible yet
    queue_full: float = 0.0  # refused at create
    partial_poll: float = 0.0  # a poll that answers for some of the batches only
    # batches
    lags: float = 0.0  # in lists only after a few minutes
    lags_beyond: float = 0.0  # in lists only after longer than the proof of absence takes
    rejected_line: float = 0.0  # validation fails and names a line
    rejected_whole: float = 0.0  # validation fails and names none
    expires: float = 0.0
    expires_unrun: float = 0.0  # before its first row
    unknown_status: float = 0.0  # for a while
    not_found: float = 0.0  # 404 once or twice
    not_found_ever: float = 0.0
    late_files: float = 0.0
    false_counts: float = 0.0  # null, too high, too low
    bad_file: float = 0.0  # cut, torn, short or 404, for one or two downloads
    file_gone: float = 0.0
    # rows
    in_neither: float = 0.0  # not executed, and told in no file
    mangled: float = 0.0  # its line cannot be read
    duplicated: float = 0.0
    stray: float = 0.0  # a line that names no row of ours, per batch
    rows: dict[str, float] = field(default_factory=dict)  # weights of ROW_KINDS against 1 for an answer

    queue_room: int | None = None  # requests the account may have enqueued; more fail later (CASES.md 36)
    spells: tuple[Spell, ...] = ()
    heal_at: float = float("inf")

    def spell(self, now: float) -> SpellKind | None:
        """The trouble that every call meets at the moment."""
        if now >= self.heal_at:
            return None
        return next((spell.kind for spell in self.spells if spell.start <= now < spell.end), None)


_CALLS = 0.15
_RARE = 0.08
_CEILINGS = {
    "create_lost": 0.4,
    "create_undone": 0.4,
    "lags": 0.8,
    "lags_beyond": 0.3,
    "rejected_whole": _RARE,
    "not_found_ever": _RARE,
    "file_gone": _RARE,
    "upload_vanishes": _RARE / 2,
    "expires": 0.5,
    "expires_unrun": 0.3,
    "late_files": 0.5,
    "false_counts": 0.5,
    "bad_file": 0.5,
    "stray": 0.5,
    "queue_full": 0.3,
    "not_found": 0.5,
}


def draw(random: Random, start: float) -> Faults:
    """Trouble for one run: each kind is there in two runs of five, as strong as is drawn; one run in ten has none."""
    found = Faults(heal_at=start + random.uniform(4, 12) * HOUR)
    if random.random() < 0.1:
        return found
    for each in fields(Faults):
        if each.type == "float" and each.name != "heal_at" and random.random() < 0.4:
            setattr(found, each.name, random.random() * _CEILINGS.get(each.name, _CALLS))
    found.rows = {kind: random.random() * 0.3 for kind in ROW_KINDS if random.random() < 0.3}
    if random.random() < 0.25:
        found.queue_room = random.randint(4, 12)
    kinds: tuple[SpellKind, ...] = ("storm", "auth", "billing", "rotated")
    found.spells = tuple(
        Spell(kind, begin, begin + random.uniform(5 * MINUTE, 2 * HOUR))
        for kind in kinds
        if random.random() < 0.3
        for begin in [start + random.uniform(0, 6 * HOUR)]
    )
    return found
