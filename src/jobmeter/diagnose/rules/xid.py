"""The driver of a GPU reported an error."""

from collections.abc import Iterator

from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.causes import line_evidence
from jobmeter.diagnose.rule import Findings, Rule, quoted
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.event import EventSource, EventType
from jobmeter.model.finding import Evidence, Subject
from jobmeter.model.xid import XidReport, read_xid


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:  # noqa: ARG001 - the shape of a rule
    """Each code once for each device, with its entry in the vendor's catalogue."""
    reports: dict[tuple[str, XidReport], list[Evidence]] = {}
    for place, report, evidence_part in _reports(case):
        reports.setdefault((place, report), []).append(evidence_part)
    for (place, report), evidence in reports.items():
        meaning = report.meaning
        often = "once" if len(evidence) == 1 else f"{len(evidence)} times"
        text = f"XID {report.code} ({meaning.text}), {often}"
        head = Evidence(kind="status", text=text, value=float(report.code))
        subject = Subject("device", f"{place}/{report.device or 'gpu'}")
        one = rule.collected(case, subject, meaning.severity, head, evidence, 0.95)
        yield replace(one, advice=meaning.advice)


def _reports(case: Case) -> Iterator[tuple[str, XidReport, Evidence]]:
    # A job can print anything: its own lines are no report of the driver.
    for line in case.kernel:
        report = read_xid(line.text)
        if report:
            yield line.node or line.replica, report, line_evidence(line)
    for event in (*case.events, *case.faults):
        report = read_xid(f"{event.reason}: {event.message}")
        if report and event.type is EventType.DEVICE_FAULT and event.source is EventSource.NODE:
            evidence = Evidence(kind="event", text=quoted(event.message), time=event.time, replica=event.replica)
            yield event.node or event.replica, report, evidence


RULE = Rule(
    name="xid",
    sees="The NVIDIA driver reported an error (XID) in the kernel's log of a node of the job.",
    advice="The vendor's catalogue names what to do for each code; critical ones need a reset or more.",
    source="https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    find=find,
    kernel="Xid",
    of_devices=True,
    explains=True,
    running=True,
)
