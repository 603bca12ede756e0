"""Cost of the agent: CPU at its usual interval, and resident memory."""

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.contestant import running
from benchmarks.ours import Jobmeter
from benchmarks.plan import Plan
from benchmarks.processes import cpu_seconds, resident_megabytes, running_plain
from benchmarks.row import OURS, Table

_START_SECONDS = 5.0


def measure(plan: Plan, table: Table) -> None:
    """``jobmeter agent`` after its start."""
    ours = Jobmeter()
    with running([ours]), tempfile.TemporaryDirectory() as spool:
        command = [sys.executable, "-m", "jobmeter", "agent", "--server", f"http://127.0.0.1:{ours.port}"]
        command += ["--key", ours.token, "--interval", "10s", "--spool", spool]
        with running_plain(command, Path(spool) / "log") as process:
            time.sleep(_START_SECONDS)
            before, begin = cpu_seconds(process.pid), time.monotonic()
            time.sleep(plan.agent_seconds)
            used = (cpu_seconds(process.pid) - before) / (time.monotonic() - begin)
            table.add("agent.cpu", OURS, used * 100)
            table.add("agent.memory", OURS, resident_megabytes(process.pid))
