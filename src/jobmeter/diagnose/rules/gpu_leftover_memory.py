"""Memory of a device is in use, although no process of a job runs there."""

from collections.abc import Iterator, Mapping

import numpy as np

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Member, Signal, name_device
from jobmeter.diagnose.wording import format_length, format_metric_amount

_MEMORY, _PROCESSES, _FOREIGN, _BUSY = "gpu.memory.usage", "gpu.processes", "gpu.processes.foreign", "gpu.utilization"


@Rule(
    title="Leftover GPU memory",
    advice="Find and end processes of earlier jobs (`fuser -v /dev/nvidia*`); without any, reset the device.",
    source="https://github.com/facebookresearch/gcm",
    metrics=(_MEMORY, _PROCESSES, _FOREIGN, _BUSY),
    nodes=(_MEMORY, _PROCESSES, _FOREIGN, _BUSY),
)
def gpu_leftover_memory(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices with memory in use but no process, or only processes of no job."""
    for signals in (_select_job_signals(case), _select_node_signals(case)):
        for member, memory in signals.get(_MEMORY, {}).items():
            processes, foreign, busy = (signals.get(name, {}).get(member) for name in (_PROCESSES, _FOREIGN, _BUSY))
            if processes is None or foreign is None:
                continue
            there = foreign.read_at(memory.time)
            true = (memory.value > numbers["memory"]) & (processes.read_at(memory.time) <= there)
            if busy is not None:
                true &= ~(busy.read_at(memory.time) > numbers["idle"])
            longest = case.find_stretch(memory, true, numbers)
            if longest is None:
                continue
            part = longest.points
            used, strangers = float(np.median(memory.value[part])), bool(np.nanmax(there[part]) > 0)
            beside = "its processes belong to no job" if strangers else "it has no process"
            text = f"{case.name_signal(memory)} has {format_metric_amount(_MEMORY, used)} of memory in use for "
            text += f"{format_length(longest.length)}, but {beside}"
            evidence = memory.cite(text, used, numbers["memory"], "By", time=longest.start)
            yield rule.report(name_device(memory), Severity.WARNING, longest.span, [evidence], 0.85)


def _select_job_signals(case: Case) -> Mapping[str, Mapping[Member, Signal]]:
    return {name: case.map_by_member(name) for name in (_MEMORY, _PROCESSES, _FOREIGN, _BUSY)}


def _select_node_signals(case: Case) -> Mapping[str, Mapping[Member, Signal]]:
    """Return the signals of devices without a job, cut to the times in which a replica of the job had the device."""
    found: dict[str, dict[Member, Signal]] = {}
    for name in (_MEMORY, _PROCESSES, _FOREIGN, _BUSY):
        for signal in case.nodes.get(name, ()):
            for part in _cut_to_allocations(case, signal):
                found.setdefault(name, {})[part.member] = part
    return found


def _cut_to_allocations(case: Case, signal: Signal) -> Iterator[Signal]:
    for one in case.view.allocations:
        if (one.node, one.device) == (signal.node, signal.device):
            part = signal.cut(one.start, case.span.end_ms if one.end is None else one.end)
            if len(part):
                yield part
