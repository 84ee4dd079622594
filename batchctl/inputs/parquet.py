"""Parquet: typed values, read a few hundred rows at a time, so that memory does not grow with the file.

Needs pyarrow (`pip install 'batchctl[parquet]'`).
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from batchctl.errors import UserError
from batchctl.inputs.row import Progress, Row
from batchctl.inputs.sources import Source
from batchctl.inputs.unpacking import unpacked_file
from batchctl.inputs.values import NO_BINARY, Unfit, finite, plain, raw_of

_ROWS = 512  # read at once
_BUFFER = 1024 * 1024  # bytes of a column read from the file at once
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}

Convert = Callable[[Any], Any]


def pyarrow() -> Any:
    """The library. Raises UserError, with what to install, where it is missing."""
    try:
        import pyarrow as pa
    except ImportError:
        raise UserError("Parquet needs pyarrow", hint="pip install 'batchctl[parquet]'") from None
    return pa


def read(source: Source, progress: Progress, sha256: list[str], _option: str | None) -> Iterator[Row]:
    """The rows of one file (see `table.Reader`)."""
    pa = pyarrow()
    import pyarrow.parquet as pq

    with unpacked_file(source) as (path, digest):
        try:
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as file:
                columns = _columns(source, file.schema_arrow)
                progress.columns.update(dict.fromkeys(columns))
                start = 0
                for batch in file.iter_batches(batch_size=_ROWS, use_threads=False):
                    yield from _rows(source, progress, batch, columns, start)
                    start += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            said = " ".join(str(error).split())
            raise source.problem(
                None, f"cannot be read as Parquet: {said}", hint="is it whole? make it again"
            ) from None
    sha256.append(digest)


def _rows(
    source: Source, progress: Progress, batch: Any, columns: dict[str, Convert | None], start: int
) -> Iterator[Row]:
    file, names = source.name, list(columns)
    cells = [
        _cells(source, column, name, columns[name], start) for name, column in zip(names, batch.columns, strict=True)
    ]
    number = progress.number
    for line, row in enumerate(zip(*cells, strict=True), start + 1):
        values = dict(zip(names, row, strict=True))
        wrong = next((name for name, value in values.items() if type(value) is Unfit), None)
        if wrong is None:
            yield Row(number, line, raw_of(values), values, file)
        else:
            unfit = values[wrong]
            progress.refuse(source.problem(line, f"column {wrong!r}: {unfit.what}", hint=unfit.hint))
        number += 1
        progress.number = number


def _cells(source: Source, column: Any, name: str, convert: Convert | None, start: int) -> list[Any]:
    """A column's values; one that JSON cannot hold is its Unfit, so that the row is named and the others are read."""
    try:
        values = column.to_pylist() if convert is not _timestamp else _spelled(column)
    except (ValueError, OverflowError) as error:
        what = f"column {name!r}, rows {start + 1} to {start + len(column)}: cannot be read: {error}"
        raise source.problem(None, what, hint="write the column as text") from None
    return values if convert is None else [None if value is None else _tried(convert, value) for value in values]


def _tried(convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except Unfit as unfit:
        return unfit


def _columns(source: Source, schema: Any) -> dict[str, Convert | None]:
    """Each column with what makes JSON of its values, None where they are that already."""
    found: dict[str, Convert | None] = {}
    for place, field in enumerate(schema, 1):
        if not field.name.strip():
            raise source.problem(None, f"column {place} has no name", hint="give it one")
        if field.name in found:
            raise source.problem(None, f"two columns are named {field.name!r}", hint="give each a name of its own")
        try:
            found[field.name] = _converter(field.type)
        except Unfit as unfit:
            raise source.problem(None, f"column {field.name!r} {unfit.what}", hint=unfit.hint) from None
    return found


def _converter(kind: Any) -> Convert | None:
    """What makes JSON of a type's values. Raises Unfit for a type that JSON has nothing for."""
    types = pyarrow().types
    if isinstance(kind, pyarrow().BaseExtensionType):
        return _converter(kind.storage_type)
    if types.is_dictionary(kind):
        return _converter(kind.value_type)
    if types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or _is_text(kind):
        return None
    if types.is_float64(kind):
        return finite
    if types.is_floating(kind):
        return _float32 if types.is_float32(kind) else _float16
    if types.is_timestamp(kind):
        return _timestamp
    if types.is_decimal(kind) or types.is_date(kind) or types.is_time(kind):
        return plain
    return _nested(kind)


def _nested(kind: Any) -> Convert:
    types = pyarrow().types
    if types.is_map(kind):
        key, item = _converter(kind.key_type), _inner(kind.item_type)
        if key is not None or not _is_text(kind.key_type):
            raise Unfit(f"has keys of type {kind.key_type}", "write the keys as text")
        return lambda pairs: {name: item(value) for name, value in pairs}
    if types.is_struct(kind):
        inner = {field.name: _inner(field.type) for field in kind}
        return lambda value: {name: inner[name](part) for name, part in value.items()}
    if hasattr(kind, "value_type"):  # all kinds of lists
        each = _inner(kind.value_type)
        return lambda values: [each(value) for value in values]
    if types.is_binary(kind) or types.is_large_binary(kind) or "binary" in str(kind):
        raise Unfit(*NO_BINARY.split("; "))
    raise Unfit(f"is of type {kind}, which JSON does not have", "write the column as text")


def _inner(kind: Any) -> Convert:
    convert = _converter(kind)
    if convert is None:
        return lambda value: value
    if convert is _timestamp:
        convert = plain
    return lambda value: None if value is None else convert(value)


def _is_text(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view")


def _float32(value: float) -> float:
    """The shortest decimal that is this number among those of 32 bits: 0.1 and not 0.10000000149011612."""
    return _shortest(finite(value), "f", 9)


def _float16(value: float) -> float:
    return _shortest(finite(value), "e", 5)


def _shortest(value: float, form: str, most: int) -> float:
    if value.is_integer():
        return value
    for digits in range(1, most):
        short = float(f"{value:.{digits}g}")
        with suppress(OverflowError):
            if struct.unpack(form, struct.pack(form, short))[0] == value:
                return short
    return value


def _timestamp(value: Any) -> Any:
    """What `_spelled` made is text already."""
    return value


def _spelled(column: Any) -> list[str | Unfit | None]:
    """Timestamps as ISO 8601 text with all their digits; Python's own have microseconds at most."""
    pa = pyarrow()
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    digits, zone = _DIGITS[kind.unit], _zone(kind.tz)
    values = column.cast(kind).cast(pa.int64()).to_pylist()
    return [None if value is None else _iso(value, digits, zone) for value in values]


def _iso(value: int, digits: int, zone: dt.tzinfo | None) -> str | Unfit:
    seconds, fraction = divmod(value, 10**digits)
    try:
        moment = _EPOCH + dt.timedelta(seconds=seconds)
        moment = moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)
    except OverflowError:
        return Unfit("a time outside the years 1 to 9999", "write the column as text")
    text = moment.isoformat()
    if not fraction:
        return text
    nanos = fraction * 10 ** (9 - digits)
    shown = f"{nanos:09d}"[: 9 if nanos % 1000 else 6]  # as Python has it where that is enough
    return f"{text[:19]}.{shown}{text[19:]}"


def _zone(name: str | None) -> dt.tzinfo | None:
    if name is None:
        return None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    with suppress(ZoneInfoNotFoundError, ValueError):
        return ZoneInfo(name)
    with suppress(ValueError):
        return dt.datetime.fromisoformat(f"1970-01-01T00:00:00{name}").tzinfo  # +02:00
    return dt.UTC
