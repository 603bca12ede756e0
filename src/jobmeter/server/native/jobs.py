"""``/jobs``: list, show, record and delete jobs."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from jobmeter.access.decide import write_project
from jobmeter.dialects.base import DeleteJob
from jobmeter.model.job import Condition, JobFilter, JobState, Operator, SizesQuestion, StateCountsQuestion
from jobmeter.model.job_answers import JobBody, JobDetail, JobList, JobSizeBody
from jobmeter.model.phase import JobPhases
from jobmeter.model.quality import JobQuality
from jobmeter.model.record import JobRecord, Records, check_record, decode_record, decode_records
from jobmeter.model.series import check_job_id
from jobmeter.query.annotations import TagsQuestion
from jobmeter.query.phases import PhasesQuestion
from jobmeter.query.quality import MOST_GAPS, MOST_NODES, QualityQuestion
from jobmeter.query.records import FindingsQuestion, NextAttemptQuestion
from jobmeter.query.request import JobQuestion, JobRef
from jobmeter.query.summary import SummaryQuestion
from jobmeter.registry.conditions import FINDING, OPEN_FINDING, SORTS, TAG
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import Deleted, NextAttempt, Recorded, copy_fields, make_job_detail
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref, read_json
from jobmeter.server.native.findings import make_finding_condition
from jobmeter.wire.json_shape import count_json

_KINDS = frozenset(Records.__struct_fields__)
MAX_OFFSET = 10_000_000
_SORTS = {name: name for name in SORTS}
_EXAMPLE = {
    "job_id": "dlc-20261120-1",
    "name": "resnet",
    "type": "PyTorchJob",
    "state": "Running",
    "user": "lin",
    "start": "2026-11-20T15:00:00Z",
    "limits": {"cpu": 8, "memory": 68719476736},
    "replicas": [{"name": "worker-0", "node": "node-1", "devices": ["gpu0", "gpu1"]}],
}


HEADING = "jobs"


@Endpoint(
    "listJobs",
    "GET /jobs",
    "jobs:read",
    queries=(
        QueryArguments("id", "Only these ids.", many=True),
        QueryArguments(
            "state", "Queued, Running, Succeeded, Failed, Stopped or Unknown.", many=True, example="Running"
        ),
        QueryArguments("type", "The job's type.", many=True, example="PyTorchJob"),
        QueryArguments("user", "Who submitted it.", many=True),
        QueryArguments("name", "A part of the name or the id, ignoring case."),
        QueryArguments("resource_group", "Its resource group.", many=True),
        QueryArguments("workspace", "Its workspace.", many=True),
        QueryArguments("node", "A node that one of its replicas was on.", many=True),
        QueryArguments("tag", "A tag that somebody put on the job.", many=True, example="baseline"),
        QueryArguments(
            "finding",
            "A rule (see `/rules`) with a finding for the job, during its run or after its end, or `any`. "
            "Jobs recorded more than an hour after their end have no stored findings.",
            many=True,
            example="gpu_idle_allocated",
        ),
        QueryArguments(
            "severity",
            "Severity of that finding, or of any: info, warning or critical.",
            many=True,
            example="critical",
        ),
        QueryArguments("open", "true: only a finding that is open counts, of a job that runs."),
        QueryArguments(
            "findings",
            "true adds the findings of each job: `severity`, `sentence` and `start` of the worst one, "
            "`count`, `rules` (worst first), and how many are `open`, which come first.",
        ),
        QueryArguments("sizes", "true adds the number of `replicas`, `devices` and `nodes` of each job."),
        QueryArguments("tags", "true adds the tags of each job."),
        QueryArguments("states", "true adds the number of jobs in each state, whatever `state` selects."),
        QueryArguments("created_from", "Created at or after this time.", example="2026-11-20T15:00:00Z"),
        QueryArguments("created_to", "Created before this time."),
        QueryArguments("sort", f"Sort key: {', '.join(_SORTS)}. Default: created."),
        QueryArguments("order", "asc or desc. Default: desc."),
        QueryArguments("limit", "Jobs in the answer, 1 to 1000. Default: 100.", type="integer"),
        QueryArguments("offset", "Jobs to skip. Default: 0.", type="integer"),
        PROJECT,
    ),
    by_resource=True,
)
def _list(context: CallContext) -> JobList:
    """List jobs."""
    given = context.arguments
    question = JobFilter(
        projects=context.scope.projects,
        ids=given.read_texts("id"),
        name_contains=given.read_text("name"),
        states=_states(context),
        types=frozenset(given.read_texts("type")),
        users=frozenset(given.read_texts("user")),
        resource_groups=frozenset(given.read_texts("resource_group")),
        workspaces=frozenset(given.read_texts("workspace")),
        conditions=tuple(_conditions(context)),
        created_from=given.read_time("created_from"),
        created_to=given.read_time("created_to"),
        sort=given.read_choice("sort", _SORTS, "created"),
        descending=given.is_descending("desc"),
        offset=given.read_integer("offset", 0, 0, MAX_OFFSET),
        limit=given.read_integer("limit", 100, 1, 1000),
    )
    page = context.ask(question)
    names = tuple((job.project, job.id) for job in page.jobs)
    found, sizes, states, tags = None, None, None, None
    if given.read_flag("findings"):
        found = context.ask(FindingsQuestion(names))
    if given.read_flag("sizes"):
        sizes = [copy_fields(JobSizeBody, one) for one in context.ask(SizesQuestion(jobs=names, places=True))]
    if given.read_flag("states"):
        counts = context.ask(StateCountsQuestion(jobs=replace(question, states=frozenset())))
        states = {state.value: count for state, count in counts.items()}
    if given.read_flag("tags"):
        tags = context.ask(TagsQuestion(names))
    return JobList(
        jobs=[copy_fields(JobBody, job) for job in page.jobs],
        total=page.total,
        findings=found,
        sizes=sizes,
        states=states,
        tags=tags,
    )


def _states(context: CallContext) -> frozenset[JobState]:
    """Return the states to list: only running jobs have open findings, and they are few."""
    states = context.arguments.read_choices("state", JobState)
    return states or (frozenset({JobState.RUNNING}) if context.arguments.read_flag("open") else states)


def _conditions(context: CallContext) -> Iterator[Condition]:
    for field in ("node", TAG):
        names = context.arguments.read_texts(field)
        if names:
            yield Condition(field, Operator.IN, names)
    is_open = context.arguments.read_flag("open")
    wanted = make_finding_condition(context.arguments)
    if wanted or is_open or context.arguments.read_texts("finding"):
        yield Condition(OPEN_FINDING if is_open else FINDING, Operator.IN, wanted or ("/",))


@Endpoint(
    "getJob",
    "GET /jobs/{job}",
    "jobs:read",
    queries=(QueryArguments("summary", "false omits the summary, which takes long for a large job."), PROJECT),
    by_resource=True,
)
def _show(context: CallContext) -> JobDetail:
    """Show a job with its replicas, devices, nodes and summary."""
    view = context.ask(JobQuestion(make_job_ref(context)))
    with_summary = context.arguments.read_flag("summary", default=True)
    summary = context.ask(SummaryQuestion(JobRef(view.job.id, view.job.project))) if with_summary else None
    return make_job_detail(view, summary)


@Endpoint(
    "recordJobs",
    "POST /jobs",
    "jobs:write",
    body_text='A job record, an array of them, or `{"jobs": [...], "nodes": [...], "events": [...]}`.',
    example=_EXAMPLE,
    lane="write",
    large=True,
)
def _record(context: CallContext) -> Recorded:
    """Record jobs.

    Fields absent from a record keep their values.
    """
    body, most = context.read_plain_body(), context.services.settings.limits.request_records
    shape = count_json(body)
    if body.lstrip()[:1] == b"[":
        shape.check(1, most, "records")
        context.call.take(shape.recorded_bytes)
        records = Records(jobs=[check_record(job) for job in read_json(body, list[JobRecord])])
    else:
        context.call.take(shape.recorded_bytes)
        if _KINDS.isdisjoint(read_json(body, dict[str, msgspec.Raw])):
            records = Records(jobs=[decode_record(body)])
        else:
            shape.check(2, most, "records")
            records = decode_records(body)
    return Recorded(context.services.pipeline.submit_records(records, context.principal))


@Endpoint(
    "getNextAttempt",
    "GET /jobs/{job}/attempt",
    "jobs:write",
    queries=(QueryArguments("owner", "The caller's name as holder of the lease, if it holds the lease."), PROJECT),
    lane="control",
)
def _attempt(context: CallContext) -> NextAttempt:
    """Get the number of a job's next attempt.

    Used by `jobmeter run --job-id` before it starts: the highest attempt of any replica plus one, 0 for a new job. 409
    while another run holds the job's lease.
    """
    job = check_job_id(context.path["job"], "job")
    project = write_project(context.principal, context.project)
    return NextAttempt(context.ask(NextAttemptQuestion(project, job, context.arguments.read_text("owner"))))


@Endpoint("deleteJob", "DELETE /jobs/{job}", "jobs:delete", queries=(PROJECT,), lane="write")
def _delete(context: CallContext) -> Deleted:
    """Delete a job and all its data."""
    context.ask(DeleteJob(make_job_ref(context)))
    return Deleted(deleted=True)


@Endpoint(
    "getJobPhases",
    "GET /jobs/{job}/phases",
    "metrics:read",
    details="Phases are queued, prepare (image pull, volumes, prolog), start (until its devices work for longer than a "
    "moment), first_step (until the program reports a step), training, checkpoint, restart, repeat (steps made "
    "before a restart), end, and unattributed (time without any evidence). They come from the times of the job and its "
    "attempts, events of the scheduler, device utilization, reported steps, writes beside waiting devices, "
    "and log lines about checkpoints. The spans fill the time from the submission (else the start) to the end "
    "(else now). `unknown` names phases that cannot be separated, and why. A long job is read in at most "
    "720 steps: a phase that is shorter than a step may be part of its neighbour.",
    queries=(PROJECT,),
    by_resource=True,
)
def _phases(context: CallContext) -> JobPhases:
    """Show the phases of a job and the length of each."""
    return context.ask(PhasesQuestion(make_job_ref(context)))


@Endpoint(
    "getJobQuality",
    "GET /jobs/{job}/quality",
    "jobs:read",
    details="Gaps of its replicas relative to their sampling interval, replicas that ran without measurements, the "
    "state of its nodes' agents (times offline, samples that arrived late because they waited on disk, "
    "dropped samples, clock errors), and damaged parts of the store. `complete` is true if nothing "
    "is known to be missing, null if that cannot be judged; `sentences` summarise the result, empty "
    "without problems. A gap is two or more missing samples in a row. Long jobs are evaluated in steps of "
    f"`step` ms. At most the {MOST_GAPS} longest gaps are listed, and {MOST_NODES} nodes evaluated; `nodes` is "
    "null for callers who may not see nodes. Arrival times are not stored: late samples are known "
    "only from the agents' own measurements.",
    queries=(PROJECT,),
    by_resource=True,
)
def _quality(context: CallContext) -> JobQuality:
    """Show how complete the stored data of a job is."""
    return context.ask(QualityQuestion(make_job_ref(context)))
