"""A network link of a node is full while the job's devices there wait."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import BUSY, PREFIXES, has_devices
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, together
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.diagnose.wording import amount, title
from jobmeter.model.finding import Severity, Subject

_LINKS = {f"node.{kind}.speed": tuple(f"node.{kind}.{way}" for way in ("receive", "transmit"))
          for kind in ("network", "rdma")}  # fmt: skip
_ACTIVE = tuple(f"{prefix}.sm.active" for prefix in PREFIXES)
_CPU = "cpu.utilization"


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Traffic near the speed of a link beside devices, or in a job without any CPU, that are active for little time.

    Utilization of a device does not count: a collective that waits for the network keeps it busy.
    """
    fullest: dict[str, tuple[float, Signal]] = {}
    for use in _use(case, numbers):
        mean = float(use.value.mean())
        if use.value.max() > numbers["full"] and mean > fullest.get(use.node, (0.0, use))[0]:
            fullest[use.node] = mean, use
    works = _work(case, numbers) if fullest else {}
    for node, (_, use) in fullest.items():
        beside = works.get(node)
        if beside is None:
            continue
        work = beside.at(use.time)
        longest = case.stretch(use, (use.value > numbers["full"]) & (work < numbers["active"]), numbers)
        if longest is None:
            continue
        full = float(use.during(longest).mean())
        rest = float(np.nanmean(work[longest.first : longest.last + 1]))
        text = (
            f"{use.part} of {node} carries {amount(full, '1')} of what it can, while the job's work there waits for it"
        )
        evidence = [
            use.evidence(text, full, numbers["full"], "1", time=longest.start),
            beside.evidence(f"{title(beside.metric)}: {amount(rest, '1')} meanwhile", rest, numbers["active"], "1"),
        ]
        span = longest.start, longest.end
        yield rule.finding(Subject("node", node), Severity.WARNING, span, evidence, 0.8)


def _use(case: Case, numbers: Numbers) -> Iterator[Signal]:
    """Yield the traffic of each link and direction as a share of its speed."""
    for limit, metrics in _LINKS.items():
        speeds = {(one.node, one.part): float(one.value.max()) for one in case.nodes.get(limit, ()) if len(one)}
        for metric in metrics:
            for place, traffic in case.levels_of_nodes(metric, numbers).items():
                if speeds.get(place, 0.0) > 0:
                    yield replace(traffic, value=traffic.value / speeds[place]).sampled_until(traffic.until)


def _work(case: Case, numbers: Numbers) -> dict[str, Signal]:
    """Return the mean activity of the job's devices by node; of its CPUs where it has no devices."""
    metrics = _ACTIVE if has_devices(case, numbers) else (_CPU,)
    places = {one.name: one.node for one in case.view.replicas}
    by_node: dict[str, list[Signal]] = {}
    for metric in metrics:
        for signal in case.levels(metric, numbers):
            by_node.setdefault(signal.node or places.get(signal.replica, ""), []).append(signal)
    return {node: _mean(own, node) for node, own in by_node.items()}


def _mean(signals: list[Signal], node: str) -> Signal:
    """Return the mean of signals at the times at which any was measured."""
    time, values = together(signals)
    return replace(signals[0], time=time, value=np.nanmean(values, axis=0), node=node, device="")


RULE = Rule(
    name="comm_bound",
    title="Comm bound",
    sees="A network link of a node carries nearly what it can, while the job's devices there have little to do.",
    advice="Exchange less (gradient accumulation, compression), overlap it with computing, or use faster links.",
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    find=find,
    metrics=(*BUSY, _CPU),
    nodes=(*_LINKS, *(name for metrics in _LINKS.values() for name in metrics)),
    hides=frozenset({"gpu_busy_but_empty", "io_bound_input", "cpu_overrequest"}),
    running=True,
)
