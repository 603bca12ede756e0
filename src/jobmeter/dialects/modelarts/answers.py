"""Answers, each with the request's id in the form of Huawei's gateway: 32 hexadecimal digits."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from jobmeter.dialects.base import Answer, Context


def answer(body: Any, context: Context, status: int = 200) -> Answer:  # noqa: ANN401 - any JSON value
    """Return the body as JSON."""
    return Answer(status, msgspec.json.encode(body), make_id_header(context))


def answer_no_data(context: Context) -> Answer:
    """Return 204 without a body: there is no data yet (their ModelArts.2777 and 2776)."""
    return Answer(204, b"", make_id_header(context))


def make_request_id(context: Context) -> str:
    """Return the request's id in the form of Huawei's gateway: the digits of ours."""
    return context.request_id.replace("-", "").lower()


def make_id_header(context: Context) -> tuple[tuple[str, str], ...]:
    """Return the header from which their SDK reads the request's id."""
    return (("X-Request-Id", make_request_id(context)),)


def format_time(time_ms: int) -> str:
    """Format a time as ``2026-11-20T15:33:56+00:00``, with milliseconds if there are any."""
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="seconds" if time_ms % 1000 == 0 else "milliseconds")
