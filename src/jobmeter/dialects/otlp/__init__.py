"""OpenTelemetry's protocol (OTLP), metrics, receiving: ``POST /v1/metrics``. Sources and readings: SPEC.md."""

from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, TOKENS, Scheme
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation, Routes
from jobmeter.dialects.otlp import errors
from jobmeter.dialects.otlp.gaps import GAPS
from jobmeter.dialects.otlp.operations import OPERATIONS
from jobmeter.errors import JobmeterError


class Otlp:
    """See ``jobmeter.dialects.base.Dialect``."""

    name = "otlp"
    title = "OpenTelemetry protocol (OTLP) 1.x, metrics"
    schemes: Sequence[Scheme] = (*TOKENS, BASIC)
    operations: Sequence[Operation] = OPERATIONS
    gaps: Sequence[Gap] = GAPS

    def __init__(self) -> None:
        self._routes = Routes(self.operations)

    def match(self, call: Call) -> Match | None:
        """See ``Dialect.match``."""
        return self._routes.match(call)

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG002 - no ids
        """See ``Dialect.render_error``."""
        return errors.render(call, error)


OTLP = Otlp()
