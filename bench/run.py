"""Run the benchmarks and print one table: python -m bench.run [--quick] [--check].

A benchmark is a module here with `measure(*, quick: bool) -> list[Figure]`, named in BENCHMARKS.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from bench import crowded, large, startup, throughput
from bench.figures import Figure

BENCHMARKS = [startup, throughput, crowded, large]


def table(figures: Iterable[Figure]) -> str:
    """The figures as aligned text, one a line."""
    lines = [f"{'what':<28}{'measured':>18}{'beside':>18}{'ratio':>8}{'at most':>9}"]
    for one in figures:
        mark = "" if one.holds else "  OVER"
        lines.append(
            f"{one.name:<28}{_amount(one.measured, one.unit):>18}{_amount(one.floor, one.unit):>18}"
            f"{one.ratio:>8.2f}{one.limit:>9g}{mark}"
        )
    return "\n".join(lines)


def _amount(value: float, unit: str) -> str:
    return f"{value:.1f} {unit}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="Print batchctl's cost beside its floors.")
    parser.add_argument("--quick", action="store_true", help="fewer runs and rows")
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure is over its limit")
    options = parser.parse_args()
    figures = [figure for benchmark in BENCHMARKS for figure in benchmark.measure(quick=options.quick)]
    print(table(figures))
    return int(options.check and not all(figure.holds for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
