"""A replica was given far more CPU than it uses."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Replicas whose busiest times stay far below their limit."""
    found = []
    limits = {signal.replica: float(signal.value.max()) for signal in case.means.get("cpu.limit", ())}
    for signal in case.signals("cpu.usage", numbers):
        limit = limits.get(signal.replica, case.job.limits.get("cpu.limit", 0.0))
        start, end = int(signal.time[0]), int(signal.time[-1]) + signal.interval
        if limit < numbers["cores"] or end - start < numbers["hold"]:
            continue
        most = float(np.percentile(signal.value, 99))
        if most >= numbers["use"] * limit:
            continue
        text = f"{signal.replica} used {most:.2f} cores at its busiest and may use {limit:g}"
        evidence = measured(signal.metric, text, most, limit, "{core}", replica=signal.replica)
        found.append(RULE.finding(Subject("replica", signal.replica), Severity.INFO, (start, end), [evidence], 0.9))
    return found


RULE = Rule(
    name="cpu_overrequest",
    sees="A CPU limit lies far above what the replica ever uses.",
    advice="Ask for fewer cores: others wait for them.",
    source="https://github.com/PrincetonUniversity/jobstats",
    find=find,
    metrics=("cpu.usage", "cpu.limit"),
)
