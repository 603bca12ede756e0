"""Counts of calls by operation, account and month."""

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of an operation that an account made in a month.

    ``month`` is like ``2026-11``; ``api`` the name of a dialect, ``native`` for our own. ``calls`` counts every call
    with a valid credential, ``failed`` those answered with a status of 400 or more.
    """

    month: str
    account: str
    api: str
    operation: str
    calls: int
    failed: int
