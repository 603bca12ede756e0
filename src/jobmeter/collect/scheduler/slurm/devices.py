"""GPUs of jobs, if the list of jobs lacks them."""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jobmeter.collect.backoff import Backoff
from jobmeter.collect.scheduler.slurm import commands
from jobmeter.collect.scheduler.slurm.controller import gpu_indices
from jobmeter.collect.scheduler.slurm.hostlist import expand
from jobmeter.collect.scheduler.slurm.slurm_job import LIVE, SlurmJob
from jobmeter.errors import LimitExceededError, UnavailableError
from jobmeter.model.time import Clock

_JOB = re.compile(r"JobId=(\d+) ")
_PLACE = re.compile(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=(\S*)")

_log = logging.getLogger(__name__)

Gpus = dict[str, tuple[int, ...]]


class Devices:
    """Queries ``scontrol show job -d`` for running jobs with unknown GPUs: once for all new ones.

    Slurm may not show the GPUs of a job in its first moments, and the command may fail. Queries for such jobs are
    repeated, less and less often.
    """

    def __init__(self, scontrol: str, clock: Clock) -> None:
        self._scontrol = scontrol
        self._clock = clock
        self._retry = Backoff()
        self._cache: dict[tuple[int, int | None], Gpus] = {}

    def cached(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
        """Add the cached GPUs to jobs."""
        lacking = [job for job in jobs if job.gpu_count and not job.gpus and job.now.state in LIVE]
        keys = {_key(job) for job in lacking}
        self._cache = {key: gpus for key, gpus in self._cache.items() if key in keys}
        self._retry.tick(self._clock.now_ms())
        is_due = self._retry.due
        if due := [job for job in lacking if _key(job) not in self._cache or (is_due and not self._cache[_key(job)])]:
            found = self._read([job.number for job in due])
            self._cache.update({_key(job): found.get(job.number, {}) for job in due})
            if all(self._cache.values()):
                self._retry.succeeded()
            else:
                self._retry.failed()
        return [replace(job, gpus=self._cache.get(_key(job), job.gpus)) for job in jobs]

    def _read(self, numbers: Sequence[int]) -> dict[int, Gpus]:
        """Read the GPUs of these jobs with one command, which takes one job's number or shows all jobs."""
        only = [str(number) for number in numbers] if len(numbers) == 1 else []
        try:
            text = commands.run([self._scontrol, "--all", "show", "job", "--details", "--oneliner", *only])
        except (UnavailableError, LimitExceededError) as error:
            _log.debug("the GPUs of %d jobs are unknown: %s", len(numbers), error.message)
            return {}
        return parse_details(text.decode(errors="replace").splitlines())


def parse_details(lines: Iterable[str]) -> dict[int, Gpus]:
    """Parse ``scontrol show job --details --oneliner`` to GPUs by job and node.

    A job in two lines gets no GPUs: a user's text may contain a line break.
    """
    found: dict[int, Gpus] = {}
    for line in lines:
        if match := _JOB.match(line):
            number = int(match[1])
            found[number] = {} if number in found else _read_line_gpus(line)
    return found


def _read_line_gpus(line: str) -> Gpus:
    found: Gpus = {}
    # The preceding text may be the user's: a job's name.
    for nodes, detail in _PLACE.findall(line[line.rfind(" JOB_GRES=") :]):
        if gpus := gpu_indices(detail):
            found.update(dict.fromkeys(expand(nodes), gpus))
    return found


def _key(job: SlurmJob) -> tuple[int, int | None]:
    return job.number, job.now.start
