"""``/findings``, ``/jobs/{job}/findings`` and ``/jobs/{job}/timeline``: reasons why jobs are slow or failed."""

from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.report import Diagnosis, Moment, build_timeline, diagnose, read_node_events
from jobmeter.errors import InvalidRequestError
from jobmeter.model.answers import FindingEntry, FindingList, RuleBody, RuleList
from jobmeter.model.finding import Finding, Severity
from jobmeter.model.nearest import did_you_mean
from jobmeter.query.findings import FindingListQuestion, JobFinding
from jobmeter.registry.finding_filter import make_values as finding_values
from jobmeter.server.native.arguments import RANGE, Arguments, QueryArguments
from jobmeter.server.native.bodies import copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref

ANY = "any"
"""Word for any rule, in place of a rule's name."""
MOST_MOMENTS = 5_000
MOST_LISTED, MAX_OFFSET = 1_000, 10_000
_KINDS = ("state", "event", "node", "finding", "log", "peak", "metric")


HEADING = "findings"


@Endpoint("listRules", "GET /rules", "catalog:read")
def _rules(context: CallContext) -> RuleList:  # noqa: ARG001 - the shape of every work function
    """List the diagnostic rules.

    Each has a name, a description of the fault and advice.
    """
    return RuleList(rules=[copy_fields(RuleBody, one) for one in list_rules()])


@Endpoint("getJobFindings", "GET /jobs/{job}/findings", "jobs:read", queries=(PROJECT,), by_resource=True)
def _findings(context: CallContext) -> list[Finding]:
    """List the findings of the diagnostic rules for a job.

    Computed from stored data on request, worst first, root causes before their consequences. `severity` is info,
    warning or critical, `role` root, confirmation or cascade, `confidence` 0 to 1. `evidence` holds sentences with
    their figures (`metric`, `value`, `limit`, `unit`), log lines, events and statuses. The rules are in
    `docs/reference/rules.md`.
    """
    return _diagnosis(context).findings


@Endpoint(
    "listFindings",
    "GET /findings",
    "jobs:read",
    queries=(
        QueryArguments("finding", "Only findings of these rules (see `/rules`).", many=True, example="xid"),
        QueryArguments("severity", "Only these: info, warning, critical.", many=True, example="critical"),
        QueryArguments("open", "true: only open findings of running jobs."),
        *RANGE,
        QueryArguments("limit", f"Findings in the answer, 1 to {MOST_LISTED}. Default: 100.", type="integer"),
        QueryArguments("offset", f"Findings to skip, at most {MAX_OFFSET}. Default: 0.", type="integer"),
        PROJECT,
    ),
    by_resource=True,
)
def _list(context: CallContext) -> FindingList:
    """List the stored findings of all jobs, the newest first.

    With `open=true` only open findings of running jobs, the worst first: of the newest 2,000 jobs that have some. A
    finding reported several times is in the list once, with its last report. A list reads the newest 20,000 reports.
    """
    given = context.arguments
    start, end = context.read_span()
    question = FindingListQuestion(
        projects=context.projects,
        values=make_finding_condition(given),
        start=start,
        end=end,
        open=given.read_flag("open"),
        offset=given.read_integer("offset", 0, 0, MAX_OFFSET),
        limit=given.read_integer("limit", 100, 1, MOST_LISTED),
    )
    page = context.ask(question)
    return FindingList(findings=[_entry(one) for one in page.findings], more=page.more)


def _entry(one: JobFinding) -> FindingEntry:
    job, found = one.job, one.finding
    return copy_fields(FindingEntry, found, name=job.name, user=job.user, state=job.state, open=one.open)


def make_finding_condition(given: Arguments) -> tuple[str, ...]:
    """Return the values of a condition for the arguments ``finding`` and ``severity``; none if any finding fits.

    Raises InvalidRequestError for an unknown rule.
    """
    severities, names = given.read_choices("severity", Severity), given.read_texts("finding")
    existing = (*sorted(rule.name for rule in list_rules()), ANY)
    for name in names:
        if name not in existing:
            hint = did_you_mean(name, existing) or f"; valid rules: {', '.join(existing)}"
            raise InvalidRequestError(f"unknown rule {name[:100]!r}{hint}", "finding")
    return finding_values(severities, () if ANY in names else names)


@Endpoint(
    "getJobTimeline",
    "GET /jobs/{job}/timeline",
    "jobs:read",
    queries=(
        QueryArguments(
            "kind", "Only these: state, event, node, finding, log, peak, metric.", many=True, example="finding"
        ),
        QueryArguments(
            "limit", f"Largest number of entries, newest kept, 1 to {MOST_MOMENTS}. Default: 1000.", type="integer"
        ),
        PROJECT,
    ),
    by_resource=True,
)
def _timeline(context: CallContext) -> list[Moment]:
    """List the history of a job and its nodes in order of time.

    State changes, events, events of its nodes while it ran on them, findings (at their start), warning lines, minutes
    with many warnings, and changes of its usage. Many warnings are shortened to the first and the last.
    """
    kinds = context.arguments.read_choices("kind", _KINDS) or _KINDS
    limit = context.arguments.read_integer("limit", 1_000, 1, MOST_MOMENTS)
    diagnosis = _diagnosis(context)
    of_nodes = read_node_events(context.services.executor, diagnosis.case, context.scope) if "node" in kinds else []
    moments = [moment for moment in build_timeline(diagnosis, of_nodes) if moment.kind in kinds]
    return moments[-limit:]


def _diagnosis(context: CallContext) -> Diagnosis:
    services = context.services
    return diagnose(services.executor, make_job_ref(context), context.scope, services.clock, services.thresholds)
