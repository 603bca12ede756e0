"""``runs/search``: runs of experiments that meet a filter, in order, page by page."""

from collections.abc import Generator, Sequence
from typing import Annotated, Any

from jobmeter.dialects.base import Context, Steps, ask
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.mlflow.metrics import read_newest
from jobmeter.dialects.mlflow.requests import NUMBER, PAGE_TEXT, answer, operation
from jobmeter.errors import LimitExceededError
from jobmeter.model.job import Condition, JobFilter, Operator
from jobmeter.model.question import Question
from jobmeter.wire.mlflow.filters import METRIC, list_metric_keys, meets_all, parse, parse_order, parse_view, sort
from jobmeter.wire.mlflow.names import NAME, PREFIX
from jobmeter.wire.mlflow.pages import MOST_EXPERIMENTS, MOST_PAGE, MOST_RESULTS, MOST_RUNS, check_size, cut_page
from jobmeter.wire.mlflow.runs import Run, iterate_runs, make_body
from jobmeter.wire.mlflow.values import LoggedPoint

_JOBS = 1_000
_CHUNK = 200
"""Number of runs whose metrics are read together."""
Metrics = dict[str, dict[str, LoggedPoint]]


@operation(f"POST {PREFIX}/runs/search", "runs:read")
class SearchRuns(Request, frozen=True, kw_only=True):
    """Returns a page of the runs that meet the filter."""

    experiment_ids: Annotated[tuple[str, ...], f"At most {MOST_EXPERIMENTS} experiments."] = ()
    filter: Annotated[
        str,
        "Conditions joined by AND: `metrics.loss < 0.5`, `params.optimizer = 'adam'`, "
        "`tags.team LIKE 'vis%'`, `attributes.status = 'FINISHED'`; names with other characters in backticks or "
        "quotes. Comparators as in MLflow; data sets are refused.",
    ] = ""
    run_view_type: Annotated[str, "`ACTIVE_ONLY`, `DELETED_ONLY` or `ALL`."] = "ACTIVE_ONLY"
    max_results: Annotated[int, NUMBER, f"1 to {MOST_RESULTS}; a page has at most {MOST_PAGE}. Default: 1000."] = 1_000
    order_by: Annotated[tuple[str, ...], "A list such as `metrics.loss ASC`. Then: the newest start first."] = ()
    page_token: Annotated[str, PAGE_TEXT] = ""

    def _steps(self) -> Steps:
        clauses, orders, shown = parse(self.filter), parse_order(self.order_by), parse_view(self.run_view_type)
        most = min(check_size(self.max_results, MOST_RESULTS), MOST_PAGE)
        cut_page((), self.page_token, most)
        plain = [clause for clause in clauses if clause.column.kind != METRIC]
        runs = [
            run
            for run in (yield from _runs(self.experiment_ids, self.context))
            if run.deleted in shown and meets_all(plain, run, {})
        ]
        columns = [*(clause.column for clause in clauses), *(order.column for order in orders)]
        keys = list_metric_keys(columns)
        metrics = (yield from _metrics(runs, keys)) if keys else {}
        found = sort((run for run in runs if meets_all(clauses, run, metrics.get(run.id, {}))), orders, metrics)
        page, more = cut_page(found, self.page_token, most)
        values = yield from _metrics(page, None)
        bodies = [make_body(run, [point.body for _, point in sorted(values.get(run.id, {}).items())]) for run in page]
        return answer({"runs": bodies, **more})


def _runs(experiments: Sequence[str], context: Context) -> Generator[Question[Any], Any, list[Run]]:
    """Return the runs of the experiments. Raises LimitExceededError if there are too many."""
    if len(experiments) > MOST_EXPERIMENTS:
        raise LimitExceededError(f"A search may name at most {MOST_EXPERIMENTS} experiments.", "experiment_ids")
    found: dict[str, Run] = {}
    for experiment in dict.fromkeys(experiments):
        offset, total = 0, 1
        while offset < total:
            page = yield from ask(
                JobFilter(
                    projects=None if context.project is None else frozenset({context.project}),
                    ids=() if context.job is None else (context.job,),
                    conditions=(Condition(f"extra.{NAME}.experiments/{experiment}", Operator.IN, ("true",)),),
                    offset=offset,
                    limit=_JOBS,
                )
            )
            offset, total = offset + _JOBS, page.total
            found |= {run.id: run for job in page.jobs for run in iterate_runs(job) if run.experiment == experiment}
            if len(found) > MOST_RUNS:
                raise LimitExceededError(
                    f"A search may read {MOST_RUNS} runs: name fewer experiments.", "experiment_ids"
                )
    return list(found.values())


def _metrics(runs: Sequence[Run], keys: frozenset[str] | None) -> Generator[Question[Any], Any, Metrics]:
    found: Metrics = {}
    for at in range(0, len(runs), _CHUNK):
        found |= yield from read_newest(runs[at : at + _CHUNK], keys)
    return found
