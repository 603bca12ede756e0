"""The driver of a GPU reported an error."""

import re
from collections.abc import Iterator

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import MOST_LINES, Rule, quoted
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.diagnose.xids import XIDS
from jobmeter.model.finding import Evidence, Finding, Severity, Subject

_XID = re.compile(
    r"Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]{4,20})\): (?P<code>\d{1,3})\b|\bXid[ :=]+(?P<only>\d{1,3})\b"
)
_NS = 1_000_000


def find(case: Case, numbers: Numbers) -> list[Finding]:  # noqa: ARG001 - the shape of a rule
    """Each code once for each device, with what the vendor's catalogue says of it."""
    seen: dict[tuple[str, int], list[Evidence]] = {}
    for place, code, report in _reports(case):
        seen.setdefault((place, code), []).append(report)
    found = []
    for (place, code), evidence in seen.items():
        known = XIDS.get(code)
        meaning = known.text if known else "a code that is in no table"
        times = [one.time or case.span.end_ms for one in evidence]
        head = Evidence(kind="status", text=f"XID {code} ({meaning}), {len(evidence)} times", value=float(code))
        severity = known.severity if known else Severity.WARNING
        span = min(times), max(times)
        found.append(RULE.finding(Subject("device", place), severity, span, [head, *evidence[: MOST_LINES - 1]], 0.95))
    return found


def _reports(case: Case) -> Iterator[tuple[str, int, Evidence]]:
    for line in case.lines:
        match = _XID.search(line.text[:4_000])
        if match:
            told = Evidence(kind="log", text=quoted(line.text), time=line.time_ns // _NS, replica=line.replica)
            yield *_named(match, line.node or line.replica), told
    for event in case.events:
        match = _XID.search(f"{event.reason}: {event.message}"[:4_000])
        if match and event.reason != "Finding":
            told = Evidence(kind="event", text=quoted(event.message), time=event.time, replica=event.replica)
            yield *_named(match, event.node or event.replica), told


def _named(match: "re.Match[str]", place: str) -> tuple[str, int]:
    return f"{place}/{match['device'] or 'gpu'}", int(match["code"] or match["only"])


RULE = Rule(
    name="xid",
    sees="The NVIDIA driver reported an error (XID) in lines or events of the job.",
    advice="The vendor's catalogue names what to do for each code; critical ones need a reset or more.",
    source="https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    find=find,
)
