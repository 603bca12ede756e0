"""One device differs from the job's others, as hardware metrics show."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import PREFIXES
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, device, median, robust_z, together
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Bools, Float64s
from jobmeter.model.finding import Evidence, Finding, Severity

_SIGNALS = ("sm.active", "tensor.active", "power", "clock.sm", "nvlink.transmit")
_IDLE = 0.02
_FEWEST = 3
"""Points of a device that are compared, at least."""

Odd = dict[tuple[str, str, str], list[tuple[Signal, Evidence]]]


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Devices that stand apart in two signals, or whose clock is low, most of the time.

    Utilization does not help: a device that waits in a collective counts as busy. A slow device computes while the
    others wait, so it may draw more power than they do.
    """
    for prefix in PREFIXES:
        odd: Odd = {}
        slow: Odd = {}
        members = 0
        for name in _SIGNALS:
            signals = case.signals(f"{prefix}.{name}", numbers)
            members = max(members, len(signals))
            if len(signals) >= numbers["devices"]:
                _apart(signals, numbers, odd, slow if name == "clock.sm" else {})
        several = {who: signs for who, signs in odd.items() if len(signs) >= numbers["signals"]}
        reported = several | {who: signs for who, signs in slow.items() if who not in several}
        if reported and len(reported) <= members / 3:
            yield from (_finding(rule, signs) for signs in reported.values())


def _apart(signals: list[Signal], numbers: Numbers, odd: Odd, slow: Odd) -> None:
    time, values = together(signals)
    if len(time) < 2 or int(time[-1]) - int(time[0]) + int(np.median(np.diff(time))) < numbers["hold"]:
        return
    with np.errstate(invalid="ignore"):
        z = robust_z(values, numbers["floor"])
    middle = median(values)
    valid = ~np.isnan(values) & (middle > 0)
    high, low = _shares(valid, z > numbers["z"]), _shares(valid, z < -numbers["z"])
    slower = _shares(valid, values < (1 - numbers["clock"]) * middle)
    apart = np.maximum(high, low) >= numbers["share"]
    slower_mostly = slower >= numbers["share"] if signals[0].metric.endswith("clock.sm") else np.zeros_like(apart)
    for row in np.flatnonzero(apart | slower_mostly).tolist():
        signal, value, usual = signals[row], values[row, valid[row]], middle[valid[row]]
        if apart[row] and _not_idle(signal, value):
            odd.setdefault(signal.member, []).append(_sign(signal, value, usual))
        if slower_mostly[row]:
            slow.setdefault(signal.member, []).append(_sign(signal, value, usual))


def _shares(valid: Bools, where: Bools) -> Float64s:
    """The share of the valid points of each row where it is so; -1 for a row of too few of them."""
    count = valid.sum(axis=1)
    share: Float64s = np.where(count >= _FEWEST, (where & valid).sum(axis=1) / np.maximum(count, 1), -1.0)
    return share


def _not_idle(signal: Signal, value: Float64s) -> bool:
    """An idle device is left to another rule."""
    return not signal.metric.endswith(".active") or float(np.median(value)) > _IDLE


def _sign(signal: Signal, value: Float64s, middle: Float64s) -> tuple[Signal, Evidence]:
    mine, usual = float(np.mean(value)), float(np.mean(middle))
    text = f"{signal.metric} of {signal.device_name} was {mine:.4g}, the job's median {usual:.4g}"
    return signal, signal.evidence(text, mine, float(f"{usual:.6g}"), "")


def _finding(rule: Rule, signs: list[tuple[Signal, Evidence]]) -> Finding:
    signal = signs[0][0]
    confidence = min(0.95, 0.65 + 0.1 * len(signs))
    evidence = [evidence for _, evidence in signs]
    return rule.finding(device(signal), Severity.WARNING, signal.span, evidence, confidence)


RULE = Rule(
    name="straggler_gpu",
    sees="One device differs from the others of the job in two hardware signals, or its clock is low.",
    advice="Exclude its node and compare; then look at its temperature, power cap, PCIe link and memory errors.",
    source="https://github.com/ROCm/omnistat",
    find=find,
    metrics=(
        *(f"{prefix}.{name}" for prefix in PREFIXES for name in ("sm.active", "tensor.active", "power")),
        "gpu.clock.sm",
        "gpu.nvlink.transmit",
    ),
    running=True,
)
