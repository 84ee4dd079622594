from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from batchctl_adapters.keys import Secret, is_loopback
from batchctl_adapters.openai import OpenAIAdapter
from batchctl_adapters.registry import ProfileError, load_profile, open_adapter, profile_names

BUILT_IN = ["demo", "openai", "rehearsal"]


def test_built_in_profiles_load() -> None:
    assert profile_names({}) == BUILT_IN
    for name in BUILT_IN:
        profile = load_profile(name, {})
        assert profile.name == profile.account_name == name
        open_adapter(profile, Secret("k")).close()


def test_rehearsals_stay_on_this_machine_and_only_there_is_a_clock_followed() -> None:
    for name in ("rehearsal", "demo"):
        profile = load_profile(name, {})
        assert is_loopback(profile.base_url) and profile.key_env is None
        assert (profile.create_limit_s, profile.grace_s) == (5, 1)
    assert load_profile("rehearsal", {}).follow_clock and load_profile("rehearsal", {}).poll_interval_s == 60
    assert not load_profile("demo", {}).follow_clock and load_profile("demo", {}).poll_interval_s == 1
    openai = load_profile("openai", {})
    assert not openai.follow_clock and openai.key_env == "OPENAI_API_KEY" and openai.max_bytes == 190_000_000


def test_a_profile_extends_another() -> None:
    user: dict[str, dict[str, Any]] = {
        "team": {"extends": "openai", "key_env": "TEAM_KEY", "models": {"big": "gpt-x"}},
        "night": {"extends": "team", "poll_interval_s": 300},
    }
    night = load_profile("night", user)
    assert (night.name, night.key_env, night.poll_interval_s) == ("night", "TEAM_KEY", 300)
    assert night.base_url == load_profile("openai", {}).base_url
    assert night.models == {**load_profile("openai", {}).models, "big": "gpt-x"}
    assert profile_names(user) == sorted([*BUILT_IN, "team", "night"])


def test_a_users_profile_with_a_built_in_name_changes_that_one() -> None:
    user = {"openai": {"key_env": "MY_KEY"}, "mine": {"extends": "openai"}}
    assert load_profile("openai", user).key_env == "MY_KEY"
    assert load_profile("openai", user).base_url == load_profile("openai", {}).base_url
    assert load_profile("mine", user).key_env == "MY_KEY"
    assert load_profile("openai", {"openai": {"extends": "openai", "key_env": "K"}}).key_env == "K"


def test_a_profile_of_its_own() -> None:
    assert load_profile("x", {"x": {"base_url": "http://localhost/v1"}}).adapter == "openai"


@pytest.mark.parametrize(
    ("name", "user", "message"),
    [
        ("opena", {}, r"no profile is called 'opena'; did you mean 'openai'\? There are: demo, openai, rehearsal"),
        ("a", {"a": {"extends": "opnai"}}, r"f\.toml: profile a: extends: no profile is called 'opnai'; did you mean"),
        ("a", {"a": {"extends": "b"}, "b": {"extends": "a"}}, r"circle: a -> b -> a"),
        ("a", {"a": {"extends": 5}}, r"f\.toml: profile a: extends: must be"),
        (
            "a",
            {"a": {"max_request": 5}},
            r"f\.toml: profile a: max_request: unknown setting; did you mean 'max_requests'",
        ),
        ("a", {"a": {"base_url": "https://x.com/v1", "follow_clock": True}}, r"f\.toml: profile a: follow_clock: only"),
        ("a", {"a": {"completion_window": "5m"}}, r"f\.toml: profile a: completion_window: '5m' is not like '24h'"),
        ("a", {"a": {"max_bytes": "big"}}, r"f\.toml: profile a: max_bytes: .*'big'"),
    ],
)
def test_errors_name_file_profile_and_key(name: str, user: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        load_profile(name, user, source="f.toml")


def test_case_10_the_window_in_seconds_follows_from_the_providers_word() -> None:
    assert load_profile("openai", {}).window_s == 86_400
    assert load_profile("a", {"a": {"completion_window": "14d"}}).window_s == 14 * 86_400
    assert load_profile("a", {"a": {"completion_window": "24h", "window_s": 5}}).window_s == 5


def test_an_unknown_adapter_is_named() -> None:
    profile = load_profile("x", {"x": {"adapter": "opena"}})
    with pytest.raises(ProfileError, match="'opena' is not installed; did you mean 'openai'"):
        open_adapter(profile, Secret("k"))
    adapter = open_adapter(load_profile("openai", {}), Secret("k"))
    assert isinstance(adapter, OpenAIAdapter)


def test_the_sdk_is_loaded_only_when_something_is_sent() -> None:
    code = (
        "import sys; from batchctl_adapters.registry import *; from batchctl_adapters.keys import Secret;"
        "a = open_adapter(load_profile('openai', {}), Secret('k')); a.capabilities; a.parse(b'{\"custom_id\":\"a\"}');"
        "print(sorted({'openai', 'httpx2', 'tenacity'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
