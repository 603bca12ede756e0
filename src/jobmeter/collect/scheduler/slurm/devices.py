"""The GPUs of jobs, where the list of jobs lacks them."""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jobmeter.collect.scheduler.slurm import commands
from jobmeter.collect.scheduler.slurm.controller import gpu_indices
from jobmeter.collect.scheduler.slurm.hostlist import expand
from jobmeter.collect.scheduler.slurm.slurm_job import LIVE, SlurmJob
from jobmeter.errors import LimitExceededError, UnavailableError

_JOB = re.compile(r"JobId=(\d+) ")
_PLACE = re.compile(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=(\S*)")

_log = logging.getLogger(__name__)

Gpus = dict[str, tuple[int, ...]]


class Devices:
    """Queries ``scontrol show job -d`` for running jobs with unknown GPUs: once for all new ones."""

    def __init__(self, scontrol: str) -> None:
        self._scontrol = scontrol
        self._cache: dict[tuple[int, int | None], Gpus] = {}

    def cached(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
        """The jobs, with their GPUs where those are known."""
        lacking = [job for job in jobs if job.gpu_count and not job.gpus and job.now.state in LIVE]
        keys = {_key(job) for job in lacking}
        self._cache = {key: gpus for key, gpus in self._cache.items() if key in keys}
        if fresh := [job for job in lacking if _key(job) not in self._cache]:
            found = self._read([job.number for job in fresh])
            self._cache.update({_key(job): found.get(job.number, {}) for job in fresh})
        return [replace(job, gpus=self._cache.get(_key(job), job.gpus)) for job in jobs]

    def _read(self, numbers: Sequence[int]) -> dict[int, Gpus]:
        """The GPUs of these jobs: one command, for it takes the number of one job or shows them all."""
        only = [str(number) for number in numbers] if len(numbers) == 1 else []
        try:
            text = commands.run([self._scontrol, "--all", "show", "job", "--details", "--oneliner", *only])
        except (UnavailableError, LimitExceededError) as error:
            _log.debug("the GPUs of %d jobs are unknown: %s", len(numbers), error.message)
            return {}
        return parse_details(text.decode(errors="replace").splitlines())


def parse_details(lines: Iterable[str]) -> dict[int, Gpus]:
    """By job and node, the GPUs that the lines of ``scontrol show job --details --oneliner`` name.

    A job in two lines has none: a user's text may have a line break in it.
    """
    found: dict[int, Gpus] = {}
    for line in lines:
        if match := _JOB.match(line):
            number = int(match[1])
            found[number] = {} if number in found else _of_line(line)
    return found


def _of_line(line: str) -> Gpus:
    found: Gpus = {}
    # The text before it may be the user's: a job's name.
    for nodes, detail in _PLACE.findall(line[line.rfind(" JOB_GRES=") :]):
        if gpus := gpu_indices(detail):
            found.update(dict.fromkeys(expand(nodes), gpus))
    return found


def _key(job: SlurmJob) -> tuple[int, int | None]:
    return job.number, job.now.start
