"""Prometheus remote write, receiving: ``POST /api/v1/write``. Sources and readings: SPEC.md."""

from jobmeter.access.signatures import BASIC, TOKENS
from jobmeter.dialects.path_dialect import PathDialect
from jobmeter.dialects.prometheus import errors
from jobmeter.dialects.prometheus.gaps import GAPS
from jobmeter.dialects.prometheus.operations import OPERATIONS

PROMETHEUS = PathDialect(
    name="prometheus",
    title="Prometheus remote write 1.0 and 2.0",
    schemes=(*TOKENS, BASIC),
    operations=OPERATIONS,
    gaps=GAPS,
    render=errors.render,
)
