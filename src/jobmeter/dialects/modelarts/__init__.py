"""Huawei Cloud ModelArts v2: training jobs. Sources and readings: SPEC.md."""

from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.signatures import HUAWEI, Scheme
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation, matched
from jobmeter.dialects.modelarts import errors, names
from jobmeter.dialects.modelarts.gaps import GAPS
from jobmeter.dialects.modelarts.operations import OPERATIONS
from jobmeter.dialects.routes import Routes
from jobmeter.errors import JobmeterError, NotFoundError

_SEGMENTS = 4
"""``/v2/{project_id}/...``: as many as the least that names anything."""

_ROUTES = Routes(OPERATIONS)


class ModelArts:
    """See ``jobmeter.dialects.base.Dialect``. Everything below ``/v2/{project_id}/`` is ModelArts'."""

    name = names.NAME
    title = "Huawei Cloud ModelArts, API v2"
    schemes: Sequence[Scheme] = HUAWEI
    operations: Sequence[Operation] = OPERATIONS
    gaps: Sequence[Gap] = GAPS

    def match(self, call: Call) -> Match | None:
        """See ``Dialect.match``."""
        found = matched(_ROUTES, call, "The method {method} is not allowed here: {allowed}.")
        if found is None and call.raw_path.startswith("/v2/") and len(call.raw_path.split("/")) >= _SEGMENTS:
            raise NotFoundError(f"The path {call.raw_path[:200]} is not found.", "path")
        return found

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """See ``Dialect.render_error``."""
        return errors.render(call, context, error)


MODELARTS = ModelArts()
