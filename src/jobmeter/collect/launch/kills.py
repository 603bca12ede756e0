"""One out-of-memory kill is one event: that of the replica's end where it ended by it, else that of the counter."""

from collections.abc import Callable

from jobmeter.collect.base import Samples
from jobmeter.collect.incidents import OOM_KILLED, IncidentWatch
from jobmeter.model.record import EventRecord, Records


class RunIncidents:
    """See ``RecordSource``: the incidents of a run. A kill waits for a tick, in which its replica may turn out ended.

    ``killed`` says of a replica whether it has ended by SIGKILL. For the thread of the loop; ``finish`` comes after.
    """

    def __init__(self, killed: Callable[[str], bool]) -> None:
        self._incidents = IncidentWatch()
        self._killed = killed
        self._waiting: list[EventRecord] = []

    def watch(self, samples: Samples) -> None:
        """See ``IncidentWatch.watch``."""
        self._incidents.watch(samples)

    def records(self, now_ms: int) -> Records:
        """See ``RecordSource.records``."""
        fresh = self._incidents.records(now_ms).events
        kills = [one for one in fresh if one.reason == OOM_KILLED and one.replica]
        due = [one for one in self._waiting if not self._killed(one.replica)]
        self._waiting = [*(one for one in self._waiting if self._killed(one.replica)), *kills]
        return Records(events=[*due, *(one for one in fresh if one not in kills)])

    def finish(self, is_reported: Callable[[str], bool]) -> Records:
        """The kills that still wait, without those of replicas whose ends report them."""
        left, self._waiting = self._waiting, []
        return Records(events=[one for one in left if not is_reported(one.replica)])
