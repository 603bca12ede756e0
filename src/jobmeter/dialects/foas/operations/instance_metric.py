"""GetInstanceMetric.

https://help.aliyun.com/document_detail/107111.html
"""

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps
from jobmeter.dialects.foas import metric_json
from jobmeter.dialects.foas.answers import metrics_answer
from jobmeter.dialects.foas.bodies import arguments
from jobmeter.dialects.foas.instances import CURRENT, running
from jobmeter.dialects.foas.names import METRICS
from jobmeter.dialects.foas.series import lines_of

ACTION = "GetInstanceMetric"
LARGEST_ID = 2**63 - 1


def get_instance_metric(call: Call, context: Context) -> Steps:
    """The lines of each query, over the series of the running instance."""
    given = arguments(call, context)
    project, name = given.required("projectName"), given.required("jobName")
    number = given.integer("instanceId", CURRENT, CURRENT, LARGEST_ID)
    prefix = f"blink.{project}.{name}."
    document = metric_json.read(given.required(metric_json.FIELD), prefix, METRICS, context.now_ms)
    job = yield from running(project, name, number)
    lines = yield from lines_of(job, document, METRICS)
    return metrics_answer(call, context, ACTION, lines)


METRIC_JSON_TEXT = (
    '`{"start", "end", "limit", "queries": [{"metric", "downsample", "granularity", "aggregator", "tags"}]}`, in a '
    "form, a JSON object or an XML element. `start` and `end`: 13 digits, milliseconds; the end (default: now) is "
    "included. `downsample`: `20s-avg`, of each series; `avg`, `max`, `min` or `sum`. `granularity`: `20s`, from point "
    "to point of the answer. `aggregator`: `avg`, `max`, `min` or `sum`, makes one point of what the series have in "
    'one `granularity`. `tags`: `{"replica": "*"}` gives a line for each replica (or `node`, or any label), `a|b` for '
    "those; without tags one line joins all. `limit`: `avg:above:5` takes the 5 lines of each query whose `max`, `min` "
    "or `avg` is largest "
    "(`above`), smallest (`bottom`), or spread evenly (`sample`). At most "
    f"{metric_json.MAX_QUERIES} queries and {metric_json.MAX_POINTS} points."
)

OPERATIONS = (
    Operation(
        name=ACTION,
        action="metrics:read",
        method="POST",
        path="/api/v2/projects/{projectName}/jobs/{jobName}/metric",
        answer=get_instance_metric,
        parameters=(
            Parameter("projectName", "path", "The project; `_` stands for `-`.", required=True),
            Parameter("jobName", "path", "The id of a job, or its name.", required=True),
            Parameter("instanceId", "query", "`-1` (default): the running one of a streaming job; else an instance."),
            Parameter(
                "metricJson",
                "body",
                f"{METRIC_JSON_TEXT} A `metric` is `blink.<projectName>.<jobName>.<name>`, or the bare name.",
                required=True,
            ),
        ),
        text=(
            'Metrics of a running instance: `{"requestId", "metrics": [{"metricName", "dps", "summary", "tags"}]}`; '
            "`dps` maps seconds since the epoch to numbers, both as texts, `summary` is the mean of the points. The "
            'typed SDKs (Java, Go, .NET) get `{"RequestId", "Metrics": {"Metric": [{"MetricName", ...}]}}`. With '
            "`Accept: application/xml` the same as XML, elements named by seconds as in the document; with `text/xml` "
            "well-formed, `<_1574247000>`. Values are in the units of the vendor's table. Refused for an instance that "
            "does not run."
        ),
    ),
)
