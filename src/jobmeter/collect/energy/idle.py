"""Power at rest of a part of the node, while no job has the part."""

from pathlib import Path

import msgspec

from jobmeter.collect.state_file import StateFile

_DAYS = 7
_QUANTILE = 0.05
_DAY_MS = 86_400_000
_LEAST = 30
"""Least number of readings for a quantile."""
_MOST_WATTS = 100_000
_SAVE_MS = 600_000

Histograms = dict[str, dict[int, dict[int, int]]]
"""Counts of readings by meter, day and whole watt."""


class IdlePower:
    """Fifth percentile of the power of each meter while no job had its part, over 7 days. Stored in a file."""

    def __init__(self, path: Path | None) -> None:
        self._file = StateFile(path, msgspec.json.Decoder(Histograms))
        self._days: Histograms = self._file.load() or {}
        self._saved_ms: int | None = None

    def add(self, meter: str, watts: float, now_ms: int) -> None:
        """Count a reading of a meter while no job has its part."""
        if not 0 <= watts <= _MOST_WATTS:
            return
        day = now_ms // _DAY_MS
        days = self._days.setdefault(meter, {})
        counts = days.setdefault(day, {})
        counts[round(watts)] = counts.get(round(watts), 0) + 1
        for old in [one for one in days if not day - _DAYS < one <= day]:
            del days[old]
        if self._saved_ms is None or not 0 <= now_ms - self._saved_ms < _SAVE_MS:
            self._saved_ms = now_ms
            self._file.save(self._days)

    def find_watts(self, meter: str) -> float | None:
        """Return the power at rest; None if it is unknown."""
        merged: dict[int, int] = {}
        for counts in self._days.get(meter, {}).values():
            for watts, count in counts.items():
                merged[watts] = merged.get(watts, 0) + count
        total = sum(merged.values())
        if total < _LEAST:
            return None
        reached = 0
        for watts in sorted(merged):
            reached += merged[watts]
            if reached >= _QUANTILE * total:
                break
        return float(watts)
