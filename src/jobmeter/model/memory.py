"""How what reads a request accounts for the memory that it needs."""

from collections.abc import Callable

Take = Callable[[int], None]
"""Accounts for bytes that are about to be needed. May raise ThrottledError or LimitExceededError."""


def unlimited(size: int) -> None:
    """Memory that nobody accounts for."""
