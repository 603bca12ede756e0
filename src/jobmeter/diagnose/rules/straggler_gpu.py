"""Devices that differ from the job's other devices in hardware metrics."""

from collections.abc import Iterator, Mapping

import numpy as np

from jobmeter.diagnose.devices import PREFIXES, group_models
from jobmeter.diagnose.peers import Outlier, Peers, iterate_peers
from jobmeter.diagnose.rule import Case, Evidence, Finding, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import compute_median, make_metric_evidence, name_device
from jobmeter.diagnose.wording import find_title, format_metric_amount
from jobmeter.model.batch import Bools
from jobmeter.model.catalog import CATALOG

_SIGNS = {
    "utilization": "computes at {}",
    "sm.active": "computes at {}",
    "clock.sm": "runs at {}",
    "tensor.active": "uses its tensor cores for {} of the time",
    "power": "draws {}",
    "nvlink.transmit": "sends {} over NVLink",
    "nvlink.receive": "receives {} over NVLink",
}
"""The metrics in which a slow device differs, with the beginning of its sentence, which names the first one."""
_LOAD = ("utilization", "sm.active", "power")
"""The metrics that say how busy a device is."""
_MEMORY, _CLOCK = "memory.usage", "clock.sm"
_MODEL = ("memory.limit", "clock.sm.limit")
"""The limits in which devices of different models differ: devices of other models are no peers."""
_MOSTLY = 0.5
"""Share of the time from which a metric is named in which a device differs."""


