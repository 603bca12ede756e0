"""Merges reports to incidents: a log line, an event and a status may report one fault, which counts once."""

from collections.abc import Hashable, Iterable

import msgspec

from jobmeter.model.event import Event
from jobmeter.model.finding import Evidence
from jobmeter.model.log import LogLine
from jobmeter.model.time import NS_PER_MS

APART_MS = 5_000
"""Longest time between two reports of one incident, such as a log line and the event that an agent made of it."""
_LINE, _EVENT = "log", "event"


class IncidentReport(msgspec.Struct, frozen=True):
    """A report of an incident, with its time in epoch ms. Each ``source`` reports an incident once.

    ``digest`` is equal for copies of one report.
    """

    source: str
    time: int
    evidence: Evidence
    digest: Hashable

    @classmethod
    def from_line(cls, line: LogLine, evidence: Evidence, form: str = "") -> "IncidentReport":
        """Return the report of a line. A source is a stream of a node and, within it, a ``form`` of line.

        For example, several drivers report one lost link, each in its own words.
        """
        time = line.time_ns // NS_PER_MS
        return cls(f"{_LINE} {line.stream} {form}", time, evidence, (line.stream, line.time_ns, line.text))

    @classmethod
    def from_event(cls, event: Event, evidence: Evidence) -> "IncidentReport":
        """Return the report of an event."""
        return cls(_EVENT, event.time, evidence, event.digest)


def group_incidents(reports: Iterable[IncidentReport], apart_ms: float = APART_MS) -> list[list[IncidentReport]]:
    """Return the reports of each incident, in order of time, lines before events; the order of arrival does not matter.

    The reports are about one kind of incident of one thing. A copy of a report counts for nothing.
    Reports of different sources within ``apart_ms`` are about one incident: each about the earliest one that its
    source has not reported.
    """
    copies = {(one.source, one.digest): one for one in reports}
    found: list[list[IncidentReport]] = []
    first_open = 0
    after: dict[str, int] = {}  # by source: the index after the last incident that it reported
    for one in sorted(copies.values(), key=lambda one: (one.time, one.source, repr(one.digest))):
        while first_open < len(found) and one.time - found[first_open][0].time > apart_ms:
            first_open += 1
        place = max(first_open, after.get(one.source, 0))
        if place < len(found):
            found[place].append(one)
        else:
            found.append([one])
        after[one.source] = place + 1
    return [sorted(some, key=lambda one: (not one.source.startswith(_LINE), one.time)) for some in found]


def describe_incidents(found: Iterable[list[IncidentReport]]) -> list[Evidence]:
    """Return the evidence of each incident once: preferably its log line, in the words of the source."""
    return [some[0].evidence for some in found]
