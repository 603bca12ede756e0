"""ListTrainingJobMetrics and GetTrainingJobLatestMetrics: metrics that the program reported (``app.*``)."""

from collections.abc import Iterable
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute, rounded
from jobmeter.dialects.pai_studio.operations.common import END, PAGES, START, TRAINING_JOB, job_range, page
from jobmeter.model.time import MAX_TIME_MS, TimeRange, iso
from jobmeter.query.reported import Report, ReportedQuestion
from jobmeter.query.request import JobQuestion, JobRef


def list_training_job_metrics(call: Call, context: Context) -> Steps:
    """Every sample, by time."""
    arguments = Arguments(call, context)
    ref = JobRef(arguments.required("TrainingJobId"))
    requested = page(arguments)
    descending = arguments.choice("Order", {"ASC": False, "DESC": True}, default=False)
    view = yield from execute(JobQuestion(ref))
    name = arguments.text("Name")
    found = yield from execute(
        ReportedQuestion(
            ref=JobRef(view.job.id, view.job.project),
            range=job_range(arguments, view.job, context.now_ms),
            names=frozenset({name} if name else ()),
            descending=descending,
            offset=requested.offset,
            limit=requested.size,
        )
    )
    return answer({"Metrics": _metrics(found.reports), "TotalCount": found.total}, context)


def get_training_job_latest_metrics(call: Call, context: Context) -> Steps:
    """Of each name the newest sample."""
    arguments = Arguments(call, context)
    ref = JobRef(arguments.required("TrainingJobId"))
    found = yield from execute(
        ReportedQuestion(
            ref=ref,
            range=TimeRange(0, MAX_TIME_MS),
            names=frozenset(arguments.names("Names")),
            latest=True,
            limit=1_000,
        )
    )
    return answer({"Metrics": _metrics(found.reports)}, context)


def _metrics(reports: Iterable[Report]) -> list[dict[str, Any]]:
    return [{"Name": one.name, "Timestamp": iso(one.time), "Value": rounded(one.value)} for one in reports]


OPERATIONS = (
    Operation(
        name="ListTrainingJobMetrics",
        action="metrics:read",
        method="GET",
        path="/api/v1/trainingjobs/{TrainingJobId}/metrics",
        answer=list_training_job_metrics,
        parameters=(
            TRAINING_JOB,
            Parameter("Name", "query", "One metric, `loss` for what was reported as `app.loss`. Default: all."),
            START,
            END,
            Parameter("Order", "query", "By time, `ASC` or `DESC`. Default: `ASC`."),
            *PAGES,
        ),
        text=(
            "What the program reported, sample by sample: `{Metrics: [{Name, Timestamp, Value}], TotalCount, "
            "RequestId}`. The names are those of `app.*` metrics without the prefix; what an agent measured is not "
            "among them. Values of all replicas, in their order where their times are equal."
        ),
    ),
    Operation(
        name="GetTrainingJobLatestMetrics",
        action="metrics:read",
        method="GET",
        path="/api/v1/trainingjobs/{TrainingJobId}/latestmetrics",
        answer=get_training_job_latest_metrics,
        parameters=(TRAINING_JOB, Parameter("Names", "query", "Metrics, separated by commas. Default: all.")),
        text=(
            "The newest value of each metric that the program reported, of whichever replica: `{Metrics: [{Name, "
            "Timestamp, Value}], RequestId}`, by name, at most 1,000."
        ),
    ),
)
