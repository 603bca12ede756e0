"""Tests of live queries: they are evaluated once for all viewers, and end for each viewer that must leave."""

import asyncio
import gzip
import json

import pytest
from tests.support.asgi import send
from tests.support.frames import samples
from tests.support.waiting import until
from tests.unit.server.test_session import cookie_of, sign_in

from jobmeter.access.call import Call
from jobmeter.access.principal import Scope
from jobmeter.errors import NotFoundError, ThrottledError, UnauthenticatedError
from jobmeter.query.request import JobRef, LogQuestion
from jobmeter.server import live
from jobmeter.server.admission import Lane
from jobmeter.server.exchange import Exchange
from jobmeter.server.live import Feed, Hub, Update
from jobmeter.server.native import live_logs
from jobmeter.server.native.live_logs import NewestLines

BASE = "/api/jobmeter/v1"
_GPU = {"metric": "gpu.utilization", "job": "j1", "replica": "worker-0", "node": "n1", "device": "gpu0"}


class Sink(Exchange):
    """Exchange of a viewer, which keeps the sent bytes."""

    def __init__(self, *headers):
        self.call = Call("GET", "/", "", headers)
        self.sent = b""
        self.over = False
        self.headers = {}

    async def begin(self, content_type, headers):
        assert content_type.startswith("text/event-stream")
        self.headers = dict(headers)

    async def send_part(self, chunk, patience, reader="client"):
        self.sent += chunk

    async def end(self):
        self.over = True

    @property
    def updates(self):
        return [line[6:] for line in self.sent.decode().splitlines() if line.startswith("data: ")]


@pytest.fixture
def lane():
    made = Lane("read", 4, 16)
    yield made
    made.close()


def feed(topic="job", question=lambda: Update(b"{}"), is_valid=lambda: None):
    return Feed(topic, question, is_valid)


def test_a_hundred_viewers_cost_one_question_an_interval(lane):
    asked = []

    def question():
        asked.append(1)
        return Update(b"%d" % len(asked), last=len(asked) == 3)

    async def look():
        hub = Hub(lane, seconds=0.001)
        sinks = [Sink() for _ in range(100)]
        await asyncio.gather(*(hub.send(feed(question=question), sink) for sink in sinks))
        return hub, sinks

    hub, sinks = asyncio.run(look())
    assert len(asked) == 3
    assert all(sink.over and sink.sent.endswith(b"event: end\ndata: {}\n\n") for sink in sinks)
    assert all(sink.updates[-2:] == ["3", "{}"] for sink in sinks)
    assert hub.viewers == 0


def test_who_takes_gzip_gets_the_same_updates_smaller_and_whole(lane):
    asked = []

    def question():
        asked.append(1)
        return Update(json.dumps({"values": [len(asked)] * 5_000}).encode(), last=len(asked) == 3)

    async def look():
        hub = Hub(lane, seconds=0.001)
        sinks = [
            Sink(),
            *(Sink(("accept-encoding", "br, gzip")) for _ in range(3)),
            Sink(("accept-encoding", "gzip;q=0")),
        ]
        await asyncio.gather(*(hub.send(feed(question=question), sink) for sink in sinks))
        return sinks

    plain, *packed, refusing = asyncio.run(look())
    assert plain.updates[-1] == "{}"
    assert "content-encoding" not in plain.headers | refusing.headers
    assert refusing.sent == plain.sent
    for sink in packed:
        assert sink.over
        assert sink.headers["content-encoding"] == "gzip"
        assert gzip.decompress(sink.sent) == plain.sent
        assert len(sink.sent) < len(plain.sent) / 20


def test_whose_credential_ends_is_sent_away_and_the_others_stay(lane):
    valid = {"yes": True}

    def is_valid():
        if not valid["yes"]:
            raise UnauthenticatedError("the key was revoked", "revoked")

    async def look():
        hub, stays, goes = Hub(lane, seconds=0.001), Sink(), Sink()
        staying = asyncio.create_task(hub.send(feed(), stays))
        going = asyncio.create_task(hub.send(feed(is_valid=is_valid), goes))
        await until(lambda: len(goes.updates) > 1)
        valid["yes"] = False
        await going
        before = len(stays.updates)
        await until(lambda: len(stays.updates) > before)
        hub.close()
        await staying
        return goes, stays

    goes, stays = asyncio.run(look())
    assert goes.sent.endswith(b"event: refused\ndata: {}\n\n")
    assert b"refused" not in stays.sent
    assert stays.over


