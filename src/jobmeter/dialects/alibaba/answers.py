"""Successful answers: always a JSON object, since the SDKs take an empty body for a failure."""

from typing import Any

import msgspec

from jobmeter.dialects.base import Answer, Context

JSON = "application/json;charset=utf-8"


def answer(body: dict[str, Any], context: Context, *, id_key: str = "RequestId") -> Answer:
    """The body with the request's id under ``id_key`` (empty: not in the body); a header repeats it."""
    full = {**body, id_key: context.request_id} if id_key else body
    return Answer(200, msgspec.json.encode(full), (("x-acs-request-id", context.request_id),), JSON)


def json_text(value: object) -> str:
    """A value as the JSON text that some answers hold as a text."""
    return msgspec.json.encode(value).decode()
