"""Parse the controller's jobs (``squeue --json``, slurmrestd's ``/slurm/VERSION/jobs``) of all versions.

22.05 writes plain numbers and one state. From 23.02 on a number is ``{"set", "infinite", "number"}``, a state a list,
and an exit code an object: https://slurm.schedmd.com/rest_api.html.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from jobmeter.collect.backoff import Backoff
from jobmeter.collect.scheduler.slurm import commands
from jobmeter.collect.scheduler.slurm.hostlist import expand, parse_indices
from jobmeter.collect.scheduler.slurm.slurm_job import LIVE, Attempt, SlurmExit, SlurmJob
from jobmeter.collect.scheduler.slurm.tres import parse_tres
from jobmeter.errors import LimitExceededError, UnavailableError
from jobmeter.model.time import Clock

_JOB = re.compile(r"JobId=(\d+) ")
_PLACE = re.compile(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=(\S*)")
_GPUS = re.compile(r"gpu(?::(?P<type>[^:(,]+))?:\d+\(IDX:(?P<list>[\d,-]*)\)")
_NONE = frozenset({"", "None", "(null)"})
_NO_VALUE = 0xFFFFFFFC
"""Least of Slurm's special 32-bit numbers for "nothing", "infinite" and the like."""
_UNENDED = LIVE | {"CONFIGURING"}

_log = logging.getLogger(__name__)

Document = Mapping[str, Any]
Gpus = dict[str, tuple[int, ...]]


class Devices:
    """Queries ``scontrol show job -d`` for running jobs with unknown GPUs, once for all new ones.

    Slurm may not show the GPUs of a job in its first moments, and the command may fail. Such queries are repeated at
    growing intervals.
    """

    def __init__(self, scontrol: str, clock: Clock) -> None:
        self._scontrol = scontrol
        self._clock = clock
        self._retry = Backoff()
        self._cache: dict[tuple[int, int | None], Gpus] = {}

    def add_cached(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
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
                self._retry.note_success()
            else:
                self._retry.note_failure()
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
    """Return the GPUs in ``scontrol show job --details --oneliner`` by job and node.

    A job in two lines gets no GPUs, because a user's text may contain a line break.
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
        if gpus := parse_gpu_indices(detail):
            found.update(dict.fromkeys(expand(nodes), gpus))
    return found


def _key(job: SlurmJob) -> tuple[int, int | None]:
    return job.number, job.now.start


def parse_jobs(body: bytes) -> list[SlurmJob]:
    """Parse the jobs of an answer; invalid entries are skipped. Raises UnavailableError for an invalid answer."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnavailableError(f"Slurm's answer is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise UnavailableError("Slurm's answer has no list of jobs")
    if errors := list(_errors(document)):
        raise UnavailableError(f"Slurm answers with an error: {errors[0]}")
    jobs = (_facts(job) for job in document["jobs"] if isinstance(job, dict))
    return [job for job in jobs if job is not None]


def _errors(document: Document) -> Iterator[str]:
    for error in document.get("errors") or ():
        if isinstance(error, dict):
            yield str(error.get("description") or error.get("error") or error)[:500]
        else:
            yield str(error)[:500]


def _facts(job: Document) -> SlurmJob | None:
    number = _number(job, "job_id")
    if not number:
        return None
    requested = _text(job, "tres_req_str")
    resources = parse_tres(requested)
    return SlurmJob(
        number=number,
        label=_label(job, number),
        name=_text(job, "name"),
        user=_text(job, "user_name") or str(_number(job, "user_id") or ""),
        account=_text(job, "account"),
        partition=_text(job, "partition"),
        qos=_text(job, "qos"),
        reason=_text(job, "state_reason"),
        tasks=_number(job, "tasks"),
        cpus=resources.cpus or _number(job, "cpus"),
        memory=resources.memory,
        gpu_count=resources.gpus,
        gpu_type=resources.gpu_type or _gpu_type(job),
        requested=requested,
        time_limit=_number(job, "time_limit"),
        restarts=_number(job, "restart_cnt") or 0,
        attempts=(_attempt(job),),
        gpus=_gpus(job),
    )


def _attempt(job: Document) -> Attempt:
    state = _state(job)
    begun = state not in {"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
    start = (_number(job, "start_time") or None) if begun else None
    end = (_number(job, "end_time") or None) if begun and state not in _UNENDED else None
    # For a job cancelled in the queue the start is the time of cancelling, and there is no node.
    nodes = expand(_text(job, "nodes"))
    return Attempt(
        state=state,
        submit=_number(job, "submit_time") or None,
        start=start if nodes else None,
        end=end,
        exit=_exit(job.get("exit_code")) if end is not None else None,
        nodes=nodes,
    )


def _state(job: Document) -> str:
    """Return the base state. A completing job still has processes, so its end is reported later."""
    raw = job.get("job_state")
    states = [str(state) for state in raw] if isinstance(raw, list) else [str(raw or "")]
    for flag in ("COMPLETING", "CONFIGURING", "REQUEUE_HOLD", "SPECIAL_EXIT"):
        if flag in states:
            return flag
    return states[0] if states else ""


def _label(job: Document, number: int) -> str:
    array, task = _number(job, "array_job_id"), _number(job, "array_task_id", none=True)
    if array:
        waiting = _text(job, "array_task_string")
        return f"{array}_[{waiting}]" if task is None and waiting else f"{array}_{task or 0}"
    het = _number(job, "het_job_id")
    return f"{het}+{_number(job, 'het_job_offset') or 0}" if het else str(number)


def _exit(value: object) -> SlurmExit:
    if isinstance(value, dict):
        code = _number(value, "return_code") or 0
        signal = value.get("signal")
        name = "id" if isinstance(signal, dict) and "id" in signal else "signal_id"
        return SlurmExit(code, (_number(signal, name) or 0) if isinstance(signal, dict) else 0)
    # The status of wait(): the code in the second byte, the signal in the lowest seven bits.
    status = value if isinstance(value, int) else 0
    return SlurmExit((status >> 8) & 0xFF, status & 0x7F)


def _gpus(job: Document) -> dict[str, tuple[int, ...]]:
    """Return the job's GPUs by node. ``gres_detail`` has one entry per node, in the order of the nodes."""
    details = job.get("gres_detail") or ()
    nodes = expand(_text(job, "nodes"))
    if not isinstance(details, list) or len(details) != len(nodes):
        return {}
    found = {node: parse_gpu_indices(str(detail)) for node, detail in zip(nodes, details, strict=True)}
    return {node: numbers for node, numbers in found.items() if numbers}


def parse_gpu_indices(detail: str) -> tuple[int, ...]:
    """Parse the GPUs of a text such as ``gpu:h200:2(IDX:0-1)``."""
    return tuple(number for match in _GPUS.finditer(detail) for number in parse_indices(match["list"]))


def _gpu_type(job: Document) -> str:
    match = _GPUS.search(str((job.get("gres_detail") or [""])[0]))
    return (match["type"] or "") if match else ""


def _number(job: Document, name: str, *, none: bool = False) -> int | None:
    """Return a whole number of any shape; None if it is not set, infinite, or a special number."""
    value = job.get(name)
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite") or (none and value.get("set") is not True):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _NO_VALUE:
        return None
    return int(value)


def _text(job: Document, name: str) -> str:
    value = job.get(name)
    return value if isinstance(value, str) and value not in _NONE else ""
