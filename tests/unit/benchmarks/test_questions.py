"""The questions: each contestant gets the same list, and the list does not repeat itself."""

import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from benchmarks.client import RefusedError, Request, answer, latency
from benchmarks.data import STEP_MS
from benchmarks.ours import Jobmeter
from benchmarks.peers import VictoriaMetrics
from benchmarks.questions import live, long
from benchmarks.wrk import load, read_report, write_paths
from tests.needs import needing

NOW = 1_795_300_005_000


def test_live_questions_go_through_replicas_and_ends():
    asked = live("job", NOW)
    assert len(set(asked)) == len(asked) == 16 * 21
    assert {one.replica for one in asked} == {f"worker-{replica}" for replica in range(16)}
    assert all(a.replica != b.replica for a, b in itertools.pairwise(asked))
    assert max(one.end_ms for one in asked) == NOW
    steps = [b.end_ms - a.end_ms for a, b in itertools.pairwise(asked)]
    assert set(steps) == {STEP_MS, -20 * STEP_MS}


def test_long_questions_move_on():
    assert [one.end_ms for one in long("job", NOW, 24, 300, "replica")] == [
        NOW - shift * STEP_MS for shift in range(20, -1, -1)
    ]


def test_everybody_is_asked_for_the_same_range(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.contestant.folder", lambda: tmp_path)
    for one in live("job", NOW)[:40]:
        mine = parse_qs(urlsplit(Jobmeter().path(one)).query)
        theirs = parse_qs(urlsplit(VictoriaMetrics().path(one)).query)
        # Ours is [start, end), theirs looks back from each moment: (start, end].
        assert int(mine["start"][0]) - 1 == round(float(theirs["start"][0]) * 1000) == one.end_ms - 3_600_000
        assert int(mine["end"][0]) - 1 == round(float(theirs["end"][0]) * 1000) == one.end_ms
        assert mine["step"] == ["300s"]
        assert theirs["step"] == ["300"]
        assert f'replica="{mine["replica"][0]}"' in theirs["query"][0]


class Site(BaseHTTPRequestHandler):
    """Notes what it is asked for; /no is refused."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[tuple[str, str | None]]]

    def do_GET(self):
        self.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(503 if self.path == "/no" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args):
        pass


@pytest.fixture
def site():
    class Own(Site):
        asked: ClassVar[list[tuple[str, str | None]]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1], Own.asked
        server.shutdown()
        thread.join()


def test_the_client_goes_through_the_list(site):
    port, asked = site
    requests = [Request(port, f"/{one}?a=b%2Fc", {"Authorization": "Bearer x"}) for one in range(3)]
    assert latency(requests, 0.3).count == len(asked)
    expected = itertools.islice(itertools.cycle(range(3)), len(asked))
    assert asked == [(f"/{one}?a=b%2Fc", "Bearer x") for one in expected]


def test_a_refusal_is_no_answer(site):
    with pytest.raises(RefusedError, match="503"):
        answer(Request(site[0], "/no"))


@pytest.mark.bench
@needing("wrk")
def test_wrk_goes_through_the_list(site):
    port, asked = site
    requests = [Request(port, f"/{one}?a=b%2Fc", {"Authorization": "Bearer x"}) for one in range(5)]
    measured = load(requests, 1, 1)
    assert measured is not None
    assert measured.rate > 0
    assert measured.p50 <= measured.p99
    # wrk makes one request more than it sends.
    assert asked[:6] == [(f"/{one}?a=b%2Fc", "Bearer x") for one in (1, 2, 3, 4, 0, 1)]


@pytest.mark.bench
@needing("wrk")
def test_refusals_do_not_count_as_answers_of_wrk(site):
    with pytest.raises(RuntimeError, match="wrk"):
        load([Request(site[0], "/no")], 2, 1)


def test_the_file_for_wrk_has_a_path_a_line(tmp_path):
    file = write_paths([Request(1, "/a?b=c"), Request(1, "/d")], tmp_path / "paths")
    assert file.read_text() == "/a?b=c\n/d\n"


@pytest.mark.parametrize("output", ["", "connection refused", '{"requests": 0, "refused": 0, "broken": 0}'])
def test_no_report_is_an_error(output):
    with pytest.raises(RuntimeError):
        read_report(output)
