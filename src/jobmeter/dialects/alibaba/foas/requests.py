"""Requests about projects, jobs and instances, with bodies in each encoding of the vendor's SDK cores.

Measured with ``aliyun-python-sdk-core`` 2.16.1: a form by default, a JSON object of the same names with ``Content-Type:
application/json`` (as in the vendor's Java example), one XML element a name with ``application/xml``.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common.operation import AlibabaReader, AlibabaRequest, Lookup, dump_json, match_url_form
from jobmeter.dialects.alibaba.foas.instances import CURRENT, find_instance
from jobmeter.dialects.base import Context
from jobmeter.dialects.base.request import Operations
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Job

FORM = "application/x-www-form-urlencoded"
_ELEMENT = re.compile(r"<(?P<name>[A-Za-z_][\w.-]{0,63})>(?P<text>[^<]*)</(?P=name)>")


class FoasReader(AlibabaReader):
    """Reads parameters in any encoding of the body."""

    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:
        """Return the raw values."""
        if not call.body or match_url_form(call.raw_path):
            return super().list_values(call, context)
        kind = call.get_header("content-type").partition(";")[0].strip().lower()
        if kind != FORM:
            start = call.body.lstrip()[:1]
            if kind == "application/json" or start == b"{":
                call = _form(call, _json_values(call.body))
            elif kind in {"application/xml", "text/xml"} or start == b"<":
                call = _form(call, _xml_values(call.body))
            else:
                call = replace(call, headers=(("content-type", FORM), *call.headers))
        return super().list_values(call, context)


operation = Operations(FoasReader())
"""Declares an operation."""
JOBS_PATH = "/api/v2/projects/{projectName}/jobs"
JOB_PATH = f"{JOBS_PATH}/{{jobName}}"
INSTANCE_PATH = f"{JOB_PATH}/instances/{{instanceId}}"
LARGEST_ID = 2**63 - 1


class FlinkProjectRequest(AlibabaRequest, frozen=True, kw_only=True, rename="camel"):
    """A request about a project."""

    project_name: Annotated[str, "The project; `_` stands for `-`."]


class FlinkJobRequest(FlinkProjectRequest, frozen=True, kw_only=True):
    """A request about a job."""

    job_name: Annotated[str, "The id of a job, or its name."]


class InstanceRequest(FlinkJobRequest, frozen=True, kw_only=True):
    """A request about an instance."""

    instance_id: Annotated[
        int,
        "An instance; `-1`: the running one of a streaming job, or its last.",
        Meta(ge=CURRENT, le=LARGEST_ID),
    ]

    def find_instance(self) -> Lookup[Job]:
        """Return the instance. Raises as ``instances.find_instance``."""
        return find_instance(self.project_name, self.job_name, self.instance_id)


class FlinkPageRequest(FlinkProjectRequest, frozen=True, kw_only=True):
    """A request for a page of a list."""

    page_index: Annotated[int, "From 1.", Meta(ge=1, le=10**9)] = 1
    page_size: Annotated[int, Meta(ge=1, le=1_000)] = 10

    def cut_page(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs of the page."""
        return jobs[(self.page_index - 1) * self.page_size : self.page_index * self.page_size]

    def make_paging(self, total: int) -> dict[str, Any]:
        """Return the fields of a page."""
        pages = -(-total // self.page_size)
        return {"PageIndex": self.page_index, "PageSize": self.page_size, "TotalPage": pages, "TotalCount": total}


def _form(call: Call, values: dict[str, str]) -> Call:
    return replace(call, headers=(("content-type", FORM), *call.headers), body=urlencode(values).encode())


def decode_object(text: str | bytes, name: str, field: str) -> dict[str, Any]:
    """Decode the object of a JSON text. Raises InvalidRequestError naming ``name`` for any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{name} is not a JSON object", field) from error


def _json_values(body: bytes) -> dict[str, str]:
    values = decode_object(body, "the body", "body")
    return {
        name: value if isinstance(value, str) else dump_json(value)
        for name, value in values.items()
        if value is not None
    }


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
