"""Logging: batches, single metrics, parameters and tags; and the history of a metric."""

from collections.abc import Sequence
from typing import Annotated

from jobmeter.dialects.base import Context, Steps, ask
from jobmeter.dialects.base.request import Typed
from jobmeter.dialects.mlflow.metrics import read_history, write
from jobmeter.dialects.mlflow.operations.runs import change
from jobmeter.dialects.mlflow.requests import NUMBER, PAGE_TEXT, RunRequest, answer, operation
from jobmeter.dialects.mlflow.runs import find
from jobmeter.wire.mlflow.changes import make_batch_entries
from jobmeter.wire.mlflow.names import MAX_PARAM, MAX_TAG, MOST_METRICS, MOST_PARAMS, MOST_TAGS, PREFIX, check_key
from jobmeter.wire.mlflow.pages import MOST_HISTORY, check_size, cut_page
from jobmeter.wire.mlflow.values import KeyValue, MetricValue

_KEY = "The name: 1 to 250 letters, digits, spaces and `_ - . : /`."


@operation(f"POST {PREFIX}/runs/log-batch", "runs:write", name="LogBatch")
class LogRunBatch(RunRequest, frozen=True, kw_only=True):
    """Stores the values and answers when they are durable. A metric `loss` becomes `app.loss` of the run's job."""

    metrics: Annotated[
        tuple[MetricValue, ...], f"At most {MOST_METRICS} objects `{{key, value, timestamp, step}}`."
    ] = ()
    params: Annotated[tuple[KeyValue, ...], f"At most {MOST_PARAMS} objects `{{key, value}}`."] = ()
    tags: Annotated[tuple[KeyValue, ...], f"At most {MOST_TAGS} objects `{{key, value}}`."] = ()

    def _steps(self) -> Steps:
        return _log(self.context, self.run_id, self.metrics, self.params, self.tags)


@operation(f"POST {PREFIX}/runs/log-metric", "runs:write")
class LogMetric(RunRequest, frozen=True, kw_only=True):
    """Stores one value of a metric."""

    key: Annotated[str, _KEY]
    value: Annotated[float | str, Typed(float | str), "A number, or `NaN`, `Infinity`, `-Infinity`."]
    timestamp: Annotated[int, NUMBER, "Epoch milliseconds."]
    step: Annotated[int, NUMBER, "The step. Default: 0."] = 0

    def _steps(self) -> Steps:
        value = MetricValue(self.key, self.value, self.timestamp, self.step)
        return _log(self.context, self.run_id, metrics=[value])


@operation(f"POST {PREFIX}/runs/log-parameter", "runs:write")
class LogParam(RunRequest, frozen=True, kw_only=True):
    """Stores a parameter. A different value for a stored parameter is refused."""

    key: Annotated[str, _KEY]
    value: Annotated[str, f"At most {MAX_PARAM} characters."] = ""

    def _steps(self) -> Steps:
        return _log(self.context, self.run_id, params=[KeyValue(self.key, self.value)])


@operation(f"POST {PREFIX}/runs/set-tag", "runs:write")
class SetTag(RunRequest, frozen=True, kw_only=True):
    """Stores a tag, or replaces it."""

    key: Annotated[str, _KEY]
    value: Annotated[str, f"At most {MAX_TAG} characters."] = ""

    def _steps(self) -> Steps:
        return _log(self.context, self.run_id, tags=[KeyValue(self.key, self.value)])


@operation(f"GET {PREFIX}/metrics/get-history", "runs:read")
class GetMetricHistory(RunRequest, frozen=True, kw_only=True):
    """Returns every stored value of one metric, in order of time."""

    metric_key: Annotated[str, "The name."]
    max_results: Annotated[int | None, NUMBER, f"1 to {MOST_HISTORY}, the default."] = None
    page_token: Annotated[str, PAGE_TEXT] = ""

    def _steps(self) -> Steps:
        run = yield from find(self.run_id, self.context)
        most = check_size(MOST_HISTORY if self.max_results is None else self.max_results, MOST_HISTORY)
        points = yield from read_history(run, check_key(self.metric_key, "metric_key"))
        page, more = cut_page(points, self.page_token, most)
        return answer({"metrics": [point.body for point in page], **more})


def _log(
    context: Context,
    run_id: str,
    metrics: Sequence[MetricValue] = (),
    params: Sequence[KeyValue] = (),
    tags: Sequence[KeyValue] = (),
) -> Steps:
    run = yield from find(run_id, context)
    values = make_batch_entries(run, metrics, params, tags)
    # Metrics come last: a refused parameter refuses the batch.
    if values:
        yield from ask(change(run, values))
    yield from write(run, metrics)
    return answer({})
