"""``/compare``: jobs side by side, each from its own start."""

from collections.abc import Sequence

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.answers import ComparedLine
from jobmeter.model.catalog import Aggregate
from jobmeter.model.job import Job
from jobmeter.model.series import check_job_id
from jobmeter.model.time import TimeRange, floor_to
from jobmeter.query.defaults import default_step, life
from jobmeter.query.request import By, JobRef, MetricQuery, MetricResult
from jobmeter.query.summary import JobSummary
from jobmeter.server.native.arguments import Query
from jobmeter.server.native.bodies import JobBody, copied
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, tagged
from jobmeter.server.native.metrics import requested_metrics

MOST_JOBS = 10


class ComparedJob(msgspec.Struct, frozen=True):
    """A job and its usage over its life."""

    job: JobBody
    summary: JobSummary


class Comparison(msgspec.Struct, frozen=True):
    """The jobs in the requested order; ``step`` in milliseconds is equal for all lines."""

    jobs: list[ComparedJob]
    step: int
    lines: list[ComparedLine]


def _compare(context: CallContext) -> Comparison:
    """Compare jobs side by side.

    Lines are aligned at the jobs' starts.
    """
    names = context.arguments.texts("job")
    if len(names) > MOST_JOBS:
        raise InvalidRequestError(f"at most {MOST_JOBS} jobs can be compared, got {len(names)}", "job")
    metrics = requested_metrics(context.arguments.texts("metric"))
    executor, now_ms = context.services.executor, context.services.clock.now_ms()
    refs = [JobRef(check_job_id(name, "job"), context.project) for name in names]
    jobs = [executor.head(ref, context.scope) for ref in refs]
    spans = [life(job, now_ms) for job in jobs]
    step_ms = context.arguments.duration("step") or max(map(default_step, spans))
    return Comparison(
        jobs=[
            ComparedJob(copied(JobBody, job), executor.summary(JobRef(job.id, job.project), context.scope))
            for job in jobs
        ],
        step=step_ms,
        lines=[
            line
            for job, span in zip(jobs, spans, strict=True)
            for line in (_lines(context, job, span, metrics, step_ms) if metrics else ())
        ],
    )


def _lines(context: CallContext, job: Job, span: TimeRange, metrics: Sequence[str], step_ms: int) -> list[ComparedLine]:
    query = MetricQuery(
        subject=JobRef(job.id, job.project),
        metrics=tuple(metrics),
        range=span,
        step_ms=step_ms,
        by=By.JOB,
        aggregate=Aggregate.WHOLE,
    )
    result: MetricResult = context.services.executor.run(query, context.scope)
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


ENDPOINTS = tagged(
    "jobs",
    Endpoint(
        "compareJobs",
        "GET /compare",
        "metrics:read",
        _compare,
        details=(
            f"Duration, mean and peak usage of up to {MOST_JOBS} jobs; with `metric` also its values over time, "
            "in milliseconds since the step in which the job began."
        ),
        queries=(
            Query("job", "Ids of the jobs.", many=True, required=True, example="train-1"),
            Query(
                "metric", "Catalogue names of the metrics to return over time.", many=True, example="gpu.utilization"
            ),
            Query("step", "Length of a bucket. Default: at most 240 buckets for the longest job.", example="5m"),
            PROJECT,
        ),
        by_resource=True,
    ),
)
