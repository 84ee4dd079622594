"""Reading a provider's list of batches, newest first, and deciding what a look at it shows. No network in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .base import Absent, Doubt, Found, RemoteBatch, Sighting, Unsure
from .errors import Transient
from .openai_wire import entries, parse_batch

CLOCK_SKEW_S = 300
"""The provider's clock may be behind ours by this much."""


@dataclass(slots=True)
class Listing:
    """What was read of the list so far, by remote id in the list's order; `unreadable` entries have no id."""

    batches: dict[str, RemoteBatch] = field(default_factory=dict)
    unreadable: int = 0


def sweep(
    fetch_page: Callable[[str | None], Mapping[str, Any]],
    listing: Listing,
    *,
    stop: Callable[[], bool],
    until: float | None = None,
    back: float | None = None,
) -> None:
    """Read pages into `listing` until the end, a batch older than `until`, or older than the newest by `back` seconds.

    `stop` is asked after each page. Pages are followed by the last id while they bring new ones; `has_more` ends the
    list only where it says so, because some endpoints leave it out. Raises Transient where a page says that there is
    more and brings nothing new: such a look is not complete.
    """
    after: str | None = None
    while True:
        data = fetch_page(after)
        fresh = _add(data, listing)
        if until is None and back is not None and fresh:
            newest = max((batch.created_at for batch in fresh if batch.created_at is not None), default=None)
            until = newest - back if newest is not None else None
        more = data.get("has_more")
        if more is False or not fresh:
            if more is True:
                raise Transient("list of batches: a page brought nothing new although there is more")
            return
        if until is not None and _reaches(fresh, until - CLOCK_SKEW_S):
            return
        if stop():
            return
        after = fresh[-1].remote_id


def _add(data: Mapping[str, Any], listing: Listing) -> list[RemoteBatch]:
    items = data.get("data")
    if not isinstance(items, list):
        raise Transient("list of batches: the answer has no data")
    readable = entries(data)
    listing.unreadable += len(items) - len(readable)
    fresh = [batch for batch in map(parse_batch, readable) if batch.remote_id not in listing.batches]
    listing.batches.update((batch.remote_id, batch) for batch in fresh)
    return fresh


def _reaches(batches: list[RemoteBatch], moment: float) -> bool:
    return any(batch.created_at is not None and batch.created_at < moment for batch in batches)


def match(listing: Listing, doubt: Doubt, *, by_tag: bool) -> Sighting:
    """What a complete list says about the lost create; the control is the caller's to check.

    A match has our file and our tag (without metadata: our file), and a remote id that the store does not know: a file
    reused after `token_limit_exceeded` also belongs to the older batch.
    """
    unknown = [batch for key, batch in listing.batches.items() if key not in doubt.known_ids]
    sure: list[RemoteBatch] = []
    half: list[RemoteBatch] = []
    for batch in unknown:
        same_file = doubt.upload_id is not None and batch.upload_id == doubt.upload_id
        same_tag = by_tag and batch.tag == doubt.tag
        if (same_file and (same_tag or not by_tag)) or (same_tag and doubt.upload_id is None):
            sure.append(batch)
        elif same_tag or (same_file and batch.tag is None):
            half.append(batch)
    if len(sure) == 1 and not half:
        return Found(sure[0])
    if sure or half:
        names = ", ".join(batch.remote_id for batch in sure + half)
        return Unsure(f"{'several batches match' if sure else 'a batch matches in part only'}: {names}")
    if listing.unreadable:
        return Unsure(f"{listing.unreadable} entries of the list cannot be read")
    return Absent()
