"""A device that the job has does nothing."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import busy, device
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity
from jobmeter.query.stretches import sustained


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Devices whose utilization and active multiprocessors stay at idle."""
    found = []
    for signal in busy(case, numbers):
        stretches = sustained(signal.time, signal.value <= numbers["idle"], numbers["hold"])
        if not stretches:
            continue
        longest = max(stretches, key=lambda stretch: stretch.length)
        severity = Severity.CRITICAL if longest.length >= numbers["critical"] else Severity.WARNING
        highest = float(signal.value[longest.first : longest.last + 1].max())
        text = f"{signal.metric} of {signal.device_name} stayed at {highest:.1%} for {longest.length / 60000:.1f} min"
        evidence = measured(
            signal.metric, text, highest, numbers["idle"], "1", time=longest.start, replica=signal.replica
        )
        found.append(RULE.finding(device(signal), severity, (longest.start, longest.end), [evidence], 0.95))
    return found


RULE = Rule(
    name="gpu_idle_allocated",
    sees="A GPU or NPU that the job has computes nothing for long.",
    advice="End the job if it is done, ask for fewer devices, or find what its processes wait for.",
    source="https://github.com/PrincetonUniversity/job_defense_shield",
    find=find,
    metrics=("gpu.utilization", "gpu.sm.active", "npu.utilization", "npu.sm.active"),
)
