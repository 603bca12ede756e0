"""Counts what began and ended between two scans by the kernel's count of forks, where its events are not read."""

from collections.abc import Collection

from jobmeter.collect import files


class ForkCount:
    """Compares forks with the processes that scans find. For one thread."""

    def __init__(self, proc_root: str = "/proc") -> None:
        self._proc = proc_root
        self._forks: int | None = None
        self._now: int | None = None
        self._listed: Collection[int] = frozenset()

    def begin_scan(self) -> None:
        """Call this before the processes are listed."""
        self._now = (files.read_pairs(f"{self._proc}/stat") or {}).get(b"processes")

    def unseen(self, pids: Collection[int]) -> int:
        """Return how many began since the last scan and are gone, at most: the kernel counts threads as well."""
        before, self._forks = self._forks, self._now
        listed, self._listed = self._listed, frozenset(pids)
        if before is None or self._forks is None:
            return 0
        return max(self._forks - before - len(self._listed.difference(listed)), 0)
