"""What counters had reached when the agent last ran: no counter of a job falls because the agent was restarted."""

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jobmeter.collect.base import Owner

_log = logging.getLogger(__name__)

Reached = dict[Owner, dict[str, float]]
"""By replica: what each counter had reached, by its name."""


class _Entry(msgspec.Struct):
    job: str
    replica: str
    attempt: int
    reached: dict[str, float]


class Keeper:
    """Keeps the counters in a file, replaced as a whole. A file that cannot be read or written costs nothing else."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._last: Mapping[Owner, Mapping[str, float]] = {}

    def load(self) -> Reached:
        """What was saved last; empty when nothing was."""
        if self._path is None:
            return {}
        try:
            entries = msgspec.json.decode(self._path.read_bytes(), type=list[_Entry])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("the counters of the last start cannot be read from %s: %s", self._path, error)
            return {}
        return {Owner(entry.job, entry.replica, entry.attempt): entry.reached for entry in entries}

    def save(self, reached: Mapping[Owner, Mapping[str, float]]) -> None:
        """Save what the counters have reached, when that has changed."""
        if self._path is None or reached == self._last:
            return
        self._last = {owner: dict(counts) for owner, counts in reached.items()}
        entries = [_Entry(owner.job, owner.replica, owner.attempt, dict(counts)) for owner, counts in reached.items()]
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_bytes(msgspec.json.encode(entries))
            fresh.replace(self._path)
        except OSError as error:
            _log.debug("the counters cannot be saved: %s", error)
