"""A row, and what the readers of one table share: the columns seen, the rows counted, where problems go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from batchctl.errors import InputError

OnError = Callable[[InputError], None]


class Row(NamedTuple):
    """One row. `number` is 0-based, over all files; `line` the 1-based line of `file` where it starts.

    In Parquet and in a dataset `line` is the row's number, from 1; in Excel it is the sheet's own. `raw` is the row as
    one line of JSON without its end (for JSONL the bytes as they stand in the file), `values` the same, parsed.
    """

    number: int
    line: int
    raw: bytes
    values: Mapping[str, Any]
    file: str = "input"


@dataclass(slots=True)
class Progress:
    """One reading of a table. `number` is the next row's; refused rows count there too."""

    on_error: OnError | None = None
    number: int = 0
    refused: int = 0
    columns: dict[str, None] = field(default_factory=dict)

    def refuse(self, error: InputError) -> None:
        """Leave a row out: tell `on_error` and go on, or raise."""
        if self.on_error is None:
            raise error from None
        self.on_error(error)
        self.refused += 1
