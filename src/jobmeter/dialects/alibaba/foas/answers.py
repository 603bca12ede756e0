"""Answers in the form of each client: JSON or XML by ``Accept``, and two spellings of a metric answer.

The vendor's document shows GetInstanceMetric in lower camel case, ``{"requestId", "metrics": [...]}``. Clients that
read the body themselves get this form (the SDK for Python passes it on unchanged). The typed SDKs for Java, Go and .NET
get ``RequestId`` and ``Metrics.Metric[i]``, as in the document's table of fields. ``x-sdk-client``, which every SDK of
this generation sends, identifies the client.
"""

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from html import escape
from typing import Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common.operation import answer
from jobmeter.dialects.alibaba.foas.lines import Drawn
from jobmeter.dialects.base import Answer
from jobmeter.dialects.base.request import Request

TYPED_SDKS = ("java/", "golang/", "net/")
_JSON_TYPES = {"application/json", "application/*", "application/octet-stream", "text/json", "*/*"}
_XML_TYPES = {"application/xml", "text/xml"}
# Three small sets instead of a single large one, which takes ten times as long to compile at every start.
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]|[\ud800-\udfff]|[\ufffe\uffff]")


def make_metrics_answer(request: Request, action: str, lines: Sequence[Drawn]) -> Answer:
    """Return an answer of GetInstanceMetric or GetClusterMetrics."""
    typed = _is_typed(request)
    names = ("MetricName", "Dps", "Summary", "Tags") if typed else ("metricName", "dps", "summary", "tags")
    values = [(line.metric, _points(line), _summary(line), line.tags) for line in lines]
    members = [dict(zip(names, member, strict=True)) for member in values]
    if typed:
        return reply(request, action, {"Metrics": {"Metric": members}})
    return _send(request, action, {"requestId": request.context.request_id, "metrics": members})


def reply(request: Request, action: str, body: dict[str, Any]) -> Answer:
    """Return an answer of any other operation: Pascal case, as in the documents and all SDKs."""
    return _send(request, action, {"RequestId": request.context.request_id, **body})


def _is_typed(request: Request) -> bool:
    """Return True for a call of an SDK that reads answers into its own types."""
    return request.call.get_header("x-sdk-client").lower().startswith(TYPED_SDKS)


def _points(line: Drawn) -> dict[str, str | None]:
    absent = None if line.null else "NaN"
    pairs = zip(line.seconds.tolist(), line.values.tolist(), strict=True)
    return {str(second): absent if math.isnan(value) else format_number(value) for second, value in pairs}


def _summary(line: Drawn) -> int | float | None:
    return None if math.isnan(line.summary) else convert_number(line.summary)


def _send(request: Request, action: str, body: dict[str, Any]) -> Answer:
    kind = _xml_type(request.call)
    if not kind:
        return answer(body, request, id_key="")
    # The document's sample names elements by bare seconds, <1574247000>, which no XML parser accepts. Only a client
    # that reads exactly that form gets it.
    bare = kind == "application/xml" and not _is_typed(request)
    text = "".join(_elements(f"{action}Response", body, bare=bare))
    return Answer(200, text.encode(), (("x-acs-request-id", request.context.request_id),), f"{kind};charset=utf-8")


def _xml_type(call: Call) -> str:
    """Return the XML media type that the call prefers to JSON; empty for JSON."""
    for part in call.get_header("accept").split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in _XML_TYPES:
            return kind
        if kind in _JSON_TYPES:
            break
    return ""


def _elements(name: str, value: object, *, bare: bool) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from _elements(name, part, bare=bare)
        return
    name = name if bare or not name[:1].isdigit() else f"_{name}"
    if value in ({}, "", None):
        yield f"<{name}/>"
        return
    yield f"<{name}>"
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _elements(key, part, bare=bare)
    else:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield escape(_NO_XML.sub("", text), quote=False)
    yield f"</{name}>"


def format_number(value: float) -> str:
    """Format the value of a point: ``494100352``, ``4.929E+8``, ``0.25``.

    Equals Java's ``BigDecimal.stripTrailingZeros().toString()`` of the shortest decimal that names the number: plain
    digits, with an exponent only after stripped zeros before the point, or below 0.000001.
    """
    if value == 0:
        return "0"
    return str(Decimal(repr(float(value))).normalize())


def convert_number(value: float) -> int | float:
    """Return a JSON number, without a fraction for a whole number."""
    return int(value) if value.is_integer() and abs(value) < 2.0**53 else value
