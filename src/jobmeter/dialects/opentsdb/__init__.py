"""OpenTSDB 2.4: reads by ``/api/query`` and related paths, writes by ``/api/put``. Sources and readings: SPEC.md."""

import re

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, SHARE, TOKENS
from jobmeter.dialects.base import Match
from jobmeter.dialects.base.path_dialect import PathDialect, match_route
from jobmeter.dialects.base.request import load_operations
from jobmeter.dialects.opentsdb import errors
from jobmeter.dialects.opentsdb.gaps import GAPS
from jobmeter.dialects.opentsdb.view import view_call
from jobmeter.errors import NotFoundError

_VERSIONED = re.compile(r"/api/v[0-9]{1,3}(/.*)")
_GAPS = ("query", "annotation", "rollup", "histogram", "uid", "tree", "dropcaches", "serializers", "stats", "search")
_GAP_PATH = re.compile(rf"/api/(?:{'|'.join(_GAPS)})(?:/.*)?")


class OpenTsdb(PathDialect):
    """A dialect whose paths may have a version, and a slash at the end."""

    def find_operation(self, call: Call) -> Match | None:
        """Return the operation of the call. ``/api/v1/put`` is ``/api/put``: each has a single version."""
        versioned = _VERSIONED.fullmatch(call.raw_path)
        path = f"/api{versioned[1]}" if versioned else call.raw_path
        found = match_route(self._routes, call.method, path.rstrip("/"), "{method} is not permitted")
        if found is None and _GAP_PATH.fullmatch(path):
            raise NotFoundError("The requested endpoint was not found", "path", path[:200])
        return found


OPENTSDB = OpenTsdb(
    name="opentsdb",
    title="OpenTSDB, HTTP API version 2.4",
    schemes=(*TOKENS, BASIC, SHARE),
    operations=load_operations(f"{__name__}.operations"),
    gaps=GAPS,
    render_error=errors.render,
    view_call=view_call,
)
