"""Runs: create, get, update, delete."""

from collections.abc import Generator
from hashlib import blake2b
from typing import Annotated, Any

from msgspec import convert

from jobmeter.dialects.base import Context, RecordJobs, Steps, ask
from jobmeter.dialects.base.request import Request, list_names
from jobmeter.dialects.mlflow.metrics import read_newest
from jobmeter.dialects.mlflow.requests import NUMBER, RunRequest, answer, operation
from jobmeter.dialects.mlflow.runs import find
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import JobState
from jobmeter.model.question import Question
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.series import check_job_id
from jobmeter.query.request import HeadQuestion, JobRef
from jobmeter.wire.mlflow.changes import (
    NewRun,
    check_tags,
    find_experiment,
    make_entries,
    make_run,
    make_update,
    mark_deleted,
)
from jobmeter.wire.mlflow.names import (
    DEFAULT_ID,
    JOB,
    MOST_TAGS,
    NAME,
    PREFIX,
    STATES,
    check_joinable,
    parse_run,
    run_id,
)
from jobmeter.wire.mlflow.runs import Run, iterate_runs, make_body, make_info
from jobmeter.wire.mlflow.values import KeyValue

MOST_JOINED = 50
"""Most runs in one job's record. A further run whose tag names the job becomes a job itself."""
_KIND = "MLflow"


@operation(f"POST {PREFIX}/runs/create", "runs:write")
class CreateRun(Request, frozen=True, kw_only=True):
    """Records a run and returns it when it is durable.

    With the token of `jobmeter run` the run joins the token's job. With the tag `jobmeter.job` it joins the job that
    the tag names. Any other run is a job with the run's id.
    """

    experiment_id: Annotated[str, "The experiment. Default: `0`."] = DEFAULT_ID
    run_name: Annotated[str, "The name. Default: the tag `mlflow.runName`, else the time."] = ""
    user_id: Annotated[str, "The user. Default: the tag `mlflow.user`, else the name of the key."] = ""
    start_time: Annotated[int | None, NUMBER, "Epoch milliseconds. Default: now."] = None
    tags: Annotated[
        tuple[KeyValue, ...],
        f"At most {MOST_TAGS} objects `{{key, value}}`. A run joins the job of the tag `jobmeter.job` "
        f"while that has fewer than {MOST_JOINED} runs.",
    ] = ()

    def _steps(self) -> Steps:
        given = convert(self, NewRun, from_attributes=True)
        find_experiment(given)
        unique = blake2b(f"{self.context.request_id} {self.context.now_ms}".encode(), digest_size=16).hexdigest()
        if self.context.job is None:
            job, project = yield from _find_joinable_job(check_tags(self.tags).get(JOB, ""), self.context)
        else:
            # The token opens no other job, so the run cannot be a job itself.
            check_joinable(self.context.job)
            job, project = self.context.job, self.context.project
        made = make_run(
            run_id(job, unique),
            given,
            project=project or "",
            caller=self.context.caller,
            now_ms=self.context.now_ms,
            local=self.context.job is not None,
        )
        fields: dict[str, Any] = {}
        if not parse_run(made.id).joined:
            fields = {
                "name": made.name[:1024],
                "type": _KIND,
                "user": made.user,
                "state": JobState.RUNNING,
                "created": made.start,
                "start": made.start,
                "labels": {"experiment": find_experiment(given)[1]},
            }
        yield from ask(change(made, make_entries(made), **fields))
        return answer({"run": make_body(made, ())})


@operation(f"GET {PREFIX}/runs/get", "runs:read")
class GetRun(RunRequest, frozen=True, kw_only=True):
    """Returns the run, and the newest value of each metric."""

    def _steps(self) -> Steps:
        run = yield from find(self.run_id, self.context)
        values = (yield from read_newest((run,))).get(run.id, {})
        return answer({"run": make_body(run, [values[key].body for key in sorted(values)])})


@operation(f"POST {PREFIX}/runs/update", "runs:write")
class UpdateRun(RunRequest, frozen=True, kw_only=True):
    """Sets the given fields. If the run is a job, its state, end and name become the job's."""

    status: Annotated[str, f"One of {list_names(STATES)}."] = ""
    end_time: Annotated[int | None, NUMBER, "Epoch milliseconds."] = None
    run_name: Annotated[str, "The name."] = ""

    def _steps(self) -> Steps:
        run = yield from find(self.run_id, self.context)
        values = make_update(run, self.status, self.end_time, self.run_name)
        fields: dict[str, Any] = {"name": self.run_name[:1024]} if self.run_name else {}
        if self.status:
            fields |= _life(self, run)
        if values:
            yield from ask(change(run, values, **({} if parse_run(run.id).joined else fields)))
            run = yield from find(run.id, self.context)
        return answer({"run_info": make_info(run)})


@operation(f"POST {PREFIX}/runs/delete", "runs:write")
class DeleteRun(RunRequest, frozen=True, kw_only=True):
    """Marks the run as deleted: `search` leaves it out. The job and its measurements remain."""

    def _steps(self) -> Steps:
        run = yield from find(self.run_id, self.context)
        if values := mark_deleted(run):
            yield from ask(change(run, values))
        return answer({})


def change(run: Run, values: dict[str, Any], **job: Any) -> RecordJobs:  # noqa: ANN401 - fields of a job's record
    """Return the command that sets keys of the run's record, and fields of its job's."""
    return RecordJobs(
        Records(jobs=[JobRecord(job_id=run.job, project=run.project or None, extra={NAME: values}, **job)])
    )


def _find_joinable_job(job: str, context: Context) -> Generator[Question[Any], Any, tuple[str, str | None]]:
    """Return the job that a tag names, and its project.

    The job is empty if its name is invalid or it has ``MOST_JOINED`` runs.
    """
    try:
        check_job_id(job)
        head = yield from ask(HeadQuestion(JobRef(job, context.project)))
    except InvalidRequestError:
        return "", context.project
    except NotFoundError:
        return job, context.project
    if sum(1 for _ in iterate_runs(head)) < MOST_JOINED:
        return job, head.project
    return "", context.project


def _life(given: UpdateRun, run: Run) -> dict[str, Any]:
    """Return the state and times of a job that is only this run. A run that is resumed starts again."""
    state = STATES[given.status]
    if state.finished:
        return {"state": state, "end": max(given.end_time or given.context.now_ms, run.start)}
    return {"state": state, "start": given.context.now_ms} if run.end is not None else {"state": state}
