"""What the agent costs: CPU over a minute at its usual interval, and resident memory."""

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.ours import Jobmeter
from benchmarks.processes import cpu_seconds, resident_megabytes, running_plain
from benchmarks.row import Row, lower


def agent_rows(ours: Jobmeter, seconds: float, interval: str = "10s") -> list[Row]:
    """CPU share (of one core, percent) and memory of ``jobmeter agent`` after its start has settled."""
    with tempfile.TemporaryDirectory() as spool:
        command = [sys.executable, "-m", "jobmeter", "agent", "--server", f"http://127.0.0.1:{ours.port}"]
        command += ["--key", ours.token, "--interval", interval, "--spool", spool]
        with running_plain(command, Path(spool) / "log") as process:
            time.sleep(5)
            before, begin = cpu_seconds(process.pid), time.monotonic()
            time.sleep(seconds)
            used = (cpu_seconds(process.pid) - before) / (time.monotonic() - begin)
            memory = resident_megabytes(process.pid)
    cpu = lower(f"agent at {interval}: CPU, percent of a core", "%", note="budget 1")
    cpu.add(ours.name, used * 100)
    resident = lower(f"agent at {interval}: resident memory", "MiB", note="budget 60")
    resident.add(ours.name, memory)
    return [cpu, resident]
