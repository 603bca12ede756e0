"""Tests of malicious log lines and log queries: they are limited or refused by name, and disturb nothing else."""

import json
import time
import zlib

import pytest

from jobmeter.model.log import MAX_TEXT_BYTES, LogLine
from jobmeter.wire.native.logs import make_logs_frame
from tests.support.frames import frame, records
from tests.support.processes import API, running

ROWS = 20_000
LINES = 60_000
NOW_NS = int(time.time()) * 10**9
BEGIN = NOW_NS - 3_600 * 10**9
SYSLOGS = "/api/eflo-controller/2022-12-15/ListSyslogs"

pytestmark = pytest.mark.slow


def system_line(at, text, node="n1", **parts):
    return LogLine(time_ns=BEGIN + at, text=text, node=node, facility="daemon", stream="journal", **parts)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    environment = {"JOBMETER_LIMIT_QUERY_ROWS": str(ROWS)}
    with running(tmp_path_factory.mktemp("hostile") / "data", environment=environment) as made:
        names = ("n1", "calm", "long", "bin", "wide", "many")
        assert made.ingest(records({"nodes": [{"name": name, "cluster": "c"} for name in names]})).status == 200
        lines = [
            system_line(at * 10**6, "needle" if at == LINES // 2 else f"step {at} of the usual") for at in range(LINES)
        ]
        sent = [made.ingest(make_logs_frame(lines[first : first + 20_000])) for first in range(0, LINES, 20_000)]
        assert sum(reply.json()["lines"] for reply in sent) == LINES
        yield made


@pytest.fixture(autouse=True)
def undisturbed(server):
    """Check after each test that the server still serves the next sender and the next question."""
    yield
    assert server.ingest(make_logs_frame([system_line(0, "calm", node="calm")])).json()["lines"] == 1
    assert [line["text"] for line in lines_of(server, "calm")] == ["calm"]
    assert [line["text"] for line in lines_of(server, "n1", "&query=needle")] == ["needle"]


def lines_of(server, node, more=""):
    reply = server.call("GET", f"{API}/nodes/{node}/logs?limit=1000{more}")
    assert reply.status == 200, reply.body
    return reply.json()["lines"]


def test_a_search_of_everything_names_its_limit_and_a_narrower_one_is_answered(server):
    reply = server.call("GET", f"{API}/nodes/n1/logs?query=usual&order=desc")
    error = reply.json()["error"]
    assert (reply.status, error["field"]) == (400, "range")
    assert f"more than {ROWS} lines" in error["message"]
    assert "JOBMETER_LIMIT_QUERY_ROWS" in error["message"]
    assert "narrow its range" in error["message"]
    narrower = f"&query=usual&start={BEGIN // 10**6}&end={BEGIN // 10**6 + 500}"
    assert lines_of(server, "n1", narrower)[0]["text"] == "step 0 of the usual"
    without_needle = listed(server, Query="usual NOT needle")
    assert without_needle.status >= 400
    assert f"more than {ROWS} lines" in without_needle.json()["Message"]


def test_a_line_of_ten_megabytes_is_cut_and_its_neighbours_are_whole(server):
    node = "long"
    lines = [system_line(0, "before", node), system_line(1, "x" * 10_000_000, node), system_line(2, "after", node)]
    assert server.ingest(make_logs_frame(lines)).json()["lines"] == 3
    before, cut, after = lines_of(server, node)
    assert (before["text"], after["text"]) == ("before", "after")
    assert len(cut["text"]) <= MAX_TEXT_BYTES
    assert cut["text"].endswith(" bytes cut]")


def test_binary_is_text_as_it_came_or_refused_whole(server):
    texts = ["".join(map(chr, range(32))).replace("\n", "").replace("\r", ""), "\ufffd\x00\x7f\u202e\U0010ffff", '"\\"']
    assert server.ingest(make_logs_frame(system_line(at, text, "bin") for at, text in enumerate(texts))).status == 200
    assert [line["text"] for line in lines_of(server, "bin")] == texts
    payload = b'{"streams":[{"node":"bin","facility":"kern","stream":"kernel","lines":[[1,"\xff\xfe\x80"]]}]}'
    for codec in (0, 1):
        refused = server.ingest(frame(payload, kind=3, codec=codec))
        assert (refused.status, refused.json()["error"]["field"]) == (400, "lines")
    assert len(lines_of(server, "bin")) == len(texts)


def test_a_million_labels_in_one_body_need_more_memory_than_there_is(server):
    streams = ",".join(
        f'{{"node":"wide","facility":"kern","stream":"s{at}","tag":"t{at}","lines":[[{BEGIN + at},"x"]]}}'
        for at in range(1_000_000)
    )
    body = frame(f'{{"streams":[{streams}]}}'.encode(), kind=3, codec=1)
    assert len(body) < 64 * 2**20
    reply = server.ingest(body)
    assert (reply.status, reply.json()["error"]["field"]) == (413, "body")
    assert "for all requests together is" in reply.json()["error"]["message"]
    assert lines_of(server, "wide") == []


def test_many_labels_in_one_body_are_lines_of_their_own(server):
    lines = [system_line(at, "x", "many", tag=f"tag-{at}") for at in range(5_000)]
    assert server.ingest(make_logs_frame(lines)).json()["lines"] == 5_000
    assert [line["tag"] for line in lines_of(server, "many", "&query=tag:tag-4321")] == ["tag-4321"]
    assert len(lines_of(server, "many")) == 1_000


def listed(server, **more):
    body = {"FromTime": str(BEGIN // 10**9), "ToTime": str(NOW_NS // 10**9), "NodeId": "n1", **more}
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    return server.call("POST", SYSLOGS, json.dumps(body).encode(), headers)


def test_forged_and_changed_tokens_of_pages_are_refused(server):
    first = listed(server).json()
    token = first["NextToken"]
    assert len(first["Logs"]) == 100
    packed = zlib.compress(token.encode()).hex()
    wrong = ["AAAA", token[:-1], token + "A", token[:20] + ("A" if token[20] != "A" else "B") + token[21:], packed]
    wrong += ["x" * 100_000, "\u0000", "../../etc/passwd", token.swapcase()]
    for forged in wrong:
        reply = listed(server, NextToken=forged)
        assert (reply.status, reply.json()["Code"]) == (400, "InvalidParameter"), forged[:40]
        assert "NextToken" in reply.json()["Message"]
    assert listed(server, NextToken=token, Reverse=True).status == 400, "a token of another question"
    following = listed(server, NextToken=token).json()
    assert following["Logs"][0]["Msg"] == "step 100 of the usual"
