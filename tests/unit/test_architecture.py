"""A contract that cannot fail holds nothing: each import contract is broken in a copy, and has to say so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "batchctl": "batchctl",
    "batchctl_adapters": "adapters/batchctl_adapters",
    "batchctl_store": "store/batchctl_store",
}
VIOLATIONS = [
    ("batchctl_adapters.errors", "batchctl_store.records"),
    ("batchctl_store.records", "batchctl_adapters.errors"),
    ("batchctl_store.records", "batchctl.errors"),
    ("batchctl.engine.tick", "batchctl.cli"),
    ("batchctl.engine.tick", "batchctl_adapters.registry"),
    ("batchctl.merge", "batchctl_adapters.openai"),
    ("batchctl.engine.tick", "batchctl_store.repository"),
    ("batchctl.engine.tick", "batchctl.composition"),
    ("batchctl.engine.planner", "time"),
    ("batchctl.engine.planner", "sqlite3"),
    ("batchctl.executors.base", "openai"),
    ("batchctl_adapters.registry", "openai"),
    ("batchctl_adapters.registry", "tenacity"),
    ("batchctl.engine.tick", "tenacity"),
    ("batchctl.engine.tick", "sqlalchemy"),
    ("batchctl.engine.tick", "click"),
    ("batchctl.api", "click"),
    ("batchctl.api", "batchctl.cli"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says of a copy of the packages in which every violation stands."""
    copy = tmp_path_factory.mktemp("house")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for name, folder in FOLDERS.items():
        shutil.copytree(ROOT / folder, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for importer, imported in VIOLATIONS:
        with copy.joinpath(*importer.split(".")).with_suffix(".py").open("a", encoding="utf-8") as module:
            module.write(f"\nimport {imported}\n")
    linter = str(Path(sys.executable).with_name("lint-imports"))
    env = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "400"}
    done = subprocess.run([linter, "--no-cache"], cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("importer", "imported"), VIOLATIONS)
def test_a_forbidden_import_is_reported(report: str, importer: str, imported: str) -> None:
    assert f"{importer} -> {imported} (l." in report


def test_every_contract_can_be_broken(report: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        assert f"{contract['name']} BROKEN" in report
