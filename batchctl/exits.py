"""How things stand, as the exit codes of commands: documented, and the same in `--json` and in Python."""

from __future__ import annotations

EXITS = {
    0: "done",
    1: "error",
    2: "usage",
    3: "finished with failed rows",
    4: "still running",
    5: "late or will be late",
    6: "paused for money, keys or doubt",
    130: "interrupted",
}
DONE, ERROR, USAGE, FAILED_ROWS, RUNNING, LATE, PAUSED, INTERRUPTED = EXITS
