"""Memory of a device is nearly full."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.memory import near_limit
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Above the share for long enough."""
    found = []
    for signal in case.signals("gpu.memory.utilization", numbers):
        longest = near_limit(signal, numbers)
        if longest is None:
            continue
        most = float(signal.value[longest.first : longest.last + 1].max())
        text = f"memory of {signal.device_name} reached {most:.1%} of its limit"
        evidence = measured(
            signal.metric, text, most, numbers["share"], "1", time=longest.start, replica=signal.replica
        )
        span = (longest.start, longest.end)
        found.append(RULE.finding(device(signal), Severity.INFO, span, [evidence], 0.95))
    return found


RULE = Rule(
    name="gpu_mem_near_full",
    sees="Memory of a device is nearly full.",
    advice="A little more and an allocation fails: smaller batches, gradient checkpointing, or a larger device.",
    source="https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/modelarts_24_0081.html",
    find=find,
    metrics=("gpu.memory.utilization",),
)
