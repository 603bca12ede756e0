"""Out-of-memory kills on a node: one event each, from the kernel's line or from its counter."""

from msgspec.structs import replace

from jobmeter.collect.base import Place, RecordSource, Samples
from jobmeter.collect.kernel import OOM_KILLING
from jobmeter.model.event import Level
from jobmeter.model.record import Records

_COUNTER = "node.memory.oom.kills"


class NodeKills:
    """See ``RecordSource``: what ``kernel`` gives, and kills that the node's counter shows and no line of the kernel.

    ``watch`` gets each tick's samples before ``records`` reads the lines. So the count of a kill comes before its line,
    or, where it happened between the two, in the next tick.
    """

    def __init__(self, place: Place, kernel: RecordSource) -> None:
        self._place = place
        self._kernel = kernel
        self._value: float | None = None
        self._time = 0
        self._grown = 0
        self._ahead = 0

    def watch(self, samples: Samples) -> None:
        """Read the counter. Its first reading is no kill, and counts those whose lines came before it."""
        for sample in samples:
            if sample.series.metric != _COUNTER:
                continue
            before, self._value, self._time = self._value, sample.value, sample.time_ms
            grown = 0 if before is None else max(0, int(sample.value - before))
            self._grown, self._ahead = max(0, grown - self._ahead), 0

    def records(self, now_ms: int) -> Records:
        """See ``RecordSource.records``: an event for each line, and one for the kills without a line."""
        events = self._kernel.records(now_ms).events
        grown, self._grown = self._grown, 0
        lines = [place for place, event in enumerate(events) if event.reason == OOM_KILLING]
        for place in lines[:grown]:
            message = f"{events[place].message} - the node's counter of processes killed for memory grew, too."
            events[place] = replace(events[place], message=message)
        self._ahead += max(0, len(lines) - grown)
        if grown > len(lines):
            text = "processes were killed because memory ran out; the kernel's log shows no line of it."
            message = f"{grown - len(lines)} {text}"
            events.append(self._place.event(self._time, Level.ERROR, "SystemOOM", message))
        return Records(events=events)
