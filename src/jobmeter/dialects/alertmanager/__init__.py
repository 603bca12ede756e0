"""Alertmanager's API, version 2: alerts, groups, silences, receivers, status. Sources and readings: SPEC.md."""

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.signatures import BASIC, TOKENS
from jobmeter.dialects.base import Answer, Context
from jobmeter.dialects.base.errors import BASIC_CHALLENGE, choose_http_status, make_headers
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import load_operations
from jobmeter.errors import JobmeterError

_RETRY_MS = 5_000


def _render(call: Call, context: Context, error: JobmeterError) -> Answer:  # noqa: ARG001 - as of every dialect
    """Return the answer for an error."""
    status = choose_http_status(error)
    headers = BASIC_CHALLENGE if status == 401 else make_headers(error, _RETRY_MS)
    return Answer(status, msgspec.json.encode(error.message if status != 500 else "internal error"), headers)


ALERTMANAGER = PathDialect(
    name="alertmanager",
    title="Alertmanager, API version 2",
    schemes=(*TOKENS, BASIC),
    operations=load_operations(f"{__name__}.operations"),
    gaps=(),
    render_error=_render,
    wrong_path="There is no {path} in the API of Alertmanager.",
    owns=lambda path: path.startswith("/api/v2/"),
)
