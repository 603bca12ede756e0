"""Example of a rule: it finds replicas with thousands of threads."""

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_replica


@Rule(
    title="Too many threads",
    sees="A replica has thousands of threads.",
    advice="Start as many threads as the replica has cores (OMP_NUM_THREADS, loader workers).",
    source="https://docs.kernel.org/scheduler/sched-design-CFS.html",
    metrics=("thread.count",),
    numbers=(("most", 4_000, "an example"), ("hold", "5m", "an example")),
    running=True,
)
def many_threads(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Yield a finding for each replica that has more threads than ``most`` for the time ``hold``."""
    for signal in case.average_signals("thread.count", numbers):
        longest = case.find_stretch(signal, signal.value > numbers["most"], numbers)
        if longest is not None:
            mean = float(signal.select_values(longest).mean())
            text = f"{case.name_signal(signal)} has {mean:,.0f} threads"
            evidence = signal.cite(text, mean, numbers["most"], "{thread}", time=longest.start)
            yield rule.report(name_replica(signal), Severity.WARNING, (longest.start, longest.end), [evidence])
