"""``/jobs/{job}/findings`` and ``/jobs/{job}/timeline``: why a job is slow or died, from what is stored."""

from jobmeter.diagnose.report import Diagnosis, Moment, diagnose, timeline
from jobmeter.model.finding import Finding
from jobmeter.server.native.arguments import Query
from jobmeter.server.native.endpoint import PROJECT, Ask, Endpoint
from jobmeter.server.native.jobs import JOB_PATH, job_ref

MOST_MOMENTS = 5_000
_KINDS = frozenset({"state", "event", "finding", "log"})


def _findings(ask: Ask) -> list[Finding]:
    return _diagnosis(ask).findings


def _timeline(ask: Ask) -> list[Moment]:
    kinds = ask.arguments.choices("kind", _kind) or _KINDS
    limit = ask.arguments.integer("limit", 1_000, 1, MOST_MOMENTS)
    moments = [moment for moment in timeline(_diagnosis(ask)) if moment.kind in kinds]
    return moments[-limit:]


def _kind(word: str) -> str:
    if word not in _KINDS:
        raise ValueError(word)
    return word


def _diagnosis(ask: Ask) -> Diagnosis:
    services = ask.services
    return diagnose(services.executor, job_ref(ask), ask.scope, services.clock, services.thresholds)


ENDPOINTS = (
    Endpoint(
        name="getJobFindings",
        tag="findings",
        method="GET",
        path="/jobs/{job}/findings",
        action="jobs:read",
        summary="What the diagnostic rules find in a job",
        text=(
            "Made from what is stored when asked, worst first, roots before what followed from them. `severity` is "
            "info, warning or critical, `role` root, confirmation or cascade, `confidence` 0 to 1; `evidence` holds "
            "sentences with their figures (`metric`, `value`, `limit`, `unit`), log lines, events and statuses. The "
            "rules are in `docs/reference/rules.md`."
        ),
        work=_findings,
        answer=Finding,
        many=True,
        queries=(PROJECT,),
        paths=JOB_PATH,
    ),
    Endpoint(
        name="getJobTimeline",
        tag="findings",
        method="GET",
        path="/jobs/{job}/timeline",
        action="jobs:read",
        summary="State changes, events, findings and warning lines of a job in one order of time",
        text="A finding stands where it begins. Of many lines the first and the last that warn are there.",
        work=_timeline,
        answer=Moment,
        many=True,
        queries=(
            Query("kind", "Only these: state, event, finding, log.", many=True, example="finding"),
            Query("limit", f"The newest so many, 1 to {MOST_MOMENTS}. Default: 1000.", type="integer"),
            PROJECT,
        ),
        paths=JOB_PATH,
    ),
)
