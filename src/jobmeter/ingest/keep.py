"""How long each project keeps its samples, asked of the registry once a second at most."""

import threading

from jobmeter.errors import NotAtOnceError, UnavailableError
from jobmeter.model.retention import Retention
from jobmeter.model.time import Clock
from jobmeter.registry.base import Registry

_SECONDS = 1.0
_MOST = 10_000


class Retentions:
    """What the registry says, up to a second late. Safe for several threads."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Retention]] = {}

    def of(self, project: str) -> Retention:
        """That of a project; what it was when the registry was asked last, where it cannot be asked now."""
        now = self._clock.monotonic()
        found = self._fresh(project, now)
        if found is not None:
            return found
        try:
            retention = self._registry.retention(project)
        except UnavailableError:
            with self._lock:
                last = self._known.get(project)
            if last is None:
                raise
            retention = last[1]
        with self._lock:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[project] = now, retention
        return retention

    def known(self, project: str) -> Retention:
        """The same. NotAtOnceError where the registry would have to be asked."""
        found = self._fresh(project, self._clock.monotonic())
        if found is None:
            raise NotAtOnceError
        return found

    def _fresh(self, project: str, now: float) -> Retention | None:
        with self._lock:
            found = self._known.get(project)
        return found[1] if found is not None and 0 <= now - found[0] < _SECONDS else None
