"""The content of a chart, and the call of a vendor's API for its data."""

from urllib.parse import quote, urlencode

import msgspec

from jobmeter.model.catalog import Metric
from jobmeter.model.job import Job
from jobmeter.model.time import TimeRange


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a chart: one metric of a job over ``span`` in steps of ``step_ms``, for the chosen ``replica``."""

    job: Job
    metric: Metric
    span: TimeRange
    step_ms: int
    replica: str


class ViewCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call of a vendor's API for the data of a chart, with ``KEY`` in place of the caller's token.

    ``path`` has its percent-encoded query; ``body`` is JSON. ``note`` names the parts of the view that the API cannot
    express.
    """

    operation: str
    path: str
    header: str
    method: str = "GET"
    body: str = ""
    note: str = ""


def offer_no_call(view: View) -> ViewCall | None:  # noqa: ARG001 - the form of every dialect
    """Return None: the API cannot return the data of a chart."""
    return None


KEY = "$JOBMETER_KEY"
"""The shell variable that stands for the token, which is never shown."""
BEARER = f"Authorization: Bearer {KEY}"


def make_target(path: str, **query: object) -> str:
    """Return a path whose parts are already percent-encoded, with its query."""
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def encode_part(part: str) -> str:
    """Percent-encode a part of a path."""
    return quote(part, safe="")
