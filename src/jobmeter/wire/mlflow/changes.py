"""Changes of runs: checked fields of a request to entries of a job's ``extra.mlflow``."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError
from jobmeter.model.series import is_name
from jobmeter.model.time import MAX_TIME_MS, format_iso
from jobmeter.wire.mlflow.names import (
    ATTEMPT,
    DEFAULT_ID,
    MAX_PARAM,
    MAX_TAG,
    MOST_METRICS,
    MOST_PARAMS,
    MOST_TAGS,
    NODE,
    REPLICA,
    RUN_NAME,
    STATES,
    USER,
    check_key,
    check_text,
    parse_experiment_id,
    parse_run,
)
from jobmeter.wire.mlflow.runs import Run, make_path
from jobmeter.wire.mlflow.values import KeyValue, MetricValue


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a request that creates a run; a field of the wrong type is an error."""

    experiment_id: str = ""
    run_name: str = ""
    user_id: str = ""
    start_time: int | None = None
    tags: tuple[KeyValue, ...] = ()


def check_tags(given: Sequence[KeyValue]) -> dict[str, str]:
    """Return checked tags. Raises InvalidRequestError."""
    if len(given) > MOST_TAGS:
        raise LimitExceededError(f"A batch may have at most {MOST_TAGS} tags, this one has {len(given)}.", "tags")
    return {check_key(one.key, "key"): check_text(one.value, MAX_TAG, "value") for one in given}


def tag(run: Run, key: str, value: str) -> dict[str, Any]:
    """Return the entry of a run's record that sets a tag. Raises InvalidRequestError."""
    check_text(value, MAX_TAG, "value")
    return {make_path("runs", run.id, "tags", check_key(key, "key")): value}


def check_active(run: Run) -> None:
    """Raise InvalidRequestError for a deleted run."""
    if run.deleted:
        raise InvalidRequestError(f"The run {run.id} must be in the 'active' state. Current state is deleted.", "run")


def check_time(value: int | None, field: str) -> int | None:
    """Return the epoch milliseconds, or None if they are None. Raises InvalidRequestError for an invalid time."""
    if value is not None and not 0 <= value <= MAX_TIME_MS:
        raise InvalidRequestError(f"{field} {value} is not a time in milliseconds", field)
    return value


def find_experiment(given: NewRun) -> tuple[str, str]:
    """Return the id and the name of an experiment. Raises NotFoundError."""
    experiment = given.experiment_id or DEFAULT_ID
    name = parse_experiment_id(experiment)
    if name is None:
        raise NotFoundError(f"No Experiment with id={experiment[:300]} exists", "experiment", experiment)
    return experiment, name


def make_run(run: str, given: NewRun, *, project: str, caller: str, now_ms: int, local: bool) -> Run:
    """Return a new run with an id. Raises InvalidRequestError or NotFoundError for a wrong field."""
    experiment, tags = find_experiment(given)[0], check_tags(given.tags)
    run_name = given.run_name or tags.get(RUN_NAME) or f"run-{format_iso(now_ms)[:19]}"
    return Run(
        id=run,
        project=project,
        job=parse_run(run).job,
        experiment=experiment,
        status="RUNNING",
        user=check_text(given.user_id or tags.get(USER, "") or caller, MAX_TAG, "user_id")[:256],
        start=check_time(given.start_time, "start_time") or now_ms,
        local=local,
        replica=_name(tags.get(REPLICA, "")),
        node=_name(tags.get(NODE, "")),
        attempt=_attempt(tags.get(ATTEMPT, "")),
        tags={**tags, RUN_NAME: check_text(run_name, MAX_TAG, "run_name")},
    )


def make_entries(run: Run) -> dict[str, Any]:
    """Return the entries that record a new run and its experiment."""
    stored = msgspec.to_builtins(replace(run, id="", project="", job=""))
    return {make_path("runs", run.id): stored, make_path("experiments", run.experiment): True}


def make_batch_entries(
    run: Run, metrics: Sequence[MetricValue], params: Sequence[KeyValue], tags: Sequence[KeyValue]
) -> dict[str, Any]:
    """Return the entries that a batch sets. Raises InvalidRequestError, also for too many values."""
    for name, given, most in (("metrics", metrics, MOST_METRICS), ("params", params, MOST_PARAMS)):
        if len(given) > most:
            raise LimitExceededError(f"A batch may have at most {most} {name}, this one has {len(given)}.", name)
    check_active(run)
    values = _params(run, params)
    for key, value in check_tags(tags).items():
        values |= tag(run, key, value)
    return values


def make_update(run: Run, status: str, end_time: int | None, run_name: str) -> dict[str, Any]:
    """Return the entries that set the given fields of status, end and name. Raises InvalidRequestError."""
    check_active(run)
    values = tag(run, RUN_NAME, run_name) if run_name else {}
    if status:
        state = STATES.get(status)
        if state is None:
            raise InvalidRequestError(f"status {status[:64]!r} is not one of {', '.join(STATES)}", "status")
        end = check_time(end_time, "end_time")
        values |= {
            make_path("runs", run.id, "status"): status,
            make_path("runs", run.id, "end"): end if state.finished else None,
        }
    return values


def mark_deleted(run: Run) -> dict[str, Any]:
    """Return the entries that mark a run as deleted; empty if the run is deleted already."""
    return {} if run.deleted else {make_path("runs", run.id, "deleted"): True}


def _params(run: Run, params: Sequence[KeyValue]) -> dict[str, Any]:
    """Return the entries that set parameters. Raises InvalidRequestError if a parameter would change its value."""
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
    return {make_path("runs", run.id, "params", key): given[key] for key in given if key not in run.params}


def _name(text: str) -> str:
    return text if is_name(text) else ""


def _attempt(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
