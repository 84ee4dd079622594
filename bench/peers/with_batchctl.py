"""batchctl's way, through its command line: with_batchctl.py ROWS OUT BASE_URL WORK. Submit, wait, results."""

import os
import subprocess
import sys
from pathlib import Path

TASK = """\
model: m
system: Answer positive or negative.
prompt: "{{ text }}"
max_output_tokens: 8
"""
SETTINGS = """\
[profiles.peers]
extends = "openai"
base_url = "%s"
poll_interval_s = 1
"""


def main(rows: str, out: str, url: str, work: str) -> None:
    folder = Path(work)
    (folder / "task.yaml").write_text(TASK, encoding="utf-8")
    (folder / "batchctl.toml").write_text(SETTINGS % url, encoding="utf-8")
    command = [sys.executable, "-m", "batchctl"]
    env = {**os.environ, "BATCHCTL_HOME": str(folder / "home"), "OPENAI_API_KEY": "sk-none"}

    def run(*words: str) -> str:
        done = subprocess.run([*command, *words], cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    job = run("submit", "task.yaml", rows, "--provider", "peers").split()[0]
    run("wait", job)
    run("results", job, "-o", out)


if __name__ == "__main__":
    main(*sys.argv[1:])
