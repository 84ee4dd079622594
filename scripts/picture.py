"""Draw docs/run.svg, the README's picture: `batchctl demo` in a terminal of 80 columns, as it really ran.

Needs pyte beside the development dependencies: python -m pip install pyte
"""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 80, 200
TARGET = Path(__file__).parent.parent / "docs" / "run.svg"


def screen_of(argv: list[str]) -> pyte.Screen:
    """What a terminal shows once the command has ended."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(COLUMNS=str(COLUMNS), LINES="40", TERM="xterm-256color")
        os.execvp(argv[0], argv)
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the terminal closes with its last process
            break
        if not data:
            break
        stream.feed(data)
    os.waitpid(child, 0)
    return screen


def main() -> None:
    """Run it, keep the lines that were written, export them."""
    batchctl = str(Path(sys.executable).with_name("batchctl"))
    screen = screen_of([batchctl, "demo"])
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(Text("$ make demo", style="bold"))
    for line in lines:
        console.print(Text(line, style="bold" if line.startswith("$ ") else ""), no_wrap=True)
    drawn = console.export_svg(title="batchctl demo")
    local = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # no font is fetched to look at a picture
    TARGET.write_text(local, encoding="utf-8")


if __name__ == "__main__":
    main()
