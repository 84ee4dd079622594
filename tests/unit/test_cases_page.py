"""docs/cases.md says the truth about the suite."""

from __future__ import annotations

from scripts.cases import PAGE, names_by_case, renewed, rows


def test_the_page_names_every_test_of_a_case_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == renewed(page), "run: python -m scripts.cases"


def test_every_case_of_a_test_is_on_the_page_once() -> None:
    numbers = [number for number, *_ in rows(PAGE.read_text(encoding="utf-8"))]
    assert numbers == sorted(set(numbers))
    assert set(names_by_case()) <= set(numbers)


def test_a_case_without_a_test_says_what_it_waits_for() -> None:
    for number, _, tests, note in rows(PAGE.read_text(encoding="utf-8")):
        assert tests != "-" or note.startswith("waits for"), number
