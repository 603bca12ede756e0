"""OpenTSDB 2.4: reads by ``/api/query`` and related paths, writes by ``/api/put``. Sources and readings: SPEC.md."""

import re

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, SHARE, TOKENS
from jobmeter.dialects.base import Gap, GapStatus, Match
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import operations_of
from jobmeter.dialects.base.view import BEARER, View, ViewCall, target
from jobmeter.dialects.opentsdb import errors
from jobmeter.errors import NotFoundError
from jobmeter.model.catalog import Kind, MetricScope
from jobmeter.model.time import SECOND
from jobmeter.wire.opentsdb.names import make_opentsdb_name

_PLAIN = re.compile(r"[-\w./]+", re.ASCII)


def view_call(view: View) -> ViewCall | None:
    """Return a query by replica and device; None for a metric derived from others or from a counter."""
    metric = view.metric
    # A filter in a query's text has no form for other letters.
    if (
        not _PLAIN.fullmatch(view.job.id)
        or metric.rate_of
        or metric.ratio
        or metric.difference
        or metric.kind is Kind.COUNTER
    ):
        return None
    tags = f"job={view.job.id},replica=*" + (",device=*" if metric.scope is MetricScope.DEVICE else "")
    what = f"avg:{max(view.step_ms // SECOND, 1)}s-avg:{make_opentsdb_name(metric.name)}{{{tags}}}"
    # OpenTSDB includes both ends; a view excludes its end.
    path = target("/api/query", start=view.span.start_ms, end=view.span.end_ms - 1, ms="true", m=what)
    return ViewCall(operation="/api/query", path=path, header=BEARER, note="By replica and device.")


GAPS = (
    Gap("/api/query/exp, /api/query/gexp", "Expressions are a language of their own; ask for the metrics."),
    Gap(
        "DELETE /api/query, `delete`",
        "Samples are deleted with their job, or when their time is over.",
        GapStatus.NEVER,
    ),
    Gap("`rollupUsage`, rollup_ in a query, /api/rollup", "Roll-ups are used by themselves wherever they are exact."),
    Gap("/api/histogram, `percentiles`, show-histogram-buckets", "Histograms are not stored."),
    Gap("/api/annotation, annotations in answers", "Events of a job are stored; notes of users are not."),
    Gap(
        "/api/uid, /api/tree, /api/search other than lookup",
        "There are no UIDs: names are stored as they are.",
        GapStatus.NEVER,
    ),
    Gap(
        "/api/dropcaches, /api/serializers, /api/stats/*, /q, /logs, /s",
        "They concern OpenTSDB's own insides.",
        GapStatus.NEVER,
    ),
    Gap("`jsonp`, `serializer`, `method_override`", "JSON is the one form; a call comes with its own method."),
)


_VERSIONED = re.compile(r"/api/v[0-9]{1,3}(/.*)")
_GAPS = ("query", "annotation", "rollup", "histogram", "uid", "tree", "dropcaches", "serializers", "stats", "search")
_GAP_PATH = re.compile(rf"/api/(?:{'|'.join(_GAPS)})(?:/.*)?")


class OpenTsdb(PathDialect):
    """A dialect whose paths may have a version, and a slash at their end."""

    def match(self, call: Call) -> Match | None:
        """Return the operation of the call. ``/api/v1/put`` is ``/api/put``: each has a single version."""
        versioned = _VERSIONED.fullmatch(call.raw_path)
        path = f"/api{versioned[1]}" if versioned else call.raw_path
        found = self._routes.find(call.method, path.rstrip("/"))
        if found is not None:
            return Match(*found)
        allowed = ", ".join(self._routes.methods(path.rstrip("/")))
        if allowed:
            raise NotFoundError(f"{call.method} is not permitted", "method", allowed)
        if _GAP_PATH.fullmatch(path):
            raise NotFoundError("The requested endpoint was not found", "path", path[:200])
        return None


OPENTSDB = OpenTsdb(
    name="opentsdb",
    title="OpenTSDB, HTTP API version 2.4",
    schemes=(*TOKENS, BASIC, SHARE),
    operations=operations_of(f"{__name__}.operations"),
    gaps=GAPS,
    render=errors.render,
    view_call=view_call,
)
