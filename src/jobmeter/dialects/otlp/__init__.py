"""OpenTelemetry's protocol (OTLP), receiving: ``/v1/metrics``, ``/v1/traces``, ``/v1/logs``. Sources: SPEC.md."""

from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, TOKENS, TRACE, Scheme
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation, matched
from jobmeter.dialects.otlp import errors
from jobmeter.dialects.otlp.gaps import GAPS
from jobmeter.dialects.otlp.operations import OPERATIONS
from jobmeter.dialects.routes import Routes
from jobmeter.errors import JobmeterError


class Otlp:
    """See ``jobmeter.dialects.base.Dialect``."""

    name = "otlp"
    title = "OpenTelemetry protocol (OTLP) 1.x"
    schemes: Sequence[Scheme] = (TRACE, *TOKENS, BASIC)
    operations: Sequence[Operation] = OPERATIONS
    gaps: Sequence[Gap] = GAPS

    def __init__(self) -> None:
        self._routes = Routes(self.operations)

    def match(self, call: Call) -> Match | None:
        """See ``Dialect.match``."""
        return matched(self._routes, call)

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG002 - no ids
        """See ``Dialect.render_error``."""
        return errors.render(call, error)


OTLP = Otlp()
