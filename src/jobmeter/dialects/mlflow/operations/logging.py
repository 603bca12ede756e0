"""Logging: batches, single metrics, parameters and tags; and the history of a metric."""

from collections.abc import Sequence
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Steps, execute
from jobmeter.dialects.mlflow.metrics import history, write
from jobmeter.dialects.mlflow.names import MAX_PARAM, MOST_METRICS, MOST_PARAMS, MOST_TAGS, check_key, check_text
from jobmeter.dialects.mlflow.operations.common import RUN, answer, change, operation, parameter
from jobmeter.dialects.mlflow.operations.runs import check_active, tag, texts
from jobmeter.dialects.mlflow.requests import (
    History,
    KeyValue,
    LoggedBatch,
    LoggedMetric,
    LoggedText,
    MetricValue,
    offset_of,
    read,
)
from jobmeter.dialects.mlflow.runs import Run, find, path
from jobmeter.errors import InvalidRequestError, LimitExceededError

MOST_HISTORY = 25_000
"""Most values in one answer."""


def log_batch(call: Call, context: Context) -> Steps:
    """Store metrics, parameters and tags of a run."""
    given = read(call, LoggedBatch)
    return (yield from _log(given.run, given.metrics, given.params, given.tags, context))


def log_metric(call: Call, context: Context) -> Steps:
    """Store one value of a metric."""
    given = read(call, LoggedMetric)
    value = MetricValue(given.key, given.value, given.timestamp, given.step)
    return (yield from _log(given.run, [value], [], [], context))


def log_parameter(call: Call, context: Context) -> Steps:
    """Store a parameter."""
    given = read(call, LoggedText)
    return (yield from _log(given.run, [], [KeyValue(given.key, given.value)], [], context))


def set_tag(call: Call, context: Context) -> Steps:
    """Store a tag."""
    given = read(call, LoggedText)
    return (yield from _log(given.run, [], [], [KeyValue(given.key, given.value)], context))


def get_history(call: Call, context: Context) -> Steps:
    """Return the values of one metric, in order of time."""
    given = read(call, History)
    _, run = yield from find(given.run, context)
    most = MOST_HISTORY if given.max_results is None else given.max_results
    if not 1 <= most <= MOST_HISTORY:
        raise InvalidRequestError(f"max_results must be from 1 to {MOST_HISTORY}", "max_results")
    first = offset_of(given.page_token)
    points = yield from history(run, check_key(given.metric_key, "metric_key"))
    more = {"next_page_token": str(first + most)} if len(points) > first + most else {}
    return answer({"metrics": [point.body for point in points[first : first + most]], **more})


def _log(
    run_id: str,
    metrics: Sequence[MetricValue],
    params: Sequence[KeyValue],
    tags: list[KeyValue],
    context: Context,
) -> Steps:
    for name, given, most in (("metrics", metrics, MOST_METRICS), ("params", params, MOST_PARAMS)):
        if len(given) > most:
            raise LimitExceededError(f"A batch may have {most} {name}, this one has {len(given)}.", name)
    _, run = yield from find(run_id, context)
    check_active(run)
    values = _params(run, params)
    for key, value in texts(tags).items():
        values |= tag(run, key, value)
    # Metrics come last: a refused parameter refuses the batch.
    if values:
        yield from execute(change(run, values))
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


_KEY = parameter("key", "The name: 1 to 250 letters, digits, spaces and `_ - . : /`.", required=True)
OPERATIONS = (
    operation(
        "LogBatch",
        "POST",
        "/runs/log-batch",
        log_batch,
        "Stores what is given and answers when it is durable. A metric `loss` becomes `app.loss` of the run's job.",
        RUN,
        parameter("metrics", f"At most {MOST_METRICS} objects `{{key, value, timestamp, step}}`."),
        parameter("params", f"At most {MOST_PARAMS} objects `{{key, value}}`."),
        parameter("tags", f"At most {MOST_TAGS} objects `{{key, value}}`."),
        action="runs:write",
    ),
    operation(
        "LogMetric",
        "POST",
        "/runs/log-metric",
        log_metric,
        "Stores one value of a metric.",
        RUN,
        _KEY,
        parameter("value", "A number, or `NaN`, `Infinity`, `-Infinity`.", required=True),
        parameter("timestamp", "Epoch milliseconds.", required=True),
        parameter("step", "The step. Default: 0."),
        action="runs:write",
    ),
    operation(
        "LogParam",
        "POST",
        "/runs/log-parameter",
        log_parameter,
        "Stores a parameter. Another value for it is refused.",
        RUN,
        _KEY,
        parameter("value", f"At most {MAX_PARAM} characters."),
        action="runs:write",
    ),
    operation(
        "SetTag",
        "POST",
        "/runs/set-tag",
        set_tag,
        "Stores a tag, or replaces it.",
        RUN,
        _KEY,
        parameter("value", "At most 8000 characters."),
        action="runs:write",
    ),
    operation(
        "GetMetricHistory",
        "GET",
        "/metrics/get-history",
        get_history,
        "Every stored value of one metric, in order of time.",
        parameter("run_id", RUN.text, required=True, where="query"),
        parameter("metric_key", "The name.", required=True, where="query"),
        parameter("max_results", f"1 to {MOST_HISTORY}, the default.", where="query"),
        parameter("page_token", "`next_page_token` of the page before.", where="query"),
        action="runs:read",
    ),
)
