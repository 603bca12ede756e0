"""``/jobs/{job}/findings`` and ``/jobs/{job}/timeline``: reasons why a job is slow or failed, from stored data."""

from jobmeter.diagnose.registry import rules
from jobmeter.diagnose.report import Diagnosis, Moment, diagnose, events_of_nodes, timeline
from jobmeter.model.answers import RuleBody, RuleList
from jobmeter.model.finding import Finding
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import copied
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref, tagged

MOST_MOMENTS = 5_000
_KINDS = ("state", "event", "node", "finding", "log", "peak", "metric")


def _rules(context: CallContext) -> RuleList:  # noqa: ARG001 - the shape of every work function
    """List the diagnostic rules.

    Each has a name, a description of the fault and advice.
    """
    return RuleList(rules=[copied(RuleBody, one) for one in rules()])


def _findings(context: CallContext) -> list[Finding]:
    """List the findings of the diagnostic rules for a job.

    Computed from stored data on request, worst first, root causes before their consequences. `severity` is info,
    warning or critical, `role` root, confirmation or cascade, `confidence` 0 to 1. `evidence` holds sentences with
    their figures (`metric`, `value`, `limit`, `unit`), log lines, events and statuses. The rules are in
    `docs/reference/rules.md`.
    """
    return _diagnosis(context).findings


def _timeline(context: CallContext) -> list[Moment]:
    """List the history of a job and its nodes in order of time.

    State changes, events, events of its nodes while it ran on them, findings (at their start), warning lines, minutes
    with many warnings, and changes of its usage. Many warnings are shortened to the first and the last.
    """
    kinds = context.arguments.choices("kind", _KINDS) or _KINDS
    limit = context.arguments.integer("limit", 1_000, 1, MOST_MOMENTS)
    diagnosis = _diagnosis(context)
    of_nodes = events_of_nodes(context.services.executor, diagnosis.case, context.scope) if "node" in kinds else []
    moments = [moment for moment in timeline(diagnosis, of_nodes) if moment.kind in kinds]
    return moments[-limit:]


def _diagnosis(context: CallContext) -> Diagnosis:
    services = context.services
    return diagnose(services.executor, job_ref(context), context.scope, services.clock, services.thresholds)


ENDPOINTS = tagged(
    "findings",
    Endpoint("listRules", "GET /rules", "catalog:read", _rules),
    Endpoint(
        "getJobFindings", "GET /jobs/{job}/findings", "jobs:read", _findings, queries=(PROJECT,), by_resource=True
    ),
    Endpoint(
        "getJobTimeline",
        "GET /jobs/{job}/timeline",
        "jobs:read",
        _timeline,
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
    ),
)
