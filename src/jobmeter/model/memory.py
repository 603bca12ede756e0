"""How decoders of requests account for the memory that they need."""

from collections.abc import Callable

Take = Callable[[int], None]
"""Accounts for bytes that are about to be needed. May raise ThrottledError or LimitExceededError."""


def unlimited(size: int) -> None:
    """Memory that is not accounted for."""
