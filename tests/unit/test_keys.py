from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from batchctl_adapters.errors import Auth
from batchctl_adapters.keys import Secret, find_key, is_loopback
from batchctl_adapters.profile import Profile

OPENAI = Profile(name="openai", key_env="OPENAI_API_KEY", base_url="https://api.openai.com/v1")


def test_a_secret_prints_nothing() -> None:
    secret = Secret("sk-abcdefgh")
    assert {str(secret), repr(secret), f"{secret}", f"{secret!r:>12}", "%s" % secret} == {"**redacted**"}  # noqa: UP031
    assert "abcdefgh" not in repr([secret]) + repr({"key": secret})
    assert secret.reveal() == "sk-abcdefgh"
    assert secret and not Secret("")
    for copier in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            copier(secret)


def test_case_76_texts_are_scrubbed_of_the_key_and_of_parts_of_keys() -> None:
    secret = Secret("my-own-key")
    assert secret.scrub("bad key my-own-key, sk-abc*****wxyz!") == "bad key **redacted**, **redacted**!"
    assert Secret("").scrub("task-force sk-1") == "task-force sk-1"


def test_the_environment_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\n")
    file.chmod(0o600)
    assert find_key(OPENAI, {"OPENAI_API_KEY": " from-env\n"}, file).reveal() == "from-env"
    assert find_key(OPENAI, {"OPENAI_API_KEY": ""}, file).reveal() == "from-file"
    assert find_key(OPENAI, {}, file).reveal() == "from-file"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_file_others_may_read_is_refused_with_the_fix(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("the-key")
    file.chmod(mode)
    with pytest.raises(Auth, match=f"mode {mode:03o}.*chmod 600 {file}") as caught:
        find_key(OPENAI, {}, file)
    assert "the-key" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"two words", b"a\nb", b"k\xc3\xa9y", b"\xff", b"k\x00y"])
def test_a_file_that_holds_no_key(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(Auth, match=str(file)):
        find_key(OPENAI, {}, file)


def test_a_missing_key_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(Auth, match=r"openai.*set OPENAI_API_KEY or write the key to .*key and run: chmod 600"):
        find_key(OPENAI, {}, tmp_path / "key")
    with pytest.raises(Auth, match="key_env"):
        find_key(Profile(name="x", base_url="https://example.com/v1"), {})
    with pytest.raises(Auth, match="set OPENAI_API_KEY"):
        find_key(Profile(name="x", base_url="http://localhost/v1", key_env="OPENAI_API_KEY"), {})


def test_a_rehearsal_on_this_machine_needs_no_key() -> None:
    assert find_key(Profile(name="r", base_url="http://127.0.0.1:8089/v1"), {}).reveal() == ""


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://localhost:8089", True),
        ("http://LOCALHOST", True),
        ("http://[::1]:80/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://127.0.0.1.evil.com/v1", False),
        ("http://localhost.evil.com/v1", False),
        ("http://10.0.0.1/v1", False),
        (None, False),
        ("", False),
    ],
)
def test_loopback(url: str | None, local: bool) -> None:
    assert is_loopback(url) is local
