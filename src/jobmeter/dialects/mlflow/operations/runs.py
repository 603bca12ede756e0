"""Runs: create, get, update, delete."""

from collections.abc import Generator, Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from jobmeter.dialects.base import Context, RecordJobs, Steps, ask
from jobmeter.dialects.base.request import Request, listed
from jobmeter.dialects.mlflow.metrics import newest
from jobmeter.dialects.mlflow.names import (
    ATTEMPT,
    DEFAULT_ID,
    JOB,
    MAX_TAG,
    MOST_TAGS,
    NAME,
    NODE,
    PREFIX,
    REPLICA,
    RUN_NAME,
    STATES,
    USER,
    check_joinable,
    check_key,
    check_text,
    experiment_name,
    place_of,
    run_id,
)
from jobmeter.dialects.mlflow.requests import NUMBER, KeyValue, RunRequest, answer, operation
from jobmeter.dialects.mlflow.runs import Run, body, find, info, path, runs_of
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError
from jobmeter.model.job import JobState
from jobmeter.model.question import Question
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.series import check_job_id, is_name
from jobmeter.model.time import MAX_TIME_MS, iso
from jobmeter.query.request import HeadQuestion, JobRef

MOST_JOINED = 50
"""Runs in the record of one job from which on a further run that names the job by a tag is a job."""
_KIND = "MLflow"


@operation(f"POST {PREFIX}/runs/create", "runs:write")
class CreateRun(Request, frozen=True, kw_only=True):
    """Records a run and answers it when it is durable.

    With the token of `jobmeter run` the run joins its job, with the tag `jobmeter.job` the job that the tag names. Any
    other run is a job with the run's id.
    """

    experiment_id: Annotated[str, Meta(description="The experiment. Default: `0`.")] = DEFAULT_ID
    run_name: Annotated[str, Meta(description="The name. Default: the tag `mlflow.runName`, else the time.")] = ""
    user_id: Annotated[str, Meta(description="The user. Default: the tag `mlflow.user`, else the name of the key.")] = (
        ""
    )
    start_time: Annotated[int | None, NUMBER, Meta(description="Epoch milliseconds. Default: now.")] = None
    tags: Annotated[
        tuple[KeyValue, ...],
        Meta(
            description=f"At most {MOST_TAGS} objects `{{key, value}}`. A run joins the job of the tag `jobmeter.job` "
            f"while that has fewer than {MOST_JOINED} runs."
        ),
    ] = ()

    def _steps(self) -> Steps:
        experiment = self.experiment_id or DEFAULT_ID
        name = experiment_name(experiment)
        if name is None:
            raise NotFoundError(f"No Experiment with id={experiment[:300]} exists", "experiment", experiment)
        tags = texts(self.tags)
        unique = blake2b(f"{self.context.request_id} {self.context.now_ms}".encode(), digest_size=16).hexdigest()
        if self.context.job is None:
            job, project = yield from _joinable(tags.get(JOB, ""), self.context)
        else:
            # The token opens no other job, so the run cannot be a job itself.
            check_joinable(self.context.job)
            job, project = self.context.job, self.context.project
        run_name = self.run_name or tags.get(RUN_NAME) or f"run-{iso(self.context.now_ms)[:19]}"
        run = run_id(job, unique)
        place = place_of(run)
        made = Run(
            id=run,
            project=project or "",
            job=place.job,
            experiment=experiment,
            status="RUNNING",
            user=check_text(self.user_id or tags.get(USER, "") or self.context.caller, MAX_TAG, "user_id")[:256],
            start=_time(self.start_time, "start_time") or self.context.now_ms,
            local=self.context.job is not None,
            replica=_name(tags.get(REPLICA, "")),
            node=_name(tags.get(NODE, "")),
            attempt=_attempt(tags.get(ATTEMPT, "")),
            tags={**tags, RUN_NAME: check_text(run_name, MAX_TAG, "run_name")},
        )
        values = {path("runs", run): _stored(made), path("experiments", experiment): True}
        fields: dict[str, Any] = {}
        if not place.joined:
            fields = {
                "name": made.name[:1024],
                "type": _KIND,
                "user": made.user,
                "state": JobState.RUNNING,
                "created": made.start,
                "start": made.start,
                "labels": {"experiment": name},
            }
        yield from ask(change(made, values, **fields))
        return answer({"run": body(made, ())})


@operation(f"GET {PREFIX}/runs/get", "runs:read")
class GetRun(RunRequest, frozen=True, kw_only=True):
    """Answers the run, and the newest value of each metric."""

    def _steps(self) -> Steps:
        run = yield from find(self.run_id, self.context)
        values = (yield from newest((run,))).get(run.id, {})
        return answer({"run": body(run, [values[key].body for key in sorted(values)])})


