"""DescribeMetricMetaList and DescribeProjectMeta: the metrics, and the namespaces that have any.

https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetricmetalist
https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describeprojectmeta
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jobmeter.dialects.alibaba.common.cloudmonitor.names import (
    MEASURES,
    NAMESPACE,
    PERIODS,
    STATISTICS,
    MonitoredMeasure,
)
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, JsonText, answer, dump_json, operation
from jobmeter.dialects.base import Steps
from jobmeter.dialects.base.request import ParameterReader, ParameterSlot

PRODUCT = "pai_dlc"


class _Label(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Labels(JsonText):
    """A JSON object, or an array of objects."""

    def convert(self, reader: ParameterReader, slot: ParameterSlot, value: Any) -> Any:  # noqa: ANN401
        """Return the labels."""
        text = reader.read_text(slot, value)
        return super().convert(reader, slot, text if text.lstrip().startswith("[") else f"[{text}]")


@operation("POST /", "catalog:read")
class DescribeMetricMetaList(AlibabaRequest, frozen=True, kw_only=True):
    """Lists the metrics, each with its unit.

    `{TotalCount, Resources: {Resource: [{MetricName, Periods, Description, Dimensions, Labels, Unit, Statistics,
    Namespace}]}, Code, Success, RequestId}`.
    """

    namespace: Annotated[str, f"`{NAMESPACE}`; another one has no metrics. Default: all."] = NAMESPACE
    metric_name: Annotated[str, "One metric. Default: all."] = ""
    page_number: Annotated[int, "From 1.", Meta(ge=1, le=10**6)] = 1
    page_size: Annotated[int, Meta(ge=1, le=10_000)] = 30

    def _steps(self) -> Steps:
        yield from ()
        start = (self.page_number - 1) * self.page_size
        there = self.namespace == NAMESPACE
        found = [one for one in MEASURES.values() if there and self.metric_name in {"", one.name}]
        body = {
            "TotalCount": str(len(found)),
            "Resources": {"Resource": [_describe_measure(one) for one in found[start : start + self.page_size]]},
            "Code": "200",
            "Success": True,
        }
        return answer(body, self)


@operation("POST /", "catalog:read")
class DescribeProjectMeta(AlibabaRequest, frozen=True, kw_only=True):
    """Lists the namespaces. The only namespace is PAI-DLC's.

    `{Resources: {Resource: [{Namespace, Description, Labels}]}, Total, PageNumber, PageSize, Code, Success,
    RequestId}`, numbers as texts.
    """

    labels: Annotated[
        Sequence[_Label],
        f'JSON text: `{{"name": "product", "value": "{PRODUCT}"}}`, or an array of them. Default: all.',
        _Labels(list[_Label], "neither a JSON object with name and value nor an array of them"),
    ] = ()
    # The largest PageNumber is documented.
    page_number: Annotated[int, Meta(ge=1, le=100)] = 1
    page_size: Annotated[int, Meta(ge=1, le=10_000)] = 30

    def _steps(self) -> Steps:
        yield from ()
        start = (self.page_number - 1) * self.page_size
        own = {
            "Namespace": NAMESPACE,
            "Description": "PAI-DLC",
            "Labels": dump_json([{"name": "product", "value": PRODUCT}]),
        }
        is_own = all(label.name == "product" and label.value.casefold() == PRODUCT for label in self.labels)
        found = [own] if is_own else []
        body = {
            "Resources": {"Resource": found[start : start + self.page_size]},
            "Total": str(len(found)),
            "PageNumber": str(self.page_number),
            "PageSize": str(self.page_size),
            "Code": "200",
            "Success": True,
        }
        return answer(body, self)


def _describe_measure(measure: MonitoredMeasure) -> dict[str, str]:
    return {
        "MetricName": measure.name,
        "Periods": ",".join(map(str, PERIODS)),
        "Description": measure.text,
        "Dimensions": measure.dimensions,
        "Labels": dump_json([{"name": "productCategory", "value": "pai_dlc"}]),
        "Unit": measure.unit,
        "Statistics": ",".join(STATISTICS),
        "Namespace": NAMESPACE,
    }
