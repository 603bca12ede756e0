"""Figures of the server, minute by minute: memory, disk, CPU time, parts and merges."""

import re
import time
from dataclasses import dataclass

from benchmarks.client import answer
from benchmarks.ours import Jobmeter
from benchmarks.processes import cpu_seconds, folder_bytes, resident_megabytes
from benchmarks.soak.tally import Tally, three

_PART = re.compile(r"^\w+?_(\d+)_(\d+)_\d+(?:_\d+)?$")
"""Name of a part's folder, with the numbers of its first and its last insert. They differ after a merge."""
_ENGINE = re.compile(r"^(jobmeter\w*(?:part|merge)\w*(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Glance:
    """Figures of the server at one time.

    ``at`` is seconds of the monotonic clock, ``memory`` MiB, ``disk`` bytes, ``cpu`` CPU seconds. ``parts`` counts the
    parts on disk, ``merged`` counts the parts among them that merges made. A part whose content was merged into another
    part stays on disk for some minutes and is counted.
    """

    at: float
    memory: float
    disk: int
    cpu: float
    parts: int
    merged: int


def glance(ours: Jobmeter) -> Glance:
    """Return the figures of the server at the current time."""
    parts = [found for path in ours.data_folder.rglob("*_*_*_*") if (found := _PART.match(path.name))]
    merged = sum(1 for found in parts if found.group(1) != found.group(2))
    return Glance(
        time.monotonic(),
        resident_megabytes(ours.pid),
        folder_bytes(ours.data_folder),
        cpu_seconds(ours.pid),
        len(parts),
        merged,
    )


def heading() -> str:
    """Return the heads of the columns of ``line``."""
    return (
        f"{'minute':>6} {'samples/s':>10} {'lag s':>18} {'write ms':>20} {'live ms':>20} {'job list ms':>20} "
        f"{'MiB':>7} {'disk MiB':>9} {'parts':>6} {'merged':>6} {'CPU':>5} {'again':>6}\n"
        f"{'':>18}{'(p50/p99/most in each of these)':>80}"
    )


def line(name: str, tally: Tally, before: Glance, now: Glance) -> str:
    """Return a line of the table: the clients' tally, and the server's changes between two observations."""
    seconds = now.at - before.at
    lag = three(tally.lags) if tally.lags else "-"
    quantiles = " ".join(f"{tally.quantiles(kind):>20}" for kind in ("write", "live", "list"))
    return (
        f"{name:>6} {tally.accepted / seconds:>10,.0f} {lag:>18} {quantiles} {now.memory:>7,.0f} "
        f"{now.disk / 2**20:>9,.0f} {now.parts:>6} {now.merged:>6} {(now.cpu - before.cpu) / seconds:>5.2f} "
        f"{tally.retries + tally.broken:>6}"
    )


def engine(ours: Jobmeter) -> str:
    """Return the server's own metrics of parts and merges in one line; empty without these metrics."""
    text = answer(ours.request("/metrics")).decode()
    return ", ".join(f"{name} {value}" for name, value in _ENGINE.findall(text))
