"""Vectors as text: nothing of a float32 is lost, and what is no vector is refused."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl_adapters.vectors import pack, unpack

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = st.lists(st.lists(FLOAT32, min_size=1, max_size=40), min_size=1, max_size=5)


@given(vectors=VECTORS)
def test_every_float32_comes_back(vectors: list[list[float]]) -> None:
    text = pack(vectors)
    assert [list(vector) for vector in unpack(text)] == vectors
    assert text.isascii() and text.count(" ") == len(vectors) - 1


@given(vectors=VECTORS)
def test_base64_of_the_provider_is_the_same_vector(vectors: list[list[float]]) -> None:
    words = [base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() for vector in vectors]
    assert pack(words) == pack(vectors) == " ".join(words)


def test_a_usual_vector_takes_eight_kibibytes() -> None:
    assert len(pack([[0.123456789] * 1536])) == 8 * 1024


@pytest.mark.parametrize(
    "odd", [[], ["a"], [None], None, 1.5, "", "AAA", "AAAAAAA=", "!!!!!!!!", [1e39], [[0.5]], {"a": 1}, "AACAfwAAgH8="]
)
def test_what_is_no_vector_is_refused(odd: Any) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        pack([[0.5], odd])
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("text", ["", "x", "AAAAAA== ", " AAAAAA=="])
def test_a_text_that_holds_no_vectors_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|empty"):
        unpack(text)
