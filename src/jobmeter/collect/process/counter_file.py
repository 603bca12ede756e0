"""Counter values across a restart of the agent, so that no counter of a job falls."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from jobmeter.collect.base import Owner
from jobmeter.collect.clock import elapsed_ns
from jobmeter.collect.files import boot_id
from jobmeter.collect.state_file import StateFile

Reached = dict[Owner, dict[str, float]]
"""Values of counters by name, for each replica."""


class _Entry(msgspec.Struct):
    job: str
    replica: str
    attempt: int
    reached: dict[str, float]


class _File(msgspec.Struct):
    """``elapsed_ms`` is the time of writing, in milliseconds since the start of the machine ``boot``."""

    boot: str
    elapsed_ms: int
    entries: list[_Entry]


class CounterFile:
    """Stores the counters in a file that is replaced atomically. An unreadable or unwritable file affects nothing else.

    ``saved_ms`` is the time of the loaded file, in milliseconds since the machine started; None if unknown. Processes
    that started later are not included.
    """

    def __init__(self, path: Path | None) -> None:
        self.saved_ms: int | None = None
        unreadable = "the counters of the last start cannot be read from %s: %s"
        self._file = StateFile(path, msgspec.json.Decoder(_File | list[_Entry]), unreadable)
        self._last: Mapping[Owner, Mapping[str, float]] = {}

    def load(self) -> Reached:
        """Return the saved counters; empty without any, or if the machine has been restarted since."""
        entries: list[_Entry] = []
        found = self._file.load()
        if isinstance(found, list):
            entries = found  # the format without the time
        elif found is not None and found.boot == boot_id():
            entries, self.saved_ms = found.entries, found.elapsed_ms
        return {Owner(entry.job, entry.replica, entry.attempt): entry.reached for entry in entries}

    def save(self, reached: Mapping[Owner, Mapping[str, float]]) -> None:
        """Save the counters if they have changed."""
        if self._file.path is None or reached == self._last:
            return
        self._last = {owner: dict(counts) for owner, counts in reached.items()}
        entries = [_Entry(owner.job, owner.replica, owner.attempt, dict(counts)) for owner, counts in reached.items()]
        self._file.save(_File(boot_id(), elapsed_ns() // 1_000_000, entries))
