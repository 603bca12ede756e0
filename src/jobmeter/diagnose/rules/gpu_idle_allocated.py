"""A device that the job has does nothing."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import BUSY, busy
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import device
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Devices whose utilization and active multiprocessors stay at idle."""
    for signal in busy(case, numbers):
        longest = case.stretch(signal, signal.value <= numbers["idle"], numbers)
        if longest is None:
            continue
        severity = Severity.CRITICAL if longest.length >= numbers["critical"] else Severity.WARNING
        highest = float(signal.during(longest).max())
        text = f"{signal.metric} of {signal.device_name} stayed at {highest:.1%} for {longest.length / 60000:.1f} min"
        evidence = signal.evidence(text, highest, numbers["idle"], "1", time=longest.start)
        yield rule.finding(device(signal), severity, (longest.start, longest.end), [evidence], 0.95)


RULE = Rule(
    name="gpu_idle_allocated",
    sees="A GPU or NPU that the job has computes nothing for long.",
    advice="End the job if it is done, ask for fewer devices, or find what its processes wait for.",
    source="https://github.com/PrincetonUniversity/job_defense_shield",
    find=find,
    metrics=BUSY,
)
