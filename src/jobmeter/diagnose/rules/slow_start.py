"""The devices of a job wait for a long time before they work, at its start or after a restart."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, align_signals, make_metric_evidence
from jobmeter.diagnose.wording import format_length
from jobmeter.model.phase import Phase, PhaseSpan
from jobmeter.model.time import SECOND
from jobmeter.query.course import Course
from jobmeter.query.idle import WORK
from jobmeter.query.phases import PhaseFacts, compute_phases

_WORKS = frozenset({Phase.FIRST_STEP, Phase.TRAINING})


@Rule(
    title="Slow start",
    advice=(
        "Check what the job does meanwhile: load data or a model (read a local copy), compile (cache the result), "
        "wait for other replicas."
    ),
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#max-initialization-time",
    metrics=WORK,
    hides=frozenset({"gpu_idle_allocated", "cpu_bound_input", "io_bound_input"}),
)
def slow_start(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find a start phase that took longer than the limit, and after which devices worked."""
    metric = next((name for name in WORK if case.means.get(name)), "")
    if not metric:
        return
    work = _course(case.means[metric])
    spans = compute_phases(case.view, PhaseFacts(courses={metric: work}, events=case.events), case.now_ms).spans
    slow = [
        span
        for span, then in pairwise(spans)
        # Another rule reports devices that never work.
        if span.phase is Phase.START
        and then.phase in _WORKS
        and span.length >= numbers["hold"]
        and _measure_coverage(work, span) >= numbers["coverage"]
    ]
    for span in sorted(slow, key=lambda span: -span.length)[:1]:
        after = f"after restart {span.attempt}" if span.attempt else "of the job"
        text = f"no device worked for the first {format_length(span.length)} {after}"
        seconds, limit = span.length / SECOND, numbers["hold"] / SECOND
        evidence = make_metric_evidence(metric, text, seconds, limit, "s", time=span.start)
        yield rule.report(case.subject, Severity.WARNING, (span.start, span.end), [evidence], 0.9)


def _course(signals: Sequence[Signal]) -> Course:
    """Return the mean of the devices as one line, at the times of the device with the most samples."""
    own = list(signals)
    time, values = align_signals(own)
    valid = ~np.isnan(values).all(axis=0)
    until = max(own, key=len).until
    return Course(time[valid], until[valid], np.nanmean(values[:, valid], axis=0))


def _measure_coverage(work: Course, span: PhaseSpan) -> float:
    """Return the share of a span in which devices were measured."""
    width = np.minimum(work.until, span.end) - np.maximum(work.time, span.start)
    return float(np.maximum(width, 0).sum()) / span.length
