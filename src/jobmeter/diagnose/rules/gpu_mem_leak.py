"""Memory of a device grows on a straight line without an end."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.memory import growth, limit_of
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Steady growth that reaches the limit soon."""
    found = []
    limits = case.means.get("gpu.memory.limit", ())
    for signal in case.signals("gpu.memory.usage", numbers):
        limit = limit_of(limits, signal, None)
        leak = growth(signal, limit, numbers)
        if leak is None:
            continue
        slope, fit, rest = leak
        until = "" if rest is None else f", {rest / 60:.1f} min from its limit"
        text = f"memory of {signal.device_name} grew by {slope * 60 / 2**20:.1f} MiB a minute{until}"
        evidence = measured(signal.metric, text, float(signal.value[-1]), limit, "By", replica=signal.replica)
        span = int(signal.time[0]), int(signal.time[-1]) + signal.interval
        found.append(RULE.finding(device(signal), Severity.WARNING, span, [evidence], 0.95 * fit))
    return found


RULE = Rule(
    name="gpu_mem_leak",
    sees="Memory of a device grows on a straight line without an end.",
    advice="Something keeps tensors: losses summed without .item() or .detach(), outputs kept in a list.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    find=find,
    metrics=("gpu.memory.usage", "gpu.memory.limit"),
)
