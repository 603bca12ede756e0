"""Cost of ``jobmeter.log`` for a program under ``jobmeter run``: import time, time of a call, added run time."""

import json
import subprocess
import sys
import tempfile

from benchmarks.plan import Plan
from benchmarks.row import OURS, Table

_CODE = """
import json, subprocess, sys, time
def best(work):
    return min(work() for _ in range(5))
def imported():
    code = "import time; a = time.perf_counter(); import jobmeter; print(time.perf_counter() - a)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
def steps(report, count=500):
    began = time.perf_counter()
    for step in range(count):
        sum(range(100_000))
        report(step=step, loss=0.5)
    return time.perf_counter() - began
found = {"import": best(imported) * 1_000}
import jobmeter
jobmeter.log(begin=0)
jobmeter.flush(5)
times, log, clock = [], jobmeter.log, time.perf_counter_ns
due = clock()
for step in range(200_000):
    while clock() < due:
        pass
    due += 10_000
    at = clock()
    log(step=step, loss=0.5)
    times.append(clock() - at)
times.sort()
found["log.p50"], found["log.p999"] = times[len(times) // 2] / 1_000, times[len(times) * 999 // 1_000] / 1_000
jobmeter.flush(5)
without, reporting = [], []
for _ in range(5):
    without.append(steps(lambda **named: None))
    reporting.append(steps(log))
found["time"] = 100 * (min(reporting) / min(without) - 1)
print(json.dumps(found))
"""


def measure(plan: Plan, table: Table) -> None:  # noqa: ARG001 - the signature of a stage
    """Measure a program under ``jobmeter run`` without a server: 100,000 calls a second, then short steps."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "jobmeter", "run", "--data", folder, "--server", "http://127.0.0.1:9"]
        command += ["--key", "none", "--quiet", "--no-logs", "--", sys.executable, "-c", _CODE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    for name, value in json.loads(done.stdout).items():
        table.add(f"program.{name}", OURS, value)
