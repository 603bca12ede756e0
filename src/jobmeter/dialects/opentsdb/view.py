"""OpenTSDB's call for the data of a chart."""

import re

from jobmeter.dialects.base.view import BEARER, View, ViewCall, make_target
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
    path = make_target("/api/query", start=view.span.start_ms, end=view.span.end_ms - 1, ms="true", m=what)
    return ViewCall(operation="/api/query", path=path, header=BEARER, note="By replica and device.")
