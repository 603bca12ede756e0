"""A device is too hot."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import device
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """High temperature, or time in which the hardware throttled the device because of it."""
    reported: set[tuple[str, str, str]] = set()
    for metric in rule.metrics:
        limit, unit = (numbers["warning"], "Cel") if metric.endswith(".temperature") else (numbers["share"], "1")
        for signal in case.signals(metric, numbers, reaching=limit):
            longest = case.stretch(signal, signal.value >= limit, numbers)
            if longest is None or signal.member in reported:
                continue
            reported.add(signal.member)
            most = float(signal.during(longest).max())
            hot = unit == "Cel" and case.stretch(signal, signal.value >= numbers["critical"], numbers)
            text = f"{metric} of {signal.device_name} reached {most:.4g}"
            evidence = signal.evidence(text, most, limit, unit, time=longest.start)
            severity = Severity.CRITICAL if hot else Severity.WARNING
            yield rule.finding(device(signal), severity, (longest.start, longest.end), [evidence], 0.95)


RULE = Rule(
    name="thermal",
    sees="A device is hot, or throttled because of it.",
    advice="Look at fans, air flow and the neighbours in the rack; lower the power limit until then.",
    source="https://github.com/facebookresearch/gcm",
    find=find,
    metrics=(
        "gpu.temperature",
        "npu.temperature",
        "gpu.throttle.thermal.hardware",
        "gpu.throttle.thermal.software",
    ),
    running=True,
)
