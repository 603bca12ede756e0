"""A job has a whole GPU, but needs only a small part of it."""

from collections.abc import Iterator

import numpy as np

from jobmeter.diagnose.devices import BUSY, average_by_minute, measure_load, works
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import make_metric_evidence
from jobmeter.diagnose.wording import find_title, format_amount, format_metric_amount
from jobmeter.model.catalog import CATALOG

_BUSIEST = 0.95
_LIMITS = {"gpu.memory.usage": "memory", "cpu.usage": "cores", "memory.usage": "host_memory"}
"""The metrics of which a slice has less, and the thresholds of each."""


@Rule(
    title="MIG candidate",
    advice="Request a slice (MIG on A30, A100, H100 and newer), or share the device with MPS or time slicing.",
    source="https://github.com/PrincetonUniversity/job_defense_shield",
    metrics=(*BUSY, "gpu.memory.limit", *_LIMITS),
    hides=frozenset({"gpu_low_util", "gpu_underused_p95", "batch_small"}),
)
def mig_candidate(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find the only device of a job with little load and little memory in use, for a program on one core."""
    span = case.skip_warm_up(numbers)
    signals = measure_load(case, numbers)
    if len(signals) != 1 or span.length_ms < numbers["hold"] or not works(signals[0], numbers):
        return
    [signal] = signals
    mean, most = signal.mean, float(np.quantile(average_by_minute(signal).value, _BUSIEST))
    if mean > numbers["utilization"] or most > numbers["busiest"]:
        return
    evidence = list(_find_small_use(case, numbers))
    if len(evidence) == len(_LIMITS) and _is_large(case, numbers):
        in_use = format_metric_amount("gpu.memory.usage", evidence[0].value or 0.0)
        sentence = (
            f"{case.name_signal(signal)} computes for {format_amount(mean, '1')} of the time with {in_use} of "
            "its memory "
        )
        sentence += "in use: a slice of a device is enough"
        head = make_metric_evidence(
            signal.metric, f"utilization: {format_amount(mean, '1')}", mean, numbers["utilization"], "1"
        )
        moments = span.start_ms, span.end_ms
        yield rule.report(case.subject, Severity.WARNING, moments, [head, *evidence], 0.85, sentence=sentence)


def _find_small_use(case: Case, numbers: Numbers) -> Iterator[Evidence]:
    """Yield the usual use of each metric if it is small."""
    for metric, threshold in _LIMITS.items():
        signals = case.select_signals(metric, numbers)
        used = sum(float(np.quantile(average_by_minute(one).value, _BUSIEST)) for one in signals)
        if signals and used < numbers[threshold]:
            text = (
                f"{find_title(metric)}: {format_metric_amount(metric, used)}, less than "
                f"{format_metric_amount(metric, numbers[threshold])}"
            )
            yield signals[0].cite(text, used, numbers[threshold], CATALOG[metric].answer_unit)


def _is_large(case: Case, numbers: Numbers) -> bool:
    """True for a device with enough memory for several slices."""
    return any(
        one.mean >= numbers["slices"] * numbers["memory"] for one in case.select_signals("gpu.memory.limit", numbers)
    )
