"""Whether a task can be sent where it is meant to go, told before a row is read: errors refuse, the rest is said."""

from __future__ import annotations

import os
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path

from batchctl.errors import TaskError
from batchctl.render import Renderer, model_of
from batchctl.task import Task
from batchctl.yamltree import Place, read_tree
from batchctl_adapters.base import BatchAdapter, Finding
from batchctl_adapters.profile import Profile


def lint(task: Task, profile: Profile, adapter: BatchAdapter) -> list[Finding]:
    """All findings, errors first. `adapter` is the profile's: it knows what its provider refuses.

    Ready-made requests say each for themselves what they ask: they are looked at as they are read.
    """
    if task.samples == "requests":
        return []
    has = sorted(adapter.capabilities.kinds)
    if task.kind not in has:
        what = f"profile {profile.name} has no endpoint for {task.kind}, it has: {', '.join(has)}"
        return [Finding("kind", what, f"choose another profile, or give this one endpoints.{task.kind}")]
    found = adapter.lint(Renderer(task, model_of(task, profile)).sample())
    return sorted(found, key=lambda finding: finding.doubtful)


def refuse(findings: Iterable[Finding], path: str | os.PathLike[str] | None = None) -> list[str]:
    """The warnings, as sentences. Raises TaskError with the errors, where there are any; `path` is the task's file."""
    errors, warnings = split(findings, path)
    if errors:
        raise TaskError(errors)
    return warnings


def split(findings: Iterable[Finding], path: str | os.PathLike[str] | None = None) -> tuple[list[str], list[str]]:
    """Errors and warnings as sentences, `FILE:LINE: KEY: what; fix` where the task's file is known."""
    findings = list(findings)
    tree = read_tree(Path(path).read_text("utf-8-sig")) if path is not None and findings else None
    spots = [0 if tree is None else tree.spot(_place(finding)).line for finding in findings]
    errors: list[str] = []
    warnings: list[str] = []
    for line, finding in sorted(zip(spots, findings, strict=True), key=itemgetter(0)):
        where = "" if tree is None else f"{path}:{line}: "
        (warnings if finding.doubtful else errors).append(f"{where}{finding}")
    return errors, warnings


def _place(finding: Finding) -> Place:
    return tuple(finding.place.split("."))
