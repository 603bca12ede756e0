"""Work that marks jobs and nodes which have been silent for too long."""

import logging
from abc import abstractmethod
from typing import Protocol

from jobmeter.model.time import SECOND, Clock
from jobmeter.registry.base import Registry

_log = logging.getLogger("jobmeter.server")
_LONGEST_INTERVAL = 10.0


class LeaseRegistry(Protocol):
    """Where lost jobs are marked; see ``Registry``."""

    def mark_lost(self, now_ms: int, heard_since_ms: int, least_ms: int) -> int:
        """See ``Registry.mark_lost``."""
        ...


class _SilenceCheck:
    """See ``Work``. Marks what was silent for ``least_seconds`` while this server could hear it.

    Silence before the server's start does not count. Nor does silence before a round that failed, or during a time in
    which the server did not run (a suspended machine, a clock that jumped).
    """

    def __init__(self, clock: Clock, least_seconds: int) -> None:
        self.interval = min(least_seconds / 4, _LONGEST_INTERVAL)
        self._clock = clock
        self._least_ms = least_seconds * SECOND
        self._since_ms: int | None = None
        self._last_ms = 0

    def round(self) -> None:
        """Mark what is due."""
        now_ms = self._clock.now_ms()
        since_ms, last_ms, self._since_ms, self._last_ms = self._since_ms, self._last_ms, None, now_ms
        if since_ms is None or not last_ms <= now_ms < last_ms + self._least_ms:
            since_ms = now_ms
        self._mark(now_ms, since_ms, self._least_ms)
        self._since_ms = since_ms

    @abstractmethod
    def _mark(self, now_ms: int, since_ms: int, least_ms: int) -> None:
        """Mark what was silent for ``least_ms``, counted from ``since_ms`` at the earliest."""


class Losses(_SilenceCheck):
    """See ``Work``. Marks the jobs lost whose runs stopped renewing their leases."""

    name = "losses"

    def __init__(self, registry: LeaseRegistry, clock: Clock, least_seconds: int) -> None:
        super().__init__(clock, least_seconds)
        self._registry = registry

    def _mark(self, now_ms: int, since_ms: int, least_ms: int) -> None:
        marked = self._registry.mark_lost(now_ms, since_ms, least_ms)
        if marked:
            _log.warning("%d jobs are marked lost: their runs stopped renewing their leases", marked)


class NodeWatch(_SilenceCheck):
    """See ``Work``. Records events of nodes that stopped sending, and of those that send again."""

    name = "nodes"

    def __init__(self, registry: Registry, clock: Clock, least_seconds: int) -> None:
        super().__init__(clock, least_seconds)
        self._registry = registry

    def _mark(self, now_ms: int, since_ms: int, least_ms: int) -> None:
        marked = self._registry.mark_nodes(now_ms, since_ms, least_ms)
        if marked:
            _log.info("%d events of nodes that stopped or resumed sending were recorded", marked)
