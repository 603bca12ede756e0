"""What the operations share: where they are, and the parameters of their paths."""

from collections.abc import Callable

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps

JOB_PATH = "training-jobs/{training_job_id}"
_OF_PATHS = (
    Parameter("project_id", "path", "The project, which must be that of the key.", required=True),
    Parameter("training_job_id", "path", "The job.", required=True),
    Parameter("task_id", "path", "The task (our replica), `worker-0`.", required=True),
)


def operation(
    name: str,
    method: str,
    path: str,
    answer: Callable[[Call, Context], Steps],
    text: str,
    *parameters: Parameter,
    action: str = "jobs:read",
) -> Operation:
    """An operation of a project: ``path`` is below that of the project, ``parameters`` are those besides the path's."""
    whole = f"/v2/{{project_id}}/{path}"
    of_path = [one for one in _OF_PATHS if f"{{{one.name}}}" in whole]
    return Operation(
        name=name,
        action=action,
        method=method,
        path=whole,
        answer=answer,
        parameters=(*of_path, *parameters),
        text=text,
    )
