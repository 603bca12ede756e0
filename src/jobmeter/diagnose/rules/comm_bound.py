"""A link is nearly full, or NVLink carries more than usual, while the job's devices there have little to do."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.devices import BUSY, PREFIXES, has_devices
from jobmeter.diagnose.rule import Case, Finding, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.signal import Member, Signal, align_signals, name_device
from jobmeter.diagnose.wording import find_title, format_amount, format_metric_amount
from jobmeter.model.grouping import group_pairs

_LINKS = {f"node.{kind}.speed": tuple(f"node.{kind}.{way}" for way in ("receive", "transmit"))
          for kind in ("network", "rdma")}  # fmt: skip
_ACTIVE = tuple(f"{prefix}.sm.active" for prefix in PREFIXES)
_CPU = "cpu.utilization"
_PCIE, _NVLINK = (tuple(f"gpu.{kind}.{way}" for way in ("receive", "transmit")) for kind in ("pcie", "nvlink"))
_GENERATION, _WIDTH = "gpu.pcie.generation", "gpu.pcie.width"
_LANES = {1: 2.5e9 * 8 / 10, 2: 5e9 * 8 / 10, **{n: 2.0**n * 1e9 * 128 / 130 for n in (3, 4, 5)}, 6: 64e9 * 242 / 256}
"""Bits a second of a PCIe lane in each direction without its line code, by generation (PCI-SIG)."""


class LoadedLink(msgspec.Struct, frozen=True):
    """A link that may hold up work.

    ``use`` is its traffic, as a share of its speed or in ``unit``. Above ``full`` the link holds up ``work``, a share
    of time. ``busy`` has to be high meanwhile. ``before`` and ``after`` surround the amount of traffic in a sentence.
    """

    subject: Subject
    use: Signal
    work: Signal
    full: float
    before: str
    after: str
    unit: str = "1"
    busy: Signal | None = None
    confidence: float = 0.8


@Rule(
    title="Communication bound",
    advice="Exchange less (gradient accumulation, compression), overlap it with computing, or use faster links.",
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    metrics=(*BUSY, _CPU, *_PCIE, _GENERATION, _WIDTH, *_NVLINK),
    nodes=(*_LINKS, *(name for metrics in _LINKS.values() for name in metrics)),
    hides=frozenset({"gpu_busy_but_empty", "io_bound_input", "cpu_overrequest"}),
    running=True,
)
def comm_bound(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find traffic near a link's speed while devices, or CPUs of a job without devices, are rarely active.

    The utilization of a device does not count, because a collective that waits for the network keeps it high. The speed
    of NVLink is unknown. So a busy device has to compute less, and to carry more over NVLink, than at other times of
    the job.
    """
    known = _findings(rule, case, [*_links_of_nodes(case, numbers), *_lanes(case, numbers)], numbers)
    yield from known
    # The last part of a job whose NVLink has been loaded for long shows no other time.
    is_open = rule.name in case.open_rules and not known
    yield from _findings(rule, case, _find_raised_nvlink(case, numbers, is_open=is_open), numbers)


def _findings(rule: Rule, case: Case, links: Iterable[LoadedLink], numbers: Numbers) -> list[Finding]:
    """Return a finding about each subject: its link and direction that was full for the longest time."""
    found: dict[Subject, Finding] = {}
    for link in links:
        work = link.work.read_at(link.use.time)
        waits = (link.use.value > link.full) & (work < numbers["active"])
        if link.busy is not None:
            waits &= link.busy.read_at(link.use.time) >= numbers["busy"]
        longest = case.find_stretch(link.use, waits, numbers)
        last = found.get(link.subject)
        if longest is None or (last is not None and last.end - last.start >= longest.length):
            continue
        carried = float(link.use.select_values(longest).mean())
        rest = float(np.nanmean(work[longest.points]))
        text = f"{link.before} {format_amount(carried, link.unit)} {link.after}"
        sign = f"{find_title(link.work.metric)}: {format_amount(rest, '1')} meanwhile"
        evidence = [
            link.use.cite(text, carried, link.full, link.unit, time=longest.start),
            link.work.cite(sign, rest, numbers["active"], "1"),
        ]
        found[link.subject] = rule.report(link.subject, Severity.WARNING, longest.span, evidence, link.confidence)
    return list(found.values())


