"""Contents of a recorded data folder, shared by the recording script and the test that reads it.

The program of a commit records a folder. It needs its sources in a separate folder and its pinned dependencies, then
``PYTHONPATH=THOSE_SOURCES:. python tests/e2e/recorded/record.py COMMIT``.
"""

from collections.abc import Iterator

START = 1_767_225_600_000
"""2026-01-01, in milliseconds."""
STEP, COUNT = 30_000, 360
REPLICAS = ("worker-0", "worker-1")
JOB = {
    "job_id": "recorded",
    "name": "llama",
    "type": "PyTorchJob",
    "state": "Succeeded",
    "user": "lin",
    "start": START,
    "end": START + STEP * COUNT,
    "replicas": [{"name": name, "rank": rank, "node": f"n{rank}"} for rank, name in enumerate(REPLICAS)],
}
LINES = [{"text": f"step {at}", "time": START + at * 1_000, "replica": "worker-0"} for at in range(50)]
LATE = 20
"""Number of newest samples that were written just before the kill, so that only the journal contains them."""
ENVIRONMENT = {"JOBMETER_RETENTION_RAW_DAYS": "36500", "JOBMETER_RETENTION_MINUTE_DAYS": "36500"}

Fact = tuple[str, str, str, int, float]


def facts() -> Iterator[Fact]:
    """Yield replica, device, metric, time and value of each sample, ordered by time."""
    for at in range(COUNT):
        for rank, replica in enumerate(REPLICAS):
            time = START + at * STEP
            yield replica, f"gpu{rank}", "gpu.power", time, 100.0 * rank + at / 7
            yield replica, "", "memory.usage", time, float((at * 37 + rank) % 1000 * 2**20)
            yield replica, "", "cpu.time", time, float((at % 200) * 15 + rank)


def csv(rows: list[Fact]) -> str:
    """Format samples as ``jobmeter import`` reads them."""
    lines = [
        f"recorded,{replica},n{replica[-1]},{device},{metric},{time},{value!r}"
        for replica, device, metric, time, value in rows
    ]
    return "\n".join(["job_id,replica,node,device,metric,time,value", *lines]) + "\n"
