"""Logging: batches, single metrics, parameters and tags; and the history of a metric."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from jobmeter.dialects.base import Context, Steps, ask
from jobmeter.dialects.base.request import Typed
from jobmeter.dialects.mlflow.metrics import history, write
from jobmeter.dialects.mlflow.names import (
    MAX_PARAM,
    MAX_TAG,
    MOST_METRICS,
    MOST_PARAMS,
    MOST_TAGS,
    PREFIX,
    check_key,
    check_text,
)
from jobmeter.dialects.mlflow.operations.runs import change, check_active, tag, texts
from jobmeter.dialects.mlflow.requests import (
    NUMBER,
    PAGE_TOKEN,
    KeyValue,
    MetricValue,
    RunRequest,
    answer,
    offset_of,
    operation,
)
from jobmeter.dialects.mlflow.runs import Run, find, path
from jobmeter.errors import InvalidRequestError, LimitExceededError

MOST_HISTORY = 25_000
"""Most values in one answer."""
_KEY = Meta(description="The name: 1 to 250 letters, digits, spaces and `_ - . : /`.")


@operation(f"POST {PREFIX}/runs/log-batch", "runs:write", name="LogBatch")
class LogRunBatch(RunRequest, frozen=True, kw_only=True):
    """Stores what is given and answers when it is durable. A metric `loss` becomes `app.loss` of the run's job."""

    metrics: Annotated[
        tuple[MetricValue, ...], Meta(description=f"At most {MOST_METRICS} objects `{{key, value, timestamp, step}}`.")
    ] = ()
    params: Annotated[tuple[KeyValue, ...], Meta(description=f"At most {MOST_PARAMS} objects `{{key, value}}`.")] = ()
    tags: Annotated[tuple[KeyValue, ...], Meta(description=f"At most {MOST_TAGS} objects `{{key, value}}`.")] = ()

    def _steps(self) -> Steps:
        return _log(self.context, self.run_id, self.metrics, self.params, self.tags)


@operation(f"POST {PREFIX}/runs/log-metric", "runs:write")
class LogMetric(RunRequest, frozen=True, kw_only=True):
    """Stores one value of a metric."""

    key: Annotated[str, _KEY]
    value: Annotated[float | str, Typed(float | str), Meta(description="A number, or `NaN`, `Infinity`, `-Infinity`.")]
    timestamp: Annotated[int, NUMBER, Meta(description="Epoch milliseconds.")]
    step: Annotated[int, NUMBER, Meta(description="The step. Default: 0.")] = 0

    def _steps(self) -> Steps:
        value = MetricValue(self.key, self.value, self.timestamp, self.step)
        return _log(self.context, self.run_id, metrics=[value])


@operation(f"POST {PREFIX}/runs/log-parameter", "runs:write")
class LogParam(RunRequest, frozen=True, kw_only=True):
    """Stores a parameter. Another value for it is refused."""

    key: Annotated[str, _KEY]
    value: Annotated[str, Meta(description=f"At most {MAX_PARAM} characters.")] = ""

    def _steps(self) -> Steps:
        return _log(self.context, self.run_id, params=[KeyValue(self.key, self.value)])


@operation(f"POST {PREFIX}/runs/set-tag", "runs:write")
class SetTag(RunRequest, frozen=True, kw_only=True):
    """Stores a tag, or replaces it."""

    key: Annotated[str, _KEY]
    value: Annotated[str, Meta(description=f"At most {MAX_TAG} characters.")] = ""

    def _steps(self) -> Steps:
        return _log(self.context, self.run_id, tags=[KeyValue(self.key, self.value)])


@operation(f"GET {PREFIX}/metrics/get-history", "runs:read")
class GetMetricHistory(RunRequest, frozen=True, kw_only=True):
    """Answers every stored value of one metric, in order of time."""

    metric_key: Annotated[str, Meta(description="The name.")]
    max_results: Annotated[int | None, NUMBER, Meta(description=f"1 to {MOST_HISTORY}, the default.")] = None
    page_token: Annotated[str, PAGE_TOKEN] = ""

    def _steps(self) -> Steps:
        run = yield from find(self.run_id, self.context)
        most = MOST_HISTORY if self.max_results is None else self.max_results
        if not 1 <= most <= MOST_HISTORY:
            raise InvalidRequestError(f"max_results must be from 1 to {MOST_HISTORY}", "max_results")
        first = offset_of(self.page_token)
        points = yield from history(run, check_key(self.metric_key, "metric_key"))
        more = {"next_page_token": str(first + most)} if len(points) > first + most else {}
        return answer({"metrics": [point.body for point in points[first : first + most]], **more})


def _log(
    context: Context,
    run_id: str,
    metrics: Sequence[MetricValue] = (),
    params: Sequence[KeyValue] = (),
    tags: Sequence[KeyValue] = (),
) -> Steps:
    for name, given, most in (("metrics", metrics, MOST_METRICS), ("params", params, MOST_PARAMS)):
        if len(given) > most:
            raise LimitExceededError(f"A batch may have {most} {name}, this one has {len(given)}.", name)
    run = yield from find(run_id, context)
    check_active(run)
    values = _params(run, params)
    for key, value in texts(tags).items():
        values |= tag(run, key, value)
    # Metrics come last: a refused parameter refuses the batch.
    if values:
        yield from ask(change(run, values))
    yield from write(run, metrics)
    return answer({})


def _params(run: Run, params: Sequence[KeyValue]) -> dict[str, Any]:
    """Return the entries that set parameters. Raises InvalidRequestError if one has another value already."""
    given = dict(run.params)
    for one in params:
        value = check_text(one.value, MAX_PARAM, "value")
        before = given.setdefault(check_key(one.key, "key"), value)
        if before != value:
            raise InvalidRequestError(
                f"Changing param values is not allowed. Param with key={one.key!r} was already logged with value="
                f"{before[:100]!r} for run ID={run.id!r}. Attempted logging new value {value[:100]!r}.",
                "params",
            )
    return {path("runs", run.id, "params", key): given[key] for key in given if key not in run.params}
