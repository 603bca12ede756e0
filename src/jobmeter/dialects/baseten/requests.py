"""Reader of Baseten's parameters, the requests about a project and a job, and answers.

Parameters are in the query of a GET, else in a JSON body, whatever its content type: the vendor's own curl examples
send their JSON as ``application/x-www-form-urlencoded``. A body may be absent, ``null`` or ``{}``, and a member that is
``null`` counts as absent. Unknown members are ignored.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.limit import Rate
from jobmeter.dialects.base import Answer, Context, ask
from jobmeter.dialects.base.request import Operations, ParameterReader, ParameterSlot, Request
from jobmeter.dialects.baseten.bodies import make_job_body
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Job, SizesQuestion
from jobmeter.model.question import Question
from jobmeter.query.request import JobRef

MOST_JOBS = 1_000
"""Most jobs in one answer."""
PROJECTS_PATH = "/v1/training_projects"
PROJECT_PATH = f"{PROJECTS_PATH}/{{training_project_id}}"
JOB_PATH = f"{PROJECT_PATH}/jobs/{{training_job_id}}"
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_WORDS: Mapping[Any, str] = {
    str: "a text",
    list[str]: "a list of texts",
    list[dict[str, Any]]: "a list of objects",
    dict[str, Any]: "an object",
}


class _Reader(ParameterReader):
    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:
        """Return the raw values of the query or the body, and of the path."""
        if call.method == "GET":
            return super().list_values(call, context)
        try:
            body = msgspec.json.decode(call.body, type=dict[str, Any] | None) if call.body.strip() else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError("the body is not a JSON object", "body") from error
        return {**(body or {}), **context.path}

    def get_value(self, values: Mapping[str, Any], slot: ParameterSlot) -> Any:  # noqa: ANN401 - as it was sent
        """Return the raw value; None if it is absent."""
        return values.get(slot.name)

    def read_text(self, slot: ParameterSlot, value: Any) -> str:  # noqa: ANN401
        """Return a text."""
        found: str = self.read_typed(slot, value, str)
        return found

    def read_whole(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return a whole number, from a text, an integer, or a float without a fraction."""
        number, (low, high) = _to_integer(value), slot.bounds
        if number is None or not low <= number <= high:
            raise InvalidRequestError(f"{slot.name} must be a whole number from {low} to {high}", slot.name)
        return number

    def read_typed(self, slot: ParameterSlot, value: Any, shape: Any) -> Any:  # noqa: ANN401
        """Return a JSON value of that type."""
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"{slot.name} must be {_WORDS[shape]}", slot.name) from error


def _to_integer(value: object) -> int | None:
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# The rate: https://docs.baseten.co/reference/management-api/rate-limits, for each endpoint and key.
_RATE = Rate(100, 100)
operation = Operations(_Reader(), rate=_RATE)
"""Declares an operation."""
path_operation = Operations(rate=_RATE)
"""Declares an operation whose parameters are in the path; a body is not read."""


class BasetenProjectRequest(Request, frozen=True, kw_only=True):
    """A request about a project."""

    training_project_id: Annotated[str, "The project: its name."]


class BasetenJobRequest(BasetenProjectRequest, frozen=True, kw_only=True):
    """A request about a job."""

    training_job_id: Annotated[str, "The job."]

    @property
    def ref(self) -> JobRef:
        """The job of the path."""
        return JobRef(self.training_job_id, self.training_project_id)


def answer(body: dict[str, Any]) -> Answer:
    """Return a successful answer."""
    return Answer(200, msgspec.json.encode(body))


def read_job_bodies(jobs: Sequence[Job]) -> Generator[Question[Any], Any, list[dict[str, Any]]]:
    """Return the bodies of jobs, in their order."""
    sizes = yield from ask(SizesQuestion(jobs=tuple((job.project, job.id) for job in jobs)))
    return [make_job_body(job, size) for job, size in zip(jobs, sizes, strict=True)]
