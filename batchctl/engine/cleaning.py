"""A merged job's files at the provider are deleted: what was uploaded, and the results, which lie here by then.

A failure is a warning and never the job's: it is tried again later, a few times, and then the files are left to the
provider's own expiry (CASES.md 32).
"""

from __future__ import annotations

from collections.abc import Collection

from batchctl.engine.context import Engine
from batchctl.engine.planner import Clean, cleanups
from batchctl.engine.submit import next_number
from batchctl.errors import UserError
from batchctl_adapters.base import BatchAdapter
from batchctl_adapters.errors import AdapterError, Permanent, Transient
from batchctl_store.records import Batch, Job

AT_MOST = 50
"""Batches of a profile in one pass, of three files or so each: providers limit the rate of calls."""
AT_MOST_S = 20.0
"""How long a pass cleans up behind; the next one goes on."""
WAITS_S = (600.0, 3_600.0, 6 * 3_600.0, 24 * 3_600.0)
"""Before each further try; as long nothing else of the account is deleted. The last one again and again, where it is
the key or the network that fails; a file that the server fails over is left after so many tries."""
SERVER_ERROR = 500


def due(engine: Engine, jobs: Collection[int] | None = None) -> list[Clean]:
    """What a pass cleans up behind, at its end; nothing where the settings or the profile say so."""
    if engine.retention.keep_remote_files:
        return []
    now, store, found = engine.clock.now(), engine.store, list[Clean]()
    for profile in store.keeping.uncleaned_profiles():
        if not _is_kept(engine, profile):
            spent = store.keeping.spent(profile, now=now, limit=AT_MOST, jobs=jobs)
            found += cleanups(spent, store.batches.accounts(), now)
    return found


def _is_kept(engine: Engine, profile: str) -> bool:
    """True where the profile says so, or is no longer there to say how its provider is reached."""
    try:
        return engine.profile(profile).keep_remote_files
    except UserError:
        return True


def clean(engine: Engine, batch: Batch) -> None:
    """Delete the batch's files; one that is not there any more is as good as deleted."""
    store = engine.store
    if not store.keeping.is_spent(batch, now=engine.clock.now()):
        return  # a retry was asked for meanwhile, or the account is to be left alone for a while
    adapter = engine.adapter(batch.profile)
    try:
        files = list(dict.fromkeys([*files_of(batch), *_orphans(engine, adapter, batch)]))
        for file in files:
            adapter.delete_upload(file)
    except AdapterError as error:
        _failed(engine, batch, error)
        return
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    event = f"deleted {count} at the provider: {', '.join(files)}" if files else None
    store.keeping.cleaned(batch, now=engine.clock.now(), event=event)


def files_of(batch: Batch) -> list[str]:
    """Everything at the provider that this batch uploaded or got: one file may belong to several of its tries."""
    uploads = [batch.upload_id, *(submission.upload_id for submission in batch.submissions)]
    results = [file for submission in batch.submissions for file in submission.files]
    return [file for file in dict.fromkeys([*uploads, *results]) if file]


def _orphans(engine: Engine, adapter: BatchAdapter, batch: Batch) -> list[str]:
    """Files of uploads of this batch whose answer was lost (CASES.md 28); listed only where there was such an upload.

    Each upload and each create has a number: one that is neither a try's nor that of the file known is an upload's.
    """
    known = {submission.n for submission in batch.submissions} | ({batch.upload_n} if batch.upload_id else set())
    if known >= set(range(1, next_number(batch))):
        return []
    return [found.upload_id for found in adapter.list_uploads(f"{engine.store.store_id}-{batch.id}-")]


def _failed(engine: Engine, batch: Batch, error: AdapterError) -> None:
    """Later again, or never: what the provider will not delete, and what has expired there by itself meanwhile."""
    keeping, now = engine.store.keeping, engine.clock.now()
    tries = keeping.clean_tries(batch) + 1
    lost = _expired(engine, batch, now)
    if isinstance(error, Permanent) or (tries > len(WAITS_S) and (error.status or 0) >= SERVER_ERROR):
        lost = [batch]
    for each in lost:
        left = f"files at the provider could not be deleted and are left to their expiry: {error.message}"
        keeping.cleaned(each, now=now, event=left)
    if not lost:
        asked = error.retry_after if isinstance(error, Transient) else None
        keeping.clean_later(batch, at=now + max(WAITS_S[min(tries, len(WAITS_S)) - 1], asked or 0.0), tries=tries)
    engine.note(f"files of batch {batch.ordinal} could not be deleted, nothing depends on it: {error.message}")


def _expired(engine: Engine, batch: Batch, now: float) -> list[Batch]:
    """Where the batch is older than the provider keeps files: it, and all others that are."""
    before = now - engine.adapter(batch.profile).capabilities.result_ttl_s
    if batch.updated_at >= before:
        return []
    spent = engine.store.keeping.spent(batch.profile, now=now, limit=10 * AT_MOST)
    return [batch, *(each for each in spent if each.updated_at < before and each.id != batch.id)]


def wrote_whole(engine: Engine, job: Job, where: str) -> None:
    """`results` wrote a finished job to a file: where no merge was asked for, that is its merge."""
    if job.finished_at is not None and job.output_path is None:
        engine.store.keeping.wrote_whole(job, now=engine.clock.now(), where=where)
