"""Prometheus: remote write, receiving, and the query API with PromQL. Sources and readings: SPEC.md.

The query API is below ``/prometheus``. A path without this prefix also belongs to Prometheus unless another API has it:
OpenTSDB has ``/api/v1/query`` too, with other parameters.
"""

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, TOKENS
from jobmeter.dialects.base import Match
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import load_operations
from jobmeter.dialects.prometheus import errors
from jobmeter.dialects.prometheus.gaps import GAPS
from jobmeter.dialects.prometheus.requests import FORM
from jobmeter.errors import NotFoundError

_PREFIX = "/prometheus/"
_SHARED = frozenset({"/api/v1/query"})
"""Paths that OpenTSDB has too."""


class Prometheus(PathDialect):
    """A dialect whose paths may have a prefix, and that shares a path with OpenTSDB."""

    prefix = _PREFIX
    """Prefix of the paths that belong only to Prometheus."""

    def find_operation(self, call: Call) -> Match | None:
        """Find the operation of a call; a path below the prefix is always Prometheus'. Raises NotFoundError."""
        path = call.raw_path
        prefixed = path.startswith(_PREFIX)
        if not prefixed and path in _SHARED and not _is_promql(call):
            return None
        found = None
        for candidate in (path, path.removeprefix(_PREFIX[:-1]) if prefixed else _PREFIX[:-1] + path):
            found = self._routes.find(call.method, candidate)
            if found is not None:
                return Match(*found)
            allowed = ", ".join(self._routes.list_methods(candidate))
            if allowed:
                raise NotFoundError(f"{call.method[:20]} is not allowed here", "method", allowed)
        if prefixed:
            raise NotFoundError(f"There is no {path[:200]} in the API of Prometheus that is served here.", "path")
        return None


def _is_promql(call: Call) -> bool:
    """Return True if a call of a shared path has Prometheus' parameters."""
    if call.get_parameter("query") is not None:
        return True
    return call.get_header("content-type").partition(";")[0].strip().lower() == FORM


PROMETHEUS = Prometheus(
    name="prometheus",
    title="Prometheus: remote write 1.0 and 2.0, PromQL",
    schemes=(*TOKENS, BASIC),
    operations=load_operations(f"{__name__}.operations"),
    gaps=GAPS,
    render_error=errors.render,
)
