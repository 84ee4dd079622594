"""Excel: one sheet, values and not their formats. The first row that is not empty names the columns.

Needs openpyxl (`pip install 'batchctl[excel]'`). Rows are streamed; the workbook's table of texts is held in memory.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchctl.errors import InputError, UserError
from batchctl.inputs.row import Progress, Row
from batchctl.inputs.sources import Source
from batchctl.inputs.unpacking import MOST_RATIO, MOST_UNPACKED, unpacked_file
from batchctl.inputs.values import Unfit, plain, raw_of

_FORMULA = re.compile(rb"<(?:\w+:)?f[ >/]")


def read(source: Source, progress: Progress, sha256: list[str], sheet: str | None) -> Iterator[Row]:
    """The rows of one file (see `table.Reader`)."""
    with unpacked_file(source) as (path, digest):
        formulas = _look_inside(source, path)
        try:
            with _opened(path, values=True) as book:
                name = _sheet(source, book, sheet)
                if not formulas:
                    yield from _rows(source, progress, _lines(book[name]), None)
                else:
                    with _opened(path, values=False) as written:
                        yield from _rows(source, progress, _lines(book[name]), _lines(written[name]))
        except (InputError, UserError, MemoryError):
            raise
        except Exception as error:
            # openpyxl says with any exception at all that a workbook is damaged.
            said = " ".join(str(error).split()) or type(error).__name__
            raise source.problem(None, f"cannot be read as Excel: {said}", hint="open it and save it again") from error
    sha256.append(digest)


@contextmanager
def _opened(path: Path, *, values: bool) -> Iterator[Any]:
    """The workbook: with the values of its formulas, or with the formulas."""
    try:
        import openpyxl
    except ImportError:
        raise UserError("Excel needs openpyxl", hint="pip install 'batchctl[excel]'") from None
    with path.open("rb") as file:  # given a path, it would stay open where the workbook is damaged
        book = _quietly(lambda: openpyxl.load_workbook(file, read_only=True, data_only=values, keep_links=False))
        try:
            yield book
        finally:
            book.close()


def _look_inside(source: Source, path: Path) -> bool:
    """True where a sheet has formulas. Raises InputError for what is no workbook, or unpacks to far too much."""
    try:
        with zipfile.ZipFile(path) as book:
            size, packed = sum(one.file_size for one in book.infolist()), path.stat().st_size
            if size > MOST_UNPACKED and size > packed * MOST_RATIO:
                what = f"unpacks to more than {MOST_RATIO} times its size ({size:,} bytes)"
                raise source.problem(None, what, hint="save it as .csv, should that be right")
            return any(_has_formula(book, one) for one in book.namelist() if one.startswith("xl/worksheets/"))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        hint = "save it as .xlsx: an older .xls, or one with a password, cannot be read"
        raise source.problem(None, f"is no .xlsx workbook: {error}", hint=hint) from None


def _has_formula(book: zipfile.ZipFile, name: str) -> bool:
    before = b""
    try:
        with book.open(name) as sheet:
            while piece := sheet.read(1024 * 1024):
                if _FORMULA.search(before + piece):
                    return True
                before = piece[-16:]
    except Exception as error:
        # zlib, CRC and encryption each have their own
        raise zipfile.BadZipFile(str(error)) from None
    return False


def _sheet(source: Source, book: Any, wanted: str | None) -> str:
    names = [sheet.title for sheet in book.worksheets]
    if wanted is not None:
        if wanted not in names:
            raise source.problem(None, f"has no sheet {wanted!r}", hint=f"there are: {', '.join(names)}")
        return wanted
    if len(names) != 1:
        what = "has no sheet with cells" if not names else f"has {len(names)} sheets: {', '.join(names)}"
        raise source.problem(None, what, hint="say which: --sheet NAME")
    return str(names[0])


def _lines(sheet: Any) -> Iterator[Sequence[Any]]:
    sheet.reset_dimensions()  # files say wrong ones, and rows would be left out
    rows = sheet.iter_rows()
    while (line := _quietly(lambda: next(rows, None))) is not None:
        yield line


def _quietly(step: Callable[[], Any]) -> Any:
    """Without openpyxl's warnings, which are about styles and extensions; what it cannot read is an error in a cell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return step()


def _rows(
    source: Source, progress: Progress, lines: Iterator[Sequence[Any]], written: Iterator[Sequence[Any]] | None
) -> Iterator[Row]:
    header: dict[int, str] = {}
    file, number = source.name, progress.number
    for line, cells in enumerate(lines, 1):
        formulas = next(written, ()) if written is not None else ()
        if all(cell.value is None for cell in (*cells, *formulas)):
            continue
        if not header:
            header = _header(source, line, cells)
            progress.columns.update(dict.fromkeys(header.values()))
            continue
        try:
            values = _values(header, cells, formulas)
            row = Row(number, line, raw_of(values), values, file)
        except Unfit as unfit:
            progress.refuse(source.problem(line, unfit.what, hint=unfit.hint))
        else:
            yield row
        number += 1
        progress.number = number


def _header(source: Source, line: int, cells: Sequence[Any]) -> dict[int, str]:
    """Columns by their place, from 0; those without a name have to be empty below, too."""
    names: dict[int, str] = {}
    for place, cell in enumerate(cells):
        if cell.value is None:
            continue
        name = str(cell.value)
        if not name.strip() or cell.data_type == "e":
            raise source.problem(line, f"cell {cell.coordinate} names no column: {name!r}", hint="give it a name")
        if name in names.values():
            hint = "give each column a name of its own"
            raise source.problem(line, f"cell {cell.coordinate}: two columns are named {name!r}", hint=hint)
        names[place] = name
    return names


def _values(header: dict[int, str], cells: Sequence[Any], formulas: Sequence[Any]) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(header.values())
    for place, cell in enumerate(cells):
        if cell.value is None:
            if place < len(formulas) and formulas[place].value is not None:
                hint = "open the file in a spreadsheet program and save it, so that its value is in it"
                raise Unfit(f"cell {formulas[place].coordinate} has a formula that was never calculated", hint)
            continue
        if place not in header:
            raise Unfit(f"cell {cell.coordinate} stands in a column without a name", "name the column, or empty it")
        if cell.data_type == "e":
            raise Unfit(f"cell {cell.coordinate} has the error {cell.value}", "mend or empty the cell")
        try:
            values[header[place]] = plain(cell.value)
        except Unfit as unfit:
            raise Unfit(f"cell {cell.coordinate}: {unfit.what}", unfit.hint) from None
    return values
