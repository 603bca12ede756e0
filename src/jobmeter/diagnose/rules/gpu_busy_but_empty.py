"""A device is busy all the time with kernels that fill little of it."""

from collections.abc import Iterator

import numpy as np

from jobmeter.diagnose.devices import PREFIXES, read_level_beside
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, make_metric_evidence, name_device
from jobmeter.diagnose.wording import find_title, format_amount
from jobmeter.model.batch import Float64s
from jobmeter.query.stretches import Stretch

_OFTEN = 0.9


@Rule(
    title="GPU busy but empty",
    advice="Give each kernel more work: larger batches, mixed precision, fused kernels; a profiler shows where.",
    source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html#metrics",
    metrics=(
        *(
            f"{prefix}.{name}"
            for prefix in PREFIXES
            for name in ("utilization", "sm.active", "tensor.active", "power", "memory.utilization")
        ),
        "gpu.power.limit",
    ),
    running=True,
)
def gpu_busy_but_empty(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find high utilization beside few active multiprocessors, idle tensor cores, little power or empty memory."""
    for prefix in PREFIXES:
        for signal in case.average_signals(f"{prefix}.utilization", numbers, reaching=numbers["busy"]):
            is_busy = case.find_stretch(signal, signal.value >= numbers["busy"], numbers) is not None
            signs = list(_signs(case, prefix, signal, numbers)) if is_busy else []
            if signs:
                start, end = min(stretch.start for stretch, _ in signs), max(stretch.end for stretch, _ in signs)
                evidence = [one for _, one in signs]
                usual = format_amount(float(signal.select_values(signs[0][0]).mean()), "1")
                sentence = f"{case.name_signal(signal)} is busy for {usual} of the time, but {evidence[0].text}"
                confidence = min(0.95, 0.6 + 0.15 * len(signs))
                span = start, end
                yield rule.report(name_device(signal), Severity.WARNING, span, evidence, confidence, sentence=sentence)


def _signs(case: Case, prefix: str, signal: Signal, numbers: Numbers) -> Iterator[tuple[Stretch, Evidence]]:
    for name in ("sm.active", "tensor.active", "power", "memory.utilization"):
        metric, limit = f"{prefix}.{name}", numbers[name.partition(".")[0]]
        value = read_level_beside(case, metric, signal, numbers)
        if name == "power":
            most = read_level_beside(case, f"{prefix}.power.limit", signal, numbers)
            value = None if value is None or most is None else value / np.where(most > 0, most, np.nan)
        if value is None or (name == "tensor.active" and not _is_used(value, numbers)):
            continue
        longest = case.find_stretch(signal, (signal.value >= numbers["busy"]) & (value < limit), numbers)
        if longest is not None:
            mean = float(np.nanmean(value[longest.points]))
            text = f"draws {format_amount(mean, '1')} of its power limit"
            text = text if name == "power" else f"its {find_title(metric)} is {format_amount(mean, '1')}"
            yield (
                longest,
                make_metric_evidence(metric, text, mean, limit, "1", time=longest.start, replica=signal.replica),
            )


def _is_used(tensor: Float64s, numbers: Numbers) -> bool:
    """True if a job uses tensor cores at all: other jobs compute without them."""
    measured_ones = tensor[~np.isnan(tensor)]
    return bool(len(measured_ones)) and float(np.quantile(measured_ones, _OFTEN)) >= numbers["used"]
