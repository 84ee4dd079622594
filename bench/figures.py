"""One line of the benchmark's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`measured` against `floor`, both in `unit`; at most `limit` times the floor."""

    name: str
    measured: float
    floor: float
    unit: str
    limit: float

    @property
    def ratio(self) -> float:
        return self.measured / self.floor

    @property
    def holds(self) -> bool:
        return self.ratio <= self.limit
