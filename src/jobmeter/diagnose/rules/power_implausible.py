"""The power that a device reports is too low for its work, or far above its power limit."""

import numpy as np

from jobmeter.diagnose.devices import read_level_beside
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_device
from jobmeter.diagnose.wording import format_amount

_TEXTS = {
    "least": " while it computes; an idle device draws no less than {}",
    "most": "; under its limit no device draws more than {}",
}


@Rule(
    title="Power implausible",
    advice="Do not rely on its power and energy; update its firmware, and test or replace the device.",
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
    metrics=("gpu.power", "gpu.power.limit", "gpu.utilization", "gpu.sm.active"),
    hides=frozenset({"gpu_busy_but_empty", "straggler_gpu"}),
)
def power_implausible(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find less power than an idle device draws during work, or much more than the power limit allows."""
    for signal in case.average_signals("gpu.power", numbers):
        limit = read_level_beside(case, "gpu.power.limit", signal, numbers)
        busy, active = (
            read_level_beside(case, f"gpu.{name}", signal, numbers) for name in ("utilization", "sm.active")
        )
        if limit is None:
            continue
        with np.errstate(invalid="ignore"):
            above = signal.value > numbers["most"] * limit
            below = signal.value < numbers["least"] * limit
            below &= np.zeros(len(signal), np.bool_) if busy is None else busy >= numbers["busy"]
            below &= active is None or active >= numbers["sm"]
        for wrong, name in ((below, "least"), (above, "most")):
            stretch = case.find_stretch(signal, wrong, numbers)
            if stretch is None:
                continue
            power = float(np.median(signal.select_values(stretch)))
            bound = float(np.nanmedian(limit[stretch.points])) * numbers[name]
            text = f"{case.name_signal(signal)} reports {format_amount(power, 'W')}"
            text += _TEXTS[name].format(format_amount(bound, "W"))
            evidence = signal.cite(text, power, float(f"{bound:.6g}"), "W", time=stretch.start)
            yield rule.report(name_device(signal), Severity.WARNING, stretch.span, [evidence], 0.85)
