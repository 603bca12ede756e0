"""A replica was given far more CPU than it uses."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import replica
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Replicas whose busiest times stay far below their limit, although they do not wait for CPU."""
    waiting = {one.replica: float(np.mean(one.value)) for one in case.means.get("pressure.cpu", ()) if len(one)}
    limits = {signal.replica: float(signal.value.max()) for signal in case.means.get("cpu.limit", ())}
    for signal in case.signals("cpu.usage", numbers):
        limit = limits.get(signal.replica, case.job.limits.get("cpu.limit", 0.0))
        start, end = signal.span
        if limit < numbers["cores"] or end - start < numbers["hold"]:
            continue
        if waiting.get(signal.replica, 0.0) > numbers["waiting"]:
            continue
        most = float(np.percentile(signal.averaged(numbers["busiest"]).value, 99))
        if most < numbers["use"] * limit:
            text = f"{case.name_of(signal)} used {most:.2f} cores at its busiest and may use {limit:g} cores"
            evidence = signal.evidence(text, most, limit, "{core}")
            yield rule.finding(replica(signal), Severity.INFO, (start, end), [evidence], 0.9)


RULE = Rule(
    name="cpu_overrequest",
    title="CPU overrequest",
    sees="A CPU limit lies far above what the replica ever uses.",
    advice="Ask for fewer cores: others wait for them.",
    source="https://github.com/PrincetonUniversity/jobstats",
    find=find,
    metrics=("cpu.usage", "cpu.limit", "pressure.cpu"),
)
