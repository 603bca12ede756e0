"""Tests of usage over the whole application, compared with a count that the test keeps."""

import json
from collections import Counter

import pytest
from tests.support.serving import Serving, serving

from jobmeter.access.keys import CreatedKey
from jobmeter.errors import ConfigurationError

URL = "/api/PaiStudio/2022-01-12/GetUserViewMetrics?ResourceGroupID=rg&PageNumber=1&PageSize=10"


def counted(
    server: Serving, query: str = "", key: CreatedKey | None = None
) -> dict[tuple[str, str, str], tuple[int, int]]:
    body = json.loads(server.call("GET", f"/usage{query}", key=key).body)
    return {(row["account"], row["api"], row["operation"]): (row["calls"], row["failed"]) for row in body["usage"]}


def test_each_call_counts_once_whatever_becomes_of_it(server: Serving) -> None:
    team, other = server.key("reader", "team-a"), server.key("writer", "team-b")
    expected: Counter[tuple[str, str, str]] = Counter()
    failed: Counter[tuple[str, str, str]] = Counter()
    for key, account in ((team, "team-a"), (other, "team-b"), (server.admin, "default")):
        for path, operation in (("/jobs", "listJobs"), ("/jobs/none", "getJob"), ("/jobs?x=1", "listJobs"),
                                ("/status", "status")):  # fmt: skip
            status = server.call("GET", path, key=key).status
            expected[account, "native", operation] += 1
            failed[account, "native", operation] += status >= 400
        status = server.raw("GET", URL, headers={"Authorization": f"Bearer {key.token}"}).status
        assert status == 404
        expected[account, "pai-studio", "GetUserViewMetrics"] += 1
        failed[account, "pai-studio", "GetUserViewMetrics"] += 1
    assert counted(server) == {name: (count, failed[name]) for name, count in expected.items()}


def test_nobody_s_calls_are_not_counted(server: Serving) -> None:
    assert server.raw("GET", "/api/jobmeter/v1/jobs").status == 401
    assert server.raw("GET", "/api/jobmeter/v1/jobs", headers={"Authorization": "Bearer wrong"}).status == 401
    assert server.raw("GET", "/healthz").status == 200
    assert server.call("GET", "/nothing").status == 404
    assert server.call("GET", "/health").status == 200
    assert counted(server) == {}


def test_a_call_too_many_is_refused_and_counted(tmp_path) -> None:
    server = serving(tmp_path / "data", rate_limits="GetUserViewMetrics=1:2")
    try:
        headers = {"Authorization": f"Bearer {server.admin.token}"}
        replies = [server.raw("GET", URL, headers=headers) for _ in range(5)]
        assert [reply.status for reply in replies] == [404, 404, 429, 429, 429]
        assert json.loads(replies[-1].body)["Code"] == "Throttling"
        assert replies[-1].headers["retry-after"] == "1"
        assert counted(server) == {("default", "pai-studio", "GetUserViewMetrics"): (5, 5)}
    finally:
        server.application.close()


def test_an_account_sees_itself_alone(server: Serving) -> None:
    team, other = server.key("reader", "team-a"), server.key("reader", "team-b")
    for key in (team, other):
        server.call("GET", "/jobs", key=key)
    assert {name[0] for name in counted(server, key=team)} == {"team-a"}
    assert server.call("GET", "/usage?project=team-b", key=team).status == 403
    assert {name[0] for name in counted(server, "?project=team-b")} == {"team-b"}


def test_free_calls_run_out_and_what_follows_costs(server: Serving) -> None:
    services = server.application.services
    month = services.calendar.find_month(server.clock.now_ms())
    for number in range(1_003):
        services.usage.count("team-a", "pai-studio", "GetUserViewMetrics", failed=number % 2 == 0)
    body = json.loads(server.call("GET", "/usage").body)
    row = next(one for one in body["usage"] if one["operation"] == "GetUserViewMetrics")
    assert row == {
        "account": "team-a", "api": "pai-studio", "operation": "GetUserViewMetrics", "calls": 1003, "failed": 502,
        "pricing": "priced", "free": 1000, "free_left": 0, "unit_price": "0.001", "cost": "0.003",
    }  # fmt: skip
    assert (body["month"], body["time_zone"], body["currency"]) == (month.name, "Asia/Shanghai", "CNY")
    assert (body["start"], body["end"], body["cost"]) == (month.start_ms, month.end_ms, "0.003")
    server.clock.time_ms = month.end_ms
    after = json.loads(server.call("GET", "/usage").body)
    assert after["start"] == month.end_ms
    assert all(one["operation"] != "GetUserViewMetrics" for one in after["usage"])
    again = json.loads(server.call("GET", f"/usage?month={month.name}").body)
    assert again["cost"] == "0.003"


def test_a_month_that_is_none_is_refused(server: Serving) -> None:
    reply = server.call("GET", "/usage?month=2026-13")
    assert (reply.status, json.loads(reply.body)["error"]["field"]) == (400, "month")


def test_what_was_counted_is_there_after_a_stop(tmp_path) -> None:
    server = serving(tmp_path / "data")
    server.call("GET", "/jobs")
    server.application.close()
    again = serving(tmp_path / "data")
    try:
        assert counted(again)["default", "native", "listJobs"] == (1, 0)
    finally:
        again.application.close()


@pytest.mark.parametrize(("name", "value"), [("usage_zone", "Mars"), ("prices", "/nowhere.toml")])
def test_a_setting_that_is_wrong_ends_the_start(tmp_path, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError):
        serving(tmp_path / "data", None, **{name: value})
