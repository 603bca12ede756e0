"""Values derived from reports: seconds a step, tokens a second, and the share of the devices' peak arithmetic (MFU)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobmeter.collect.base import Labels, Owner
from jobmeter.collect.reports.reporter import ReportedPoint, Reporter
from jobmeter.model.device_peaks import find_peak_flops

STEP_TIME, TOKENS_A_SECOND, MFU = "step_time", "tokens_per_second", "mfu"
DERIVED = tuple(f"app.{name}" for name in (STEP_TIME, TOKENS_A_SECOND, MFU))
TOKENS = "tokens"
"""Name of the reported value with the tokens of a step."""
_MOST = 4_096

Meta = Mapping[str, str | float]


@dataclass(slots=True)
class _Progress:
    """Points since the last flush: ``first`` is the last point before these."""

    first_ms: int
    first_step: float
    last_ms: int
    last_step: float
    tokens: float = 0.0


class DerivedValues:
    """Derive values from the steps of each process. For one thread at a time."""

    def __init__(self, products: Callable[[], Iterable[str]]) -> None:
        self._products = products
        self._progress: dict[tuple[Owner, Labels], _Progress] = {}

    def take(self, reporter: Reporter, points: Sequence[ReportedPoint]) -> None:
        """Take stored points of a process. A step back, as after a restart, begins a new count."""
        key = reporter.owner, reporter.labels
        for point in points:
            if point.step is None:
                continue
            one = self._progress.get(key)
            if one is None or point.step < one.last_step or point.time_ms < one.last_ms:
                if one is None and len(self._progress) >= _MOST:
                    return
                self._progress[key] = _Progress(point.time_ms, point.step, point.time_ms, point.step)
                continue
            one.last_ms, one.last_step = point.time_ms, point.step
            one.tokens += point.values.get(TOKENS, 0.0)

    def flush(self, meta_of: Callable[[Owner], Meta]) -> Iterator[tuple[Owner, Labels, dict[str, float]]]:
        """Yield the values of each process that made steps since the last call."""
        for (owner, labels), one in self._progress.items():
            seconds, steps = (one.last_ms - one.first_ms) / 1000, one.last_step - one.first_step
            if seconds <= 0 or steps <= 0:
                continue
            values = {STEP_TIME: seconds / steps}
            if one.tokens > 0:
                values[TOKENS_A_SECOND] = one.tokens / seconds
            if (share := self._measure_share(meta_of(owner), steps / seconds, one.tokens / seconds)) is not None:
                values[MFU] = share
            one.first_ms, one.first_step, one.tokens = one.last_ms, one.last_step, 0.0
            yield owner, labels, values

    def forget(self, owners: Iterable[Owner]) -> None:
        """Drop the state of replicas."""
        gone = frozenset(owners)
        self._progress = {key: one for key, one in self._progress.items() if key[0] not in gone}

    def _measure_share(self, meta: Meta, steps_a_second: float, tokens_a_second: float) -> float | None:
        """Return the share of the peak that the reported operations are; None if one of both is unknown."""
        operations = _read_positive(meta, "flops_per_token") * tokens_a_second
        operations = operations or _read_positive(meta, "flops_per_step") * steps_a_second
        peak = _read_positive(meta, "peak_flops") or self._find_peak(meta)
        devices = _read_positive(meta, "devices") or 1.0
        return operations / (peak * devices) if operations and peak else None

    def _find_peak(self, meta: Meta) -> float:
        products = {str(meta["device"])} if "device" in meta else set(self._products())
        # On a node with several products it is unknown which one computes.
        peaks = {find_peak_flops(product, str(meta.get("precision", "bf16"))) for product in products}
        return next(iter(peaks)) or 0.0 if len(peaks) == 1 else 0.0


def _read_positive(meta: Meta, name: str) -> float:
    try:
        value = float(meta.get(name, 0.0))
    except ValueError:
        return 0.0
    return value if 0 < value < float("inf") else 0.0
