"""The token heuristic: never far below what tokenizers count, and cheap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchctl.engine.tokens import tokens_of, tokens_of_messages


def test_prose_code_and_cjk() -> None:
    assert tokens_of("") == 0
    assert tokens_of("a") == 1
    assert tokens_of("word " * 100) == 125
    assert tokens_of('{"key":12,"other":[3,4]}' * 9) == 80
    assert tokens_of("日本語の文章です") == 8
    assert tokens_of("мир" * 10) == 15


def test_messages_cost_a_little_more_than_their_texts() -> None:
    messages = [{"role": "system", "content": "word " * 4}, {"role": "user", "content": "word"}]
    assert tokens_of_messages(messages) == 3 + (4 + 5) + (4 + 1)


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens_by_much(left: str, right: str) -> None:
    whole, parts = tokens_of(left + right), tokens_of(left) + tokens_of(right)
    assert whole <= len(left + right)
    assert whole >= parts * 0.6 - 2
