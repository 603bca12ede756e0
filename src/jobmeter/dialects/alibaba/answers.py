"""Successful answers: always a JSON object, since the SDKs take an empty body for a failure.

PAI's products answer in percent and MB/s. Utilisations are percent: the sample answer of
https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobmetrics is 23.45. That page
gives rates no unit; PaiStudio's ListTrainingJobInstanceMetrics documents MB/s for the same metric names.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from jobmeter.dialects.base import Answer, Context, not_negative, rounded
from jobmeter.model.catalog import CATALOG
from jobmeter.query.request import Line

JSON = "application/json;charset=utf-8"
_FACTORS: Mapping[str, float] = MappingProxyType({"1": 100.0, "By/s": 1e-6})


def answer(body: dict[str, Any], context: Context, *, id_key: str = "RequestId") -> Answer:
    """The body with the request's id under ``id_key`` (empty: not in the body); a header repeats it."""
    full = {**body, id_key: context.request_id} if id_key else body
    return Answer(200, msgspec.json.encode(full), (("x-acs-request-id", context.request_id),), JSON)


def json_text(value: object) -> str:
    """A value as the JSON text that some answers hold as a text."""
    return msgspec.json.encode(value).decode()


def member_name(line: Line) -> str:
    """The name of a line by replica within its job: the replica, else the node, where samples name no replica."""
    return line.replica or line.node or "worker-0"


def in_their_unit(line: Line) -> list[float]:
    """A line's values as percent or MB/s (10^6 bytes a second), to 12 significant digits, none below 0.

    A percentage is above 100 where more was used than is allowed, as a burst of CPU is.
    """
    factor = _FACTORS[CATALOG[line.metric].answer_unit]
    return [rounded(not_negative(value)) for value in (line.value * factor).tolist()]
