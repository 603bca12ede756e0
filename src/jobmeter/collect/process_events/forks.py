"""Count processes that ended between two scans by the kernel's count of forks, for kernels without events."""

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
        """Read the count before the processes are listed."""
        self._now = (files.read_pairs(f"{self._proc}/stat") or {}).get(b"processes")

    def count_unseen(self, pids: Collection[int]) -> int:
        """Return an upper bound of processes that began since the last scan and ended: threads are counted too."""
        before, self._forks = self._forks, self._now
        listed, self._listed = self._listed, frozenset(pids)
        if before is None or self._forks is None:
            return 0
        return max(self._forks - before - len(self._listed.difference(listed)), 0)
