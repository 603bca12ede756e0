"""ListSyslogs.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-listsyslogs
"""

from jobmeter.dialects.alibaba.common.operation import Arguments, answer, in_body, operation
from jobmeter.dialects.base import Steps, execute
from jobmeter.errors import InvalidRequestError
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.series import check_name
from jobmeter.model.syslog import SEVERITIES
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.query.log_pages import LogSearch
from jobmeter.query.request import LogQuestion, NodeRef

MOST = 100
"""Lines of one answer, as documented."""
_NS_PER_S = 1_000_000_000
_LATEST = MAX_TIME_MS // 1000
_TIME = "Seconds since 1970, as text."


@operation(
    "POST /",
    "nodes:read",
    in_body("FromTime", _TIME, required=True),
    in_body("ToTime", f"{_TIME} Not included.", required=True),
    in_body("NodeId", "The node's name.", required=True),
    in_body(
        "Query",
        "Words, quoted phrases, patterns of words (`err*`, `er?or`), `AND`, `OR` or `|`, `NOT`, parentheses, "
        "`field:value` with the names of the answer's fields, and comparisons (`Severity>=4`).",
    ),
    in_body("Reverse", "`true` for the newest first. Default: `false`."),
    in_body("NextToken", "The token of the page before; valid for an hour, for the same query."),
    by_resource=True,
)
def list_syslogs(arguments: Arguments) -> Steps:
    """Returns at most 100 lines of a node's system log.

    `{Logs: [{NodeId, Hostname, Time, Msg, Facility, Severity, Source, Syslogtag, TagPath}], NextToken, RequestId}`, all
    of them texts; unknown fields are left out. The parameters are in a form body or in the query; in JSON in the URL
    form.
    """
    start, end = (arguments.integer(name, None, 0, _LATEST) for name in ("FromTime", "ToTime"))
    if end <= start:
        raise InvalidRequestError("ToTime must be later than FromTime", "ToTime")
    question = LogQuestion(
        ref=NodeRef(check_name(arguments.required("NodeId"), "NodeId")),
        query=parse_log_query(arguments.text("Query"), "Query"),
        start_ns=start * _NS_PER_S,
        end_ns=end * _NS_PER_S,
        descending=arguments.flag("Reverse"),
        limit=MOST,
    )
    found = yield from execute(LogSearch(question=question, token=arguments.text("NextToken"), field="NextToken"))
    body: dict[str, object] = {"Logs": [_log(line) for line in found.lines]}
    return answer({**body, "NextToken": found.token} if found.token else body, arguments)


def _log(line: LogLine) -> dict[str, str]:
    severity = SEVERITIES[line.severity] if line.severity is not None else ""
    path = line.stream.removeprefix("file:") if line.stream.startswith("file:") else ""
    fields = {
        "NodeId": line.node,
        "Hostname": line.node,
        "Time": str(line.time_ns // _NS_PER_S),
        "Msg": line.text,
        "Facility": line.facility,
        "Severity": severity,
        "Source": line.stream,
        "Syslogtag": line.tag,
        "TagPath": path,
    }
    return {name: value for name, value in fields.items() if value or name == "Msg"}
