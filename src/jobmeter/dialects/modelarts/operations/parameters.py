"""Parameters that most operations have, for the reference page."""

from jobmeter.dialects.base import Parameter

PROJECT = Parameter("project_id", "path", "The project, which must be that of the key.", required=True)
JOB = Parameter("training_job_id", "path", "The job.", required=True)
TASK = Parameter("task_id", "path", "The task (our replica), `worker-0`.", required=True)
