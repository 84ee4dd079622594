"""Ready-made requests: files somebody wrote for a provider's batch API, sent as they are but for the custom_id.

OpenAI's lines have custom_id, method, url and body (PROVIDERS.md 2.1), Anthropic's custom_id and params.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from batchctl.engine.sorting import Sorter
from batchctl.errors import InputError
from batchctl.inputs import Row
from batchctl.rowjson import escape_separators, to_canonical_json, to_json
from batchctl_adapters.base import BatchAdapter, Kind, Output, Request
from batchctl_adapters.profile import Profile

if TYPE_CHECKING:
    from batchctl.engine.prepare import Prepared

CUSTOM_ID = "custom_id"
_OPENAI = (CUSTOM_ID, "method", "url", "body")
_OWNERS = {"openai": "OpenAI", "anthropic": "Anthropic"}
_CONTENT: Mapping[Kind, str] = {
    "chat": "messages", "responses": "input", "embedding": "input", "completion": "prompt", "moderation": "input",
}  # fmt: skip
_MOST_SHAPES = 1_000


class ReadyMade:
    """A `prepare.Preparer`. Rows of several models are groups apart where the provider takes one model a batch."""

    def __init__(self, profile: Profile | None, adapter: BatchAdapter | None, make: type[Prepared]) -> None:
        self._make = make
        self._profile = profile
        self._adapter = adapter
        self._wire = None if adapter is None else adapter.capabilities.wire
        self._apart = adapter is None or not adapter.capabilities.mixed_models
        self._models: dict[str, str] = {}
        self._ids = _Ids()
        self._url = ""  # of the first request
        self._shapes: set[bytes] = set()  # settings that were looked at
        self.kind: Kind = "chat"
        self.several = True

    def __call__(self, row: Row) -> Prepared:
        self._check_owner(row)
        wrong = self._wrong_envelope(row.values)
        if wrong:
            raise InputError(row.file, row.line, wrong[0], hint=wrong[1])
        custom_id, body = row.values[CUSTOM_ID], row.values["body"]
        self._ids.add(custom_id, row)
        model = self._models.setdefault(body["model"], body["model"])
        messages, texts = _asked(body.get(_CONTENT[self.kind]))
        self._lint(row, body, messages, texts)
        return self._make(
            raw=to_json({CUSTOM_ID: custom_id}),
            body=b"" if self._profile is None else escape_separators(to_json(body)),
            group=model if self._apart else None,
            messages=messages,
            texts=texts,
            same=_canonical(body, _CONTENT[self.kind]),
        )

    def _lint(self, row: Row, body: Mapping[str, Any], messages: list[dict[str, Any]], texts: list[str]) -> None:
        """Raises InputError for what the provider would refuse; requests with the same settings are looked at once."""
        if self._adapter is None:
            return
        settings = {key: value for key, value in body.items() if key not in ("model", _CONTENT[self.kind])}
        shape = to_json([body["model"], settings])
        if shape in self._shapes:
            return
        if len(self._shapes) < _MOST_SHAPES:
            self._shapes.add(shape)
        request = Request(body["model"], messages, Output(), None, {}, settings, self.kind, texts)
        for finding in self._adapter.lint(request):
            if not finding.doubtful:
                place = finding.place.replace("provider_params", "body", 1)
                raise InputError(row.file, row.line, f"{place}: {finding.what}", hint=finding.fix)

    def _check_owner(self, row: Row) -> None:
        """Raises InputError for another provider's requests."""
        if CUSTOM_ID in row.values and "params" in row.values and "body" not in row.values:
            owner, hint = "anthropic", "this version sends OpenAI's only: write a task and a table instead"
        elif self._profile is not None and self._wire != "openai":
            owner, hint = "openai", "choose another --provider"
        else:
            return
        where = "" if self._profile is None else f", which the provider {self._profile.name} does not take"
        what = f"this is a ready-made request for {_OWNERS[owner]}'s batch API{where}"
        raise InputError(row.file, row.line, what, hint=hint, fatal=True)

    def _wrong_envelope(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """What is wrong with a line and what to do."""
        for key in _OPENAI:
            if key not in values:
                return f"this is no ready-made request: it has no {key!r}", f"a line has {', '.join(_OPENAI)}"
        if other := sorted(values.keys() - set(_OPENAI)):
            return f"{other[0]!r} is no part of a ready-made request", f"a line has {', '.join(_OPENAI)} only"
        if values["method"] != "POST":
            return f"the method is {values['method']!r}", 'batch APIs take "POST" only'
        wrong = self._wrong_url(values["url"]) or _wrong_id(values[CUSTOM_ID]) or _wrong_body(values["body"])
        return wrong or (self._without_content(values["body"]) if self._profile is not None else None)

    def _without_content(self, body: Mapping[str, Any]) -> tuple[str, str] | None:
        key = _CONTENT[self.kind]
        if key in body or (self.kind == "responses" and "prompt" in body):  # a prompt that is stored there
            return None
        return f"the body has no {key!r}, which {self._url} asks for", "mend the body, or its url"

    def _wrong_url(self, url: Any) -> tuple[str, str] | None:
        """All requests of a job are of one kind, which the first one's url says."""
        if url == self._url and url:
            return None
        if self._url:
            hint = "put requests for another endpoint into another file"
            return f"the url is {url!r}, that of earlier lines {self._url!r}", hint
        if self._profile is not None:
            kinds: dict[str, Kind] = {path: kind for kind, path in self._profile.endpoints.items()}
            if not isinstance(url, str) or url not in kinds:
                what = f"the url is {url!r}, {self._profile.name} is asked at {' or '.join(map(repr, kinds))}"
                return what, "mend the url, or name another --provider"
            self.kind = kinds[url]
        self._url = str(url)
        return None

    def columns(self, _found: Sequence[str]) -> tuple[str, ...]:
        """The user's id; the requests themselves are not written out again."""
        return (CUSTOM_ID,)

    def problems(self) -> Iterable[InputError]:
        """Every id that is there twice, with both lines."""
        return self._ids.repeated()


def _canonical(body: Mapping[str, Any], content: str) -> bytes:
    """The same bytes for bodies that ask the same.

    The order of keys is no matter in a body and its messages; in all else, such as schemas and tools, models heed it.
    """
    parts = (
        to_canonical_json([key, body[key]]) if key == content else to_json([key, body[key]]) for key in sorted(body)
    )
    return b",".join(parts)


def _asked(found: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The content of a body, as messages or as texts."""
    if isinstance(found, str):
        return [], [found]
    items = found if isinstance(found, list) else []
    messages = [one for one in items if isinstance(one, dict)]
    if messages:
        return messages, []
    if items and all(isinstance(one, int) for one in items):
        return [], [str(items)]  # one text as token numbers
    return [], [one if isinstance(one, str) else str(one) for one in items]


def _wrong_id(custom_id: Any) -> tuple[str, str] | None:
    if not isinstance(custom_id, str):
        return "the custom_id is no text", f'write it in quotes: "{custom_id}"'
    return None if custom_id else ("the custom_id is empty", "give every request an id of its own")


def _wrong_body(body: Any) -> tuple[str, str] | None:
    if not isinstance(body, dict):
        return "the body is no JSON object", 'such as {"model": "...", "messages": [...]}'
    model = body.get("model")
    if not isinstance(model, str) or not model.strip():
        return "the body names no model", 'add "model": "..."'
    if body.get("stream"):
        return "the body asks for a stream, which a batch cannot give", 'remove "stream"'
    return None


class _Ids:
    """All ids seen, hashed and sorted on disk; what stands twice is found one bucket at a time."""

    def __init__(self) -> None:
        self._seen = Sorter(32)
        self._count = 0
        self._files: dict[int, str] = {}  # row of each file's first request -> its name

    def add(self, custom_id: str, row: Row) -> None:
        if not self._files or next(reversed(self._files.values())) != row.file:
            self._files[self._count] = row.file
        key = blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self._seen.add(key[0], key + self._count.to_bytes(8, "big") + row.line.to_bytes(8, "big"))
        self._count += 1

    def repeated(self) -> list[InputError]:
        """In the order of the table."""
        found: list[tuple[int, int, int, int]] = []
        for records in self._seen.buckets():
            first = b""
            for record in records:
                if record[:16] == first[:16]:
                    found.append((*_place(record), *_place(first)))
                else:
                    first = record
        return [self._problem(*place) for place in sorted(found)]

    def _problem(self, number: int, line: int, first: int, first_line: int) -> InputError:
        file, earlier = self._file(number), self._file(first)
        place = f"line {first_line}" + (f" of {earlier}" if earlier != file else "")
        hint = "give every request an id of its own: answers are told apart by it"
        return InputError(file, line, f"the custom_id is that of {place} again", hint=hint)

    def _file(self, number: int) -> str:
        return next(name for start, name in reversed(self._files.items()) if start <= number)


def _place(record: bytes) -> tuple[int, int]:
    """Row and line of a record."""
    return int.from_bytes(record[16:24], "big"), int.from_bytes(record[24:], "big")