def test_a_job_that_is_deleted_ends_its_viewers(lane):
    def question():
        raise NotFoundError("there is no job j1", "job", "j1")

    async def look():
        sink = Sink()
        await Hub(lane, seconds=0.001).send(feed(question=question), sink)
        return sink

    assert asyncio.run(look()).sent.endswith(b"event: end\ndata: {}\n\n")


def test_there_are_at_most_so_many_viewers_and_none_once_it_is_closed(lane):
    async def look():
        hub = Hub(lane, seconds=0.001, most=1)
        first = asyncio.create_task(hub.send(feed(), Sink()))
        await until(lambda: hub.viewers == 1)
        with pytest.raises(ThrottledError):
            await hub.send(feed("other"), Sink())
        hub.close()
        await first
        with pytest.raises(ThrottledError):
            await hub.send(feed(), Sink())

    asyncio.run(look())


def test_at_the_limit_of_topics_another_viewer_of_one_of_them_may_look(lane, monkeypatch):
    monkeypatch.setattr(live, "MOST_TOPICS", 2)

    async def look():
        hub, sinks = Hub(lane, seconds=0.001), [Sink() for _ in range(5)]
        looking = [asyncio.create_task(hub.send(feed(topic), sink)) for topic, sink in zip("abbba", sinks, strict=True)]
        await until(lambda: all(len(sink.updates) > 1 for sink in sinks))
        with pytest.raises(ThrottledError, match="2 different live views"):
            await hub.send(feed("c"), Sink())
        looking[0].cancel()
        looking[4].cancel()
        await asyncio.gather(*looking[::4], return_exceptions=True)
        other = asyncio.create_task(hub.send(feed("c"), last := Sink()))
        await until(lambda: len(last.updates) > 1)
        hub.close()
        await asyncio.gather(*looking[1:4], other)
        assert hub.viewers == 0

    asyncio.run(look())


def test_without_viewers_nothing_is_queried(lane):
    asked = []

    def question():
        asked.append(1)
        return Update(b"{}")

    async def look():
        hub, sink = Hub(lane, seconds=0.001), Sink()
        looking = asyncio.create_task(hub.send(feed(question=question), sink))
        await until(lambda: len(sink.updates) > 1)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        before = len(asked)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        return before

    assert len(asked) - asyncio.run(look()) <= 1


def events(reply):
    return [
        json.loads(line[6:])
        for line in reply.body.decode().splitlines()
        if line.startswith("data: {") and line != "data: {}"
    ]


def test_a_finished_job_is_reported_once_and_ends(server):
    now = server.clock.now_ms()
    server.ingest(samples([(_GPU, [(now - 2000, 0.5), (now - 1000, 0.7)])]))
    server.call("POST", "/jobs", {"job_id": "j1", "state": "Succeeded", "end": now})
    reply = server.call("GET", "/jobs/j1/live?metric=gpu.utilization&step=1s")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    (event,) = events(reply)
    assert event["job"]["state"] == "Succeeded"
    (line,) = event["lines"]
    assert (line["device"], [value for _, value in line["points"]]) == ("gpu0", [0.5, 0.7])
    (event,) = events(server.call("GET", "/jobs/j1/live?metric=gpu.utilization&step=1s&format=columns"))
    (columns,), (times,) = event["lines"], event["timelines"]
    assert [list(pair) for pair in zip(times, columns["values"], strict=True)] == line["points"]


def test_one_sees_live_what_one_may_see(server):
    server.call("POST", "/jobs", {"job_id": "j1", "state": "Succeeded", "end": server.clock.now_ms()})
    stranger = server.key("reader", "team-b")
    assert server.call("GET", "/jobs/j1/live", key=stranger).status == 404
    assert server.raw("GET", f"{BASE}/jobs/j1/live").status == 401
    assert server.call("GET", "/jobs/j1/live?step=2s").status == 400


