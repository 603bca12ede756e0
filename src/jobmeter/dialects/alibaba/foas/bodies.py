"""Converts bodies in each encoding of the vendor's SDK cores to a form.

Measured with ``aliyun-python-sdk-core`` 2.16.1: a form by default, a JSON object of the same names with ``Content-Type:
application/json`` (as in the vendor's Java example), one XML element a name with ``application/xml``.
"""

import html
import re
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common import operation as alibaba
from jobmeter.dialects.alibaba.common.operation import Arguments, json_text, url_form
from jobmeter.dialects.base import Context
from jobmeter.errors import InvalidRequestError

FORM = "application/x-www-form-urlencoded"
_ELEMENT = re.compile(r"<(?P<name>[A-Za-z_][\w.-]{0,63})>(?P<text>[^<]*)</(?P=name)>")


def read_arguments(call: Call, context: Context) -> Arguments:
    """Return the parameters of the call, in any encoding of its body."""
    if not call.body or url_form(call.raw_path):
        return Arguments(call, context)
    kind = call.header("content-type").partition(";")[0].strip().lower()
    if kind != FORM:
        start = call.body.lstrip()[:1]
        if kind == "application/json" or start == b"{":
            call = _form(call, _json_values(call.body))
        elif kind in {"application/xml", "text/xml"} or start == b"<":
            call = _form(call, _xml_values(call.body))
        else:
            call = replace(call, headers=(("content-type", FORM), *call.headers))
    return Arguments(call, context)


operation = partial(alibaba.operation, read=read_arguments)
"""Makes an operation that reads bodies in every encoding."""


def _form(call: Call, values: dict[str, str]) -> Call:
    return replace(call, headers=(("content-type", FORM), *call.headers), body=urlencode(values).encode())


def json_object(text: str | bytes, name: str, field: str) -> dict[str, Any]:
    """Decode the object of a JSON text. Raises InvalidRequestError naming ``name`` for any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{name} is not a JSON object", field) from error


def _json_values(body: bytes) -> dict[str, str]:
    values = json_object(body, "the body", "body")
    return {name: _text(value) for name, value in values.items() if value is not None}


def _xml_values(body: bytes) -> dict[str, str]:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError("the body is not UTF-8", "body") from error
    # The elements lie side by side without a root, so no XML parser would accept this document.
    values = {found["name"]: html.unescape(found["text"]) for found in _ELEMENT.finditer(text)}
    if not values:
        raise InvalidRequestError("the body has no XML element that holds a text", "body")
    return values


def _text(value: object) -> str:
    return value if isinstance(value, str) else json_text(value)
