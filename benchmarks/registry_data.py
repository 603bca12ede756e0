"""Data of a registry that a site has used for years, inserted directly into the tables."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import sqlalchemy as sa

from jobmeter.registry.database import Database
from jobmeter.registry.migrate import migrate
from jobmeter.registry.schema import allocations, events, jobs, projects, replicas

NOW = 1_790_000_000_000
DAY_MS = 86_400_000
PROJECTS = ("default", *(f"team-{number}" for number in range(20)))
TYPES = ("PyTorchJob", "TFJob", "MPIJob", "RayJob", "XGBoostJob", "ElasticBatchJob")
MODELS = ("llama", "qwen", "resnet", "whisper", "bert", "vit", "gpt", "mixtral")
PARTS = 50_000
"""Number of the newest jobs, which have replicas, allocations and events."""
_BATCH = 10_000


def job_name(number: int) -> str:
    """Return the id of a job by its number."""
    return f"dlc{number * 2_654_435_761 % 2**40:010x}"


def project_of(number: int) -> str:
    """Return the project of a job by its number. Seven in ten jobs belong to the first project."""
    return PROJECTS[0] if number % 10 < 7 else PROJECTS[1 + number % 20]


def fill(url: str, count: int) -> None:
    """Create the tables at ``url`` and insert ``count`` jobs, the newest created at about ``NOW``."""
    database = Database(url)
    migrate(database)
    with database.write() as connection:
        connection.execute(sa.insert(projects), [{"name": name} for name in PROJECTS])
    newest = range(max(0, count - PARTS), count)
    for table, rows in (
        (jobs, _jobs(count)),
        (replicas, _replicas(newest)),
        (allocations, _allocations(newest)),
        (events, _events(newest)),
    ):
        for some in _batches(rows):
            with database.write() as connection:
                connection.execute(sa.insert(table), some)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE" if database.kind == "postgresql" else "PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rows = iter(rows)
    while some := list(islice(rows, _BATCH)):
        yield some


def _jobs(count: int) -> Iterator[dict[str, Any]]:
    draw = np.random.default_rng(26)
    users = np.minimum(draw.zipf(1.3, count), 300)
    lengths = draw.lognormal(15, 1.5, count).astype(np.int64)
    kinds = draw.integers(0, 1_000_000, count)
    for number in range(count):
        kind = int(kinds[number])
        created = NOW - (count - number) * 31_536_000_000 // count
        sampled, live = kind % 20 == 0, number > count - 2000 and kind % 2 == 0
        state = None if sampled else "Running" if live else ("Succeeded", "Failed", "Stopped")[kind % 7 // 3]
        end = None if sampled or live else created + 60_000 + int(lengths[number])
        name = f"{MODELS[kind % 8]}-{('sft', 'pretrain', 'eval')[kind % 3]}-{kind % 40_000}"
        yield {
            "project": project_of(number),
            "id": job_name(number),
            "name": name,
            "type": TYPES[kind % 6],
            "state": state,
            "user": f"user-{users[number]}",
            "resource_group": f"quota{kind % 40}",
            "workspace": str(1000 + kind % 60),
            "created": created,
            "start": None if sampled else created + 60_000,
            "end": end,
            "error": f"OOMKilled: worker-{kind % 64}" if kind % 7 // 3 == 1 else "",
            "command": f"torchrun train.py --config configs/{kind % 2000}.yaml",
            "labels": _labels(kind) if kind % 4 else None,
            "extra": _extra(kind) if kind % 3 else None,
            "updated": created,
            "recorded": not sampled,
            "first_sample": created + 70_000,
            "last_sample": NOW - 1000 if live else created + 60_000 + int(lengths[number]),
            "noticed": created,
        }


def _labels(kind: int) -> str:
    return json.dumps({"team": f"t{kind % 25}", "env": ("prod", "dev")[kind % 2], "run": f"r-{kind}"})


def _extra(kind: int) -> str:
    fields = {
        "Priority": kind % 9 + 1,
        "PaymentType": ("PrePaid", "PostPaid", "Spot")[kind % 3],
        "RequestGPU": 2 ** (kind % 7),
        "Images": [f"registry/torch:{kind % 50}", "registry/base:1"],
        "Status": ("Succeeded", "Failed", "Stopped", "Restarting")[kind % 4],
    }
    return json.dumps({"pai-dlc": fields}, separators=(",", ":"))


def _replicas(numbers: range) -> Iterator[dict[str, Any]]:
    for number in numbers:
        for rank in range(2):
            names = {"project": project_of(number), "job": job_name(number), "name": f"worker-{rank}", "attempt": 0}
            yield {**names, "node": f"node-{(number + rank) % 1000}", "first_sample": NOW - 1000, "last_sample": NOW}


def _allocations(numbers: range) -> Iterator[dict[str, Any]]:
    for number in numbers:
        for gpu in range(2):
            names = {"project": project_of(number), "job": job_name(number), "replica": "worker-0", "cluster": ""}
            device = {"node": f"node-{number % 1000}", "device": f"gpu{gpu}", "source": "import"}
            yield {**names, **device, "start": NOW - DAY_MS, "end": NOW}


def _events(numbers: range) -> Iterator[dict[str, Any]]:
    for place, number in enumerate(numbers):
        # The newest job has many events, to measure pages far behind the first.
        for index in range(50_000 if place == len(numbers) - 1 else 4):
            names = {"project": project_of(number), "job": job_name(number), "attempt": 0, "source": "job"}
            told = {"level": "info", "reason": "Scheduled", "message": f"placed on node-{index % 1000}"}
            yield {**names, **told, "time": NOW - index * 1000, "digest": place.to_bytes(8) + index.to_bytes(8)}