@operation(f"POST {PREFIX}/runs/update", "runs:write")
class UpdateRun(RunRequest, frozen=True, kw_only=True):
    """Sets what is given. A run that is a job gives the job its state, end and name."""

    status: Annotated[str, Meta(description=f"One of {listed(STATES)}.")] = ""
    end_time: Annotated[int | None, NUMBER, Meta(description="Epoch milliseconds.")] = None
    run_name: Annotated[str, Meta(description="The name.")] = ""

    def _steps(self) -> Steps:
        run = yield from find(self.run_id, self.context)
        check_active(run)
        values: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        if self.run_name:
            values |= tag(run, RUN_NAME, self.run_name)
            fields["name"] = self.run_name[:1024]
        if self.status:
            fields |= _life(self, run)
            values[path("runs", run.id, "status")] = self.status
            end = _time(self.end_time, "end_time")
            values[path("runs", run.id, "end")] = end if STATES[self.status].finished else None
        if values:
            yield from ask(change(run, values, **({} if place_of(run.id).joined else fields)))
            run = yield from find(run.id, self.context)
        return answer({"run_info": info(run)})


@operation(f"POST {PREFIX}/runs/delete", "runs:write")
class DeleteRun(RunRequest, frozen=True, kw_only=True):
    """Marks the run as deleted: `search` leaves it out. The job and its measurements stay."""

    def _steps(self) -> Steps:
        run = yield from find(self.run_id, self.context)
        if not run.deleted:
            yield from ask(change(run, {path("runs", run.id, "deleted"): True}))
        return answer({})


def texts(given: Sequence[KeyValue]) -> dict[str, str]:
    """Return checked tags. Raises InvalidRequestError."""
    if len(given) > MOST_TAGS:
        raise LimitExceededError(f"A batch may have {MOST_TAGS} tags, this one has {len(given)}.", "tags")
    return {check_key(one.key, "key"): check_text(one.value, MAX_TAG, "value") for one in given}


def tag(run: Run, key: str, value: str) -> dict[str, Any]:
    """Return the entry of a run's record that sets a tag. Raises InvalidRequestError."""
    check_text(value, MAX_TAG, "value")
    return {path("runs", run.id, "tags", check_key(key, "key")): value}


def change(run: Run, values: dict[str, Any], **job: Any) -> RecordJobs:  # noqa: ANN401 - fields of a job's record
    """Return the command that sets keys of the run's record, and fields of its job's."""
    return RecordJobs(
        Records(jobs=[JobRecord(job_id=run.job, project=run.project or None, extra={NAME: values}, **job)])
    )


def check_active(run: Run) -> None:
    """Raise InvalidRequestError for a deleted run."""
    if run.deleted:
        raise InvalidRequestError(f"The run {run.id} must be in the 'active' state. Current state is deleted.", "run")


def _joinable(job: str, context: Context) -> Generator[Question[Any], Any, tuple[str, str | None]]:
    """Return the job that a tag names, and its project.

    The job is empty if its name is invalid or its record has no room for another run.
    """
    try:
        check_job_id(job)
        head = yield from ask(HeadQuestion(JobRef(job, context.project)))
    except InvalidRequestError:
        return "", context.project
    except NotFoundError:
        return job, context.project
    if sum(1 for _ in runs_of(head)) < MOST_JOINED:
        return job, head.project
    return "", context.project


def _life(given: UpdateRun, run: Run) -> dict[str, Any]:
    """Return the state and times of a job that is only this run. A run that begins again starts again."""
    state = STATES.get(given.status)
    if state is None:
        raise InvalidRequestError(f"status {given.status[:64]!r} is not one of {', '.join(STATES)}", "status")
    if state.finished:
        return {"state": state, "end": max(_time(given.end_time, "end_time") or given.context.now_ms, run.start)}
    return {"state": state, "start": given.context.now_ms} if run.end is not None else {"state": state}


def _time(value: int | None, field: str) -> int | None:
    if value is not None and not 0 <= value <= MAX_TIME_MS:
        raise InvalidRequestError(f"{field} {value} is not a time in milliseconds", field)
    return value


def _name(text: str) -> str:
    return text if is_name(text) else ""


def _attempt(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _stored(run: Run) -> Any:  # noqa: ANN401 - an object of JSON
    """Return the entry of a new run, without its id, job and project."""
    return msgspec.to_builtins(replace(run, id="", project="", job=""))
