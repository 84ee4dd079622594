"""docs/cases.md: which test holds batchctl to the right answer for each known failure of bulk work.

The numbers, titles and notes in the page are written by hand; the column of tests is what this script finds in the
suite by name (`test_case_03_...`, `test_case_26_27_...`). `python -m scripts.cases` writes the page anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cases.md"
_NAME = re.compile(r"test_case((?:_and|_\d+)+)_")
_ROW = re.compile(r"^\| (\d+) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def names_by_case() -> dict[int, list[str]]:
    """The suite's tests by the numbers that their names carry; each as `file::name`, sorted."""
    found: dict[int, set[str]] = {}
    for path, name in _tests():
        match = _NAME.match(name)
        for number in re.findall(r"\d+", match.group(1)) if match else ():
            found.setdefault(int(number), set()).add(f"{path.stem.removeprefix('test_')}: {name}")
    return {number: sorted(names) for number, names in found.items()}


def _tests() -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_case"):
                yield path, node.name


def rows(page: str) -> Iterator[tuple[int, str, str, str]]:
    """Number, title, tests and note of each row of the page's table."""
    for match in _ROW.finditer(page):
        yield int(match.group(1)), match.group(2), match.group(3), match.group(4)


def renewed(page: str) -> str:
    """The page with its column of tests as the suite has them now."""
    tests = names_by_case()

    def row(match: re.Match[str]) -> str:
        number, title, _, note = match.groups()
        names = "<br>".join(f"`{name}`" for name in tests.get(int(number), ())) or "-"
        return f"| {number} | {title} | {names} | {note} |"

    return _ROW.sub(row, page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
