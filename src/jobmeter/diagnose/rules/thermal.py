"""A device is hot, or throttled because of its temperature."""

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Member, name_device
from jobmeter.diagnose.wording import format_amount


@Rule(
    title="Overheating",
    advice="Check fans, air flow and the neighbours in the rack; until then, lower the power limit.",
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
        for signal in case.average_signals(metric, numbers, reaching=limit):
            longest = case.find_stretch(signal, signal.value >= limit, numbers)
            if longest is None or signal.member in reported:
                continue
            reported.add(signal.member)
            most = float(signal.select_values(longest).max())
            does = "reached {}" if hot else "was slowed down by heat for {} of the time"
            text = (
                f"{case.name_signal(signal)} {does.format(format_amount(most, unit))}; the limit is "
                f"{format_amount(limit, unit)}"
            )
            evidence = signal.cite(text, most, limit, unit, time=longest.start)
            critical = hot and case.find_stretch(signal, signal.value >= numbers["critical"], numbers)
            severity = Severity.CRITICAL if critical else Severity.WARNING
            yield rule.report(name_device(signal), severity, longest.span, [evidence], 0.95)
