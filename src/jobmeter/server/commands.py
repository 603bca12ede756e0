"""Commands that change data: write records and samples, stop and delete jobs, create share tokens.

Questions about stored data are in ``jobmeter.query``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from jobmeter.access.decide import authorize, write_project
from jobmeter.access.links import forget_links
from jobmeter.access.page_token import seal, unseal
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
from jobmeter.errors import ConflictError, ForbiddenError, NotFoundError
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.alert import AlertingQuestion, AlertsQuestion, ExpireSilence, PostAlerts, PutSilence, RulesQuestion
from jobmeter.model.job import Job, JobState
from jobmeter.model.question import Question
from jobmeter.model.record import EventRecord, JobRecord, Records
from jobmeter.model.series import compute_job_key
from jobmeter.model.shipper import Shipper
from jobmeter.model.task import DiagnosticTask, NewTask
from jobmeter.model.time import SECOND
from jobmeter.query.administration import ShippersQuestion
from jobmeter.query.alerts import JobAlertsQuestion
from jobmeter.query.annotations import ChangeTags, DeleteNote, WriteNote
from jobmeter.query.facts import DiskFacts, DiskQuestion, JobFacts, JobFactsQuestion, NodeFacts, NodeFactsQuestion
from jobmeter.query.logs import FoundLines, LogCursor, LogPageQuestion, read_next_lines
from jobmeter.query.permitted import check_scope
from jobmeter.query.request import HeadQuestion
from jobmeter.server.alerting import read_disk_facts
from jobmeter.server.annotations import change_tags, delete_note, write_note
from jobmeter.server.services import Services
from jobmeter.server.silences import (
    expire_silence,
    find_alerts,
    find_job_alerts,
    find_rules,
    post_alerts,
    put_silence,
    read_alerting_status,
)
from jobmeter.server.tasks import create_task
from jobmeter.ship.shipping import find_project


def perform(services: Services, question: Question[Any], principal: Principal, scope: Scope) -> Any:  # noqa: ANN401 - each question has its own result
    """Execute a question or command of a caller and return its result. Raises any JobmeterError."""
    handler = _HANDLERS.get(type(question))
    if handler is None:
        return services.executor.run(question, scope)
    check_scope(question, scope)
    return handler(services, question, principal, scope)


def _create_task(services: Services, question: NewTask, principal: Principal, scope: Scope) -> DiagnosticTask:
    named = question.project or principal.project
    project = write_project(principal, question.project) if named else None
    return create_task(services, replace(question, project=project), scope)


def _facts(
    services: Services, question: JobFactsQuestion | NodeFactsQuestion, principal: Principal, scope: Scope
) -> JobFacts | NodeFacts:
    """Return the facts that the caller may list, and no others: the permission of the query is not enough."""
    of_jobs = isinstance(question, JobFactsQuestion)
    action, operation = ("jobs:read", "listJobs") if of_jobs else ("nodes:read", "listNodes")
    try:
        listed = authorize(principal, action, None, ("native", operation), by_resource=True)
    except ForbiddenError:
        now_ms = services.clock.now_ms()
        return JobFacts(now_ms=now_ms) if of_jobs else NodeFacts(now_ms=now_ms)
    projects = scope.intersect_projects(question.projects)
    if isinstance(question, JobFactsQuestion):
        return services.executor.run(replace(question, projects=projects), listed)
    silent_ms = services.settings.node_seconds * SECOND
    return services.executor.run(replace(question, projects=projects, silent_ms=silent_ms), listed)


def _disk(services: Services, _: DiskQuestion, principal: Principal, __: Scope) -> DiskFacts:
    """Return the space on the server's disk; empty facts for a caller without the permission ``server:read``."""
    try:
        authorize(principal, "server:read", None, ("native", "getStatus"))
    except ForbiddenError:
        return DiskFacts(now_ms=services.clock.now_ms())
    return read_disk_facts(services.settings, services.clock)


def _trace_token(services: Services, _: TraceTokenQuestion, principal: Principal, __: Scope) -> TraceToken:
    made = issue_trace_token(services.vault, principal, services.clock.now_ms())
    return TraceToken(*made, services.telemetry.grpc_port)


def _shipper(
    services: Services,
    question: CreateShipper | ShipperQuestion | DeleteShipper,
    principal: Principal,
    scope: Scope,
) -> Shipper:
    """Create, show or delete a log shipper. A shipper belongs to the project of its creator, or to no project."""
    project, shipping, actor = find_project(scope), services.shipping, principal.id
    if isinstance(question, CreateShipper):
        return shipping.create(project, question.resource_group, question.sink_project, question.logstore, actor)
    found = _find_shipper(services, question.resource_group, scope)
    return shipping.delete(found, actor) if isinstance(question, DeleteShipper) else found


