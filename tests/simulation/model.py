"""The client's side of a modelled provider: a BatchAdapter in this process, with all that can go wrong on the way.

`effect(name)` is called before and after each call that reaches the provider; it may end the process there.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from random import Random

from batchctl.clock import Clock
from batchctl_adapters.base import (
    Absent,
    BadLine,
    BatchAdapter,
    Capabilities,
    Doubt,
    Finding,
    Found,
    Kind,
    Observed,
    Outcome,
    Phase,
    RemoteBatch,
    Request,
    Result,
    Sighting,
    Unsure,
    Upload,
    Usage,
)
from batchctl_adapters.errors import Auth, Billing, QueueFull, RemoteGone, SubmitUnknown, Transient
from batchctl_adapters.profile import Profile
from tests.simulation.remote import Batch, File, Remote

Effect = Callable[[str], None]


class SimulatedClock:
    """Time that passes only where somebody waits or something takes long."""

    def __init__(self, start: float) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)

    def real(self, seconds: float) -> float:
        return seconds


class ModelAdapter:
    """One client's connection to `remote`. `forced` fates of calls, by the call's name, go before those drawn."""

    def __init__(self, profile: Profile, remote: Remote, clock: Clock, random: Random, effect: Effect) -> None:
        self._profile, self._remote, self._clock, self._random = profile, remote, clock, random
        self._effect = effect
        self.forced: dict[str, deque[str]] = defaultdict(deque)

    @property
    def capabilities(self) -> Capabilities:
        profile = self._profile
        return Capabilities(
            max_requests=profile.max_requests,
            max_bytes=profile.max_bytes,
            max_line_bytes=profile.max_line_bytes,
            window_s=profile.window_s,
            result_ttl_s=profile.result_ttl_s,
            transport="file",
            mixed_models=False,
            can_find_by_tag=not self._remote.faults.no_tags,
            cancel_keeps_partials=True,
            cancel_p95_s=profile.cancel_p95_s,
            idempotent_create=False,
            poll_interval_s=profile.poll_interval_s,
            create_limit_s=profile.create_limit_s,
            grace_s=profile.grace_s,
            proof_span_s=profile.proof_span_s,
            proof_looks=profile.proof_looks,
            concurrent_uploads=profile.concurrent_uploads,
        )

    def encode_body(self, request: Request) -> bytes:
        return json.dumps({"model": request.model, "text": request.messages[-1]["content"]}).encode()

    def lint(self, request: Request) -> list[Finding]:
        return []

    def encode_line(self, custom_id: str, body: bytes, *, kind: Kind = "chat") -> bytes:
        return b'{"id":"%s","body":%s}\n' % (custom_id.encode(), body)

    def upload(self, lines: Iterable[bytes], *, name: str, size: int) -> Upload:
        fate = self._begin("upload", self._fails() or self._drawn("upload_reply_lost", "lost"))
        if fate == "fails":
            raise Transient("upload: connection reset")
        content = b"".join(lines)
        assert len(content) == size, f"{name} was announced with {size} bytes and has {len(content)}"
        file = self._remote.store(name, content.split(b"\n")[:-1])
        file.deleted = self._drawn("upload_vanishes", "yes") is not None
        self._effect("upload.after")
        if fate == "lost":
            raise Transient("upload: no answer")
        return _upload(file)

    def create(self, upload_id: str | None, lines: Iterable[bytes], *, tag: str, kind: Kind = "chat") -> RemoteBatch:
        fate = self._begin("create", self._create_fate(), slow=True)
        match fate:
            case "refused":
                raise Transient("create: 429", status=429, retry_after=30.0)
            case "queue":
                raise QueueFull("create: the queue is full")
            case "undone":
                raise SubmitUnknown("create: 502")
        file = self._remote.files.get(upload_id or "")
        if file is None or file.deleted or fate == "invisible":
            raise Transient(f"create: no file {upload_id}", code="file_not_visible", status=400)
        batch = self._remote.create(file, tag)
        self._effect("create.after")
        if fate == "lost":
            self._clock.sleep(self._random.uniform(0, self._profile.create_limit_s))
            raise SubmitUnknown("create: timed out")
        return self._tell(batch)

    def _create_fate(self) -> str | None:
        drawn = [
            self._drawn(*each)
            for each in (
                ("create_lost", "lost"),
                ("create_undone", "undone"),
                ("create_refused", "refused"),
                ("queue_full", "queue"),
                ("file_not_visible", "invisible"),
            )
        ]
        return next((fate for fate in drawn if fate), None)

    def find(self, doubt: Doubt) -> Sighting:
        self._read("find")
        if self._rotated():
            return Unsure(f"{doubt.control} is not visible with this key")
        unknown = [batch for batch in self._remote.listed() if batch.remote_id not in doubt.known_ids]
        tagged = not self._remote.faults.no_tags
        same = [b for b in unknown if b.upload_id == doubt.upload_id and (b.tag == doubt.tag or not tagged)]
        if len(same) > 1:
            return Unsure(f"several batches match: {', '.join(b.remote_id for b in same)}")
        if same:
            return Found(self._tell(same[0]))
        if doubt.control is not None and not self._sees(doubt.control):
            return Unsure(f"{doubt.control} is not visible with this key")
        return Absent()

    def _sees(self, control: str) -> bool:
        file = self._remote.files.get(control)
        if file is not None:
            return not file.deleted
        batch = self._remote.batches.get(control)
        return batch is not None and not self._lost(batch)

    def poll(self, remote_ids: Collection[str], *, watch: Collection[str] = ()) -> Observed:
        self._read("poll")
        if self._rotated():
            return Observed({}, frozenset(remote_ids))
        seen: dict[str, RemoteBatch] = {}
        gone: set[str] = set()
        for remote_id in remote_ids:
            batch = self._remote.batches.get(remote_id)
            if self._drawn("partial_poll", "yes"):
                continue
            if batch is None or self._lost(batch):
                gone.add(remote_id)
            else:
                seen[remote_id] = self._tell(batch)
        tags = frozenset() if self._remote.faults.no_tags else frozenset(watch)
        late = {batch.tag: self._tell(batch) for batch in self._remote.listed() if batch.tag in tags}
        return Observed(seen, frozenset(gone), late)

    def _lost(self, batch: Batch) -> bool:
        """True where a retrieve answers 404, this time or for ever."""
        if self._clock.now() < batch.not_found_at or batch.not_found_looks <= 0:
            return False
        batch.not_found_looks -= 1
        return True

    def fetch(self, handle: str) -> Iterator[bytes]:
        self._read("fetch")
        assert handle not in self._remote.deleted, f"{handle} is fetched after it was deleted"
        remote_id, _, name = handle.partition("/")
        batch = self._remote.batches[remote_id]
        if self._rotated() or name in batch.gone_files:
            raise RemoteGone(f"no file {handle}")
        bad = batch.bad_fetches[name].pop(0) if batch.bad_fetches[name] else None
        if bad == "gone":
            raise RemoteGone(f"no file {handle}")
        lines = batch.lines(name)
        content = b"".join(line + b"\n" for line in lines)
        if bad == "cut":
            yield content[: len(content) // 2]
            raise Transient(f"{handle}: shorter than announced")
        if bad == "torn":
            content = content[: -self._random.randint(2, len(lines[-1]) + 1)]
        elif bad == "short":
            content = b"".join(line + b"\n" for line in lines[:-1])
        yield content
        self._effect("fetch.after")

    def parse(self, line: bytes, *, kind: Kind = "chat") -> Result:
        try:
            found = json.loads(line)
            custom_id = found["id"]
        except (ValueError, TypeError, KeyError) as error:
            raise BadLine(f"cannot be read: {type(error).__name__}") from None
        if "outcome" not in found:
            raise BadLine("has no outcome")
        return Result(
            custom_id,
            Outcome(found["outcome"]),
            text=found["text"],
            finish_reason=found["finish"],
            usage=Usage(len(custom_id), 3),
            model="model-1",
            error_code=found["code"],
            error=found["error"],
        )

    def cancel(self, remote_id: str) -> None:
        self._read("cancel")
        batch = self._remote.batches.get(remote_id)
        if self._rotated() or batch is None or self._lost(batch):
            raise RemoteGone(f"no batch {remote_id}")
        if self._remote.view(batch).phase is not Phase.ENDED:
            batch.cancel_at = min(batch.cancel_at, self._clock.now())
        self._effect("cancel.after")

    def delete_upload(self, upload_id: str) -> None:
        self._read("delete_upload")
        if not self._rotated():
            self._remote.delete(upload_id)
        self._effect("delete_upload.after")

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        self._read("list_uploads")
        if not self._rotated():
            files = [file for file in self._remote.files.values() if file.name.startswith(prefix) and not file.deleted]
            yield from map(_upload, files)

    def close(self) -> None:
        """Nothing is held open."""

    def _begin(self, call: str, drawn: str | None, *, slow: bool = False) -> str | None:
        """What is the same for each write: time passes, the process may end, the account may be in trouble."""
        self._effect(f"{call}.before")
        self._clock.sleep(self._random.uniform(0.05, 20.0 if slow else 2.0))
        match self._remote.faults.spell(self._clock.now()):
            case "auth" | "rotated":
                raise Auth(f"{call}: the key is not allowed")
            case "billing":
                raise Billing(f"{call}: out of credit")
            case "storm":
                raise SubmitUnknown("create: 503") if call == "create" else Transient(f"{call}: 503", status=503)
        return self.forced[call].popleft() if self.forced[call] else drawn

    def _read(self, call: str) -> None:
        self._effect(f"{call}.before")
        self._clock.sleep(self._random.uniform(0.05, 2.0))
        drawn = self._fails()
        fate = self.forced[call].popleft() if self.forced[call] else drawn
        spell = self._remote.faults.spell(self._clock.now())
        if spell == "auth":
            raise Auth(f"{call}: the key is not allowed")
        if spell == "storm" or fate == "fails":
            raise Transient(f"{call}: 503", status=503)

    def _fails(self) -> str | None:
        return self._drawn("call_fails", "fails")

    def _drawn(self, fault: str, fate: str) -> str | None:
        hit = self._random.random() < getattr(self._remote.faults, fault)
        return fate if hit and self._clock.now() < self._remote.faults.heal_at else None

    def _rotated(self) -> bool:
        return self._remote.faults.spell(self._clock.now()) == "rotated"

    def _tell(self, batch: Batch) -> RemoteBatch:
        batch.told_at = min(batch.told_at, self._clock.now())
        return self._remote.view(batch)


def _upload(file: File) -> Upload:
    return Upload(file.file_id, file.name, sum(map(len, file.lines)), file.created_at)


def check_protocol(adapter: ModelAdapter) -> BatchAdapter:
    """The model is an adapter, as far as types can tell."""
    return adapter
