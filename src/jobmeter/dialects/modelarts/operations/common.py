"""Shared by the operations: their prefix, and the parameters of their paths."""

from jobmeter.dialects.base import OperationMaker, Parameter

JOB_PATH = "training-jobs/{training_job_id}"
_OF_PATHS = (
    Parameter("project_id", "path", "The project, which must be that of the key.", required=True),
    Parameter("training_job_id", "path", "The job.", required=True),
    Parameter("task_id", "path", "The task (our replica), `worker-0`.", required=True),
)
operation = OperationMaker(_OF_PATHS, "/v2/{project_id}/")
"""Makes operations of a project."""
