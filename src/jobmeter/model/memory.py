"""Memory accounting for decoders of requests."""

from collections.abc import Callable

Take = Callable[[int], None]
"""Function that reserves bytes before their use. May raise ThrottledError or LimitExceededError."""


def reserve_unlimited(size: int) -> None:
    """Reserve without accounting."""
