"""Which of a job's rows are written: those that conditions hold for, or a random sample of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from batchctl.engine.context import Engine
from batchctl.outputs.joining import Joined, Joiner
from batchctl.outputs.where import Columns, Where
from batchctl_store.records import Job


@dataclass(frozen=True, slots=True)
class Pick:
    """What the user asked for: all conditions hold (`where`), and of those rows `sample` by chance."""

    where: tuple[str, ...] = ()
    sample: int | None = None
    seed: int = 0


def condition(joiner: Joiner, expressions: Iterable[str]) -> Callable[[Joined], bool] | None:
    """What tells the rows meant; None where all are. Raises UsageError for an expression that is wrong."""
    added, account = joiner.added.names, joiner.added.account
    columns = Columns(joiner.job.columns, added, outcome=account["outcome"], batch=account["batch"])
    where = Where(expressions, columns)
    return (lambda row: where.holds(row.raw, joiner.cells(row))) if where else None


def picked(engine: Engine, job: Job, joiner: Joiner, pick: Pick) -> Iterator[Joined]:
    """The rows meant, in input order; all rows are read and counted in the joiner's accounting."""
    holds = condition(joiner, pick.where)
    if pick.sample is None:
        return (row for row in joiner.all() if holds is None or holds(row))
    # Read twice, so that only the numbers of the sample are held in memory.
    first = (row.number for row in Joiner(engine, job).all() if holds is None or holds(row))
    return _those(joiner.all(), sample(first, pick.sample, pick.seed))


def _those(rows: Iterator[Joined], numbers: list[int]) -> Iterator[Joined]:
    wanted = iter(numbers)
    following = next(wanted, None)
    for row in rows:
        if row.number == following:
            following = next(wanted, None)
            yield row


def sample(numbers: Iterable[int], size: int, seed: int) -> list[int]:
    """`size` of these numbers (all, where there are fewer), ascending, each as likely as any other.

    The same seed picks the same. Memory is that of the sample (Algorithm R).
    """
    chance = random.Random(seed).random  # which gives the same numbers in every Python version
    kept: list[int] = []
    for seen, number in enumerate(numbers):
        if seen < size:
            kept.append(number)
        elif (place := int(chance() * (seen + 1))) < size:
            kept[place] = number
    return sorted(kept)
