"""Pages of an answer. A page token is the position of the page's first member."""

from collections.abc import Sequence
from typing import Any, TypeVar

from jobmeter.errors import InvalidRequestError

T = TypeVar("T")
MOST_EXPERIMENTS, MOST_RUNS, MOST_RESULTS, MOST_PAGE = 100, 50_000, 50_000, 1_000
"""Limits of a search: experiments, runs read, ``max_results``, and runs in one answer."""
MOST_HISTORY = 25_000
"""Largest number of values in one answer."""


def cut_page(members: Sequence[T], token: str, size: int) -> tuple[Sequence[T], dict[str, Any]]:
    """Return the members of a page, and the field with the next page's token if there is a next page.

    Raises InvalidRequestError for a token that is not from an answer.
    """
    first = _position(token)
    more = {"next_page_token": str(first + size)} if len(members) > first + size else {}
    return members[first : first + size], more


def check_size(size: int, most: int) -> int:
    """Return ``max_results``. Raises InvalidRequestError beyond 1 to ``most``."""
    if not 1 <= size <= most:
        raise InvalidRequestError(f"max_results must be from 1 to {most}", "max_results")
    return size


def _position(token: str) -> int:
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        raise InvalidRequestError("Invalid page token: take it from next_page_token of an answer.", "page_token")
    return int(token)
