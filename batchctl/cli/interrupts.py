"""Ctrl-C and SIGTERM: the first lets what is under way be written down, the second leaves at once.

A create that is cut off in the middle may have happened, so while a pass is at work the interrupt waits for the end of
the step it is in. Anywhere else it is the usual KeyboardInterrupt.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_WAITING = b"\ninterrupting: what is under way is finished and written down first; Ctrl-C again leaves at once\n"
_SHOW_CURSOR = b"\x1b[?25h\n"


class _State:
    """Of this process: whether an interrupt was asked for, and how many blocks put it off."""

    def __init__(self) -> None:
        self.asked = False
        self.deferred = 0

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            if sys.stderr.isatty():
                os.write(2, _SHOW_CURSOR)  # a progress display has hidden it
            os._exit(130)  # threads that still send would keep the interpreter from ending
        self.asked = True
        if not self.deferred:
            raise KeyboardInterrupt
        os.write(2, _WAITING)


_state = _State()


@contextmanager
def listening() -> Iterator[None]:
    """Handle the two signals for the length of a command."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _state.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    _state.asked = False
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """In here an interrupt is only noted; `check` raises it at a safe place, and so does the end of the block."""
    _state.deferred += 1
    try:
        yield
    finally:
        _state.deferred -= 1
    check()


def check() -> None:
    """Raise KeyboardInterrupt where one was asked for."""
    if _state.asked:
        raise KeyboardInterrupt
