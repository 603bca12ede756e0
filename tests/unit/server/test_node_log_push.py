"""Tests of pushed lines of a node's system log, for a node that no agent reads."""

import pytest
from tests.support.fakes import NOW

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
LINES = [
    {"text": XID, "time": NOW - 5_000, "facility": "kern", "severity": "ERR", "tag": "kernel", "stream": "kernel"},
    {"text": "two\nlines", "time_ns": str((NOW - 4_000) * 1_000_000), "severity": 6, "tag": "sshd"},
    {"text": "now", "job": "j1", "replica": "worker-0"},
]


def _push(server, lines, node="n1", **options):
    return server.call("POST", f"/nodes/{node}/logs", {"lines": lines}, **options)


def _lines(server, node="n1", query=""):
    return server.call("GET", f"/nodes/{node}/logs?{query}").json()["lines"]


def test_pushed_lines_are_the_nodes(server):
    assert server.call("GET", "/nodes/n1/logs").status == 404
    reply = _push(server, LINES)
    assert (reply.status, reply.json()) == (200, {"accepted": 4, "rejected": {}})
    found = _lines(server)
    names = ("text", "time", "facility", "severity", "tag", "stream", "job", "replica", "node")
    assert [tuple(line[name] for name in names) for line in found] == [
        (XID, NOW - 5_000, "kern", 3, "kernel", "kernel", "", "", "n1"),
        ("two", NOW - 4_000, "user", 6, "sshd", "pushed", "", "", "n1"),
        ("lines", NOW - 4_000, "user", 6, "sshd", "pushed", "", "", "n1"),
        ("now", NOW, "user", None, "", "pushed", "j1", "worker-0", "n1"),
    ]
    assert [line["text"] for line in _lines(server, query="query=Xid")] == [XID]


def test_the_same_lines_again_count_once_and_the_node_is_one(server):
    for _ in range(2):
        assert _push(server, LINES[:2]).status == 200
    assert len(_lines(server)) == 3
    assert [node["name"] for node in server.call("GET", "/nodes").json()["nodes"]] == ["n1"]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({}, "lines[1]"),
        ({"text": "x", "facility": "kernel"}, "facility"),
        ({"text": "x", "severity": 8}, "severity"),
        ({"text": "x", "severity": "loud"}, "severity"),
        ({"text": "x", "time": "yesterday"}, "time"),
        ({"text": "x", "replica": "a b"}, "replica"),
        ({"text": "x", "level": "error"}, "lines[1]"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_stored(server, line, field):
    reply = _push(server, [{"text": "good"}, line])
    assert (reply.status, reply.json()["error"]["field"]) == (400, field)
    assert server.call("GET", "/nodes/n1/logs").status == 404


def test_what_is_too_far_ahead_is_counted_and_makes_no_node(server):
    reply = _push(server, [{"text": "x", "time": NOW + 400_000}])
    assert reply.json() == {"accepted": 0, "rejected": {"future": 1}}
    assert server.call("GET", "/nodes/n1/logs").status == 404
