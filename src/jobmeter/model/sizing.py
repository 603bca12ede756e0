"""Size of a server for a number of nodes, from figures that the benchmark measures.

Each figure is the worse end of its measured range, on 2 cores of an AMD EPYC. ``docs/how-to/capacity.md`` has the
sources.
"""

import math

import msgspec

from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND

STORE_CPU, ROLL_UP_CPU = 0.96e-6, 1.6 / 1.2e6
"""Seconds of CPU to store a sample of an agent, and to roll it up."""
RAW_BYTES, MINUTE_BYTES, HOUR_BYTES = 2.8, 8.7, 28.0
"""Bytes on disk of a raw sample, of a minute and of an hour of a series."""
NEWEST_BYTES, NEWEST_MS = 12, 2 * HOUR
"""Bytes in memory of a sample of the window, and the window's length in ms."""
REST_BYTES, REQUEST_BYTES, ENGINE_BYTES, JOB_BYTES = 140 * 2**20, 2**30, 2**30, 300
"""Bytes in memory of the server at rest, of requests and of the engine at most, and of a job."""
WORKER_BYTES, WORKER_CACHE_BYTES = 59 * 2**20, 20 * 2**20
"""Bytes in memory of a worker process at rest, and of its cache and the bodies that it reads at most."""
ANSWER_CPU, WORKER_ANSWER_CPU, ADMISSION_CPU = 386e-6, 268e-6, 100e-6
"""Seconds of CPU for a signed live answer: of one process, of a worker, and of the storage process for a worker's."""
JOURNAL_BYTES = 512 * 2**20
FINDING_CPU, FINDING_SHARE, FINDING_MS = 1.7e-3, 0.1, 15 * SECOND
"""Seconds of CPU for an evaluation of a running job; share of a core for all; shortest time between two, in ms."""
SERVER_CORES, STORING_CORES, ANSWERING_CORES = 2, 0.5, 0.4
"""Cores of a server with one process, and the parts of one that store samples and answer live questions at most.

Findings use the rest. One interpreter uses one core at a time. So answers of more processes need a core for each.
"""
LONGEST_PAUSE = 300
"""Seconds between two evaluations of a running job beyond which findings come late."""


class PlannedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with ``devices`` each, ``metrics`` of each node and device every ``interval_ms``, and running jobs.

    ``answers``: live questions a second. ``processes``: worker processes of a server; 1 is a server without workers.
    """

    nodes: int
    devices: int
    metrics: int
    interval_ms: int
    jobs: int
    answers: int = 0
    processes: int = 1
    retention: Retention = Retention()


class ServerSize(msgspec.Struct, frozen=True, kw_only=True):
    """Needs of a server. Memory and disk in bytes. ``evaluation_seconds``: time between two evaluations of a job.

    ``answering_cores`` answer live questions, in all processes. ``workers``: memory of the worker processes.
    """

    series: int
    samples_per_second: float
    storing_cores: float
    answering_cores: float
    cores: int
    servers: int
    window: int
    memory: int
    workers: int
    raw: int
    minutes: int
    hours: int
    disk: int
    evaluation_seconds: float
    first_limit: str
    times: float
    """Multiple of the fleet at which the first limit is reached."""


def compute_size(fleet: PlannedFleet) -> ServerSize:
    """Return the size of a server for a fleet."""
    series = fleet.nodes * (fleet.devices + 1) * fleet.metrics
    rate = series * SECOND / fleet.interval_ms
    storing = rate * (STORE_CPU + ROLL_UP_CPU)
    workers = fleet.processes if fleet.processes > 1 else 0
    own = fleet.answers * (ADMISSION_CPU if workers else ANSWER_CPU)
    answering = fleet.answers * WORKER_ANSWER_CPU if workers else 0.0
    worker_bytes = workers * (WORKER_BYTES + WORKER_CACHE_BYTES)
    window = round(series * NEWEST_MS / fleet.interval_ms * NEWEST_BYTES)
    tiers = [
        round(series * days * DAY / max(fleet.interval_ms, step_ms) * size)
        for days, step_ms, size in (
            (fleet.retention.raw_days, 1, RAW_BYTES),
            (fleet.retention.minute_days, MINUTE, MINUTE_BYTES),
            (fleet.retention.hour_days, HOUR, HOUR_BYTES),
        )
    ]
    evaluation = max(fleet.jobs * FINDING_CPU / FINDING_SHARE, FINDING_MS / SECOND)
    limits = {
        "storing samples": storing / STORING_CORES,
        "live answers": max(own / ANSWERING_CORES, answering / max(workers, 1)),
        "findings within five minutes": fleet.jobs * FINDING_CPU / FINDING_SHARE / LONGEST_PAUSE,
    }
    first = max(limits, key=limits.__getitem__)
    return ServerSize(
        series=series,
        samples_per_second=rate,
        storing_cores=storing,
        answering_cores=own + answering,
        cores=max(SERVER_CORES, workers),
        servers=math.ceil(storing / STORING_CORES),
        window=window,
        memory=window + REST_BYTES + REQUEST_BYTES + ENGINE_BYTES + fleet.jobs * JOB_BYTES + worker_bytes,
        workers=worker_bytes,
        raw=tiers[0],
        minutes=tiers[1],
        hours=tiers[2],
        disk=sum(tiers) + JOURNAL_BYTES,
        evaluation_seconds=evaluation,
        first_limit=first,
        times=1 / limits[first],
    )
