"""The driver of a GPU reported an error."""

from collections.abc import Iterator

from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import MOST_LINES, Rule, quoted
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.event import EventType
from jobmeter.model.finding import Evidence, Finding, Subject
from jobmeter.model.xid import XidReport, read_xid

_NS = 1_000_000


def find(case: Case, numbers: Numbers) -> list[Finding]:  # noqa: ARG001 - the shape of a rule
    """Each code once for each device, with its entry in the vendor's catalogue."""
    reports: dict[tuple[str, XidReport], list[Evidence]] = {}
    for place, report, evidence in _reports(case):
        reports.setdefault((place, report), []).append(evidence)
    found = []
    for (place, report), evidence_line in reports.items():
        times = [one.time or case.span.end_ms for one in evidence_line]
        meaning = report.meaning
        often = "once" if len(evidence_line) == 1 else f"{len(evidence_line)} times"
        text = f"XID {report.code} ({meaning.text}), {often}"
        head = Evidence(kind="status", text=text, value=float(report.code))
        subject = Subject("device", f"{place}/{report.device or 'gpu'}")
        rests = [head, *evidence_line[: MOST_LINES - 1]]
        one = RULE.finding(subject, meaning.severity, (min(times), max(times)), rests, 0.95)
        found.append(replace(one, advice=meaning.advice))
    return found


def _reports(case: Case) -> Iterator[tuple[str, XidReport, Evidence]]:
    for line in (*case.lines, *case.kernel):
        report = read_xid(line.text)
        if report:
            evidence_line = Evidence(kind="log", text=quoted(line.text), time=line.time_ns // _NS, replica=line.replica)
            yield line.node or line.replica, report, evidence_line
    for event in (*case.events, *case.faults):
        report = read_xid(f"{event.reason}: {event.message}")
        if report and event.type is not EventType.FINDING:
            evidence_line = Evidence(kind="event", text=quoted(event.message), time=event.time, replica=event.replica)
            yield event.node or event.replica, report, evidence_line


RULE = Rule(
    name="xid",
    sees="The NVIDIA driver reported an error (XID) in lines or events of the job.",
    advice="The vendor's catalogue names what to do for each code; critical ones need a reset or more.",
    source="https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    find=find,
    kernel="Xid",
    of_devices=True,
    explains=True,
    running=True,
)
