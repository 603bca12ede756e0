"""A replica has a gap in its samples."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import replica
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Gaps between samples, where they cover a significant share of the time, or one of them is long."""
    for signal in case.means.get("cpu.usage") or case.means.get("gpu.utilization") or ():
        if len(signal) < 4:
            continue
        pauses = np.diff(signal.time)
        interval = max(signal.interval, case.step_ms)
        gaps = np.flatnonzero((pauses > numbers["intervals"] * interval) & (pauses >= numbers["hold"]))
        lost = int((pauses[gaps] - interval).sum())
        whole = int(signal.time[-1] - signal.time[0]) + interval
        if not len(gaps):
            continue
        longest = int(gaps[np.argmax(pauses[gaps])])
        if lost < (1 - numbers["coverage"]) * whole and pauses[longest] < numbers["long"]:
            continue
        start, end = int(signal.time[longest]) + interval, int(signal.time[longest + 1])
        coverage = 1 - lost / whole
        text = f"{len(gaps)} gaps in the samples of {signal.replica}, {coverage:.0%} of the time is covered"
        if len(gaps) == 1:
            text = f"no samples of {signal.replica} for {(end - start) / 60000:.1f} min"
        evidence = signal.evidence(text, coverage, numbers["coverage"], "1", time=start)
        yield rule.finding(replica(signal), Severity.INFO, (start, end), [evidence], 0.95)


RULE = Rule(
    name="agent_gap",
    sees="Samples of a replica are missing for a part of its life.",
    advice="Look at the agent of its node (agent.dropped, agent.spool.size), and whether the node was paused.",
    source="https://github.com/ROCm/omnistat",
    find=find,
    metrics=("cpu.usage", "gpu.utilization"),
)
