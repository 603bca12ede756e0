"""Prometheus: remote write, receiving, and the query API with PromQL. Sources and readings: SPEC.md.

The query API is below ``/prometheus``. Without this prefix a path is Prometheus' where no other API has it: OpenTSDB
has ``/api/v1/query`` too, with other parameters.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, TOKENS, Scheme
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation
from jobmeter.dialects.base.request import operations_of
from jobmeter.dialects.base.routes import Routes
from jobmeter.dialects.base.view import no_view_call
from jobmeter.dialects.prometheus import errors
from jobmeter.dialects.prometheus.gaps import GAPS
from jobmeter.dialects.prometheus.requests import FORM
from jobmeter.errors import JobmeterError, NotFoundError

_PREFIX = "/prometheus"
_SHARED = frozenset({"/api/v1/query"})
"""Paths that OpenTSDB has as well."""


class Prometheus:
    """See ``jobmeter.dialects.base.Dialect``."""

    name = "prometheus"
    title = "Prometheus: remote write 1.0 and 2.0, PromQL"
    schemes: Sequence[Scheme] = (*TOKENS, BASIC)
    operations: Sequence[Operation] = operations_of(f"{__name__}.operations")
    gaps: Sequence[Gap] = GAPS
    view_call = staticmethod(no_view_call)

    def __init__(self) -> None:
        each = [(one, method) for one in self.operations for method in one.method.split(", ")]
        self._routes = Routes([replace(one, method=method) for one, method in each])

    def match(self, call: Call) -> Match | None:
        """Find the operation of a call; a path below the prefix is always Prometheus'. Raises NotFoundError."""
        path = call.raw_path
        prefixed = path.startswith(f"{_PREFIX}/")
        if not prefixed and path in _SHARED and not _is_promql(call):
            return None
        found = None
        for candidate in (path, path.removeprefix(_PREFIX) if prefixed else _PREFIX + path):
            found = self._routes.find(call.method, candidate)
            if found is not None:
                return Match(*found)
            allowed = ", ".join(self._routes.methods(candidate))
            if allowed:
                raise NotFoundError(f"{call.method[:20]} is not allowed here", "method", allowed)
        if prefixed:
            raise NotFoundError(f"There is no {path[:200]} in the API of Prometheus that is served here.", "path")
        return None

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """See ``Dialect.render_error``."""
        return errors.render(call, context, error)


def _is_promql(call: Call) -> bool:
    """Return whether the parameters of a shared path are Prometheus'."""
    if call.parameter("query") is not None:
        return True
    return call.header("content-type").partition(";")[0].strip().lower() == FORM


PROMETHEUS = Prometheus()
