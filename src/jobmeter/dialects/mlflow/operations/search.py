"""``runs/search``: runs of experiments that meet a filter, in order, page by page."""

from collections.abc import Generator, Mapping
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Steps, execute
from jobmeter.dialects.mlflow.filters import METRIC, Clause, metric_keys, parse, parse_order, sort
from jobmeter.dialects.mlflow.metrics import LoggedPoint, newest
from jobmeter.dialects.mlflow.names import NAME
from jobmeter.dialects.mlflow.operations.common import answer, operation, parameter
from jobmeter.dialects.mlflow.requests import Search, offset_of, read
from jobmeter.dialects.mlflow.runs import Run, body, runs_of
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.job import Condition, JobFilter, Operator
from jobmeter.model.question import Question

MOST_EXPERIMENTS, MOST_RUNS, MOST_RESULTS, MOST_PAGE = 100, 50_000, 50_000, 1_000
"""Most experiments of a search, runs that it reads, largest ``max_results``, and most runs in one answer."""
_JOBS = 1_000
_CHUNK = 200
"""Runs whose metrics are read together."""
_VIEWS: Mapping[str, frozenset[bool]] = {
    "ACTIVE_ONLY": frozenset({False}),
    "DELETED_ONLY": frozenset({True}),
    "ALL": frozenset({False, True}),
}
"""Values of ``deleted`` that each view shows."""
Metrics = dict[str, dict[str, LoggedPoint]]


def search(call: Call, context: Context) -> Steps:
    """Return a page of the runs that meet the filter."""
    given = read(call, Search)
    clauses, orders = parse(given.filter), parse_order(given.order_by)
    first, shown = offset_of(given.page_token), _VIEWS.get(given.run_view_type)
    if shown is None:
        raise InvalidRequestError(f"run_view_type must be one of {', '.join(_VIEWS)}", "run_view_type")
    if not 1 <= given.max_results <= MOST_RESULTS:
        raise InvalidRequestError(f"max_results must be from 1 to {MOST_RESULTS}", "max_results")
    plain = [clause for clause in clauses if clause.column.kind != METRIC]
    runs = [
        run
        for run in (yield from _runs(given.experiment_ids, context))
        if run.deleted in shown and _fits(plain, run, {})
    ]
    columns = [*(clause.column for clause in clauses), *(order.column for order in orders)]
    keys = metric_keys(columns)
    metrics = (yield from _metrics(runs, keys)) if keys else {}
    found = sort((run for run in runs if _fits(clauses, run, metrics.get(run.id, {}))), orders, metrics)
    most = min(given.max_results, MOST_PAGE)
    page = found[first : first + most]
    values = yield from _metrics(page, None)
    bodies = [body(run, [point.body for _, point in sorted(values.get(run.id, {}).items())]) for run in page]
    more = {"next_page_token": str(first + most)} if len(found) > first + most else {}
    return answer({"runs": bodies, **more})


def _fits(clauses: list[Clause], run: Run, metrics: Mapping[str, LoggedPoint]) -> bool:
    return all(clause.fits(run, metrics) for clause in clauses)


def _runs(experiments: list[str], context: Context) -> Generator[Question[Any], Any, list[Run]]:
    """Return the runs of the experiments. Raises LimitExceededError."""
    if len(experiments) > MOST_EXPERIMENTS:
        raise LimitExceededError(f"A search may name {MOST_EXPERIMENTS} experiments.", "experiment_ids")
    found: dict[str, Run] = {}
    for experiment in dict.fromkeys(experiments):
        offset, total = 0, 1
        while offset < total:
            page = yield from execute(
                JobFilter(
                    projects=None if context.project is None else frozenset({context.project}),
                    ids=() if context.job is None else (context.job,),
                    conditions=(Condition(f"extra.{NAME}.experiments/{experiment}", Operator.IN, ("true",)),),
                    offset=offset,
                    limit=_JOBS,
                )
            )
            offset, total = offset + _JOBS, page.total
            found |= {run.id: run for job in page.jobs for run in runs_of(job) if run.experiment == experiment}
            if len(found) > MOST_RUNS:
                raise LimitExceededError(
                    f"A search may read {MOST_RUNS} runs: name fewer experiments.", "experiment_ids"
                )
    return list(found.values())


def _metrics(runs: list[Run], keys: frozenset[str] | None) -> Generator[Question[Any], Any, Metrics]:
    found: Metrics = {}
    for at in range(0, len(runs), _CHUNK):
        found |= yield from newest(runs[at : at + _CHUNK], keys)
    return found


OPERATIONS = (
    operation(
        "SearchRuns",
        "POST",
        "/runs/search",
        search,
        f"The runs that meet the filter, at most {MOST_PAGE} in one answer.",
        parameter("experiment_ids", f"At most {MOST_EXPERIMENTS} experiments.", required=True),
        parameter(
            "filter",
            "Conditions joined by AND: `metrics.loss < 0.5`, `params.optimizer = 'adam'`, `tags.team LIKE 'vis%'`, "
            "`attributes.status = 'FINISHED'`; names with other characters in backticks or quotes. Comparators as in "
            "MLflow; data sets are refused.",
        ),
        parameter("run_view_type", "`ACTIVE_ONLY` (default), `DELETED_ONLY` or `ALL`."),
        parameter("max_results", f"1 to {MOST_RESULTS}. Default: 1000."),
        parameter("order_by", "A list such as `metrics.loss ASC`. Then: the newest start first."),
        parameter("page_token", "`next_page_token` of the page before."),
        action="runs:read",
    ),
)
