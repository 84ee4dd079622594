"""Embedding vectors as text: base64 of little-endian float32, one word a vector, a space between them.

A vector of 1,536 numbers takes 8 KiB like this; as JSON it takes 20 to 35. float32 is what models compute in, so
nothing of theirs is lost.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable
from math import isfinite


def pack(vectors: Iterable[Iterable[float] | str]) -> str:
    """The vectors, each given as numbers or already as base64 of float32 (`encoding_format: base64`), as one text.

    Raises ValueError where one is empty, holds what is no finite float32, or is no base64 of whole float32s.
    """
    return " ".join([_word(vector) for vector in vectors])


def unpack(text: str) -> list[array[float]]:
    """The vectors of a packed text, as arrays of float32. Raises ValueError where it is none."""
    return [_array(word) for word in text.split(" ")]


def _word(vector: Iterable[float] | str) -> str:
    if isinstance(vector, str):
        return b64encode(_bytes(_array(vector))).decode("ascii")
    try:
        numbers = array("f", vector)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"not a vector of numbers: {error}") from None
    _check(numbers)
    return b64encode(_bytes(numbers)).decode("ascii")


def _array(word: str) -> array[float]:
    numbers = array("f")
    try:
        numbers.frombytes(b64decode(word, validate=True))
    except ValueError:  # binascii.Error, or no whole number of float32s
        raise ValueError("not base64 of float32 numbers") from None
    if sys.byteorder == "big":
        numbers.byteswap()
    _check(numbers)
    return numbers


def _bytes(numbers: array[float]) -> bytes:
    if sys.byteorder == "big":
        numbers = array("f", numbers)
        numbers.byteswap()
    return numbers.tobytes()


def _check(numbers: array[float]) -> None:
    if not numbers:
        raise ValueError("an empty vector")
    if not isfinite(sum(numbers)):  # of float32s no sum of doubles overflows
        raise ValueError("a number that no float32 holds")
