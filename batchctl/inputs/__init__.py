"""Input tables of every format, streamed, with no value reinterpreted and every error by file, line and column.

`007` stays `007`, `1.10` stays `1.10`. One door: `open_table`. One file a format; `sources.py` finds the files,
`unpacking.py` reads their bytes.
"""

from __future__ import annotations

from batchctl.inputs.row import OnError, Row
from batchctl.inputs.sources import FORMATS, Format, Named
from batchctl.inputs.table import Table, open_table

__all__ = ["FORMATS", "Format", "Named", "OnError", "Row", "Table", "open_table"]
