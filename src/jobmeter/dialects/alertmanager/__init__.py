"""Alertmanager's API, version 2: alerts, groups, silences, receivers, status. Sources and readings: SPEC.md."""

from collections.abc import Sequence

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, TOKENS, Scheme
from jobmeter.dialects.alertmanager.operations import OPERATIONS
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation, http_status
from jobmeter.dialects.base.routes import Routes
from jobmeter.dialects.base.view import no_view_call
from jobmeter.errors import JobmeterError, NotFoundError, ThrottledError, UnauthenticatedError, UnavailableError

_BASE = "/api/v2/"
_RETRY_SECONDS = 5


class Alertmanager:
    """See ``jobmeter.dialects.base.Dialect``."""

    name = "alertmanager"
    title = "Alertmanager, API version 2"
    schemes: Sequence[Scheme] = (*TOKENS, BASIC)
    operations: Sequence[Operation] = OPERATIONS
    view_call = staticmethod(no_view_call)
    gaps: Sequence[Gap] = (Gap("POST /api/v2/alerts", "Alerts come from rules that are evaluated here."),)

    def __init__(self) -> None:
        self._routes = Routes(list(self.operations))

    def match(self, call: Call) -> Match | None:
        """Find the operation of a call below ``/api/v2/``. Raises NotFoundError."""
        if not call.raw_path.startswith(_BASE):
            return None
        found = self._routes.find(call.method, call.raw_path)
        if found is not None:
            return Match(*found)
        allowed = ", ".join(self._routes.methods(call.raw_path))
        if allowed:
            raise NotFoundError(f"{call.method[:20]} is not allowed here", "method", allowed)
        raise NotFoundError(f"There is no {call.raw_path[:200]} in the API of Alertmanager.", "path")

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG002 - as of every dialect
        """Render an error as a JSON text."""
        status = http_status(error)
        headers: tuple[tuple[str, str], ...] = ()
        if isinstance(error, NotFoundError) and error.kind == "method":
            return Answer(405, msgspec.json.encode(error.message), (("Allow", error.name),))
        if isinstance(error, UnauthenticatedError):
            headers = (("WWW-Authenticate", 'Basic realm="jobmeter"'),)
        elif isinstance(error, ThrottledError | UnavailableError):
            wait = error.retry_after_ms
            headers = (("Retry-After", str(_RETRY_SECONDS if wait is None else -(-wait // 1000))),)
        return Answer(status, msgspec.json.encode(error.message if status != 500 else "internal error"), headers)


ALERTMANAGER = Alertmanager()
