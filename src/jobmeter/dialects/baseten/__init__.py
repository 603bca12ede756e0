"""Baseten v1: its training API, as ``truss`` and the ``baseten`` SDK use it. Sources and gaps: SPEC.md."""

from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.signatures import BEARER, Scheme
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation, matched
from jobmeter.dialects.baseten import errors, names
from jobmeter.dialects.baseten.gaps import GAPS
from jobmeter.dialects.baseten.operations import OPERATIONS
from jobmeter.dialects.routes import Routes
from jobmeter.errors import JobmeterError, NotFoundError

_OWN = frozenset({"training_projects", "training_jobs", "training"})
_ROUTES = Routes(OPERATIONS)


class Baseten:
    """See ``jobmeter.dialects.base.Dialect``."""

    name = names.NAME
    title = "Baseten training API, v1"
    schemes: Sequence[Scheme] = (BEARER,)
    operations: Sequence[Operation] = OPERATIONS
    gaps: Sequence[Gap] = GAPS

    def match(self, call: Call) -> Match | None:
        """See ``Dialect.match``.

        Of ``/v1/`` only paths of the training API match: other dialects have paths there too.
        """
        if not _is_own(call.raw_path):
            return None
        found = matched(_ROUTES, call, "This path takes {allowed}, not {method}.")
        if found is None:
            raise NotFoundError(f"There is nothing at {call.raw_path[:200]}.", "path")
        return found

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG002
        """See ``Dialect.render_error``."""
        return errors.render(error)


def _is_own(raw_path: str) -> bool:
    parts = raw_path.split("/", 5)
    if len(parts) < 3 or parts[:2] != ["", "v1"]:
        return False
    return parts[2] in _OWN or (parts[2] == "teams" and parts[4:5] == ["training_projects"])


BASETEN = Baseten()
