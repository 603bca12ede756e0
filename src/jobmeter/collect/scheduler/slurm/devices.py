"""Which GPUs a job has, where the list of jobs does not say: ``squeue --json`` of Slurm 22.05 leaves them out."""

import logging
import re
from collections.abc import Iterable
from dataclasses import replace

from jobmeter.collect.scheduler.slurm import commands
from jobmeter.collect.scheduler.slurm.controller import gpu_indices
from jobmeter.collect.scheduler.slurm.hostlist import expand
from jobmeter.collect.scheduler.slurm.slurm_job import LIVE, SlurmJob
from jobmeter.errors import UnavailableError

_MOST_PER_ROUND = 100
"""Jobs that are asked about in one turn; the others have theirs in the next."""
_PLACE = re.compile(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=(\S*)")

_log = logging.getLogger(__name__)

Gpus = dict[str, tuple[int, ...]]


class Devices:
    """Question ``scontrol show job -d`` once about each job that runs with GPUs which nobody has named."""

    def __init__(self, scontrol: str) -> None:
        self._scontrol = scontrol
        self._cache: dict[tuple[int, int | None], Gpus] = {}

    def cached(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
        """The jobs, with their GPUs where those are known."""
        lacking = [job for job in jobs if job.gpu_count and not job.gpus and job.now.state in LIVE]
        keys = {_key(job) for job in lacking}
        self._cache = {key: gpus for key, gpus in self._cache.items() if key in keys}
        for job in [job for job in lacking if _key(job) not in self._cache][:_MOST_PER_ROUND]:
            self._cache[_key(job)] = self._read(job.number)
        return [replace(job, gpus=self._cache.get(_key(job), job.gpus)) for job in jobs]

    def _read(self, number: int) -> Gpus:
        try:
            text = commands.run([self._scontrol, "show", "job", "--details", "--oneliner", str(number)])
        except UnavailableError as error:
            _log.debug("the GPUs of job %d are not known: %s", number, error.message)
            return {}
        return parse_details(text.decode(errors="replace").splitlines())


def parse_details(lines: Iterable[str]) -> Gpus:
    """By node, the GPUs that the lines of ``scontrol show job --details --oneliner`` name."""
    found: Gpus = {}
    for line in lines:
        # What stands before it may be the user's own words: a job's name.
        for nodes, detail in _PLACE.findall(line[line.rfind(" JOB_GRES=") :]):
            if gpus := gpu_indices(detail):
                found.update(dict.fromkeys(expand(nodes), gpus))
    return found


def _key(job: SlurmJob) -> tuple[int, int | None]:
    return job.number, job.now.start
