"""DescribeMetricMetaList: the list of metrics.

https://www.alibabacloud.com/help/en/cms/developer-reference/api-cms-2019-01-01-describemetricmetalist
"""

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS, STATISTICS, Measure
from jobmeter.dialects.alibaba.operation import Arguments, answer, json_text
from jobmeter.dialects.base import Answer, Context, Operation, Parameter, Steps, only

DEFAULT_PAGE = 30
MAX_PAGE = 10_000


def describe_metric_meta_list(call: Call, context: Context) -> Steps:
    """One page of the names."""
    return only(_answer(Arguments(call, context), context))


def _answer(arguments: Arguments, context: Context) -> Answer:
    namespace, name = arguments.text("Namespace", NAMESPACE), arguments.text("MetricName")
    size = arguments.integer("PageSize", DEFAULT_PAGE, 1, MAX_PAGE)
    start = (arguments.integer("PageNumber", 1, 1, 10**6) - 1) * size
    found = [one for one in MEASURES.values() if namespace == NAMESPACE and name in {"", one.name}]
    body = {
        "TotalCount": str(len(found)),
        "Resources": {"Resource": [_described(one) for one in found[start : start + size]]},
        "Code": "200",
        "Success": True,
    }
    return answer(body, context)


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


OPERATIONS = (
    Operation(
        name="DescribeMetricMetaList",
        action="catalog:read",
        method="POST",
        path="/",
        answer=describe_metric_meta_list,
        parameters=(
            Parameter("Namespace", "query", f"`{NAMESPACE}`; another one has no metrics. Default: all."),
            Parameter("MetricName", "query", "One metric. Default: all."),
            Parameter("PageNumber", "query", "From 1, the default."),
            Parameter("PageSize", "query", f"1 to {MAX_PAGE}. Default: {DEFAULT_PAGE}."),
        ),
        text=(
            "Which metrics there are, in which unit: `{TotalCount, Resources: {Resource: [{MetricName, Periods, "
            "Description, Dimensions, Labels, Unit, Statistics, Namespace}]}, Code, Success, RequestId}`."
        ),
    ),
)
