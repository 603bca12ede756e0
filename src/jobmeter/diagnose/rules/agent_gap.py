"""A replica has a gap in its samples."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Gaps between samples, where they cover a significant share of the time."""
    found = []
    signals = case.means.get("cpu.usage") or case.means.get("gpu.utilization") or ()
    for signal in signals:
        if len(signal) < 4:
            continue
        pauses = np.diff(signal.time)
        interval = max(signal.interval, case.step_ms)
        gaps = np.flatnonzero((pauses > numbers["intervals"] * interval) & (pauses >= numbers["hold"]))
        lost = int((pauses[gaps] - interval).sum())
        whole = int(signal.time[-1] - signal.time[0]) + interval
        if not len(gaps) or lost < (1 - numbers["coverage"]) * whole:
            continue
        longest = int(gaps[np.argmax(pauses[gaps])])
        start, end = int(signal.time[longest]) + interval, int(signal.time[longest + 1])
        found.append(_finding(signal, len(gaps), 1 - lost / whole, (start, end), numbers))
    return found


def _finding(signal: Signal, gaps: int, coverage: float, longest: tuple[int, int], numbers: Numbers) -> Finding:
    text = f"{gaps} gaps in the samples of {signal.replica}, {coverage:.0%} of the time is covered"
    if gaps == 1:
        text = f"no samples of {signal.replica} for {(longest[1] - longest[0]) / 60000:.1f} min"
    evidence = measured(
        signal.metric, text, coverage, numbers["coverage"], "1", time=longest[0], replica=signal.replica
    )
    return RULE.finding(Subject("replica", signal.replica), Severity.INFO, longest, [evidence], 0.95)


RULE = Rule(
    name="agent_gap",
    sees="Samples of a replica are missing for a part of its life.",
    advice="Look at the agent of its node (agent.dropped, agent.spool.size), and whether the node was paused.",
    source="https://github.com/ROCm/omnistat",
    find=find,
    metrics=("cpu.usage", "gpu.utilization"),
)
