"""A device is hot, or throttled because of it."""

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Member, device
from jobmeter.diagnose.wording import amount


@Rule(
    title="Too hot",
    advice="Look at fans, air flow and the neighbours in the rack; lower the power limit until then.",
    source="https://github.com/facebookresearch/gcm",
    metrics=("gpu.temperature", "npu.temperature", "gpu.throttle.thermal.hardware", "gpu.throttle.thermal.software"),
    running=True,
)
def thermal(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find high temperatures, or time in which the hardware throttled the device because of them."""
    reported: set[Member] = set()
    for metric in rule.metrics:
        hot = metric.endswith(".temperature")
        limit, unit = (numbers["warning"], "Cel") if hot else (numbers["share"], "1")
        for signal in case.levels(metric, numbers, reaching=limit):
            longest = case.stretch(signal, signal.value >= limit, numbers)
            if longest is None or signal.member in reported:
                continue
            reported.add(signal.member)
            most = float(signal.during(longest).max())
            does = "reached {}" if hot else "was slowed down by heat for {} of the time"
            text = f"{case.name_of(signal)} {does.format(amount(most, unit))}; the limit is {amount(limit, unit)}"
            evidence = signal.evidence(text, most, limit, unit, time=longest.start)
            critical = hot and case.stretch(signal, signal.value >= numbers["critical"], numbers)
            severity = Severity.CRITICAL if critical else Severity.WARNING
            yield rule.finding(device(signal), severity, (longest.start, longest.end), [evidence], 0.95)
