"""Devices, their memory and the CPU all have room, so a larger batch would fit."""

from collections.abc import Iterator, Sequence

import numpy as np

from jobmeter.diagnose.devices import BUSY, PREFIXES, average_by_minute, find_low_level
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import make_metric_evidence
from jobmeter.diagnose.wording import find_title, format_amount

_OFTEN = 0.95
_MEMORY = tuple(f"{prefix}.memory.utilization" for prefix in PREFIXES)


@Rule(
    title="Batch too small",
    advice="Double the batch size until one of the three is nearly full, and scale the learning rate with it.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#batch-size",
    metrics=(*BUSY, *_MEMORY, "cpu.utilization"),
    hides=frozenset({"gpu_underused_p95"}),
)
def batch_small(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find low 95th percentiles of the busiest device, of its memory and of the busiest replica's CPU."""
    found = find_low_level(case, numbers)
    if found is None:
        return
    used, level = found
    text = f"utilization: 95th percentile {format_amount(level, '1')}"
    evidence = [make_metric_evidence(used[0].metric, text, level, numbers["busiest"], "1")]
    for metrics in (_MEMORY, ("cpu.utilization",)):
        evidence += _room(case, metrics, numbers)
    if len(evidence) == 3:
        memory, cpu = (format_amount(one.value or 0.0, "1") for one in evidence[1:])
        sentence = (
            f"the devices compute for {format_amount(level, '1')} of the time, use {memory} of their memory and {cpu} "
        )
        sentence += f"of the CPU: all three are below {format_amount(numbers['busiest'], '1')}, so a larger batch fits"
        span = case.skip_warm_up(numbers)
        moments = span.start_ms, span.end_ms
        yield rule.report(case.subject, Severity.INFO, moments, evidence, 0.8, sentence=sentence)


def _room(case: Case, metrics: Sequence[str], numbers: Numbers) -> Iterator[Evidence]:
    """Yield the level of the fullest member as evidence, if it is low."""
    signals = [one for metric in metrics for one in case.select_signals(metric, numbers)]
    if signals:
        fullest = max(float(np.quantile(average_by_minute(one).value, _OFTEN)) for one in signals)
        if fullest < numbers["busiest"]:
            text = f"{find_title(signals[0].metric)}: 95th percentile {format_amount(fullest, '1')}"
            yield make_metric_evidence(signals[0].metric, text, fullest, numbers["busiest"], "1")
