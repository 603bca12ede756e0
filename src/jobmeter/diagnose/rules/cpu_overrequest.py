"""The CPU limit of a replica is far above the highest usage of any replica of its role."""

import numpy as np

from jobmeter.diagnose.peers import name_role
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, name_replica


@Rule(
    title="CPU overrequested",
    advice="Request fewer cores: other jobs could use them.",
    source="https://github.com/PrincetonUniversity/jobstats",
    metrics=("cpu.usage", "cpu.limit", "pressure.cpu"),
)
def cpu_overrequest(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find replicas whose busiest times stay far below their limit, although they do not wait for CPU.

    All replicas of a role have the same limit, so all of them must stay below it.
    """
    waiting = {one.replica: float(np.mean(one.value)) for one in case.means.get("pressure.cpu", ()) if len(one)}
    limits = {signal.replica: float(signal.value.max()) for signal in case.means.get("cpu.limit", ())}
    found: list[tuple[Signal, float, float]] = []
    needed: set[str] = set()
    for signal in case.select_signals("cpu.usage", numbers):
        limit = limits.get(signal.replica, case.job.limits.get("cpu.limit", 0.0))
        most = float(np.percentile(signal.average_over(numbers["busiest"]).value, 99))
        if waiting.get(signal.replica, 0.0) > numbers["waiting"] or most >= numbers["use"] * limit > 0:
            needed.add(name_role(signal))
        start, end = signal.span
        if limit >= numbers["cores"] and end - start >= numbers["hold"]:
            found.append((signal, most, limit))
    for signal, most, limit in found:
        if name_role(signal) not in needed:
            text = (
                f"{case.name_signal(signal)} used {most:.2f} cores in its busiest minutes; its limit is {limit:g} cores"
            )
            evidence = signal.cite(text, most, limit, "{core}")
            yield rule.report(name_replica(signal), Severity.INFO, signal.span, [evidence], 0.9)