def _find_shipper(services: Services, resource_group: str, scope: Scope) -> Shipper:
    project = find_project(scope)
    for shipper in services.executor.run(ShippersQuestion(), scope):
        if (shipper.project, shipper.resource_group) == (project, resource_group):
            return shipper
    raise NotFoundError(f"the logs of {resource_group} are not shipped", "shipper", resource_group)


def _share(services: Services, question: ShareQuestion, _: Principal, scope: Scope) -> ShareToken:
    """Create a share token for the job. Raises NotFoundError when the caller may not see the job."""
    job = services.executor.run(HeadQuestion(question.ref), scope)
    return ShareToken(*issue(services.vault, job.project, job.id, services.clock.now_ms(), question.seconds))


def _search_logs(services: Services, search: LogPageQuestion, _: Principal, scope: Scope) -> FoundLines:
    """Return one page of log lines and a sealed token for the next. Raises InvalidRequestError for an invalid token."""
    now_ms = services.clock.now_ms()
    question_bytes = repr(replace(search.question, limit=0)).encode()
    cursor = None
    if search.token:
        place = unseal(services.vault, question_bytes, search.token, now_ms, search.field)
        cursor = msgspec.msgpack.decode(place, type=LogCursor)
    lines, end = read_next_lines(lambda question: services.executor.run(question, scope), search.question, cursor)
    return FoundLines(lines, seal(services.vault, question_bytes, msgspec.msgpack.encode(end), now_ms) if end else "")


def _write(
    services: Services, question: WriteSamples | WriteLines | WriteSpans, principal: Principal, _: Scope
) -> Receipt:
    """Write data and count accepted and rejected rows, including those that the dialect rejected."""
    ingested, pipeline, rejected = services.telemetry.count_ingested, services.pipeline, dict(question.rejected)
    match question:
        case WriteSamples():
            ingested(Receipt(rejected=rejected))
            receipt = pipeline.submit_samples(question.batch, principal, question.sent)
        case WriteLines():
            ingested(Receipt(rejected_lines=rejected))
            receipt = pipeline.submit_logs(question.lines, principal)
        case _:
            ingested(Receipt(rejected_spans=rejected))
            receipt = pipeline.submit_spans(question.spans, principal)
    ingested(receipt)
    return receipt


def _stop_job(services: Services, question: StopJob, principal: Principal, scope: Scope) -> Job:
    """Mark a job as stopped by request. Raises NotFoundError, or ConflictError when it has ended."""
    job = services.executor.run(HeadQuestion(question.ref), scope)
    if job.state.finished:
        raise ConflictError(f"job {job.id} has ended already: {job.state}")
    now_ms = services.clock.now_ms()
    stopped = JobRecord(job_id=job.id, project=job.project, state=JobState.STOPPED, end=now_ms)
    event = EventRecord(
        time=now_ms,
        project=job.project,
        job=job.id,
        reason="StopRequested",
        message=question.reason or f"Stop requested by {principal.name or principal.id}.",
    )
    services.pipeline.submit_records(Records(jobs=[stopped], events=[event]), principal)
    return services.executor.run(HeadQuestion(question.ref), scope)


def _delete_job(services: Services, question: DeleteJob, _: Principal, scope: Scope) -> Job:
    """Delete a job and its data. Raises NotFoundError."""
    job = services.executor.run(HeadQuestion(question.ref), scope)
    services.store.delete_job(compute_job_key(job.project, job.id))
    if not services.registry.delete_job(job.project, job.id):
        raise NotFoundError(f"there is no job {job.id}", "job", job.id)
    services.pipeline.forget(job.project, job.id)
    for link in forget_links(services.registry, job.project, job.id):
        services.authenticator.forget(link)
    return job


_Handler = Callable[[Services, Any, Principal, Scope], Any]
_HANDLERS: Mapping[type, _Handler] = {
    ShareQuestion: _share,
    RecordJobs: lambda services, question, principal, _: services.pipeline.submit_records(question.records, principal),
    WriteSamples: _write,
    WriteLines: _write,
    WriteSpans: _write,
    AlertsQuestion: find_alerts,
    JobAlertsQuestion: find_job_alerts,
    AlertingQuestion: read_alerting_status,
    RulesQuestion: find_rules,
    PostAlerts: post_alerts,
    PutSilence: put_silence,
    ExpireSilence: expire_silence,
    DiskQuestion: _disk,
    JobFactsQuestion: _facts,
    NodeFactsQuestion: _facts,
    TraceTokenQuestion: _trace_token,
    ServerQuestion: lambda services, *_: services.telemetry.list_figures(),
    LogPageQuestion: _search_logs,
    StopJob: _stop_job,
    NewTask: _create_task,
    CreateShipper: _shipper,
    ShipperQuestion: _shipper,
    DeleteShipper: _shipper,
    DeleteJob: _delete_job,
    ChangeTags: change_tags,
    WriteNote: write_note,
    DeleteNote: delete_note,
}
"""Handlers of the commands. The executor answers all other questions."""
