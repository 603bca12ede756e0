"""A GPU of the job was lost, needs a reset, does not answer, or cannot be measured by the node's agent."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from msgspec.structs import replace

from jobmeter.diagnose.causes import make_event_evidence
from jobmeter.diagnose.rule import Case, Evidence, Finding, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.signal import name_device
from jobmeter.diagnose.wording import format_length
from jobmeter.model.device import STATES, DeviceState
from jobmeter.model.event import DEVICE_HANGS, DRIVER_MISMATCH, GPU_BACK, GPU_LOST, GPU_NOT_PERMITTED, Event

_STATES = {
    GPU_LOST: DeviceState.LOST,
    DEVICE_HANGS: DeviceState.HANGS,
    GPU_NOT_PERMITTED: DeviceState.NO_PERMISSION,
    DRIVER_MISMATCH: DeviceState.LIBRARY_MISMATCH,
}
_MOST_EVENTS = 5
_UNMEASURED = "The device is not measured, but may work: run `jobmeter doctor` on the node to see why."


@Rule(
    title="GPU missing",
    advice="Start again on another node. Drain this one, see its kernel's log for XIDs, and reset or replace the GPU.",
    source="https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",
    metrics=("gpu.state",),
    explains=True,
    running=True,
)
def gpu_missing(rule: Rule, case: Case, numbers: Numbers) -> Findings:  # noqa: ARG001 - the shape of a rule
    """Find lost devices by their samples of ``gpu.state``, and by the agent's events for devices without samples."""
    events = _events(case)
    raised: set[tuple[str, str]] = set()
    for signal in case.means.get("gpu.state", ()):
        missing = signal.value > 0
        if not missing.any():
            continue
        interval = max(signal.interval, 1)
        span = int(signal.time[missing][0]), int(signal.time[missing][-1]) + interval
        # The mean of a step in which the state changed lies between both codes; rounded up it is at most the worse one.
        code = min(ceil(float(signal.value[missing].max()) - 1e-9), len(STATES) - 1)
        raised |= {(signal.node, signal.device), (signal.node, "")}
        own = [*events.get((signal.node, ""), ()), *events.get((signal.node, signal.device), ())]
        text = f"it was not measured for {format_length(int(missing.sum()) * interval)}: {STATES[code]}"
        head = signal.cite(text, float(code), 0.0, "", time=span[0])
        found = _finding(rule, name_device(signal), STATES[code], span, [head, *map(make_event_evidence, own)])
        yield replace(found, sentence=f"{case.name_signal(signal)} is not measured: {STATES[code]}")
    for (node, name), own in events.items():
        if (node, name) in raised:
            continue
        first = own[0]
        span = first.time, max(one.time for one in own)
        subject = Subject("device", f"{node}/{name}") if name else Subject("node", node)
        found = _finding(rule, subject, _STATES[first.reason], span, [*map(make_event_evidence, own)])
        if first.replica:
            sentence = f"{case.name_member(first.replica, node, name)}: {first.message}"
            found = replace(found, sentence=sentence, replicas=[first.replica])
        yield found


def _finding(
    rule: Rule, subject: Subject, state: DeviceState, span: tuple[int, int], evidence: Sequence[Evidence]
) -> Finding:
    severity = Severity.WARNING if state.usable else Severity.CRITICAL
    found = rule.report(subject, severity, span, evidence[: _MOST_EVENTS + 1], 0.95)
    return replace(found, advice=_UNMEASURED) if state.usable else found


def _events(case: Case) -> Mapping[tuple[str, str], list[Event]]:
    """Return the agents' events about each device of the job, (node, device), from its first loss on."""
    found: dict[tuple[str, str], list[Event]] = {}
    for event in sorted((*case.events, *_faults(case)), key=lambda one: one.time):
        key = (event.node, event.object.name if event.subject.startswith("device ") else "")
        if event.reason in _STATES or (event.reason == GPU_BACK and key in found):
            found.setdefault(key, []).append(event)
    return found


def _faults(case: Case) -> Iterator[Event]:
    """Return the faults of nodes, without faults of devices that the job never had."""
    mine = {(one.node, one.device) for one in case.view.allocations}
    for event in case.faults:
        if not event.subject.startswith("device ") or (event.node, event.object.name) in mine:
            yield event
