"""ListSyslogs.

https://www.alibabacloud.com/help/en/pai/developer-reference/api-eflo-controller-2022-12-15-listsyslogs
"""

from typing import Annotated

from msgspec import Meta

from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, answer, operation
from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import BODY
from jobmeter.errors import InvalidRequestError
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.series import check_name
from jobmeter.model.syslog import SEVERITIES
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.query.logs import LogPageQuestion
from jobmeter.query.request import LogQuestion, NodeRef

MOST = 100
"""Most lines of one answer, as documented."""
_NS_PER_S = 1_000_000_000
_LATEST = MAX_TIME_MS // 1000
_TIME = "Seconds since 1970, as text."


@operation("POST /", "nodes:read", by_resource=True)
class ListSyslogs(AlibabaRequest, frozen=True, kw_only=True):
    """Returns at most 100 lines of a node's system log.

    `{Logs: [{NodeId, Hostname, Time, Msg, Facility, Severity, Source, Syslogtag, TagPath}], NextToken, RequestId}`, all
    of them texts; unknown fields are left out. The parameters are in a form body or in the query; in JSON in the URL
    form.
    """

    from_time: Annotated[int, BODY, _TIME, Meta(ge=0, le=_LATEST)]
    to_time: Annotated[int, BODY, f"{_TIME} Not included.", Meta(ge=0, le=_LATEST)]
    node_id: Annotated[str, BODY, "The node's name."]
    query: Annotated[
        str,
        BODY,
        "Words, quoted phrases, patterns of words (`err*`, `er?or`), `AND`, `OR` or `|`, `NOT`, "
        "parentheses, `field:value` with the names of the answer's fields, and comparisons (`Severity>=4`).",
    ] = ""
    reverse: Annotated[bool, BODY, "`true` for the newest first."] = False
    next_token: Annotated[str, BODY, "The token of the previous page; valid for an hour, for the same query."] = ""

    def _steps(self) -> Steps:
        if self.to_time <= self.from_time:
            raise InvalidRequestError("ToTime must be later than FromTime", "ToTime")
        question = LogQuestion(
            ref=NodeRef(check_name(self.node_id, "NodeId")),
            query=parse_log_query(self.query, "Query"),
            start_ns=self.from_time * _NS_PER_S,
            end_ns=self.to_time * _NS_PER_S,
            descending=self.reverse,
            limit=MOST,
        )
        found = yield from ask(LogPageQuestion(question=question, token=self.next_token, field="NextToken"))
        body: dict[str, object] = {"Logs": [_log(line) for line in found.lines]}
        return answer({**body, "NextToken": found.token} if found.token else body, self)


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