def test_the_list_reports_running_jobs_and_what_they_use(server):
    now = server.clock.now_ms()
    server.ingest(samples([(_GPU, [(now - 1000, 0.25)])]))
    server.call(
        "POST",
        "/jobs",
        [{"job_id": "j1", "state": "Running", "start": now - 5000}, {"job_id": "j2", "state": "Failed"}],
    )
    happened = {
        "job": "j1",
        "time": now,
        "reason": "Finding",
        "level": "error",
        "message": "straggler_rank (job j1): so",
    }
    server.call("POST", "/jobs", {"events": [happened]})
    cookie = cookie_of(sign_in(server, f"Bearer {server.admin.token}"))

    async def look():
        looking = send(server.application, "GET", f"{BASE}/live/jobs", headers={"Cookie": cookie}, gone_after=0.5)
        return await looking

    (event, *_) = events(asyncio.run(look()))
    assert {job["id"]: job["state"] for job in event["jobs"]} == {"j1": "Running", "j2": "Failed"}
    assert event["running"] == 1
    assert [(use["id"], use["values"][0]["metric"], use["values"][0]["value"]) for use in event["use"]] == [
        ("j1", "gpu.utilization", 0.25)
    ]
    assert [(one["id"], one["severity"], one["rules"]) for one in event["findings"]] == [
        ("j1", "critical", ["straggler_rank"])
    ]


def followed(server, monkeypatch, path, query):
    """Return the events of two viewers of one log and of a third with another search: two queries for three viewers."""
    cookie = cookie_of(sign_in(server, f"Bearer {server.admin.token}"))
    made, update = [], NewestLines.__call__

    def counted(newest):
        made.append(newest)
        return update(newest)

    monkeypatch.setattr(NewestLines, "__call__", counted)

    async def look(searched=""):
        where = f"{BASE}{path}{searched}"
        return await send(server.application, "GET", where, headers={"Cookie": cookie}, gone_after=0.5)

    async def together():
        return await asyncio.gather(look(), look(), look(query))

    first, second, other = map(events, asyncio.run(together()))
    assert first == second
    assert len(made) == 2
    return first, other


def test_the_log_is_followed_with_one_question_for_all_of_the_same_search(server, monkeypatch):
    now = server.clock.now_ms()
    server.call("POST", "/jobs", {"job_id": "j1", "state": "Running", "start": now - 60_000})
    lines = [{"text": f"step {n}", "time": now - 50_000 + n * 1_000, "level": "info"} for n in range(50)]
    lines.append({"text": "nan", "time": now - 500, "level": "error"})
    assert server.call("POST", "/jobs/j1/logs", {"lines": lines}).status == 200
    first, errors = followed(server, monkeypatch, "/jobs/j1/logs/live", "?level=error")
    assert [line["text"] for line in first[0]["lines"]] == [line["text"] for line in lines]
    assert [line["text"] for line in errors[0]["lines"]] == ["nan"]
    stranger = server.key("reader", "team-b")
    assert server.call("GET", "/jobs/j1/logs/live", key=stranger).status == 404
    assert server.call("GET", "/jobs/j1/logs/live?level=loud").status == 400


def test_a_later_update_holds_what_came_since_shortly_before(server):
    now = server.clock.now_ms()
    server.call("POST", "/jobs", {"job_id": "j1", "state": "Running", "start": now - 600_000})

    def push(*lines):
        body = {"lines": [{"text": text, "time": now - back} for text, back in lines]}
        assert server.call("POST", "/jobs/j1/logs", body).status == 200

    newest = NewestLines(server.application.services, Scope(projects=None), LogQuestion(ref=JobRef("j1", "default")))

    def texts():
        return [line.text for line in newest().lines]

    push(("old", 300_000), ("near", 15_000), ("last", 1_000))
    assert texts() == ["old", "near", "last"]
    push(("late", 10_000), ("newest", 0))
    assert texts() == ["near", "late", "last", "newest"]


def test_the_log_of_a_job_that_has_ended_is_sent_whole_and_ends(server):
    now = server.clock.now_ms()
    server.call("POST", "/jobs", {"job_id": "j1", "state": "Succeeded", "start": now - 600_000, "end": now})
    server.call("POST", "/jobs/j1/logs", {"lines": [{"text": "bye", "time": now - 1_000}]})
    reply = server.call("GET", "/jobs/j1/logs/live")
    assert reply.body.decode().endswith("event: end\ndata: {}\n\n")
    [update] = events(reply)[:1]
    assert ([line["text"] for line in update["lines"]], update["start"], update["counts"]) == (["bye"], None, [])


