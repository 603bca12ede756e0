"""Commands of an operation: write records and samples, stop and forget jobs, make share tokens.

Questions about stored data are for ``jobmeter.query``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from jobmeter.access.decide import write_project
from jobmeter.access.links import forget_links
from jobmeter.access.principal import Principal, Scope
from jobmeter.access.share import issue
from jobmeter.access.trace import issue as issue_trace_token
from jobmeter.dialects.base import (
    CreateShipper,
    DeleteJob,
    DeleteShipper,
    RecordJobs,
    ServerQuestion,
    ShareQuestion,
    ShareToken,
    ShipperQuestion,
    StopJob,
    TraceToken,
    TraceTokenQuestion,
    WriteLines,
    WriteSamples,
    WriteSpans,
)
from jobmeter.errors import ConflictError, NotFoundError
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.job import Job, JobState
from jobmeter.model.question import Question
from jobmeter.model.record import EventRecord, JobRecord, Records
from jobmeter.model.series import job_key
from jobmeter.model.shipper import Shipper
from jobmeter.model.task import DiagnosticTask, NewTask, TaskFilter, TaskPage
from jobmeter.query.log_pages import LogSearch
from jobmeter.server.log_search import search_logs
from jobmeter.server.services import Services
from jobmeter.server.tasks import create_task, find_tasks
from jobmeter.ship.shipping import shipper_project


def perform(services: Services, question: Question[Any], principal: Principal, scope: Scope) -> Any:  # noqa: ANN401 - each question has its own result
    """The result of a command. Raises any JobmeterError."""
    handler = _HANDLERS.get(type(question))
    if handler is None:
        return services.executor.run(question, scope)
    return handler(services, question, principal, scope)


def _of_tasks(
    services: Services, question: NewTask | TaskFilter, principal: Principal, scope: Scope
) -> DiagnosticTask | TaskPage:
    if isinstance(question, TaskFilter):
        return find_tasks(services, question, scope)
    project = write_project(principal, question.project) if principal.project else question.project
    return create_task(services, replace(question, project=project), scope)


def trace_token(services: Services, principal: Principal) -> TraceToken:
    """See ``TraceTokenQuestion``."""
    made = issue_trace_token(services.vault, principal, services.clock.now_ms())
    return TraceToken(*made, services.telemetry.grpc_port)


def shipper(
    services: Services, question: CreateShipper | ShipperQuestion | DeleteShipper, actor: str, scope: Scope
) -> Shipper:
    """See the questions. A shipper belongs to the project of its maker, or to none."""
    project, shipping = shipper_project(scope), services.shipping
    if isinstance(question, CreateShipper):
        return shipping.create(project, question.resource_group, question.sink_project, question.logstore, actor)
    found = shipping.find(project, question.resource_group)
    return shipping.delete(found, actor) if isinstance(question, DeleteShipper) else found


def share(services: Services, question: ShareQuestion, scope: Scope) -> ShareToken:
    """A token for the job. Raises NotFoundError when the caller sees no such job."""
    job = services.executor.head(question.ref, scope)
    return ShareToken(*issue(services.vault, job.project, job.id, services.clock.now_ms(), question.seconds))


def write_samples(services: Services, question: WriteSamples, principal: Principal) -> Receipt:
    """See ``WriteSamples``; counted as every other ingest."""
    services.telemetry.ingested(Receipt(rejected=dict(question.rejected)))
    receipt = services.pipeline.samples(question.batch, principal)
    services.telemetry.ingested(receipt)
    return receipt


def write_lines(services: Services, question: WriteLines, principal: Principal) -> Receipt:
    """See ``WriteLines``; counted as every other ingest."""
    services.telemetry.ingested(Receipt(rejected_lines=dict(question.rejected)))
    receipt = services.pipeline.logs(question.lines, principal)
    services.telemetry.ingested(receipt)
    return receipt


def write_spans(services: Services, question: WriteSpans, principal: Principal) -> Receipt:
    """See ``WriteSpans``; counted as every other ingest."""
    services.telemetry.ingested(Receipt(rejected_spans=dict(question.rejected)))
    receipt = services.pipeline.spans(question.spans, principal)
    services.telemetry.ingested(receipt)
    return receipt


def stop_job(services: Services, question: StopJob, principal: Principal, scope: Scope) -> Job:
    """See ``StopJob``."""
    job = services.executor.head(question.ref, scope)
    if job.state.finished:
        raise ConflictError(f"job {job.id} has ended already: {job.state}")
    now_ms = services.clock.now_ms()
    stopped = JobRecord(job_id=job.id, project=job.project, state=JobState.STOPPED, end=now_ms)
    event = EventRecord(
        time=now_ms,
        project=job.project,
        job=job.id,
        reason="StopRequested",
        message=question.reason or f"Asked to stop by {principal.name or principal.id}.",
    )
    services.pipeline.records(Records(jobs=[stopped], events=[event]), principal)
    return services.executor.head(question.ref, scope)


def delete_job(services: Services, question: DeleteJob, scope: Scope) -> Job:
    """See ``DeleteJob``."""
    job = services.executor.head(question.ref, scope)
    services.store.delete_job(job_key(job.project, job.id))
    if not services.registry.delete_job(job.project, job.id):
        raise NotFoundError(f"there is no job {job.id}", "job", job.id)
    services.pipeline.forget(job.project, job.id)
    for link in forget_links(services.registry, job.project, job.id):
        services.authenticator.forget(link)
    return job


_Handler = Callable[[Services, Any, Principal, Scope], Any]
_HANDLERS: Mapping[type, _Handler] = {
    ShareQuestion: lambda services, question, _, scope: share(services, question, scope),
    RecordJobs: lambda services, question, principal, _: services.pipeline.records(question.records, principal),
    WriteSamples: lambda services, question, principal, _: write_samples(services, question, principal),
    WriteLines: lambda services, question, principal, _: write_lines(services, question, principal),
    WriteSpans: lambda services, question, principal, _: write_spans(services, question, principal),
    TraceTokenQuestion: lambda services, _, principal, __: trace_token(services, principal),
    ServerQuestion: lambda services, *_: services.telemetry.figures(),
    LogSearch: lambda services, question, _, scope: search_logs(services, question, scope),
    StopJob: stop_job,
    NewTask: _of_tasks,
    TaskFilter: _of_tasks,
    CreateShipper: lambda services, question, principal, scope: shipper(services, question, principal.id, scope),
    ShipperQuestion: lambda services, question, principal, scope: shipper(services, question, principal.id, scope),
    DeleteShipper: lambda services, question, principal, scope: shipper(services, question, principal.id, scope),
    DeleteJob: lambda services, question, _, scope: delete_job(services, question, scope),
}
"""What is done with each question that the executor does not answer."""
