"""Slurm as a kind of scheduler: queries of its controller and its accounting."""

import os
from collections.abc import Mapping
from pathlib import Path

from jobmeter.collect.scheduler.base import Option, Scheduler, SchedulerKind
from jobmeter.collect.scheduler.slurm import accounting, commands
from jobmeter.collect.scheduler.slurm.controller import Devices, parse_jobs
from jobmeter.collect.scheduler.slurm.rest import SlurmRest
from jobmeter.collect.scheduler.slurm.slurm_job import SlurmJob
from jobmeter.collect.scheduler.slurm.source import AccountingDatabase, SlurmScheduler
from jobmeter.collect.scheduler.slurm.token import read_token
from jobmeter.errors import ConfigurationError
from jobmeter.model.time import SystemClock

_BATCH = 1_000
"""Most jobs in one query of ``sacct``. A command line has a limit."""
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}


def _make(cluster: str, options: Mapping[str, str | None], state: Path | None) -> Scheduler:
    address = options.get("rest")
    if address:
        file = options.get("rest_token_file")
        rest = SlurmRest(address, SystemClock(), lambda: read_token(os.environ, file))
        return SlurmScheduler(cluster, lambda: parse_jobs(rest.read_jobs()), _database(), state)
    squeue = commands.find("squeue")
    command = [squeue, "--all", "--states=all", "--json"]
    devices = Devices(commands.find("scontrol"), SystemClock())
    return SlurmScheduler(cluster, lambda: devices.add_cached(parse_jobs(commands.run(command))), _database(), state)


def _database() -> AccountingDatabase | None:
    try:
        sacct = commands.find("sacct")
    except ConfigurationError:
        return None

    def query(*arguments: str) -> dict[int, SlurmJob]:
        text = commands.run([sacct, "--allusers", *accounting.ARGUMENTS, *arguments], _EPOCH)
        return accounting.parse_accounting(text.decode(errors="replace"))

    def of_jobs(numbers: list[int]) -> dict[int, SlurmJob]:
        found: dict[int, SlurmJob] = {}
        for first in range(0, len(numbers), _BATCH):
            some = ",".join(str(number) for number in numbers[first : first + _BATCH])
            found.update(query(f"--jobs={some}"))
        return {number: found[number] for number in numbers if number in found}

    return AccountingDatabase(of_jobs, lambda seconds: query(f"--starttime=now-{seconds}seconds"))


KIND = SchedulerKind(
    "Slurm's jobs: from squeue, or slurmrestd with --rest, and from sacct.",
    _make,
    (
        Option(
            "rest",
            "URL",
            "slurmrestd instead of squeue: http://HOST:PORT or unix:/PATH; its token comes from SLURM_JWT.",
            "SLURM_REST",
        ),
        Option(
            "rest-token-file",
            "FILE",
            "File with the token, read at each query so that it can be renewed (SLURM_REST_TOKEN_FILE).",
            "SLURM_REST_TOKEN_FILE",
        ),
    ),
)
