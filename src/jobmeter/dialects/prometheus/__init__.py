"""Prometheus remote write, receiving: ``POST /api/v1/write``. Sources and readings: SPEC.md."""

from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, TOKENS, Scheme
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation, matched
from jobmeter.dialects.prometheus import errors
from jobmeter.dialects.prometheus.gaps import GAPS
from jobmeter.dialects.prometheus.operations import OPERATIONS
from jobmeter.dialects.routes import Routes
from jobmeter.errors import JobmeterError


class Prometheus:
    """See ``jobmeter.dialects.base.Dialect``."""

    name = "prometheus"
    title = "Prometheus remote write 1.0 and 2.0"
    schemes: Sequence[Scheme] = (*TOKENS, BASIC)
    operations: Sequence[Operation] = OPERATIONS
    gaps: Sequence[Gap] = GAPS

    def __init__(self) -> None:
        self._routes = Routes(self.operations)

    def match(self, call: Call) -> Match | None:
        """See ``Dialect.match``."""
        return matched(self._routes, call)

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG002 - no ids
        """See ``Dialect.render_error``."""
        return errors.render(error)


PROMETHEUS = Prometheus()
