"""Jobs and instances of foas among our jobs.

A project is ours (``names.convert_project``). The name of a foas job stands for every job of the project with that id
or name; each of them is one instance. A streaming job normally has one instance, which is restarted; each run of a
batch job is a separate job.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from jobmeter.dialects.alibaba.common.operation import Lookup
from jobmeter.dialects.alibaba.foas.names import INSTANCE, JOB, NAME, RUNNING, convert_project
from jobmeter.dialects.base import ask
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError
from jobmeter.model.job import Condition, Job, JobFilter, JobState, Operator
from jobmeter.model.series import compute_job_key

CURRENT = -1
"""The instance id that stands for the running instance of a streaming job."""
STREAM, BATCH = "FLINK_STREAM", "FLINK_BATCH"
OUR_TYPES = {STREAM: "FlinkStream", BATCH: "FlinkBatch"}
"""Types of our jobs that are registered here."""
PAGE = 1_000
MAX_READ = 10_000
"""Most jobs that are read for one answer, newest first."""

_EXACT = 2**53


def compute_instance_id(job: Job) -> int:
    """Return the job's number as an instance: 1 to 2^53 - 1, exact in every JSON reader, the same on every server."""
    return compute_job_key(job.project, job.id) % _EXACT or 1


def name_job(job: Job) -> str:
    """Return the job's name in this dialect."""
    return job.name or job.id


def choose_job_type(job: Job) -> str:
    """Return ``FLINK_BATCH`` for a type that contains batch, else ``FLINK_STREAM``."""
    return BATCH if "batch" in job.type.casefold() else STREAM


def read_own_fields(job: Job) -> Mapping[str, Any]:
    """Return the fields of the job's record for this dialect."""
    return job.extra.get(NAME, {})


def is_flink(job: Job) -> bool:
    """Return True for a job in listings: its type names Flink (or its fork Blink), a stream or a batch.

    A job without a type counts too: it has samples but no record.
    """
    kind = job.type.casefold()
    return not kind or any(word in kind for word in ("flink", "blink", "stream", "batch"))


def find_actual_state(job: Job) -> str:
    """Return the state of an instance in the vendor's words."""
    if job.state is JobState.SUCCEEDED:
        return "SUCCESS" if choose_job_type(job) == BATCH else "TERMINATED"
    return {JobState.QUEUED: "WAITING", JobState.RUNNING: "RUNNING", JobState.FAILED: "FAILED"}.get(
        job.state, "TERMINATED"
    )


def find_expected_state(job: Job) -> str:
    """Return the expected state of the instance in the vendor's words; a waiting instance should run."""
    return "RUNNING" if job.state is JobState.QUEUED else find_actual_state(job)


def find_jobs(project: str, name: str) -> Lookup[list[Job]]:
    """Return our jobs of a foas job: the job with that id, then the jobs with that name, newest first."""
    found = yield from _find_by_id(project, name)
    return found + (yield from _find_by_name(project, name, found))


def list_jobs(project: str) -> Lookup[list[Job]]:
    """Return the Flink jobs of a project, newest first."""
    jobs = yield from _pages(JobFilter(projects=frozenset({convert_project(project)}), limit=PAGE))
    return [job for job in jobs if is_flink(job)]


def find_instance(project: str, name: str, number: int) -> Lookup[Job]:
    """Return the instance of that number; ``CURRENT`` is the running one of a streaming job, else its newest.

    Raises NotFoundError for an unknown job or instance, InvalidRequestError for ``CURRENT`` of a batch job.
    """
    found = yield from _find_by_id(project, name)
    job = _pick(found, number)
    if job is None or (number == CURRENT and job.state is not JobState.RUNNING):
        found += yield from _find_by_name(project, name, found)
        job = _pick(found, number)
    if job is None:
        raise _make_missing_error(project, name, number, found)
    return job


def find_running(project: str, name: str, number: int) -> Lookup[Job]:
    """Return a running instance.

    Raises as ``find_instance``, and NotFoundError of kind ``RUNNING`` if it does not run.
    """
    job = yield from find_instance(project, name, number)
    if job.state is not JobState.RUNNING:
        who = "has no running instance" if number == CURRENT else f"does not run as instance {number}"
        message = f"The job {name} of project {project} {who}: it is {find_actual_state(job)}."
        raise NotFoundError(message, RUNNING, name)
    return job


def make_job_not_found(project: str, name: str) -> NotFoundError:
    """Return the error for a job that does not exist."""
    return NotFoundError(f"The specified job {name} does not exist in project {project}.", JOB, name)


def _pick(jobs: list[Job], number: int) -> Job | None:
    if number != CURRENT:
        return next((job for job in jobs if compute_instance_id(job) == number), None)
    streams = [job for job in jobs if choose_job_type(job) == STREAM]
    return next((job for job in streams if job.state is JobState.RUNNING), streams[0] if streams else None)


def _find_by_id(project: str, name: str) -> Lookup[list[Job]]:
    page = yield from ask(JobFilter(projects=frozenset({convert_project(project)}), ids=(name,), limit=1))
    return [job for job in page.jobs if job.id == name]


def _find_by_name(project: str, name: str, candidates: list[Job]) -> Lookup[list[Job]]:
    named = (Condition("name", Operator.IN, (name,)),)
    jobs = yield from _pages(JobFilter(projects=frozenset({convert_project(project)}), conditions=named, limit=PAGE))
    ids = {job.id for job in candidates}
    return [job for job in jobs if job.name == name and job.id not in ids]


def _pages(question: JobFilter) -> Lookup[list[Job]]:
    found: list[Job] = []
    while True:
        page = yield from ask(replace(question, offset=len(found)))
        found += page.jobs
        if len(page.jobs) < PAGE or len(found) >= MAX_READ:
            return found


def _make_missing_error(project: str, name: str, number: int, found: list[Job]) -> JobmeterError:
    if not found:
        return make_job_not_found(project, name)
    if number == CURRENT:
        message = f"{INSTANCE} {CURRENT} is the running instance of a streaming job, {name} is a batch job: name one"
        return InvalidRequestError(f"{message} (ListInstance)", INSTANCE)
    return NotFoundError(f"The specified instance {number} of job {name} does not exist.", INSTANCE, str(number))
