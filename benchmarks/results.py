"""Figures of a run as JSON, with the machine and the versions."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.install import version
from benchmarks.row import OURS, PROMETHEUS, VICTORIA, Table
from jobmeter import __version__


def versions() -> dict[str, str]:
    """Return the version of each contestant."""
    return {OURS: __version__, VICTORIA: version("victoria-metrics"), PROMETHEUS: version("prometheus")}


def machine() -> str:
    """Return cores, processor, memory, system, Python version and date in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    parts = [
        f"{os.cpu_count()} cores ({_processor()})",
        f"{memory:.0f} GiB",
        system,
        f"Python {platform.python_version()}",
    ]
    return ", ".join([*parts, f"{datetime.now(UTC):%d %B %Y}"])


def plain(tables: Sequence[Table], scale: str) -> dict[str, Any]:
    """Return all figures, ready for JSON: each row of each run with its verdict."""
    return {
        "machine": machine(),
        "versions": versions(),
        "scale": scale,
        "load_average": os.getloadavg(),
        "runs": [
            [{**asdict(one), "ratio": one.ratio(VICTORIA), "met": one.met()} for one in table.results]
            for table in tables
        ],
    }


def write(file: Path, body: dict[str, Any]) -> None:
    """Write ``body`` to a file as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(body, indent=1))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
