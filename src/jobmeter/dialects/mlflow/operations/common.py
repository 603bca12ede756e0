"""Shared by the operations: answers, parameters, and the writing of a run's record."""

from collections.abc import Callable
from typing import Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, Operation, Parameter, RecordJobs, Steps
from jobmeter.dialects.mlflow.names import NAME, PREFIX
from jobmeter.dialects.mlflow.runs import Run
from jobmeter.model.record import JobRecord, Records


def operation(
    name: str,
    method: str,
    path: str,
    answer: Callable[[Call, Context], Steps],
    text: str,
    *parameters: Parameter,
    action: str = "runs:read",
) -> Operation:
    """Make an operation below the prefix of the tracking API."""
    return Operation(
        name=name, action=action, method=method, path=PREFIX + path, answer=answer, parameters=parameters, text=text
    )


def answer(body: Any) -> Answer:  # noqa: ANN401 - a JSON object
    """Return a successful answer."""
    return Answer(200, msgspec.json.encode(body))


def parameter(name: str, text: str, *, required: bool = False, where: Any = "body") -> Parameter:  # noqa: ANN401
    """Return the description of a parameter."""
    return Parameter(name, where, text, required=required)


RUN = parameter("run_id", "The run. Old clients send `run_uuid`.", required=True)


def change(run: Run, values: dict[str, Any], **job: Any) -> RecordJobs:  # noqa: ANN401 - fields of a job's record
    """Return the command that sets keys of the run's record, and fields of its job's."""
    return RecordJobs(
        Records(jobs=[JobRecord(job_id=run.job, project=run.project or None, extra={NAME: values}, **job)])
    )
