"""Parquet files, written a row group at a time: typed columns, vectors as fixed-size lists of float32."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from batchctl.errors import UserError
from batchctl.outputs.columns import INT64, ColumnType, Vectors
from batchctl.outputs.files import FileWriter, cell_text
from batchctl.rowjson import parse_object

GROUP_ROWS = 50_000
GROUP_BYTES = 8 * 1024 * 1024  # held in memory until a group is written

_TYPES = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.NUMBER: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
}


class ParquetRows(FileWriter):
    """An OutputWriter (outputs.py). Raises UserError for a value that its column cannot hold."""

    def __init__(self, target: Path, types: Mapping[str, ColumnType | Vectors]) -> None:
        super().__init__(target, list(types))
        self._cells = {name: _column(name, kind) for name, kind in types.items()}
        self._schema = pa.schema([(name, column.type) for name, column in self._cells.items()])
        self._rows = self._held = 0

    def _begin(self, file: BinaryIO) -> None:
        self._file = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, raw: bytes, extra: Mapping[str, Any]) -> None:
        cells = {**parse_object(raw), **extra}
        for name, column in self._cells.items():
            column.add(cells.get(name))
        self._rows += 1
        self._held += len(raw) + sum(_bytes_of(value) for value in extra.values())
        if self._rows >= GROUP_ROWS or self._held >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        arrays = [column.take() for column in self._cells.values()]
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=GROUP_ROWS)
        self._rows = self._held = 0

    def _end(self) -> None:
        if self._rows:
            self._flush()
        self._file.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            with contextlib.suppress(OSError, ValueError):  # the file is gone where something failed
                self._file.close()


def _bytes_of(value: Any) -> int:
    if isinstance(value, array):
        return value.itemsize * len(value)
    if isinstance(value, list):
        return sum(map(_bytes_of, value))
    return len(value) if isinstance(value, str) else 8


def _column(name: str, kind: ColumnType | Vectors) -> _Scalars | _Vectors:
    if isinstance(kind, Vectors):
        return _Vectors(name, kind)
    return _Scalars(name, _TYPES.get(kind, pa.string()), _CASTS[kind])


class _Scalars:
    """The values of one column that are not written yet."""

    def __init__(self, name: str, type: Any, cast: Callable[[Any], Any]) -> None:
        self.type = type
        self._name, self._cast = name, cast
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        try:
            self._values.append(None if value is None else self._cast(value))
        except (TypeError, ValueError, OverflowError):
            raise _unfit(self._name, f"{str(value)[:80]!r} is no {self.type}") from None

    def take(self) -> Any:
        values, self._values = self._values, []
        return pa.array(values, type=self.type)


class _Vectors:
    """The vectors of one column that are not written yet; rows without one are null."""

    def __init__(self, name: str, kind: Vectors) -> None:
        self._name, self._size, self._several = name, kind.dimensions, kind.several
        vector = pa.list_(pa.float32()) if self._size is None else pa.list_(pa.float32(), self._size)
        self.type = pa.list_(vector) if kind.several else vector
        self._clear()

    def _clear(self) -> None:
        self._numbers, self._count = array("f"), 0
        self._offsets, self._absent = array("i", [0]), list[bool]()
        self._loose: list[Any] = []

    def add(self, value: Any) -> None:
        self._absent.append(value is None)
        if self._size is None:
            self._loose.append(
                value if value is None else [list(one) for one in value] if self._several else list(value)
            )
            return
        if value is None and not self._several:
            self._numbers.extend([0.0] * self._size)
        for vector in () if value is None else value if self._several else (value,):
            if len(vector) != self._size:
                raise _unfit(self._name, f"a vector of {len(vector):,} numbers among others of {self._size:,}")
            self._numbers.extend(vector)
            self._count += 1
        self._offsets.append(self._count)

    def take(self) -> Any:
        absent = pa.array(self._absent, type=pa.bool_())
        if self._size is None:
            found = pa.array(self._loose, type=self.type)
        else:
            flat = pa.Array.from_buffers(pa.float32(), len(self._numbers), [None, pa.py_buffer(self._numbers)])
            mask = None if self._several else absent
            found = pa.FixedSizeListArray.from_arrays(flat, self._size, mask=mask)
            if self._several:
                offsets = pa.Array.from_buffers(pa.int32(), len(self._offsets), [None, pa.py_buffer(self._offsets)])
                found = pa.ListArray.from_arrays(offsets, found, mask=absent)
        self._clear()
        return found


def _unfit(column: str, what: str) -> UserError:
    return UserError(f"column {column}: {what}", hint="write a .jsonl file, which holds any value")


def _text(value: Any) -> str:
    return cell_text(value).encode("utf-8", "backslashreplace").decode()  # half a character must not lose the row


def _whole(value: Any) -> int:
    if int(value) != value or int(value) not in INT64:
        raise ValueError
    return int(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


_CASTS: Mapping[ColumnType, Callable[[Any], Any]] = {
    ColumnType.TEXT: _text,
    ColumnType.INTEGER: _whole,
    ColumnType.NUMBER: float,
    ColumnType.BOOLEAN: _truth,
    ColumnType.JSON: _text,
    ColumnType.VECTOR: _text,
    ColumnType.VECTORS: _text,
}
