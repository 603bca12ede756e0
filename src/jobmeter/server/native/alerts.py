"""``/jobs/{job}/alerts``: pending and firing alerts about a job."""

from jobmeter.model.alert import JobAlerts
from jobmeter.query.alerts import MOST_OF_JOB, JobAlertsQuestion
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref, tagged


def _alerts(context: CallContext) -> JobAlerts:
    """List the pending and firing alerts about a job."""
    return context.ask(JobAlertsQuestion(job_ref(context)))


ENDPOINTS = tagged(
    "jobs",
    Endpoint(
        "getJobAlerts",
        "GET /jobs/{job}/alerts",
        "alerts:read",
        _alerts,
        details=(
            "An alert is about a job if its series has the labels `project` and `job_id` of the job. Firing alerts "
            f"come first, then the oldest. At most {MOST_OF_JOB} are listed; `total` counts all. Alerts of every job, "
            "and silences, are in the APIs of Prometheus and Alertmanager."
        ),
        queries=(PROJECT,),
        by_resource=True,
    ),
)
