"""``/jobs/{job}/alerts`` and ``silences``: pending and firing alerts about a job, and silences that cover them."""

from jobmeter.errors import NotFoundError
from jobmeter.model.alert import (
    ALERT_NAME,
    ExpireSilence,
    JobAlerts,
    LabelMatcher,
    NewSilence,
    PutSilence,
    Silence,
    SilencesQuestion,
)
from jobmeter.query.alerts import MOST_OF_JOB, JobAlertsQuestion
from jobmeter.query.request import HeadQuestion
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref

HEADING = "jobs"


@Endpoint(
    "getJobAlerts",
    "GET /jobs/{job}/alerts",
    "alerts:read",
    details="An alert is about a job if its series has the labels `project` and `job_id` of the job. Firing alerts "
    f"come first, then the oldest. At most {MOST_OF_JOB} are listed; `total` counts all. Alerts of every job, "
    "and silences, are in the APIs of Prometheus and Alertmanager.",
    queries=(PROJECT,),
    by_resource=True,
)
def _alerts(context: CallContext) -> JobAlerts:
    """List the pending and firing alerts about a job."""
    return context.ask(JobAlertsQuestion(make_job_ref(context)))


@Endpoint(
    "silenceJobAlerts",
    "POST /jobs/{job}/silences",
    "alerts:write",
    details="It lasts for `seconds`, at most a year. Alertmanager's API makes silences with any matchers.",
    queries=(PROJECT,),
    body=NewSilence,
    example={"alert": "GpuIdle", "seconds": 7200, "author": "lin", "comment": "waiting for data"},
    lane="control",
)
def _silence(context: CallContext) -> Silence:
    """Silence the alerts of one name about a job."""
    job = context.ask(HeadQuestion(make_job_ref(context)))
    given = context.decode_body(NewSilence)
    now_ms = context.services.clock.now_ms()
    labels = {ALERT_NAME: given.alert, "project": job.project, "job_id": job.id}
    return context.ask(
        PutSilence(
            matchers=tuple(LabelMatcher(name, value) for name, value in labels.items()),
            start=now_ms,
            end=now_ms + 1000 * given.seconds,
            author=given.author,
            comment=given.comment,
        )
    )


@Endpoint("endJobSilence", "DELETE /jobs/{job}/silences/{silence}", "alerts:write", queries=(PROJECT,), lane="control")
def _end(context: CallContext) -> Silence:
    """End a silence of alerts about a job now."""
    job, name = context.ask(HeadQuestion(make_job_ref(context))), context.path["silence"]
    about = LabelMatcher("job_id", job.id)
    if not any(one.id == name and about in one.matchers for one in context.ask(SilencesQuestion())):
        raise NotFoundError(f"job {job.id} has no silence {name[:64]!r}", "silence", name[:64])
    return context.ask(ExpireSilence(id=name))
