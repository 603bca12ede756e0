"""OpenTSDB 2.4: reads by ``/api/query`` and related paths, writes by ``/api/put``. Sources and readings: SPEC.md."""

import re
from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, SHARE, TOKENS, Scheme
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation
from jobmeter.dialects.base.request import operations_of
from jobmeter.dialects.opentsdb import errors
from jobmeter.dialects.opentsdb.gaps import GAPS
from jobmeter.dialects.opentsdb.view import view_call
from jobmeter.errors import JobmeterError, NotFoundError

_VERSIONED = re.compile(r"/api/v[0-9]{1,3}(/.*)")
_GAPS = ("query", "annotation", "rollup", "histogram", "uid", "tree", "dropcaches", "serializers", "stats", "search")
_GAP_PATH = re.compile(rf"/api/(?:{'|'.join(_GAPS)})(?:/.*)?")


class OpenTsdb:
    """Implements ``jobmeter.dialects.base.Dialect`` for OpenTSDB."""

    name = "opentsdb"
    title = "OpenTSDB, HTTP API version 2.4"
    schemes: Sequence[Scheme] = (*TOKENS, BASIC, SHARE)
    operations: Sequence[Operation] = operations_of(f"{__name__}.operations")
    gaps: Sequence[Gap] = GAPS
    view_call = staticmethod(view_call)

    def __init__(self) -> None:
        self._paths = {operation.path: operation for operation in self.operations}

    def match(self, call: Call) -> Match | None:
        """Return the operation of the call. ``/api/v1/put`` is ``/api/put``: each has a single version."""
        versioned = _VERSIONED.fullmatch(call.raw_path)
        path = f"/api{versioned[1]}" if versioned else call.raw_path
        operation = self._paths.get(path.rstrip("/"))
        if operation is None:
            if _GAP_PATH.fullmatch(path):
                raise NotFoundError("The requested endpoint was not found", "path", path[:200])
            return None
        if call.method not in operation.method.split(", "):
            raise NotFoundError(f"{call.method} is not permitted", "method", operation.method)
        return Match(operation, {})

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG002 - no ids
        """Render the error in OpenTSDB's form."""
        return errors.render(call, error)


OPENTSDB = OpenTsdb()
