"""ListTrainingJobLogs: what the processes of a training job wrote."""

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer, times
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_studio.operations.common import PAGES, TIME, TRAINING_JOB, page, replica_of
from jobmeter.query.request import JobQuestion, JobRef, LogQuestion

_NS = 1_000_000


def list_training_job_logs(call: Call, context: Context) -> Steps:
    """The lines of a job or of one instance, by time."""
    arguments = Arguments(call, context)
    ref = JobRef(arguments.required("TrainingJobId"))
    requested = page(arguments)
    start, end = times(arguments)
    view = yield from execute(JobQuestion(ref))
    instance = arguments.text("InstanceId") or arguments.text("WorkerId")
    found = yield from execute(
        LogQuestion(
            ref=JobRef(view.job.id, view.job.project),
            replicas=frozenset({replica_of(view, instance)} if instance else ()),
            start_ns=None if start is None else start * _NS,
            end_ns=None if end is None else end * _NS,
            offset=requested.offset,
            limit=requested.size,
            count=True,
        )
    )
    total = len(found.lines) if found.total is None else found.total
    return answer({"Logs": [line.text for line in found.lines], "TotalCount": str(total)}, context)


OPERATIONS = (
    Operation(
        name="ListTrainingJobLogs",
        action="jobs:read",
        method="GET",
        path="/api/v1/trainingjobs/{TrainingJobId}/logs",
        answer=list_training_job_logs,
        parameters=(
            TRAINING_JOB,
            Parameter("InstanceId", "query", "One instance: a pod's id or `<TrainingJobId>-<replica>`. Default: all."),
            Parameter("WorkerId", "query", "The older name of InstanceId."),
            Parameter("StartTime", "query", f"{TIME} Default: the first line."),
            Parameter("EndTime", "query", f"{TIME} Default: the last line. Not included."),
            *PAGES,
        ),
        text=(
            "What the processes of a job wrote, line by line and by time: `{Logs: [text], TotalCount, RequestId}`. "
            "`TotalCount` is text."
        ),
    ),
)
