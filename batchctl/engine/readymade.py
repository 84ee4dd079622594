"""Ready-made requests: files somebody wrote for a provider's batch API, sent as they are but for the custom_id.

OpenAI's lines have custom_id, method, url and body (PROVIDERS.md 2.1), Anthropic's custom_id and params.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from batchctl.errors import InputError
from batchctl.inputs import Row
from batchctl.rowjson import escape_separators, to_json
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
_PARTS = 16  # of all ids are looked through at a time, to hold a fraction of them in memory


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
    """All ids seen, in 16 bytes each. Two with the same 64-bit hash count as the same: one in 30 million million."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._lines = array("Q")
        self._files: dict[int, str] = {}  # row of each file's first request -> its name

    def add(self, custom_id: str, row: Row) -> None:
        if not self._files or next(reversed(self._files.values())) != row.file:
            self._files[len(self._lines)] = row.file
        self._hashes.append(hash(custom_id))
        self._lines.append(row.line)

    def repeated(self) -> list[InputError]:
        pairs: list[tuple[int, int]] = []
        for part in range(_PARTS):
            seen: dict[int, int] = {}
            for number, value in enumerate(self._hashes):
                if value % _PARTS == part:
                    first = seen.setdefault(value, number)
                    if first != number:
                        pairs.append((number, first))
        return [self._problem(*pair) for pair in sorted(pairs)]

    def _problem(self, number: int, first: int) -> InputError:
        file, earlier = self._file(number), self._file(first)
        place = f"line {self._lines[first]}" + (f" of {earlier}" if earlier != file else "")
        hint = "give every request an id of its own: answers are told apart by it"
        return InputError(file, self._lines[number], f"the custom_id is that of {place} again", hint=hint)

    def _file(self, number: int) -> str:
        return next(name for start, name in reversed(self._files.items()) if start <= number)