def _links_of_nodes(case: Case, numbers: Numbers) -> Iterator[LoadedLink]:
    works: dict[str, Signal] | None = None
    for limit, metrics in _LINKS.items():
        speeds = {(one.node, one.part): float(one.value.max()) for one in case.nodes.get(limit, ()) if len(one)}
        for metric in metrics:
            for place, traffic in case.average_nodes(metric, numbers).items():
                use = _share(traffic, speeds.get(place, 0.0), numbers["full"], numbers)
                if use is None:
                    continue
                works = _work(case, numbers) if works is None else works
                if use.node in works:
                    after = "of its speed, while the job's work there waits for it"
                    name = f"{use.part} of {use.node} carries"
                    yield LoadedLink(Subject("node", use.node), use, works[use.node], numbers["full"], name, after)


def _share(traffic: Signal, speed: float, full: float, numbers: Numbers) -> Signal | None:
    """Return traffic as a share of a speed; None if it never fills the link, or exceeds the speed."""
    highest = float(traffic.value.max())
    if not full * speed < highest <= numbers["most"] * speed:
        return None
    return replace(traffic, value=traffic.value / speed).with_ends(traffic.until)


def _lanes(case: Case, numbers: Numbers) -> Iterator[LoadedLink]:
    """Yield the PCIe links that are full at times, by the highest measured speed: idle links lower theirs."""
    widths = case.map_by_member(_WIDTH)
    works: Mapping[Member, Signal] | None = None
    for metric in _PCIE:
        for traffic in case.average_signals(metric, numbers):
            generations, lanes = case.map_by_member(_GENERATION).get(traffic.member), widths.get(traffic.member)
            if generations is None or lanes is None or not len(generations) or not len(lanes):
                continue
            generation, width = int(generations.value.max()), int(lanes.value.max())
            use = _share(traffic, _LANES.get(generation, 0.0) / 8 * width, numbers["lanes"], numbers)
            if use is None:
                continue
            works = _work_of_devices(case, numbers) if works is None else works
            if use.member in works:
                before = f"{case.name_signal(use)} uses"
                after = f"of the speed of {width} PCIe lanes of generation {generation}, and computes little meanwhile"
                yield LoadedLink(name_device(use), use, works[use.member], numbers["lanes"], before, after)


def _find_raised_nvlink(case: Case, numbers: Numbers, *, is_open: bool) -> Iterator[LoadedLink]:
    """Yield the NVLinks of devices beside their usual traffic while the device computes."""
    traffics = [one for metric in _NVLINK for one in case.average_signals(metric, numbers, numbers["least"])]
    works = _work_of_devices(case, numbers) if traffics else {}
    loads = {one.member: one for one in case.average_signals("gpu.utilization", numbers)} if works else {}
    for traffic in traffics:
        work, load = works.get(traffic.member), loads.get(traffic.member)
        if work is None or load is None:
            continue
        computes = work.read_at(traffic.time) >= numbers["active"]
        usual = 0.0
        after = "while it computes little"
        if (traffic.until - traffic.time)[computes].sum() >= numbers["hold"]:
            usual = float(np.median(traffic.value[computes]))
            after += f"; {format_metric_amount(traffic.metric, usual)} while it computes"
        elif not is_open:
            continue
        yield LoadedLink(
            name_device(traffic),
            traffic,
            work,
            max(numbers["least"], numbers["more"] * usual),
            f"{case.name_signal(traffic)} {'receives' if traffic.metric == _NVLINK[0] else 'sends'}",
            f"over NVLink {after}",
            "By/s",
            load,
            0.6,
        )


def _work_of_devices(case: Case, numbers: Numbers) -> Mapping[Member, Signal]:
    return {one.member: one for metric in _ACTIVE for one in case.average_signals(metric, numbers)}


def _work(case: Case, numbers: Numbers) -> dict[str, Signal]:
    """Return the mean activity of the job's devices by node; of its CPUs for a job without devices."""
    metrics = _ACTIVE if has_devices(case, numbers) else (_CPU,)
    places = {one.name: one.node for one in case.view.replicas}
    signals = (one for metric in metrics for one in case.average_signals(metric, numbers))
    by_node = group_pairs((one.node or places.get(one.replica, ""), one) for one in signals)
    return {node: _mean(own, node) for node, own in by_node.items()}


def _mean(signals: list[Signal], node: str) -> Signal:
    """Return the mean of signals at the times of any sample."""
    time, values = align_signals(signals)
    return replace(signals[0], time=time, value=np.nanmean(values, axis=0), node=node, device="")
