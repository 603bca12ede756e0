"""The PCIe link of a device uses fewer lanes or a lower generation than possible, or retransmits packets."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jobmeter.diagnose.devices import find_growth_storms, measure_load, read_level_at, read_level_beside
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, name_device
from jobmeter.model.catalog import CATALOG
from jobmeter.query.stretches import Stretch

_REPLAY = "gpu.pcie.replay"
_TEXTS = {
    "gpu.pcie.width": "uses {:.0f} PCIe lanes of {:.0f}",
    "gpu.pcie.generation": "has its PCIe link at generation {:.0f} of {:.0f}",
}


class LinkFault(NamedTuple):
    """A fault of a device's link from ``start`` to ``end``, epoch ms; ``alone`` is False if all links have it."""

    signal: Signal
    evidence: Evidence
    start: int
    end: int
    alone: bool


@Rule(
    title="PCIe degraded",
    advice="Reset the device once it is idle; if that does not help, reseat the card or its riser, and check the BIOS.",
    source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html#background-health-checks",
    metrics=("gpu.utilization", "gpu.sm.active", *(name for metric in _TEXTS for name in (metric, f"{metric}.limit"))),
    counters=(_REPLAY,),
)
def pcie_degraded(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find fewer lanes or a lower generation than possible while the device works, and constant replays."""
    faults = [*_find_slow_links(case, numbers), *_replays(case, numbers)]
    for member in dict.fromkeys(one.signal.member for one in faults):
        own = [one for one in faults if one.signal.member == member]
        span = min(one.start for one in own), max(one.end for one in own)
        severity = Severity.WARNING if any(one.alone for one in own) else Severity.INFO
        yield rule.report(name_device(own[0].signal), severity, span, [one.evidence for one in own], 0.9)


def _find_slow_links(case: Case, numbers: Numbers) -> Iterator[LinkFault]:
    for metric, text in _TEXTS.items():
        signals = case.select_signals(metric, numbers)
        low = _find_low(case, metric, signals, numbers)
        # If all links are slow, the machine may be set up so, or virtual.
        alone = not len(low) == len(signals) > 1
        for signal, limit, stretch in low:
            value = float(np.median(signal.select_values(stretch)))
            sentence = f"{case.name_signal(signal)} {text.format(value, limit)} while it works"
            evidence = signal.cite(sentence, value, limit, CATALOG[signal.metric].unit, time=stretch.start)
            yield LinkFault(signal, evidence, stretch.start, stretch.end, alone)


def _replays(case: Case, numbers: Numbers) -> Iterator[LinkFault]:
    for signal, rate, (start, end) in find_growth_storms(case, _REPLAY, numbers):
        text = f"retransmits {rate:.0f} PCIe packets a minute; more than {numbers['rate']:.0f} is unusual"
        sentence = f"{case.name_signal(signal)} {text}"
        evidence = signal.cite(sentence, rate, numbers["rate"], "{error}/min", time=start)
        yield LinkFault(signal, evidence, start, end, alone=True)


def _find_low(
    case: Case, metric: str, signals: Sequence[Signal], numbers: Numbers
) -> list[tuple[Signal, float, Stretch]]:
    """Return links below their limit while the device works, with the limit; an idle device may lower its link."""
    load = {one.member: one for one in measure_load(case, numbers)}
    found = []
    for signal in signals:
        limit = read_level_beside(case, f"{metric}.limit", signal, numbers)
        if limit is None or signal.member not in load:
            continue
        with np.errstate(invalid="ignore"):
            true = (signal.value < limit) & (read_level_at(load[signal.member], signal, numbers) >= numbers["load"])
        stretch = case.find_stretch(signal, true, numbers)
        if stretch is not None:
            found.append((signal, float(np.nanmedian(limit[stretch.points])), stretch))
    return found
