"""Which series jobs have, for those that were asked for: finding them again costs a question to the engine."""

import threading
from collections.abc import Hashable, Iterable, Sequence

from jobmeter.model.series import Series

_MOST_CHANGED = 100_000


class Lists:
    """Lists of series by what was asked, each kept until one of its jobs gets a new series. Safe from any thread."""

    def __init__(self, most: int) -> None:
        """``most``: how many lists are kept."""
        self._most = most
        self._lock = threading.Lock()
        self._lists: dict[Hashable, tuple[Sequence[int], list[Series]]] = {}
        self._names: dict[int, set[Hashable]] = {}
        self._moment = 0
        self._oldest = 0
        self._changed: dict[int, int] = {}

    def get(self, name: Hashable) -> list[Series] | None:
        """The list of that name, None where it is not known."""
        known = self._lists.get(name)
        return None if known is None else known[1]

    @property
    def moment(self) -> int:
        """What ``put`` wants to know of the moment before a list was read."""
        return self._moment

    def put(self, name: Hashable, jobs: Sequence[int], series: list[Series], moment: int) -> None:
        """Keep the list of series of these jobs, unless one of them got another one since that moment."""
        with self._lock:
            if moment < self._oldest or any(self._changed.get(job, 0) > moment for job in jobs):
                return
            if len(self._lists) >= self._most:
                self._lists.clear()
                self._names.clear()
            self._lists[name] = jobs, series
            for job in jobs:
                self._names.setdefault(job, set()).add(name)

    def forget(self, jobs: Iterable[int]) -> None:
        """These jobs got new series, or lost some."""
        with self._lock:
            self._moment += 1
            for job in jobs:
                self._changed[job] = self._moment
                for name in self._names.pop(job, ()):
                    self._drop(name)
            if len(self._changed) > _MOST_CHANGED:
                self._changed.clear()
                self._oldest = self._moment

    def clear(self) -> None:
        """Any job may have got new series."""
        with self._lock:
            self._moment += 1
            self._oldest = self._moment
            self._changed.clear()
            self._lists.clear()
            self._names.clear()

    def _drop(self, name: Hashable) -> None:
        jobs, _ = self._lists.pop(name, ((), []))
        for other in jobs:
            names = self._names.get(other)
            if names is not None:
                names.discard(name)
                if not names:
                    del self._names[other]
