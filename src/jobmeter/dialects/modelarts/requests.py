"""Reader of ModelArts's parameters, and the requests about a project, a job and a task."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context
from jobmeter.dialects.base.request import Choice, Operations, ParameterReader, ParameterSlot, Request
from jobmeter.dialects.modelarts.errors import INVALID_JSON, INVALID_QUERY, RefusedError
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import JobView
from jobmeter.model.order import make_natural_key
from jobmeter.model.series import DEFAULT_PROJECT, check_project
from jobmeter.query.request import JobRef

ONLY_TASK = "worker-0"
MAX_INTEGER = 2**31 - 1
JOB_PATH = "/v2/{project_id}/training-jobs/{training_job_id}"


class _Reader(ParameterReader):
    """Reads texts in the query of GET and DELETE, JSON values in any other body. Operations check required values."""

    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:
        """Return the raw values; a body may have any Content-Type, and an absent one is an empty object."""
        if call.method in {"GET", "DELETE"}:
            return {**{name: value.strip() for name, value in reversed(call.parameters)}, **context.path}
        try:
            body = msgspec.json.decode(call.body.strip() or b"{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(INVALID_JSON, f"Invalid JSON body: {error}") from error
        return {**body, **context.path}

    def resolve_absent(self, slot: ParameterSlot) -> Any:  # noqa: ANN401, ARG002 - of any kind
        """Return an empty text."""
        return ""

    def make_wrong_error(self, slot: ParameterSlot, value: Any, rule: str) -> InvalidRequestError:  # noqa: ANN401
        """Return the error for an invalid value. Its message names the parameter."""
        return self._error(slot, f"{str(value)[:64]!r} is not {rule}")

    def make_length_error(self, slot: ParameterSlot) -> InvalidRequestError:
        """Return the error for a text with too many characters."""
        return self._error(slot, f"it may have at most {slot.meta.max_length} characters")

    def make_count_error(self, slot: ParameterSlot, count: int) -> InvalidRequestError:
        """Return the error for a list with too many members."""
        return self._error(slot, f"at most {slot.meta.max_length}, these are {count}")

    def read_text(self, slot: ParameterSlot, value: Any) -> str:  # noqa: ANN401
        """Return a text; a body must have a JSON string."""
        found: str = self.read_typed(slot, value, str) if slot.where == "body" else value
        return found

    def read_whole(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return a whole number; a body must have a JSON number."""
        if slot.where != "body":
            return super().read_whole(slot, value)
        number: int = self.read_typed(slot, value, int)
        low, high = slot.bounds
        if not low <= number <= high:
            raise self._error(slot, f"{number} is not between {low} and {high}")
        return number

    def read_choice(self, slot: ParameterSlot, value: Any, choice: Choice) -> Any:  # noqa: ANN401
        """Return the meaning of a word. The error for an unknown word in a body lists all valid words."""
        if slot.where == "body" and self.read_text(slot, value).casefold() not in choice.folded:
            raise self._error(slot, f"{value[:64]!r} is neither {' nor '.join(choice.meanings)}")
        return super().read_choice(slot, value, choice)

    def read_time(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return epoch milliseconds of a time in milliseconds or ISO 8601."""
        try:
            return super().read_time(slot, value)
        except InvalidRequestError as error:
            raise self._error(slot, error.message) from error

    def read_typed(self, slot: ParameterSlot, value: Any, shape: Any) -> Any:  # noqa: ANN401
        """Return a JSON value of that type."""
        try:
            return msgspec.convert(value, shape if slot.required else shape | None)
        except msgspec.ValidationError as error:
            reason, _, inner = str(error).partition(" - at `$")
            message = f"Invalid JSON body: {reason} - at `$.{slot.name}{inner or '`'}"
            raise RefusedError(INVALID_JSON, message) from error

    def _error(self, slot: ParameterSlot, message: str) -> InvalidRequestError:
        if slot.where == "query":
            return RefusedError(INVALID_QUERY, message, slot.name)
        return InvalidRequestError(message, slot.name)


operation = Operations(_Reader())
"""Declares an operation."""


class ModelArtsProjectRequest(Request, frozen=True, kw_only=True):
    """A request about a project."""

    project_id: Annotated[str, "The project; must be the key's project."]

    @property
    def project(self) -> str:
        """The project. Raises NotFoundError if the key, or X-Project-Id, has another project."""
        for own in (self.context.project, self.call.get_header("x-project-id").strip()):
            if own and own != self.project_id:
                raise _mismatch(self.project_id, own)
        try:
            return check_project(self.project_id)
        except InvalidRequestError as error:
            raise _mismatch(self.project_id, DEFAULT_PROJECT) from error


class ModelArtsJobRequest(ModelArtsProjectRequest, frozen=True, kw_only=True):
    """A request about a job."""

    training_job_id: Annotated[str, "The job."]

    @property
    def ref(self) -> JobRef:
        """The job, in the project of the path."""
        return JobRef(self.training_job_id, self.project)


class TaskRequest(ModelArtsJobRequest, frozen=True, kw_only=True):
    """A request about a task."""

    task_id: Annotated[str, "The task (our replica), `worker-0`."]

    def find_task(self, view: JobView) -> str:
        """Return the task. Raises InvalidRequestError if the job has no such task."""
        if self.task_id not in list_tasks(view):
            raise InvalidRequestError(f"the job has no task {self.task_id[:64]!r}", "task_id")
        return self.task_id

    def select_replicas(self, view: JobView) -> frozenset[str]:
        """Return the task's replicas for a query: all of them if no replica is known. Raises as ``find_task``."""
        task = self.find_task(view)
        return frozenset({task}) if view.replicas else frozenset()


def list_tasks(view: JobView) -> list[str]:
    """Return the names of a job's tasks, each once; ``ONLY_TASK`` if no task is known."""
    return sorted({replica.name for replica in view.replicas}, key=make_natural_key) or [ONLY_TASK]


def _mismatch(project: str, own: str) -> NotFoundError:
    message = f"The project ID ({project[:64]}) in the request does not match that({own[:64]}) in the token."
    return NotFoundError(message, "project", project)
