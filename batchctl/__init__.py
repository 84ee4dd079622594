"""batchctl: bulk LLM work at batch price, one output row for each input row.

From Python: `submit`, `status`, `jobs`, `wait`, `results` (docs/python.md). They are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchctl.api import JobStatus, ResultRow, Results, jobs, results, status, submit, wait

__version__ = "0.1.0"
__all__ = ["JobStatus", "ResultRow", "Results", "__version__", "jobs", "results", "status", "submit", "wait"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from batchctl import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
