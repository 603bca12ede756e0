"""A replica computes on a device that was not allocated to it, or sources disagree on the owner of a device."""

from msgspec.structs import replace

from jobmeter.diagnose.causes import make_event_evidence
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity, Subject
from jobmeter.model.event import ALLOCATION_MISMATCH, Event


@Rule(
    title="Allocation mismatch",
    advice="Let the launcher use only devices that the scheduler allocates, and constrain devices by control group.",
    source="https://slurm.schedmd.com/gres.html#Constraining_Devices",
)
def allocation_mismatch(rule: Rule, case: Case, numbers: Numbers) -> Findings:  # noqa: ARG001 - the shape of a rule
    """Read the agents' events about disagreements, once for each replica and device."""
    mismatches: dict[tuple[str, str, str], list[Event]] = {}
    for event in case.events:
        if event.reason == ALLOCATION_MISMATCH and event.subject.startswith("device "):
            mismatches.setdefault((event.node, event.object.name, event.replica), []).append(event)
    for (node, device, replica), events in mismatches.items():
        subject = Subject("device", f"{node or events[0].replica}/{device}")
        evidence = [make_event_evidence(event) for event in events[:5]]
        sentence = f"{case.name_member(replica, node, device)}: {events[0].message}"
        span = events[0].time, events[-1].time
        found = rule.report(subject, Severity.WARNING, span, evidence, 0.9, sentence=sentence)
        yield replace(found, replicas=[replica] if replica else [])
