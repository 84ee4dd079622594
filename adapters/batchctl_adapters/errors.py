"""The only exceptions an adapter raises. The adapter classifies, `waiting.py` waits, the engine decides.

Each message is shown to the user as it is: it says what happened and what to do, and never holds a key.
"""

from __future__ import annotations


class AdapterError(Exception):
    """Base of all; `code` is the provider's own word for it where there is one."""

    def __init__(self, message: str, *, code: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status


class Transient(AdapterError):
    """Worth trying again: the network, 429, 5xx, a file that is not visible yet. Says nothing about the batch.

    `retry_after` is in seconds, as the provider asked; None where it did not ask.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, code: str | None = None, status: int | None = None
    ) -> None:
        super().__init__(message, code=code, status=status)
        self.retry_after = retry_after


class Permanent(AdapterError):
    """The provider refused, and would refuse the same again (400, 404 model, 413, 422 with its own error body)."""


class SubmitUnknown(AdapterError):
    """Create was sent and no trustworthy answer came: the batch may or may not exist (DESIGN: in doubt)."""


class QueueFull(Transient):
    """The account's queue of enqueued tokens or requests is full: wait for other batches, nothing is wrong."""


class Billing(AdapterError):
    """Out of credit or over a spend limit: the account has to be paid before anything more is sent."""


class Auth(AdapterError):
    """401 or 403: the key is missing, wrong, or not allowed. Nothing is retried until it is mended."""


class RemoteGone(AdapterError):
    """404 for something that this key once created: a batch, a file or results past their retention."""
