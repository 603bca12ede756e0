"""``/compare``: jobs side by side, each from its own start."""

from collections.abc import Sequence

from jobmeter.diagnose.difference import explain_differences
from jobmeter.errors import InvalidRequestError
from jobmeter.model.answers import ComparedLine
from jobmeter.model.catalog import Aggregate
from jobmeter.model.comparison import compare_settings
from jobmeter.model.job import Job
from jobmeter.model.job_answers import ComparedJob, Comparison, JobBody
from jobmeter.model.phase import PhaseDifference
from jobmeter.model.series import check_job_id
from jobmeter.model.time import TimeRange, floor_to
from jobmeter.query.defaults import choose_step, compute_life
from jobmeter.query.records import FindingsQuestion
from jobmeter.query.request import By, HeadQuestion, JobRef, MetricQuery
from jobmeter.query.summary import SummaryQuestion
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint
from jobmeter.server.native.metrics import check_metrics

MOST_JOBS = 10
_AGGREGATES = {"job": Aggregate.WHOLE, "device": Aggregate.MEAN}


HEADING = "jobs"
_JOBS = QueryArguments("job", "Ids of the jobs.", many=True, required=True, example="train-1")


@Endpoint(
    "compareJobs",
    "GET /compare",
    "metrics:read",
    details=f"Duration, mean and peak usage of up to {MOST_JOBS} jobs; with `metric` also its values over time, "
    "in milliseconds since the step in which the job began.",
    queries=(
        _JOBS,
        QueryArguments(
            "metric", "Catalogue names of the metrics to return over time.", many=True, example="gpu.utilization"
        ),
        QueryArguments("step", "Length of a bucket. Default: at most 240 buckets for the longest job.", example="5m"),
        QueryArguments(
            "per",
            "job: values over time of the whole job; device: mean of its devices (or replicas), so that jobs of "
            "different sizes are comparable. Default: job.",
        ),
        PROJECT,
    ),
    by_resource=True,
)
def _compare(context: CallContext) -> Comparison:
    """Compare jobs side by side.

    Lines are aligned at the jobs' starts.
    """
    refs = _refs(context)
    metrics = check_metrics(context.arguments.read_texts("metric"))
    now_ms = context.services.clock.now_ms()
    jobs = [context.ask(HeadQuestion(ref)) for ref in refs]
    spans = [compute_life(job, now_ms) for job in jobs]
    step_ms = context.arguments.read_duration("step") or max(map(choose_step, spans))
    aggregate = context.arguments.read_choice("per", _AGGREGATES, "job")
    return Comparison(
        jobs=_compare_jobs(context, jobs),
        step=step_ms,
        lines=[
            line
            for job, span in zip(jobs, spans, strict=True)
            for line in (_lines(context, job, span, (metrics, step_ms, aggregate)) if metrics else ())
        ],
        settings=compare_settings(jobs),
    )


def _compare_jobs(context: CallContext, jobs: Sequence[Job]) -> list[ComparedJob]:
    found = context.ask(FindingsQuestion(tuple((job.project, job.id) for job in jobs)))
    findings = {(one.project, one.id): one for one in found}
    return [
        ComparedJob(
            job=copy_fields(JobBody, job),
            summary=context.ask(SummaryQuestion(JobRef(job.id, job.project))),
            findings=findings.get((job.project, job.id)),
        )
        for job in jobs
    ]


def _refs(context: CallContext) -> list[JobRef]:
    names = context.arguments.read_texts("job")
    if len(names) > MOST_JOBS:
        raise InvalidRequestError(f"at most {MOST_JOBS} jobs can be compared, got {len(names)}", "job")
    return [JobRef(check_job_id(name, "job"), context.project) for name in names]


@Endpoint(
    "explainDifference",
    "GET /compare/causes",
    "metrics:read",
    details="For each job but the first, the difference of its run time from that of the first, split over queue, "
    "prepare (image pull, prolog), start, first_step, input, communication, compute, clock, checkpoint, "
    "restart, end and unattributed. The parts of A and of B are milliseconds and sum to `a_ms` and `b_ms`, "
    "their differences to `difference_ms`. `sentence` has the largest parts. Training is split by what the "
    "devices of both jobs were measured for: waiting beside busy CPU or storage is input; kernels on few "
    "multiprocessors beside busy links are communication, against the highest activity that either job "
    "showed; compute is cut by the ratio of the clocks. `unknown` names causes that were not measured in "
    "both: their time is part of others. Up to 10 jobs.",
    queries=(_JOBS, PROJECT),
    by_resource=True,
)
def _causes(context: CallContext) -> list[PhaseDifference]:
    """Explain why each job took more or less time than the first one."""
    refs = _refs(context)
    if len(refs) < 2:
        raise InvalidRequestError("name at least two jobs: each is compared with the first", "job")
    return explain_differences(context.services.executor, refs, context.scope)


def _lines(
    context: CallContext, job: Job, span: TimeRange, what: tuple[Sequence[str], int, Aggregate]
) -> list[ComparedLine]:
    """Read the metrics of a job; ``what``: the metrics, the step in ms, and how to combine members."""
    metrics, step_ms, aggregate = what
    query = MetricQuery(
        subject=JobRef(job.id, job.project),
        metrics=tuple(metrics),
        range=span,
        step_ms=step_ms,
        by=By.JOB,
        aggregate=aggregate,
    )
    result = context.ask(query)
    # Buckets begin at whole steps since the epoch: the bucket with the start is the first of every job.
    first = floor_to(span.start_ms, step_ms)
    return [
        ComparedLine(
            job=job.id,
            project=job.project,
            metric=line.metric,
            unit=line.unit,
            points=list(zip((line.time - first).tolist(), line.value.tolist(), strict=True)),
        )
        for line in result.lines
    ]
