"""DescribeMetricMetaList and DescribeProjectMeta: the metrics, and the namespaces that have any.

https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetricmetalist
https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describeprojectmeta
"""

import msgspec

from jobmeter.dialects.alibaba.common.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS, STATISTICS, Measure
from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_query, json_text, operation
from jobmeter.dialects.base import Steps
from jobmeter.errors import InvalidRequestError

DEFAULT_PAGE, MAX_PAGE = 30, 10_000
LAST_PAGE = 100
"""Largest PageNumber of DescribeProjectMeta, as documented."""
PRODUCT = "pai_dlc"


class _Label(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


@operation(
    "POST /",
    "catalog:read",
    in_query("Namespace", f"`{NAMESPACE}`; another one has no metrics. Default: all."),
    in_query("MetricName", "One metric. Default: all."),
    in_query("PageNumber", "From 1, the default."),
    in_query("PageSize", f"1 to {MAX_PAGE}. Default: {DEFAULT_PAGE}."),
)
def describe_metric_meta_list(arguments: Arguments) -> Steps:
    """Lists the metrics, each with its unit.

    `{TotalCount, Resources: {Resource: [{MetricName, Periods, Description, Dimensions, Labels, Unit, Statistics,
    Namespace}]}, Code, Success, RequestId}`.
    """
    namespace, name = arguments.text("Namespace", NAMESPACE), arguments.text("MetricName")
    start, size = arguments.page(DEFAULT_PAGE, MAX_PAGE, 10**6)
    found = [one for one in MEASURES.values() if namespace == NAMESPACE and name in {"", one.name}]
    body = {
        "TotalCount": str(len(found)),
        "Resources": {"Resource": [_described(one) for one in found[start : start + size]]},
        "Code": "200",
        "Success": True,
    }
    yield from ()
    return answer(body, arguments)


@operation(
    "POST /",
    "catalog:read",
    in_query("Labels", f'JSON text: `{{"name": "product", "value": "{PRODUCT}"}}`, or an array of such. Default: all.'),
    in_query("PageNumber", f"1 (default) to {LAST_PAGE}."),
    in_query("PageSize", f"1 to {MAX_PAGE}. Default: {DEFAULT_PAGE}."),
)
def describe_project_meta(arguments: Arguments) -> Steps:
    """Lists the namespaces. There is one, that of PAI-DLC.

    `{Resources: {Resource: [{Namespace, Description, Labels}]}, Total, PageNumber, PageSize, Code, Success,
    RequestId}`, numbers as texts.
    """
    start, size = arguments.page(DEFAULT_PAGE, MAX_PAGE, LAST_PAGE)
    own = {
        "Namespace": NAMESPACE,
        "Description": "PAI-DLC",
        "Labels": json_text([{"name": "product", "value": PRODUCT}]),
    }
    found = [own] if all(_fits(label) for label in _labels(arguments)) else []
    body = {
        "Resources": {"Resource": found[start : start + size]},
        "Total": str(len(found)),
        "PageNumber": str(start // size + 1),
        "PageSize": str(size),
        "Code": "200",
        "Success": True,
    }
    yield from ()
    return answer(body, arguments)


def _fits(label: _Label) -> bool:
    return label.name == "product" and label.value.casefold() == PRODUCT


def _labels(arguments: Arguments) -> list[_Label]:
    text = arguments.text("Labels")
    try:
        listed = text if text.lstrip().startswith("[") else f"[{text}]"
        return msgspec.json.decode(listed, type=list[_Label]) if text else []
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidRequestError(
            "Labels is neither a JSON object with name and value nor an array of them", "Labels"
        ) from error


def _described(measure: Measure) -> dict[str, str]:
    return {
        "MetricName": measure.name,
        "Periods": ",".join(map(str, PERIODS)),
        "Description": measure.text,
        "Dimensions": measure.dimensions,
        "Labels": json_text([{"name": "productCategory", "value": "pai_dlc"}]),
        "Unit": measure.unit,
        "Statistics": ",".join(STATISTICS),
        "Namespace": NAMESPACE,
    }
