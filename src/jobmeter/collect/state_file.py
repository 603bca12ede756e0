"""Values that outlive the program, in JSON files. Stored counters of a job do not fall after a restart."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from jobmeter.collect.base import Owner
from jobmeter.collect.clock import read_elapsed_ns
from jobmeter.collect.files import read_boot_id

_log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFile(Generic[T]):
    """File of one value; without ``path`` nothing is stored. Not for concurrent changes.

    An unreadable file is logged with ``unreadable``, a format of the path and the error, if given. An unwritable file
    is logged at ``level``.
    """

    def __init__(
        self, path: Path | None, decoder: msgspec.json.Decoder[T], unreadable: str = "", level: int = logging.DEBUG
    ) -> None:
        self.path = path
        self._decoder = decoder
        self._unreadable = unreadable
        self._level = level
        self._written = b""

    def load(self) -> T | None:
        """Return the stored value; None if it is missing or unreadable."""
        try:
            return self._decoder.decode(self.path.read_bytes()) if self.path else None
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            if self._unreadable:
                _log.warning(self._unreadable, self.path, error)
            return None

    def read_written_ns(self) -> int | None:
        """Return the last change of the file, in nanoseconds since the epoch; None if it is missing."""
        try:
            return self.path.stat().st_mtime_ns if self.path else None
        except OSError:
            return None

    def save(self, value: T) -> None:
        """Write the value if it has changed; a failure is logged."""
        try:
            self.write(value)
        except OSError as error:
            _log.log(self._level, "%s cannot be written: %s", self.path, error)

    def write(self, value: T) -> None:
        """Write the value if it has changed, replacing the file atomically. Raises OSError."""
        if self.path is None:
            return
        body = msgspec.json.encode(value)
        if body == self._written:
            return
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(body)
        fresh.replace(self.path)
        self._written = body


Reached = dict[Owner, dict[str, float]]
"""Values of counters by name, for each replica."""


class _Entry(msgspec.Struct):
    job: str
    replica: str
    attempt: int
    reached: dict[str, float]


class _File(msgspec.Struct):
    """``elapsed_ms`` is the time of writing, in milliseconds since the boot with the id ``boot``."""

    boot: str
    elapsed_ms: int
    entries: list[_Entry]


class CounterFile:
    """Stores counters in a file that is replaced atomically. A failure to read or write it affects nothing else.

    ``saved_ms`` is the time of the loaded file, in milliseconds since the boot; None if unknown.
    """

    def __init__(self, path: Path | None) -> None:
        self.saved_ms: int | None = None
        unreadable = "the counters of the last start cannot be read from %s: %s"
        self._file = StateFile(path, msgspec.json.Decoder(_File), unreadable)
        self._last: Mapping[Owner, Mapping[str, float]] = {}

    def load(self) -> Reached:
        """Return the saved counters; empty without any, or if the machine was restarted since."""
        found = self._file.load()
        if found is None or found.boot != read_boot_id():
            return {}
        self.saved_ms = found.elapsed_ms
        return {Owner(one.job, one.replica, one.attempt): one.reached for one in found.entries}

    def save(self, reached: Mapping[Owner, Mapping[str, float]]) -> None:
        """Save the counters if they have changed."""
        if self._file.path is None or reached == self._last:
            return
        self._last = {owner: dict(counts) for owner, counts in reached.items()}
        entries = [_Entry(owner.job, owner.replica, owner.attempt, dict(counts)) for owner, counts in reached.items()]
        self._file.save(_File(read_boot_id(), read_elapsed_ns() // 1_000_000, entries))
