"""ListTrainingJobInstanceMetrics: one measured metric of a training job by instance."""

from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import Arguments, answer, in_their_unit, member_name
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, execute
from jobmeter.dialects.pai_studio.names import INSTANCE_METRICS
from jobmeter.dialects.pai_studio.operations.common import (
    END,
    START,
    TRAINING_JOB,
    instance_ids,
    job_range,
    replica_of,
)
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import MINUTE, SECOND, iso
from jobmeter.query.request import By, JobQuestion, JobRef, Line, MetricQuery

DEFAULT_STEP_MS = 5 * MINUTE


def list_training_job_instance_metrics(call: Call, context: Context) -> Steps:
    """One metric by replica, under the instance ids that the job's record gives its replicas."""
    arguments = Arguments(call, context)
    ref = JobRef(arguments.required("TrainingJobId"))
    metric = INSTANCE_METRICS.get(metric_type := arguments.required("MetricType"))
    if metric is None:
        names = ", ".join(INSTANCE_METRICS)
        raise InvalidRequestError(f"MetricType {metric_type!r} is not one of {names}", "MetricType")
    step_ms = arguments.step("TimeStep", DEFAULT_STEP_MS, SECOND)
    view = yield from execute(JobQuestion(ref))
    instance = arguments.text("InstanceId")
    result = yield from execute(
        MetricQuery(
            subject=JobRef(view.job.id, view.job.project),
            metrics=(metric.name,),
            range=job_range(arguments, view.job, context.now_ms, step_ms),
            step_ms=step_ms,
            by=By.REPLICA,
            replicas=frozenset({replica_of(view, instance)} if instance else ()),
        )
    )
    ids = instance_ids(view, map(member_name, result.lines))
    nodes = {replica.name: replica.node for replica in sorted(view.replicas, key=lambda one: one.attempt)}
    members = [
        {
            "InstanceId": ids[member_name(line)],
            "NodeName": nodes.get(line.replica) or line.node,
            "Metrics": _points(line),
        }
        for line in result.lines
    ]
    return answer({"InstanceMetrics": members}, context)


def _points(line: Line) -> list[dict[str, Any]]:
    values = in_their_unit(line)
    return [{"Time": iso(time), "Value": value} for time, value in zip(line.time.tolist(), values, strict=True)]


OPERATIONS = (
    Operation(
        name="ListTrainingJobInstanceMetrics",
        action="metrics:read",
        method="GET",
        path="/api/v1/trainingjobs/{TrainingJobId}/instancemetrics",
        answer=list_training_job_instance_metrics,
        parameters=(
            TRAINING_JOB,
            Parameter(
                "MetricType", "query", f"One of {', '.join(f'`{name}`' for name in INSTANCE_METRICS)}.", required=True
            ),
            Parameter("InstanceId", "query", "One instance: a pod's id or `<TrainingJobId>-<replica>`. Default: all."),
            START,
            END,
            Parameter("TimeStep", "query", "`10s`, `5m`, `1h`; a bare number counts seconds. Default: `5m`."),
        ),
        text=(
            "One metric of a training job, a line for each instance: `{InstanceMetrics: [{InstanceId, NodeName, "
            "Metrics: [{Time, Value}]}], RequestId}`. `Time` is the start of the step as ISO 8601 text; utilisations "
            "are percent, rates MB/s (10^6 bytes), none below 0. Instances without samples are absent."
        ),
    ),
)
