"""What an operation asks the server to do: write records and samples, stop and forget jobs, make share tokens.

Everything else that an operation asks is a question about what is kept, for ``jobmeter.query``.
"""

from typing import Any

from jobmeter.access.principal import Principal
from jobmeter.access.scope import Scope
from jobmeter.access.share import issue
from jobmeter.dialects.base import (
    DeleteJob,
    RecordJobs,
    ServerQuestion,
    ShareQuestion,
    ShareToken,
    StopJob,
    WriteSamples,
)
from jobmeter.errors import ConflictError, NotFoundError
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.job import Job, JobState
from jobmeter.model.question import Asks
from jobmeter.model.record import EventRecord, JobRecord, Records
from jobmeter.model.series import job_key
from jobmeter.server.services import Services


def perform(services: Services, question: Asks[Any], principal: Principal, scope: Scope) -> Any:  # noqa: ANN401 - each question has its own result
    """The answer to what an operation asked. Raises any JobmeterError."""
    match question:
        case ShareQuestion():
            return share(services, question, scope)
        case RecordJobs():
            return services.funnel.records(question.records, principal)
        case WriteSamples():
            return write_samples(services, question, principal)
        case ServerQuestion():
            return services.telemetry.figures()
        case StopJob():
            return stop_job(services, question, principal, scope)
        case DeleteJob():
            return delete_job(services, question, scope)
        case _:
            return services.executor.run(question, scope)


def from_memory(services: Services, question: Asks[Any], scope: Scope) -> Any:  # noqa: ANN401 - each question has its own result
    """As ``perform`` for what only asks, without waiting; None where it has to be performed on a worker."""
    if isinstance(question, ServerQuestion):
        return services.telemetry.figures()
    return services.executor.from_memory(question, scope)


def share(services: Services, question: ShareQuestion, scope: Scope) -> ShareToken:
    """A token for the job. Raises NotFoundError when there is none that the asker may know of."""
    job = services.executor.head(question.ref, scope)
    return ShareToken(*issue(services.vault, job.project, job.id, services.clock.now_ms(), question.seconds))


def write_samples(services: Services, question: WriteSamples, principal: Principal) -> Receipt:
    """See ``WriteSamples``; counted as every other ingest."""
    services.telemetry.ingested(Receipt(rejected=dict(question.rejected)))
    receipt = services.funnel.samples(question.batch, principal)
    services.telemetry.ingested(receipt)
    return receipt


def stop_job(services: Services, question: StopJob, principal: Principal, scope: Scope) -> Job:
    """See ``StopJob``."""
    job = services.executor.head(question.ref, scope)
    if job.state.finished:
        raise ConflictError(f"job {job.id} has ended already: {job.state}")
    now_ms = services.clock.now_ms()
    stopped = JobRecord(job_id=job.id, project=job.project, state=JobState.STOPPED, end=now_ms)
    told = EventRecord(
        time=now_ms,
        project=job.project,
        job=job.id,
        reason="StopRequested",
        message=question.reason or f"Asked to stop by {principal.name or principal.id}.",
    )
    services.funnel.records(Records(jobs=[stopped], events=[told]), principal)
    return services.executor.head(question.ref, scope)


def delete_job(services: Services, question: DeleteJob, scope: Scope) -> Job:
    """See ``DeleteJob``."""
    job = services.executor.head(question.ref, scope)
    services.store.delete_job(job_key(job.project, job.id))
    if not services.registry.delete_job(job.project, job.id):
        raise NotFoundError(f"there is no job {job.id}", "job", job.id)
    services.funnel.forget(job.project, job.id)
    return job
