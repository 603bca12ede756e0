"""Our results as PAI-DLC's bodies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, ShareToken
from jobmeter.dialects.pai_dlc.names import in_their_unit
from jobmeter.query.request import JobQuestion, Line, MetricQuery, MetricResult

if TYPE_CHECKING:
    from jobmeter.model.job import JobView


def job_metrics(
    call: Call,  # noqa: ARG001 - the shape of every render function
    context: Context,
    questions: Sequence[MetricQuery | JobQuestion],  # noqa: ARG001
    results: Sequence[Any],
) -> Answer:
    """GetJobMetrics: a PodMetric for each replica that has samples in the range."""
    result: MetricResult
    view: JobView
    result, view = results
    pods = {replica.name: replica.pod_id for replica in sorted(view.replicas, key=lambda one: one.attempt)}
    return answer(
        {
            "JobId": view.job.id,
            "PodMetrics": [
                {"PodId": pods.get(line.replica) or f"{view.job.id}-{line.replica}", "Metrics": _points(line)}
                for line in result.lines
            ],
        },
        context,
    )


def token(
    call: Call,  # noqa: ARG001
    context: Context,
    questions: Sequence[Any],  # noqa: ARG001
    results: Sequence[ShareToken],
) -> Answer:
    """GetToken: the token."""
    return answer({"Token": results[0].token}, context)


def answer(body: dict[str, Any], context: Context) -> Answer:
    """A success: the body with its RequestId, which the header repeats."""
    encoded = msgspec.json.encode({**body, "RequestId": context.request_id})
    return Answer(200, encoded, (("x-acs-request-id", context.request_id),), "application/json;charset=utf-8")


def _points(line: Line) -> list[dict[str, float]]:
    values = line.value.tolist()
    return [
        {"Time": time, "Value": in_their_unit(line.metric, value)}
        for time, value in zip(line.time.tolist(), values, strict=True)
    ]