def test_an_update_counts_the_lines_that_it_has_no_room_for(server, monkeypatch):
    monkeypatch.setattr(live_logs, "MOST_LINES", 5)
    now = server.clock.now_ms() // 1_000 * 1_000
    server.call("POST", "/jobs", {"job_id": "j1", "state": "Running", "start": now - 600_000})

    def push(count, at):
        lines = [{"text": f"{at} {number}", "time": at} for number in range(count)]
        assert server.call("POST", "/jobs/j1/logs", {"lines": lines}).status == 200

    newest = NewestLines(server.application.services, Scope(projects=None), LogQuestion(ref=JobRef("j1", "default")))
    push(3, now - 30_000)
    update = newest()
    assert (update.start, update.counts) == (None, []), "all that there are"
    push(7, now - 20_000)
    push(4, now - 19_000)
    update = newest()
    assert [line.time for line in update.lines] == [now - 20_000] + 4 * [now - 19_000]
    expected = [(now - 30_000, 3), (now - 20_000, 7), (now - 19_000, 4)]
    assert [(one.time, one.lines) for one in update.counts] == expected
    assert update.start <= now - 30_000
    monkeypatch.setattr(live_logs, "MOST_COUNTED", 6)
    update = newest()
    assert (update.start, [one.lines for one in update.counts]) == (now - 19_000, [4]), "from where on it has counted"
    first = NewestLines(server.application.services, Scope(projects=None), LogQuestion(ref=JobRef("j1", "default")))()
    assert (first.start, first.counts) == (now - 19_000, [])


def test_the_system_log_of_a_node_is_followed_with_one_question_for_all(server, monkeypatch):
    lines = [{"text": f"line {number}", "severity": "info"} for number in range(3)]
    lines.append({"text": "NVRM: Xid 79", "severity": "err", "stream": "kernel"})
    assert server.call("POST", "/nodes/n1/logs", {"lines": lines}).status == 200
    first, faults = followed(server, monkeypatch, "/nodes/n1/logs/live", "?query=xid&severity=err")
    assert [line["text"] for line in first[0]["lines"]] == [line["text"] for line in lines]
    assert (first[0]["node"], first[0]["counts"]) == ("n1", [])
    assert [line["text"] for line in faults[0]["lines"]] == ["NVRM: Xid 79"]


def test_the_system_log_is_followed_by_those_who_may_read_it(server):
    assert server.call("POST", "/nodes/n1/logs", {"lines": [{"text": "hello"}]}).status == 200
    path = "/nodes/n1/logs/live"
    assert server.call("GET", path, key=server.key("reader", "team-b")).status == 404
    assert server.call("GET", "/nodes/none-such/logs/live").status == 404
    assert server.call("POST", "/jobs", {"job_id": "j1"}).status == 200
    token = server.call("POST", "/jobs/j1/share").json()["token"]
    assert server.raw("GET", f"{BASE}{path}?Token={token}").status == 401
    assert server.call("GET", f"{path}?severity=loud").status == 400


def test_the_list_names_the_users_with_idle_devices_and_critical_findings(server):
    now = server.clock.now_ms()
    jobs = [{"job_id": f"j{at}", "state": "Running", "user": user} for at, user in enumerate(["lin", "ada", "eve"])]
    opened = {"time": now, "reason": "Finding", "subject": "device n1/gpu0"}
    idle, xid = ("gpu_idle_allocated", "warning"), ("xid", "error")
    found = [
        {**opened, "job": job, "level": level, "message": f"{rule} (device n1/gpu0): so"}
        for job, rule, level in (("j0", *xid), ("j1", *idle))
    ]
    server.call("POST", "/jobs", {"jobs": jobs, "events": found})
    cookie = cookie_of(sign_in(server, f"Bearer {server.admin.token}"))
    looking = send(server.application, "GET", f"{BASE}/live/jobs", headers={"Cookie": cookie}, gone_after=0.5)
    (event, *_) = events(asyncio.run(looking))
    assert event["users"] == [
        {"user": "ada", "critical": 0, "idle_devices": 1},
        {"user": "lin", "critical": 1, "idle_devices": 0},
    ]
    assert (event["critical"], event["idle_devices"]) == (1, 1)
