"""A device is too hot."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity
from jobmeter.query.stretches import sustained


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """High temperature, or time in which the hardware throttled the device because of it."""
    found = []
    checks = [
        ("gpu.temperature", numbers["warning"], "Cel"),
        ("npu.temperature", numbers["warning"], "Cel"),
        ("gpu.throttle.thermal.hardware", numbers["share"], "1"),
        ("gpu.throttle.thermal.software", numbers["share"], "1"),
    ]
    reported: set[tuple[str, str, str]] = set()
    for metric, limit, unit in checks:
        for signal in case.signals(metric, numbers, reaching=limit):
            stretches = sustained(signal.time, signal.value >= limit, numbers["hold"])
            if not stretches or signal.member in reported:
                continue
            reported.add(signal.member)
            longest = max(stretches, key=lambda stretch: stretch.length)
            most = float(signal.value[longest.first : longest.last + 1].max())
            hot = unit == "Cel" and bool(sustained(signal.time, signal.value >= numbers["critical"], numbers["hold"]))
            severity = Severity.CRITICAL if hot else Severity.WARNING
            text = f"{signal.metric} of {signal.device_name} reached {most:.4g}"
            evidence = measured(metric, text, most, limit, unit, time=longest.start, replica=signal.replica)
            found.append(RULE.finding(device(signal), severity, (longest.start, longest.end), [evidence], 0.95))
    return found


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
