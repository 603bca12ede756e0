"""The parameters of a call: the project and the job of its path, its query, its JSON body."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context
from jobmeter.dialects.modelarts.errors import INVALID_JSON, INVALID_QUERY, RefusedError
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import JobView
from jobmeter.model.order import natural
from jobmeter.model.series import DEFAULT_PROJECT, check_project
from jobmeter.model.time import parse_time
from jobmeter.query.request import JobRef

T = TypeVar("T")
ONLY_TASK = "worker-0"
MAX_INTEGER = 2**31 - 1


def project_of(call: Call, context: Context) -> str:
    """Return the project of the path. Raises NotFoundError if the key, or X-Project-Id, has another project."""
    project = context.path["project_id"]
    for own in (context.project, call.header("x-project-id").strip()):
        if own and own != project:
            raise _mismatch(project, own)
    try:
        return check_project(project)
    except InvalidRequestError as error:
        raise _mismatch(project, DEFAULT_PROJECT) from error


def job_of(call: Call, context: Context) -> JobRef:
    """Return the job of the path, in the project of the path."""
    return JobRef(context.path["training_job_id"], project_of(call, context))


def tasks_of(view: JobView) -> list[str]:
    """Return the names of a job's tasks, each once; ``ONLY_TASK`` if no task is known."""
    return sorted({replica.name for replica in view.replicas}, key=natural) or [ONLY_TASK]


def replicas_of(view: JobView, task: str) -> frozenset[str]:
    """Return the replicas of a task for a query: all of them if no replica is known."""
    return frozenset({task}) if view.replicas else frozenset()


def task_of(view: JobView, context: Context) -> str:
    """Return the task of the path. Raises InvalidRequestError if the job has no such task."""
    task = context.path["task_id"]
    if task not in tasks_of(view):
        raise InvalidRequestError(f"the job has no task {task[:64]!r}", "task_id")
    return task


def query_text(call: Call, name: str) -> str:
    """Return a query parameter, empty if it is absent."""
    return (call.parameter(name) or "").strip()


def query_choice(call: Call, name: str, choices: Sequence[str], default: str) -> str:
    """Return one of the choices, case-insensitive."""
    text = query_text(call, name)
    for choice in choices:
        if text.casefold() == choice.casefold():
            return choice
    if text:
        raise RefusedError(INVALID_QUERY, f"{text[:64]!r} is not one of {', '.join(choices)}", name)
    return default


def query_integer(call: Call, name: str, default: int, lowest: int, highest: int = MAX_INTEGER) -> int:
    """Return a whole number within bounds."""
    text = query_text(call, name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and lowest <= int(text) <= highest):
        raise RefusedError(INVALID_QUERY, f"{text[:64]!r} is not a whole number from {lowest} to {highest}", name)
    return int(text)


def query_time(call: Call, name: str) -> int | None:
    """Return epoch milliseconds of a time in milliseconds or ISO 8601."""
    text = query_text(call, name)
    try:
        return parse_time(text, name) if text else None
    except InvalidRequestError as error:
        raise RefusedError(INVALID_QUERY, error.message, name) from error


def json_body(call: Call, shape: type[T]) -> T:
    """Decode the JSON body as that type, for any Content-Type; an absent body counts as an empty object."""
    try:
        return msgspec.json.decode(call.body.strip() or b"{}", type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(INVALID_JSON, f"Invalid JSON body: {error}") from error


def _mismatch(project: str, own: str) -> NotFoundError:
    message = f"The project ID ({project[:64]}) in the request does not match that({own[:64]}) in the token."
    return NotFoundError(message, "project", project)
