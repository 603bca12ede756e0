"""OpenTelemetry's protocol (OTLP), receiving: ``/v1/metrics``, ``/v1/traces``, ``/v1/logs``. Sources: SPEC.md."""

from jobmeter.access.signatures import BASIC, TOKENS, TRACE
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import load_operations
from jobmeter.dialects.otlp import errors
from jobmeter.dialects.otlp.gaps import GAPS

OTLP = PathDialect(
    name="otlp",
    title="OpenTelemetry protocol (OTLP) 1.x",
    schemes=(TRACE, *TOKENS, BASIC),
    operations=load_operations(f"{__name__}.operations"),
    gaps=GAPS,
    render_error=errors.render,
)
