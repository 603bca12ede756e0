"""A device is throttled by its power cap, or by the power supply."""

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_device
from jobmeter.diagnose.wording import format_amount


@Rule(
    title="Throttled by power",
    advice="Under a power cap this is normal. Under a power brake, check the power supply and the rack's power budget.",
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
    metrics=("gpu.throttle.power", "gpu.throttle.power.brake"),
)
def throttle_power(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find long times under the software cap, or any time under the power brake."""
    for signal in case.average_signals("gpu.throttle.power", numbers):
        longest = case.find_stretch(signal, signal.value > numbers["cap"], numbers)
        if longest is not None:
            mean = float(signal.select_values(longest).mean())
            text = (
                f"{case.name_signal(signal)} is slowed down by its power cap for {format_amount(mean, '1')} of the time"
            )
            evidence = signal.cite(text, mean, numbers["cap"], "1")
            yield rule.report(name_device(signal), Severity.INFO, longest.span, [evidence], 0.9)
    for signal in case.select_signals("gpu.throttle.power.brake", numbers):
        braked = signal.value > numbers["brake"]
        if braked.any():
            span = int(signal.time[braked][0]), int(signal.until[braked][-1])
            text = f"{case.name_signal(signal)} is slowed down by the power brake: supply or rack is at its limit"
            evidence = signal.cite(text, float(signal.value.max()), numbers["brake"], "1")
            yield rule.report(name_device(signal), Severity.WARNING, span, [evidence], 0.95)
