"""Names of metrics and forms of amounts in the sentences of findings."""

from jobmeter.model.catalog import CATALOG, find
from jobmeter.model.quantity import format_quantity


def find_title(metric: str) -> str:
    """Return the name of a metric within a sentence: ``multiprocessor activity`` for ``gpu.sm.active``."""
    found = find(metric)
    return metric if found is None else found.phrase


def format_amount(value: float, unit: str) -> str:
    """Return a value with its unit: ``50 %``, ``98.5 %``, ``412 W``, ``1.7 GHz``."""
    if unit == "1":
        share = value * 100
        return f"{share:.0f} %" if abs(share - round(share)) < 0.05 or 10 <= abs(share) <= 95 else f"{share:.1f} %"
    if unit in {"W", "Cel"}:
        return format_quantity(round(value), unit)
    return format_quantity(value, unit)


def format_metric_amount(metric: str, value: float) -> str:
    """Return a value of a metric with its unit."""
    return format_amount(value, CATALOG[metric].answer_unit)


def format_length(length_ms: float) -> str:
    """Format a length of time: ``20 s``, ``12 min``, ``2 h 5 min``, ``3 d 4 h``."""
    if length_ms < 90_000:
        return f"{length_ms / 1000:.0f} s"
    whole, hours = round(length_ms / 60_000), round(length_ms / 3_600_000)
    if whole < 120:
        return f"{whole} min"
    parts = [(whole // 60, "h"), (whole % 60, "min")] if hours < 48 else [(hours // 24, "d"), (hours % 24, "h")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 process``, ``3 processes``."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def format_times(count: int) -> str:
    """Format a number of times: ``once``, ``3 times``."""
    return "once" if count == 1 else f"{count:,} times"
