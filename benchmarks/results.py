"""The figures as JSON, and on what machine they were taken."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.install import version
from benchmarks.row import OURS, PROMETHEUS, VICTORIA, Row, verdicts
from jobmeter import __version__


def versions() -> dict[str, str]:
    """Of each contestant."""
    return {OURS: __version__, VICTORIA: version("victoria-metrics"), PROMETHEUS: version("prometheus")}


def machine() -> str:
    """Cores, processor, memory, system and date in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    parts = [
        f"{os.cpu_count()} cores ({_processor()})",
        f"{memory:.0f} GiB",
        system,
        f"Python {platform.python_version()}",
    ]
    return ", ".join([*parts, f"{datetime.now(UTC):%d %B %Y}"])


def write(file: Path, runs: Sequence[Sequence[Row]]) -> None:
    """Everything that was measured, and the verdicts."""
    file.parent.mkdir(parents=True, exist_ok=True)
    body: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "load_average": os.getloadavg(),
        "bars": [asdict(one) for one in verdicts(runs)],
        "runs": [[{**asdict(row), "met": row.met()} for row in rows] for rows in runs],
    }
    file.write_text(json.dumps(body, indent=1))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
