"""Samples of a replica are missing for a part of its life."""

import numpy as np

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_replica
from jobmeter.diagnose.wording import format_amount, format_length


@Rule(
    title="Gap in samples",
    advice="Check the agent of its node (its log, agent.dropped, agent.spool.size), and whether the node was paused.",
    source="https://github.com/ROCm/omnistat",
    metrics=("cpu.usage", "gpu.utilization"),
)
def agent_gap(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find gaps between samples that cover a significant share of the time, or a single long gap."""
    for signal in case.means.get("cpu.usage") or case.means.get("gpu.utilization") or ():
        if len(signal) < 4:
            continue
        begin, missing = signal.until[:-1], signal.time[1:] - signal.until[:-1]
        # A gap begins one interval after the last sample before it.
        gaps = np.flatnonzero((missing > (numbers["intervals"] - 1) * signal.interval) & (missing >= numbers["hold"]))
        start, end = signal.span
        lost = int(missing[gaps].sum())
        coverage = 1 - lost / max(end - start, 1)
        if not len(gaps):
            continue
        longest = int(gaps[np.argmax(missing[gaps])])
        if coverage >= numbers["coverage"] and missing[longest] < numbers["long"]:
            continue
        span = int(begin[longest]), int(signal.time[longest + 1])
        text = f"{case.name_signal(signal)} has no samples for {format_length(span[1] - span[0])}"
        if len(gaps) > 1:
            text += f", and {len(gaps)} gaps in all: {format_amount(coverage, '1')} of the time is covered"
        evidence = signal.cite(text, coverage, numbers["coverage"], "1", time=span[0])
        yield rule.report(name_replica(signal), Severity.INFO, span, [evidence], 0.95)
