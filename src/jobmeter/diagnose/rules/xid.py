"""The NVIDIA driver reported an error (XID) in the kernel's log of a node of the job."""

from collections.abc import Iterator

from msgspec.structs import replace

from jobmeter.diagnose.causes import make_line_evidence
from jobmeter.diagnose.incidents import IncidentReport, describe_incidents, group_incidents
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Subject, quote_line
from jobmeter.diagnose.wording import format_times
from jobmeter.model.device import normalize_pci_address
from jobmeter.model.event import EventSource, EventType
from jobmeter.model.xid import XidReport, read_xid


@Rule(
    title="GPU error (XID)",
    advice="See the vendor's catalogue for each code; critical ones need a reset or a replacement.",
    source="https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    kernel="Xid",
    of_devices=True,
    explains=True,
    lasts=True,
    running=True,
)
def xid(rule: Rule, case: Case, numbers: Numbers) -> Findings:  # noqa: ARG001 - the shape of a rule
    """Report each code once for each device that the job had then, with its entry in the vendor's catalogue.

    A device with an unknown address may be any device of the node.
    """
    reports: dict[tuple[Subject, XidReport], list[IncidentReport]] = {}
    for node, xid, report in _reports(case):
        address = normalize_pci_address(xid.device)
        subject = _subject(case, node, address, xid)
        if subject.kind == "node" or _is_of_job(case, subject, report.time):
            key = subject, XidReport(xid.code, address if subject.kind == "node" else "")
            reports.setdefault(key, []).append(report)
    for (subject, xid), own in reports.items():
        happened = group_incidents(own)
        meaning = xid.meaning
        which = f" of the device at {xid.device}, whose name is unknown" if xid.device else ""
        head = Evidence(
            kind="status", text=f"XID {xid.code} was reported {format_times(len(happened))}", value=float(xid.code)
        )
        one = rule.make_collected(case, subject, meaning.severity, head, describe_incidents(happened), 0.95)
        name = case.name_subject(subject, one.start)
        yield replace(one, advice=meaning.advice, sentence=f"{name}: XID {xid.code}{which}: {meaning.text}")


def _subject(case: Case, node: str, address: str, xid: XidReport) -> Subject:
    """Return the MIG instance that a report names, else the device."""
    whole = case.find_subject_at(node, [address])
    if whole.kind == "node" or xid.instance is None:
        return whole
    return replace(whole, name=f"{whole.name}:{xid.instance}{f':{xid.place}' if xid.place else ''}")


def _is_of_job(case: Case, subject: Subject, time: int) -> bool:
    """Return False for another job's device: this job had only other devices of the node then.

    An error of a device is an error of each of its MIG instances.
    """
    node, _, device = subject.name.partition("/")
    had_some = any(one.node == node for one in case.view.allocations)
    whole = device.partition(":")[0]
    return not had_some or bool(case.list_replicas(subject, time) or case.find_owner(node, whole, time))


def _reports(case: Case) -> Iterator[tuple[str, XidReport, IncidentReport]]:
    # A job can print anything: its own lines are no report of the driver.
    for line in case.kernel:
        xid = read_xid(line.text)
        if xid:
            yield line.node or line.replica, xid, IncidentReport.from_line(line, make_line_evidence(line))
    for event in (*case.events, *case.faults):
        xid = read_xid(f"{event.reason}: {event.message}")
        if xid and event.type is EventType.DEVICE_FAULT and event.source is EventSource.NODE:
            evidence = Evidence(kind="event", text=quote_line(event.message), time=event.time, replica=event.replica)
            yield event.node or event.replica, xid, IncidentReport.from_event(event, evidence)
