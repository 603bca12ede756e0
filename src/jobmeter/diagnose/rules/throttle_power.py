"""A device is throttled by power."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity
from jobmeter.query.stretches import sustained


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Time under the software cap for long, or any under the power brake."""
    found = []
    for signal in case.signals("gpu.throttle.power", numbers):
        stretches = sustained(signal.time, signal.value > numbers["cap"], numbers["hold"])
        if stretches:
            longest = max(stretches, key=lambda stretch: stretch.length)
            mean = float(signal.value[longest.first : longest.last + 1].mean())
            text = f"{signal.device_name} was under its power cap for {mean:.0%} of the time"
            evidence = measured(signal.metric, text, mean, numbers["cap"], "1", replica=signal.replica)
            found.append(RULE.finding(device(signal), Severity.INFO, (longest.start, longest.end), [evidence], 0.9))
    for signal in case.signals("gpu.throttle.power.brake", numbers):
        braked = signal.value > numbers["brake"]
        if braked.any():
            span = int(signal.time[braked][0]), int(signal.time[braked][-1]) + max(signal.interval, 1)
            text = f"{signal.device_name} was throttled by the power brake: supply or rack are at their limit"
            most = float(signal.value.max())
            evidence = measured(signal.metric, text, most, numbers["brake"], "1", replica=signal.replica)
            found.append(RULE.finding(device(signal), Severity.WARNING, span, [evidence], 0.95))
    return found


RULE = Rule(
    name="throttle_power",
    sees="A device is throttled by its power cap, or by the power supply.",
    advice="Under a cap this is normal; a brake means that the power supply or the rack is at its limit.",
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
    find=find,
    metrics=("gpu.throttle.power", "gpu.throttle.power.brake"),
)
