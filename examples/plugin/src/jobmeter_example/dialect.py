"""An API that answers with a line of text: ``GET /plain/v1/jobs/{job}``."""

from typing import Annotated

from jobmeter.access.call import Call
from jobmeter.access.signatures import BEARER
from jobmeter.dialects.base import Answer, Context, Steps, ask
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import Operations, Request
from jobmeter.errors import ForbiddenError, JobmeterError, NotFoundError, UnauthenticatedError, UnavailableError
from jobmeter.query.request import JobQuestion, JobRef

_STATUSES: tuple[tuple[type[JobmeterError], int], ...] = (
    (UnauthenticatedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (UnavailableError, 503),
)


operation = Operations()


@operation("GET /plain/v1/jobs/{job}", "jobs:read", by_resource=True)
class ShowJob(Request, frozen=True, kw_only=True):
    """Return the state of a job as a line of text."""

    job: Annotated[str, "The job's id."]

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(JobRef(self.job)))
        return _text(200, f"{view.job.id} is {view.job.state}")


def _text(status: int, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode(), content_type="text/plain; charset=utf-8")


def _error(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - the shape of a dialect
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 400)
    return _text(status, error.message)


PLAIN = PathDialect(
    name="plain",
    title="Plain text, v1",
    schemes=(BEARER,),
    operations=ShowJob.operations,
    gaps=(),
    render_error=_error,
    wrong_path="There is nothing at {path}.",
    owns=lambda path: path.startswith("/plain/v1/"),
)
