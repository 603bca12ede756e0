"""Tests that log searches have the same language in our own API, its live form and ListSyslogs."""

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from tests.support.fakes import NOW

from jobmeter.model.log import LogLine
from jobmeter.wire.native.logs import make_logs_frame

_STREAM = "file:/var/log/app.log"
LINES: list[dict[str, Any]] = [
    {"text": "disk error 5", "severity": "err", "facility": "kern", "tag": "kernel", "stream": "kernel"},
    {"text": "memory warning", "severity": 4, "tag": "oomd", "stream": _STREAM},
    {"text": "all well", "severity": 6, "tag": "sshd", "stream": _STREAM},
    {"text": "nothing stated", "stream": _STREAM},
]
TEXTS: list[str] = [line["text"] for line in LINES]
SEARCHES = {
    "err*": [0],
    "er?or": [0],
    "disk|memory": [0, 1],
    "disk or memory": [0, 1],
    "not disk": [1, 2, 3],
    "severity>=4": [1, 2],
    "severity<=4 and not kern*": [0, 1],
    "*": [0, 1, 2, 3],
    "tag:(sshd | oomd)": [1, 2],
    "level>=warning": [0, 1],
}
REFUSED = ["/err.*/", "-disk", "Xid:79", "severity>=warning", "tag>=a", "a or"]


@pytest.fixture
def node(server):
    lines = [{**line, "time": NOW - 4_000 + at} for at, line in enumerate(LINES)]
    assert server.call("POST", "/nodes/n1/logs", {"lines": lines}).json()["accepted"] == len(lines)
    return server


def found(reply):
    assert reply.status == 200, reply.body
    return [TEXTS.index(line["text"]) for line in reply.json()["lines"]]


def syslogs(server, query):
    """Return the answer of ListSyslogs in its URL form."""
    body = {"FromTime": str(NOW // 1000 - 60), "ToTime": str(NOW // 1000 + 60), "NodeId": "n1", "Query": query}
    headers = {"Authorization": f"Bearer {server.admin.token}", "Content-Type": "application/json"}
    path = "/api/eflo-controller/2022-12-15/ListSyslogs"
    return server.raw("POST", path, json.dumps(body).encode(), headers)


@pytest.mark.parametrize(("query", "places"), SEARCHES.items())
def test_our_api_and_list_syslogs_find_the_same(node, query, places):
    assert found(node.call("GET", f"/nodes/n1/logs?query={quote(query)}")) == places
    reply = syslogs(node, query)
    assert reply.status == 200, reply.body
    assert [TEXTS.index(log["Msg"]) for log in reply.json()["Logs"]] == places


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_refused_is_refused_everywhere_with_the_parameter_s_name(node, query):
    native = node.call("GET", f"/nodes/n1/logs?query={quote(query)}")
    assert (native.status, native.json()["error"]["field"]) == (400, "query")
    live = node.call("GET", f"/nodes/n1/logs/live?query={quote(query)}")
    assert live.status == 400
    vendor = syslogs(node, query)
    assert (vendor.status, vendor.json()["Code"]) == (400, "InvalidParameter")
    assert vendor.json()["Message"].startswith("Query cannot be read: ")


def test_every_field_of_an_answer_finds_its_line(node):
    for log in syslogs(node, "*").json()["Logs"]:
        assert set(log) >= {"NodeId", "Hostname", "Time", "Msg", "Facility", "Source"}
        everything = " and ".join(f'{name}:"{value}"' for name, value in log.items())
        assert syslogs(node, everything).json()["Logs"] == [log]
        for name, value in log.items():
            assert log in syslogs(node, f'{name}:"{value}"').json()["Logs"], name
            assert log in syslogs(node, f'{name.lower()}="{value}"').json()["Logs"], name
            assert log not in syslogs(node, f'{name}!="{value}"').json()["Logs"], name
    for line in node.call("GET", "/nodes/n1/logs").json()["lines"]:
        for name, value in line.items():
            query = f'{name}:"{"" if value is None else value}"'
            reply = node.call("GET", f"/nodes/n1/logs?query={quote(query)}")
            assert reply.status == 200, reply.body
            assert line in reply.json()["lines"], query


def test_the_lines_of_a_job_are_searched_alike(server):
    lines = [
        LogLine(time_ns=NOW * 1_000_000 + at, text=text, job="j1", replica=f"worker-{at}", attempt=at)
        for at, text in enumerate(TEXTS)
    ]
    assert server.ingest(make_logs_frame(lines)).status == 200
    for query, places in (
        ("err*", [0]),
        ("disk|memory", [0, 1]),
        ("not disk", [1, 2, 3]),
        ("replica:worker-[12]", None),
        ("replica:worker-?", [0, 1, 2, 3]),
        ("replica:(worker-1 or worker-2)", [1, 2]),
        ("attempt>=2", [2, 3]),
        ("job:j*", [0, 1, 2, 3]),
        ("job!=j1", []),
        ("stream:std*", [0, 1, 2, 3]),
    ):
        reply = server.call("GET", f"/jobs/j1/logs?{urlencode({'query': query})}")
        assert found(reply) == (places or []), query
