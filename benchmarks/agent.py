"""What the agent costs: CPU over a minute at its usual interval, and resident memory."""

import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.ours import Ours
from benchmarks.processes import resident_megabytes, running_plain
from benchmarks.rows import Row

_TICKS = os.sysconf("SC_CLK_TCK")


def agent_rows(ours: Ours, seconds: float, interval: str = "10s") -> list[Row]:
    """CPU share (of one core, percent) and memory of ``jobmeter agent`` after its start has settled."""
    with tempfile.TemporaryDirectory() as spool:
        command = [sys.executable, "-m", "jobmeter", "agent", "--server", f"http://127.0.0.1:{ours.port}"]
        command += ["--key", ours.token, "--interval", interval, "--spool", spool]
        with running_plain(command, Path(spool) / "log") as process:
            time.sleep(5)
            before, begin = _cpu_seconds(process.pid), time.monotonic()
            time.sleep(seconds)
            used = (_cpu_seconds(process.pid) - before) / (time.monotonic() - begin)
            memory = resident_megabytes(process.pid)
    cpu = Row(f"agent at {interval}: CPU, percent of a core", "%", "lower", note="budget 1")
    cpu.add(ours.name, used * 100)
    resident = Row(f"agent at {interval}: resident memory", "MiB", "lower", note="budget 60")
    resident.add(ours.name, memory)
    return [cpu, resident]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