@Rule(
    title="Straggler GPU",
    sees="One device differs from the others of the job, in several hardware metrics or far in one.",
    advice="Exclude its node and compare; then look at its temperature, power cap, PCIe link and memory errors.",
    source="https://github.com/ROCm/omnistat",
    metrics=(
        *(f"{prefix}.{name}" for prefix in PREFIXES for name in (*_LOAD, "tensor.active", _MEMORY, "memory.limit")),
        "gpu.clock.sm",
        "gpu.clock.sm.limit",
        "gpu.nvlink.transmit",
        "gpu.nvlink.receive",
    ),
    running=True,
    hides=frozenset({"gpu_busy_but_empty"}),
)
def straggler_gpu(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices that stand apart in several metrics, or far apart in one, for long enough.

    In a synchronous job the slow device computes while the others wait for it. So it may be the busier one.
    """
    for prefix in PREFIXES:
        names = [f"{prefix}.{name}" for name in (*_SIGNS, _MEMORY)]
        signals = {name: found for name in names if (found := case.select_signals(name, numbers))}
        floors = {name: numbers["floor_clock" if name.endswith(_CLOCK) else "floor"] for name in names}
        load = [f"{prefix}.{name}" for name in _LOAD]
        unlike = group_models(case, [f"{prefix}.{name}" for name in _MODEL], numbers["model"]) if signals else {}
        for scales in iterate_peers(signals, load, numbers["devices"], floors, numbers, unlike):
            reported: set[int] = set()
            for severity in (Severity.WARNING, Severity.INFO):
                for peers in scales:
                    for one, signs in _find_odd(peers, prefix, severity, numbers):
                        if one.row not in reported:
                            reported.add(one.row)
                            yield _finding(rule, case, peers, one, signs, severity)


def _find_odd(peers: Peers, prefix: str, severity: Severity, numbers: Numbers) -> Iterator[tuple[Outlier, list[str]]]:
    """Yield the devices that differ by a fault, each with its differing metrics."""
    works = _works(peers, prefix, numbers)
    signs = [name for one in _SIGNS if (name := f"{prefix}.{one}") in peers.metrics]
    far = {name: peers.metrics[name].find_far(numbers["z"]) & works for name in signs}
    least = 2 if len(peers) >= numbers["pair"] else 1
    apart = _find_apart(peers, far, prefix, severity, numbers)
    odd = peers.find_outliers(apart, numbers, least, _find_noticeable(peers, far, numbers))
    for one in odd:
        own = [name for name in signs if _share(far[name][one.row], one) >= _MOSTLY]
        if _is_fault(peers, one, odd, own, prefix, numbers):
            yield one, own


def _find_apart(peers: Peers, far: Mapping[str, Bools], prefix: str, severity: Severity, numbers: Numbers) -> Bools:
    """Return where a device differs enough, bool[member, window]; level info needs only one metric."""
    agreeing = sum((own.astype(np.int64) for own in far.values()), np.zeros(peers.shape, np.int64))
    many = len(peers) >= numbers["many"]
    if severity is Severity.INFO:
        return (agreeing > 0) & many
    found = np.zeros(peers.shape, np.bool_)
    for name, own in far.items():
        found |= own & _find_large(peers, name, numbers)
    # Of few devices one may have more to do than the others; its clock does not depend on that.
    sure = many or far.get(f"{prefix}.{_CLOCK}", np.zeros(peers.shape, np.bool_))
    return found | ((agreeing >= numbers["signals"]) & sure)


def _find_noticeable(peers: Peers, far: Mapping[str, Bools], numbers: Numbers) -> Bools:
    """Return where a device differs in any metric, beyond the noise or by much, bool[member, window]."""
    found = np.zeros(peers.shape, np.bool_)
    for name, own in far.items():
        found |= own | _find_large(peers, name, numbers)
    return found


def _find_large(peers: Peers, metric: str, numbers: Numbers) -> Bools:
    """Return where a device differs by a large share of the others' median, bool[member, window]."""
    least = numbers["clock"] if metric.endswith(_CLOCK) else numbers["strong"]
    found: Bools = np.abs(peers.metrics[metric].relative) >= least
    return found


def _is_fault(peers: Peers, one: Outlier, odd: list[Outlier], signs: list[str], prefix: str, numbers: Numbers) -> bool:
    """True if a device differs by a fault, not by design: it has the same part in the job as the others.

    A device that was like the others before has the same part.
    """
    rows = {other.row for other in odd}
    if not any(peers.is_parted(name, one, rows, numbers["gap"]) for name in signs):
        return False
    clock = f"{prefix}.{_CLOCK}" in signs
    if clock:
        return True
    if _has_own_load(peers, one, numbers):
        return False
    if one.changed:
        return True
    far = max((peers.measure_distance(name, one) for name in signs), key=abs)
    enough = len(peers) >= numbers["few" if far < 0 else "many"] or abs(far) >= numbers["very"]
    if len(odd) > 1 and len(peers) < numbers["many"]:  # a group with less work by design rarely differs by this much
        enough = far <= -numbers["very"]
    return enough and not _has_other_memory(peers, one, prefix, numbers)


def _works(peers: Peers, prefix: str, numbers: Numbers) -> Bools:
    """Return where a device does anything while the others work, bool[member, window].

    Other rules report idle devices. Devices that hardly work differ by chance.
    """
    for name in ("utilization", "sm.active"):
        load = peers.metrics.get(f"{prefix}.{name}")
        if load is not None:
            with np.errstate(invalid="ignore"):
                found: Bools = ~(load.value <= numbers["idle"]) & ~(load.others <= numbers["waiting"])
            return found
    return np.ones(peers.shape, np.bool_)


def _has_own_load(peers: Peers, one: Outlier, numbers: Numbers) -> bool:
    """True for a device with its own amount of work, for which the others do not wait: a replica of a service.

    A device that waits in a collective counts as busy.
    """
    load = peers.metrics.get("gpu.utilization")
    if load is None or abs(peers.measure_distance("gpu.utilization", one)) < numbers["load"]:
        return False
    return float(np.nanmedian(load.others[one.row, one.windows])) < numbers["saturated"]


def _share(far: Bools, one: Outlier) -> float:
    return float(far[one.windows].mean())


def _has_other_memory(peers: Peers, one: Outlier, prefix: str, numbers: Numbers) -> bool:
    """True if a device uses another amount of memory than the others, for example a pipeline stage.

    If the others differ among themselves, each device has its own part in the job.
    """
    memory = peers.metrics.get(f"{prefix}.{_MEMORY}")
    if memory is None:
        return False
    rest = np.delete(peers.average_members(f"{prefix}.{_MEMORY}", one.windows), one.row)
    middle = compute_median(rest)
    if compute_median(np.abs(rest - middle)) > numbers["memory"] * middle:
        return True
    apart = (np.abs(memory.score) > numbers["z"]) & (np.abs(memory.relative) > numbers["memory"])
    return _share(apart[one.row], one) >= _MOSTLY


def _finding(rule: Rule, case: Case, peers: Peers, one: Outlier, signs: list[str], severity: Severity) -> Finding:
    evidence = list(_evidence(peers, one, signs))
    mine, usual = evidence[0].value or 0.0, evidence[0].limit or 0.0
    does = _SIGNS[signs[0].partition(".")[2]].format(format_metric_amount(signs[0], mine))
    waits = ": the others wait for it" if mine > usual else ""
    sentence = f"{case.name_signal(one.signal)} {does}; the median is {format_metric_amount(signs[0], usual)}{waits}"
    confidence = min(0.95, 0.65 + 0.1 * len(signs))
    return rule.report(name_device(one.signal), severity, (one.start, one.end), evidence, confidence, sentence=sentence)


def _evidence(peers: Peers, one: Outlier, signs: list[str]) -> Iterator[Evidence]:
    for name in signs:
        difference = peers.metrics[name]
        mine = float(np.nanmedian(difference.value[one.row, one.windows]))
        usual = float(np.nanmedian(difference.others[one.row, one.windows]))
        text = (
            f"{find_title(name)}: {format_metric_amount(name, mine)}, the median of the others: "
            f"{format_metric_amount(name, usual)}"
        )
        unit = CATALOG[name].answer_unit
        yield make_metric_evidence(
            name, text, mine, float(f"{usual:.6g}"), unit, time=one.start, replica=one.signal.replica
        )
