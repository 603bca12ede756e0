"""``/jobs/{job}/live`` and ``/live/jobs``: changes as server-sent events."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from heapq import nsmallest

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.errors import JobmeterError
from jobmeter.model.answers import LatestValue
from jobmeter.model.catalog import Aggregate, Display, list_shown
from jobmeter.model.finding import FindingSummary, Severity
from jobmeter.model.job import Condition, Job, JobFilter, JobState, Operator
from jobmeter.model.job_answers import JobBody
from jobmeter.model.time import SECOND, TimeRange, floor_to
from jobmeter.query.defaults import CORE_METRICS
from jobmeter.query.latest import LatestQuestion
from jobmeter.query.records import FindingsQuestion
from jobmeter.query.request import By, HeadQuestion, JobRef, MetricQuery
from jobmeter.registry.conditions import OPEN_FINDING
from jobmeter.server.live import CONTENT_TYPE, Feed, Update
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import LineBody, Timelines, copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref
from jobmeter.server.native.metrics import LINE_FORMATS, LineBodies, check_metrics
from jobmeter.server.services import Services

BACK_BUCKETS, BACK_MS = 4, 30 * SECOND
"""Range of each update before its newest points, so that the next update repeats points that a viewer missed."""
STEPS = {f"{seconds}s": seconds * SECOND for seconds in (1, 5, 10, 15, 30, 60, 300)}
NEWEST = 100
"""Jobs in an update of the list."""
MEASURED = 40
"""Running jobs whose usage an update includes."""
MOST_TROUBLED = 2_000
"""Most running jobs with findings that are counted."""
MOST_USERS = 10
IDLE_RULE = "gpu_idle_allocated"
USE = list_shown(Display.USE)
_BY = {by.value: by for by in (By.REPLICA, By.DEVICE, By.JOB)}


class LiveJob(msgspec.Struct, frozen=True):
    """A job now, and its newest points in ``[start, end)`` in steps of ``step``; the last step is incomplete."""

    now: int
    job: JobBody
    start: int
    end: int
    step: int
    by: str
    lines: list[LineBody]
    timelines: Timelines = msgspec.UNSET


class JobUse(msgspec.Struct, frozen=True):
    """The newest values of a whole job: sums if the unit adds up, else means of its members."""

    id: str
    project: str
    values: list[LatestValue]


class UserTrouble(msgspec.Struct, frozen=True):
    """A user with running jobs that have open critical findings, or idle devices; the numbers of both."""

    user: str
    critical: int
    idle_devices: int


class LiveJobs(msgspec.Struct, frozen=True):
    """Running and recently changed jobs, usage of the newest, and findings if there are any.

    ``running`` is the number of running jobs, ``critical`` the number of these with an open finding of level critical.
    ``idle_devices`` is the number of their devices that open findings of ``gpu_idle_allocated`` name. 2,000 jobs at
    most are counted. ``users`` own the jobs behind these two numbers, most idle devices first.
    """

    now: int
    jobs: list[JobBody]
    running: int
    use: list[JobUse]
    findings: list[FindingSummary]
    critical: int
    idle_devices: int
    users: list[UserTrouble]


HEADING = "jobs"
_TEXT = (
    "Server-sent events: `data` is an update, every two seconds or less often if that is costly. `end` is the "
    "last one. `refused` also ends the stream: the credential expired, or its access changed; a caller with access "
    "connects again. `problem` reports a failed update; the stream continues. Viewers of equal questions share "
    "the same updates."
)


@Endpoint(
    "followJob",
    "GET /jobs/{job}/live",
    "metrics:read",
    details=_TEXT,
    answer=LiveJob,
    answer_type=CONTENT_TYPE,
    queries=(
        QueryArguments(
            "metric", "Names of the catalogue. Default: the core set.", many=True, example="gpu.utilization"
        ),
        QueryArguments("step", f"Length of a bucket: {', '.join(STEPS)}. Default: 5s."),
        QueryArguments("by", "One series per replica, device or job. Default: device."),
        QueryArguments(
            "format",
            "json, or columns: values in lists, with shared times given once. Default: json.",
        ),
        PROJECT,
    ),
    by_resource=True,
)
def _follow_job(context: CallContext) -> Feed:
    """Follow a job while it runs."""
    given = context.arguments
    metrics = check_metrics(given.read_texts("metric")) or CORE_METRICS
    step_ms = given.read_choice("step", STEPS, "5s")
    by = given.read_choice("by", _BY, By.DEVICE.value)
    bodies = given.read_choice("format", LINE_FORMATS, "json")
    job = context.ask(HeadQuestion(make_job_ref(context)))
    ref = JobRef(job.id, job.project)
    question = partial(_job_now, context.services, context.scope, ref, metrics, step_ms, by, bodies)
    return Feed(("job", ref, context.scope, metrics, step_ms, by, bodies), question, context.renew)


def _job_now(
    services: Services, scope: Scope, ref: JobRef, metrics: tuple[str, ...], step_ms: int, by: By, bodies: LineBodies
) -> Update:
    now_ms = services.clock.now_ms()
    job = services.executor.run(HeadQuestion(ref), scope)
    span = TimeRange(max(floor_to(now_ms - max(BACK_BUCKETS * step_ms, BACK_MS), step_ms), 0), now_ms + 1)
    query = MetricQuery(subject=ref, metrics=metrics, range=span, step_ms=step_ms, by=by)
    result = services.executor.run(query, scope)
    body = LiveJob(
        now_ms, copy_fields(JobBody, job), span.start_ms, span.end_ms, step_ms, by.value, *bodies(result.lines)
    )
    return Update(msgspec.json.encode(body), last=job.state.finished)


@Endpoint(
    "followJobs",
    "GET /live/jobs",
    "metrics:read",
    details=_TEXT,
    answer=LiveJobs,
    answer_type=CONTENT_TYPE,
    queries=(PROJECT,),
    by_resource=True,
)
def _follow_jobs(context: CallContext) -> Feed:
    """Follow the jobs that run or change."""
    return Feed(("jobs", context.scope), partial(_jobs_now, context.services, context.scope), context.renew)


def _jobs_now(services: Services, scope: Scope) -> Update:
    executor = services.executor
    running = executor.run(JobFilter(states=frozenset({JobState.RUNNING}), limit=NEWEST), scope)
    changed = executor.run(JobFilter(sort="updated", limit=NEWEST), scope)
    found = {(job.project, job.id): job for job in (*running.jobs, *changed.jobs)}
    use = [JobUse(job.id, job.project, _use(services, scope, job)) for job in running.jobs[:MEASURED]]
    bodies = [copy_fields(JobBody, job) for job in found.values()]
    troubled = _find_troubled(services, scope)
    body = LiveJobs(
        services.clock.now_ms(),
        bodies,
        running.total,
        use,
        executor.run(FindingsQuestion(tuple(found)), scope),
        sum(one.severity is Severity.CRITICAL for _, one in troubled),
        sum(one.idle_devices for _, one in troubled),
        _users(troubled),
    )
    return Update(msgspec.json.encode(body))


def _users(troubled: Sequence[tuple[str, FindingSummary]]) -> list[UserTrouble]:
    critical, idle = Counter[str](), Counter[str]()
    for user, one in troubled:
        critical[user] += one.severity is Severity.CRITICAL
        idle[user] += one.idle_devices
    found = [UserTrouble(user, critical[user], idle[user]) for user in critical if user]
    return nsmallest(MOST_USERS, found, key=lambda one: (-one.idle_devices, -one.critical, one.user))


def _find_troubled(services: Services, scope: Scope) -> list[tuple[str, FindingSummary]]:
    """Return the running jobs with an open finding that is critical or about an idle device, with their users."""
    condition = Condition(OPEN_FINDING, Operator.IN, (f"{Severity.CRITICAL}/", f"/{IDLE_RULE}"))
    running = frozenset({JobState.RUNNING})
    page = services.executor.run(JobFilter(states=running, conditions=(condition,), limit=MOST_TROUBLED), scope)
    users = {(job.project, job.id): job.user for job in page.jobs}
    found = services.executor.run(FindingsQuestion(tuple(users)), scope)
    return [(users[one.project, one.id], one) for one in found if one.open]


def _use(services: Services, scope: Scope, job: Job) -> list[LatestValue]:
    try:
        return services.executor.run(LatestQuestion(JobRef(job.id, job.project), USE, By.JOB, Aggregate.WHOLE), scope)
    except JobmeterError:
        return []  # deleted meanwhile, or too large for one question: the list continues without it
