"""Hugging Face datasets: `hf:NAME[:CONFIG]:SPLIT`, streamed. NAME is one of the hub, or a folder on this machine.

Needs datasets (`pip install 'batchctl[hf]'`).
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batchctl.errors import InputError, UserError
from batchctl.inputs.row import Progress, Row
from batchctl.inputs.sources import DATASET, Source
from batchctl.inputs.values import NO_BINARY, Unfit, plain, raw_of

_HOW = "write hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT, such as hf:stanfordnlp/imdb:test"
_BINARY = ("Image", "Audio", "Video", "Pdf")


def read(source: Source, progress: Progress, sha256: list[str], _option: str | None) -> Iterator[Row]:
    """The rows of one split (see `table.Reader`); the hash is that of the rows."""
    digest = hashlib.sha256()
    dataset = _open(source)
    try:
        if dataset.features is not None:
            _check_columns(source, dataset.features)
            progress.columns.update(dict.fromkeys(dataset.features))
        for line, found in enumerate(dataset, 1):
            row = _row(source, progress, line, found)
            progress.number += 1
            if row is not None:
                digest.update(row.raw + b"\n")
                yield row
    except (InputError, MemoryError):
        raise
    except Exception as error:
        # the library and what it downloads with raise anything
        raise source.problem(None, f"cannot be read: {_said(error)}", hint="is the network there? try again") from error
    sha256.append(digest.hexdigest())


def _row(source: Source, progress: Progress, line: int, found: dict[str, Any]) -> Row | None:
    values: dict[str, Any] = {}
    name = ""
    try:
        for name, value in found.items():
            values[name] = plain(value)
        raw = raw_of(values)
    except Unfit as unfit:
        progress.refuse(source.problem(line, f"column {name!r}: {unfit.what}", hint=unfit.hint))
        return None
    if not values.keys() <= progress.columns.keys():
        progress.columns.update(dict.fromkeys(values))
    return Row(progress.number, line, raw, values, source.name)


def _open(source: Source) -> Any:
    name, config, split = _parts(source)
    try:
        import datasets
    except ImportError:
        raise UserError("a Hugging Face dataset needs datasets", hint="pip install 'batchctl[hf]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if (Path(name) / "dataset_dict.json").is_file() or (Path(name) / "state.json").is_file():
                return _saved(source, datasets.load_from_disk(name), split)
            return datasets.load_dataset(name, config, split=split, streaming=True)
    except InputError:
        raise
    except Exception as error:
        # see above
        raise source.problem(
            None, f"cannot be opened: {_said(error)}", hint=f"{_HOW}; is the network there?"
        ) from error


def _saved(source: Source, found: Any, split: str) -> Any:
    """What `save_to_disk` wrote; it is mapped into memory, not read into it."""
    if isinstance(found, dict):
        if split not in found:
            raise source.problem(None, f"has no split {split!r}", hint=f"there are: {', '.join(found)}")
        found = found[split]
    return found.to_iterable_dataset()


def _parts(source: Source) -> tuple[str, str | None, str]:
    match source.name.removeprefix(DATASET).split(":"):
        case [name, split] if name and split:
            return name, None, split
        case [name, config, split] if name and config and split:
            return name, config, split
        case _:
            raise source.problem(None, "names no dataset and split", hint=_HOW)


def _check_columns(source: Source, features: Any) -> None:
    for name, feature in features.items():
        kind = type(feature).__name__
        if kind in _BINARY or "binary" in str(getattr(feature, "dtype", "")):
            what, hint = NO_BINARY.split("; ")
            raise source.problem(None, f"column {name!r} {what}", hint=hint)


def _said(error: Exception) -> str:
    """The first sentence or two of what the library says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
