"""Names of metrics and forms of amounts in the sentences of findings."""

from jobmeter.model.catalog import CATALOG
from jobmeter.model.quantity import quantity

_HOST = {"memory.usage": "memory in use", "memory.utilization": "memory in use"}
_TITLES = {
    "utilization": "utilization",
    "sm.active": "multiprocessor activity",
    "tensor.active": "tensor core activity",
    "dram.active": "memory interface activity",
    "power": "power",
    "clock.sm": "clock",
    "nvlink.transmit": "NVLink traffic sent",
    "nvlink.receive": "NVLink traffic received",
    "pcie.transmit": "PCIe traffic sent",
    "pcie.receive": "PCIe traffic received",
    "temperature": "temperature",
    "memory.usage": "device memory in use",
    "memory.utilization": "device memory in use",
    "cpu.usage": "CPU in use",
    "cpu.utilization": "CPU in use",
    "pressure.cpu": "time of waiting for a CPU",
    "pressure.io": "time of waiting for storage",
    "node.pressure.io": "time of waiting for storage",
    "network.receive": "network traffic received",
    "network.transmit": "network traffic sent",
    "disk.read": "bytes read",
    "disk.write": "bytes written",
}


def title(metric: str) -> str:
    """Return what people call a metric: ``multiprocessor activity`` of ``gpu.sm.active``."""
    return _HOST.get(metric) or _TITLES.get(metric) or _TITLES.get(metric.partition(".")[2]) or metric.replace(".", " ")


def amount(value: float, unit: str) -> str:
    """Return a value with its unit: ``50 %``, ``98.5 %``, ``412 W``, ``1.7 GHz``."""
    if unit == "1":
        share = value * 100
        return f"{share:.0f} %" if abs(share - round(share)) < 0.05 or 10 <= abs(share) <= 95 else f"{share:.1f} %"
    if unit in {"W", "Cel"}:
        return quantity(round(value), unit)
    return quantity(value, unit)


def amount_of(metric: str, value: float) -> str:
    """Return a value of a metric with its unit."""
    return amount(value, CATALOG[metric].answer_unit)


def minutes(length_ms: float) -> str:
    """Return a length of time: ``12 min``, ``3.5 h``, ``20 s``."""
    if length_ms < 90_000:
        return f"{length_ms / 1000:.0f} s"
    if length_ms < 7_200_000:
        return f"{length_ms / 60_000:.0f} min"
    return f"{length_ms / 3_600_000:.1f} h"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 process``, ``3 processes``."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def often(count: int) -> str:
    """Return how often something happened: ``once``, ``3 times``."""
    return "once" if count == 1 else f"{count:,} times"
