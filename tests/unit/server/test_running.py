"""Tests of findings of running jobs: each is reported once at its start and once at its end, at a bounded cost."""

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.support.fakes import NOW
from tests.support.frames import samples

from jobmeter.errors import QueryTimeoutError, UnavailableError
from jobmeter.model.job import JobState
from jobmeter.model.log import LogLine
from jobmeter.model.time import HOUR, MINUTE, SECOND
from jobmeter.query.execute import Executor
from jobmeter.query.request import LogQuestion
from jobmeter.query.sampled import SampledQuestion
from jobmeter.server.diagnosing import SETTLE_MS, Diagnosing
from jobmeter.server.figures import iterate_finding_metrics
from jobmeter.server.running import (
    BUDGET_SECONDS,
    EVERY_SECONDS,
    IDLE_BUDGET_SECONDS,
    LIST_SECONDS,
    TOGETHER,
    RunningJobs,
)

STEP = 10 * SECOND
TURN = int(EVERY_SECONDS * SECOND)


def runs(job="j1", start=NOW - HOUR, **more):
    replicas = more.pop("replicas", [{"name": "w-0", "node": "n1", "state": "Running", "devices": ["gpu0"]}])
    for one in replicas:
        one.setdefault("start", start)
    return {"job_id": job, "state": "Running", "start": start, "replicas": replicas, **more}


def series(job="j1", replica="w-0", node="n1", **metrics):
    """Return rows of metrics, each a function of the time, over the last hour."""
    return lambda times: [
        (
            {"metric": name.replace("_", "."), "job": job, "replica": replica, "node": node},
            [(at, value(at)) for at in times],
        )
        for name, value in metrics.items()
    ]


def disk(node="n1", free=lambda _: 60.0):
    names = {"node.filesystem.size": lambda _: 100.0, "node.filesystem.available": free}
    return lambda times: [
        ({"metric": name, "node": node}, [(at, value(at)) for at in times]) for name, value in names.items()
    ]


def busy(at):
    return 1.0 + 0.2 * math.sin(at)


def parts(server):
    services = server.application.services
    return {name: getattr(services, name) for name in ("executor", "registry", "thresholds", "clock")}


def watcher(server, **changes):
    """Return the diagnosis of another server on the same data."""
    return RunningJobs(**{**parts(server), **changes})


def work(server):
    return next(one.work for one in server.application.background if one.work.name == "findings")


def finding_events(server, job="j1"):
    page = server.call("GET", f"/jobs/{job}/events?limit=1000").json()
    events = [one for one in page["events"] if one["reason"] in {"Finding", "FindingEnded"}]
    return [(one["reason"], one["message"].partition(" ")[0]) for one in sorted(events, key=lambda one: one["time"])]


class Course:
    """Passing time: samples arrive every ten seconds, and the server runs its rounds."""

    def __init__(self, server, *rows):
        self.server, self.rows = server, rows
        self.sent = server.clock.time_ms

    def put(self, since, until):
        rows = [one for make in self.rows for one in make(range(since, until, STEP))]
        assert self.server.ingest(samples(rows)).status == 200

    def go(self, length, work=None):
        turn = min(length, MINUTE)
        for _ in range(0, length, turn):
            self.server.clock.time_ms += turn
            self.put(self.sent, self.server.clock.time_ms)
            self.sent = self.server.clock.time_ms
            (work or self.own).round()

    @property
    def own(self):
        return work(self.server)


def test_a_filesystem_that_fills_up_is_reported_findings_once_and_once_more_when_there_is_room(server):
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1"}]})
    full = NOW + 10 * MINUTE
    free = disk(free=lambda at: 1.0 if full <= at < full + 20 * MINUTE else 60.0)
    course = Course(server, series(cpu_usage=busy), free)
    course.go(9 * MINUTE)
    assert finding_events(server) == []
    course.go(20 * MINUTE)
    assert finding_events(server) == [("Finding", "fs_full")]
    [event] = [one for one in server.call("GET", "/jobs/j1/events").json()["events"] if one["reason"] == "Finding"]
    assert (event["level"], event["object"]) == ("error", {"kind": "filesystem", "name": "n1:"})
    course.go(4 * MINUTE)
    assert finding_events(server) == [("Finding", "fs_full")]  # the filesystem has been free for too short a time
    course.go(30 * MINUTE)
    assert finding_events(server) == [("Finding", "fs_full"), ("FindingEnded", "fs_full")]
    moments = server.call("GET", "/jobs/j1/timeline?kind=event&kind=finding").json()
    assert [(one["kind"], one["name"]) for one in moments] == [("finding", "fs_full"), ("event", "FindingEnded")]


def xid(code, at=NOW + 5 * MINUTE):
    message = f"NVRM: Xid (PCI:0000:9b:00): {code}, pid=1234"
    event = {"time": at, "node": "n1", "source": "node", "reason": "Xid", "level": "error", "message": message}
    return {**event, "subject": "device 0000:9b:00"}


@pytest.mark.parametrize(("code", "severity"), [(79, "critical"), (92, "warning")])
def test_a_broken_device_is_open_while_the_job_has_it(server, code, severity):
    """Only a reset repairs a device: its error stays open while the job runs on it."""
    node = {"name": "n1", "info": {"devices": [{"device": "gpu0", "pci": "0000:9b:00"}]}}
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [node]})
    course = Course(server, series(cpu_usage=busy))
    course.go(6 * MINUTE)
    server.call("POST", "/jobs", {"events": [xid(code)]})
    course.go(MINUTE)
    assert finding_events(server) == [("Finding", "xid")]
    course.go(40 * MINUTE)
    [listed] = server.call("GET", "/jobs?findings=true").json()["findings"]
    assert (listed["severity"], listed["open"]) == (severity, severity == "critical")
    moved = runs(replicas=[{"name": "w-0", "node": "n2", "state": "Running", "devices": ["gpu0"], "attempt": 1}])
    gone = {"name": "w-0", "node": "n1", "state": "Failed", "start": NOW - HOUR, "end": server.clock.time_ms}
    moved["replicas"].append(gone)
    server.call("POST", "/jobs", {"jobs": [moved]})
    course.rows = (series(cpu_usage=busy, node="n2"),)
    course.go(2 * MINUTE)
    assert finding_events(server) == [("Finding", "xid"), ("FindingEnded", "xid")]


def test_a_hang_is_open_for_as_long_as_it_lasts_and_is_shown_when_it_is_over(server):
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1"}]})
    stop, again = NOW + 10 * MINUTE, NOW + 100 * MINUTE
    course = Course(server, series(cpu_usage=lambda at: 0.001 if stop <= at < again else busy(at)), disk())
    course.go(15 * MINUTE)
    assert finding_events(server) == []
    course.go(80 * MINUTE)  # longer than the span of each evaluation
    assert finding_events(server) == [("Finding", "hang_hw")]
    [one] = server.call("GET", "/jobs/j1/findings").json()
    assert (one["rule"], one["severity"]) == ("hang_hw", "critical")
    assert len(one["evidence"]) == 1
    assert one["evidence"][0]["kind"] == "metric"
    course.go(20 * MINUTE)
    assert finding_events(server) == [("Finding", "hang_hw"), ("FindingEnded", "hang_hw")]
    [one] = server.call("GET", "/jobs/j1/findings").json()  # no rule finds it any more
    assert (one["rule"], one["evidence"][0]["kind"]) == ("hang_hw", "event")
    assert abs(one["start"] - stop) <= STEP  # the time at which the fault began, not of its report
    assert again <= one["end"] < again + 7 * MINUTE
    moments = server.call("GET", "/jobs/j1/timeline?kind=finding").json()
    assert [one["name"] for one in moments] == ["hang_hw"]


def test_a_hang_has_its_evidence_collected_once_and_a_full_filesystem_has_not(server):
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1"}]})
    stop = NOW + 10 * MINUTE
    course = Course(server, series(cpu_usage=lambda at: 0.001 if at >= stop else busy(at)), disk(free=lambda _: 1.0))
    course.go(15 * MINUTE)
    assert finding_events(server) == [("Finding", "fs_full")]
    assert server.call("GET", "/tasks").json()["total"] == 0
    course.go(30 * MINUTE)
    assert sorted(finding_events(server)) == [("Finding", "fs_full"), ("Finding", "hang_hw")]
    [task] = server.call("GET", "/tasks").json()["tasks"]
    assert (task["type"], task["job"], task["nodes"]) == ("stacks", "j1", ["n1"])


def test_ranks_that_stand_still_for_a_minute_have_their_stacks_compared_and_these_may_show_the_hang(server):
    members = [{"name": f"w-{rank}", "node": "n1", "state": "Running"} for rank in range(3)]
    server.call("POST", "/jobs", {"jobs": [runs(replicas=members)], "nodes": [{"name": "n1"}]})
    stop = NOW + 10 * MINUTE

    def level(at):
        return 0.001 if at >= stop else busy(at)

    course = Course(server, *(series(replica=one["name"], cpu_usage=level) for one in members))
    course.go(10 * MINUTE)
    assert server.call("GET", "/tasks").json()["total"] == 0
    course.go(MINUTE)
    [task] = server.call("GET", "/tasks").json()["tasks"]
    assert (task["type"], task["job"]) == ("stacks", "j1")
    assert finding_events(server) == []
    text = "w-1 is not in the collective"
    for replica in ("", "w-1"):
        event = {"time": server.clock.time_ms, "job": "j1", "replica": replica, "level": "warning", "message": text}
        server.call("POST", "/jobs", {"events": [{**event, "reason": "StackEvidence"}]})
    course.go(2 * MINUTE)
    assert finding_events(server) == [("Finding", "hang_hw")]
    [one] = server.call("GET", "/jobs/j1/findings").json()
    assert one["sentence"] == text
    assert abs(one["start"] - stop) <= MINUTE
    course.go(25 * MINUTE)
    assert finding_events(server) == [("Finding", "hang_hw")]
    assert server.call("GET", "/tasks").json()["total"] == 1


def test_a_job_that_stands_still_again_and_again_has_its_stacks_compared_less_and_less_often(server):
    members = [{"name": f"w-{rank}", "node": "n1", "state": "Running"} for rank in range(2)]
    server.call("POST", "/jobs", {"jobs": [runs(replicas=members)], "nodes": [{"name": "n1"}]})

    def level(at):
        return 0.001 if at // (5 * MINUTE) % 2 else busy(at)

    course = Course(server, *(series(replica=one["name"], cpu_usage=level) for one in members))
    course.go(3 * HOUR)
    assert finding_events(server) == []
    assert 3 <= server.call("GET", "/tasks").json()["total"] <= 6


@pytest.mark.parametrize("silent", [True, False])
def test_silent_ranks_have_their_stacks_collected_before_hang_log_opens(server, silent):
    members = [{"name": f"w-{rank}", "node": "n1", "state": "Running"} for rank in range(2)]
    server.call("POST", "/jobs", {"jobs": [runs(replicas=members)], "nodes": [{"name": "n1"}]})
    end = NOW if silent else NOW + HOUR
    lines: list[dict[str, Any]] = [
        {"text": "step", "time": at, "replica": "w-1"} for at in range(NOW - 40 * MINUTE, end, MINUTE)
    ]
    course = Course(server, *(series(replica=one["name"], cpu_usage=busy) for one in members))
    server.call("POST", "/jobs/j1/logs", {"lines": [one for one in lines if one["time"] < NOW]})

    def go(length):
        since = server.clock.time_ms
        course.go(length)
        own = [one for one in lines if since <= one["time"] < server.clock.time_ms]
        if own:
            server.call("POST", "/jobs/j1/logs", {"lines": own})

    for _ in range(2):
        go(3 * MINUTE)
    assert server.call("GET", "/tasks").json()["total"] == 0
    for _ in range(3):
        go(3 * MINUTE)
    assert server.call("GET", "/tasks").json()["total"] == int(silent)
    assert finding_events(server) == []
    for _ in range(7):
        go(3 * MINUTE)
    assert finding_events(server) == ([("Finding", "hang_log")] if silent else [])
    assert server.call("GET", "/tasks").json()["total"] <= 3 * int(silent)
    for _ in range(3):
        go(3 * MINUTE)
    assert finding_events(server) == ([("Finding", "hang_log")] if silent else [])


def test_memory_near_its_limit_and_a_fault_of_a_device_are_reported(server):
    devices = [{"device": "gpu0", "name": "NVIDIA H200", "pci": "0000:3b:00"}]
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1", "info": {"devices": devices}}]})
    course = Course(server, series(cpu_usage=busy, memory_utilization=lambda at: 0.97 if at > NOW else 0.5))
    course.go(MINUTE)
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus. - it is gone. Reboot."
    event = {"time": server.clock.time_ms, "node": "n1", "source": "node", "reason": "Xid", "message": line}
    other = {**event, "node": "n2"}
    server.call("POST", "/jobs", {"events": [event, other]})
    course.go(5 * MINUTE)
    assert sorted(finding_events(server)) == [("Finding", "host_mem_near_limit"), ("Finding", "xid")]
    found = {one["rule"]: one for one in server.call("GET", "/jobs/j1/findings").json()}
    assert found["xid"]["subject"] == {"kind": "device", "name": "n1/gpu0"}
    assert found["xid"]["sentence"] == "w-0 (n1, gpu0): XID 79: the GPU has fallen off the bus"
    assert found["xid"]["replicas"] == ["w-0"]
    assert found["xid"]["severity"] == "critical"


def test_a_replica_that_ran_out_of_device_memory_is_reported_while_the_others_run(server):
    replicas = [{"name": f"w-{at}", "node": "n1", "state": "Running"} for at in range(2)]
    server.call("POST", "/jobs", {"jobs": [runs(replicas=replicas)], "nodes": [{"name": "n1"}]})
    course = Course(server, *(series(replica=f"w-{at}", cpu_usage=busy) for at in range(2)))
    course.go(MINUTE)
    end = server.clock.time_ms
    ended = {"name": "w-1", "state": "Failed", "exit_code": 1, "end": end}
    server.call("POST", "/jobs", {"jobs": [{"job_id": "j1", "replicas": [ended]}]})
    line = {"text": "RuntimeError: CUDA out of memory.", "time": end - 100, "replica": "w-1", "level": "error"}
    server.call("POST", "/jobs/j1/logs", {"lines": [line]})
    course.rows = course.rows[:1]
    course.go(2 * MINUTE)
    assert finding_events(server) == [("Finding", "cuda_oom")]


def test_a_server_that_starts_anew_reports_nothing_twice_and_closes_what_another_opened(server):
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1"}]})
    course = Course(server, series(cpu_usage=busy), disk(free=lambda at: 1.0 if at < NOW + 10 * MINUTE else 60.0))
    course.go(5 * MINUTE)
    assert finding_events(server) == [("Finding", "fs_full")]
    second = watcher(server)
    course.go(4 * MINUTE, second)
    assert finding_events(server) == [("Finding", "fs_full")]
    assert second.open_findings == 1
    course.go(40 * MINUTE, second)
    assert finding_events(server) == [("Finding", "fs_full"), ("FindingEnded", "fs_full")]


def test_of_two_servers_one_does_it_and_the_other_goes_on_when_its_lease_has_ended(server):
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1"}]})
    first, second = (watcher(server, shared=True) for _ in range(2))
    course = Course(server, series(cpu_usage=busy), disk(free=lambda _: 1.0))
    course.go(TURN, first)
    second.round()
    assert (first.figures.evaluations, second.figures.evaluations) == (1, 0)
    course.go(TURN, second)
    course.go(TURN, second)
    assert second.figures.evaluations > 0
    first.round()
    assert first.figures.evaluations == 1
    assert finding_events(server) == [("Finding", "fs_full")]


def test_the_end_of_a_job_closes_what_is_open_and_reports_nothing_a_second_time(server):
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1"}]})
    course = Course(server, series(cpu_usage=busy), disk(free=lambda _: 1.0))
    course.go(2 * MINUTE)
    end = server.clock.time_ms
    ended = {"name": "w-0", "state": "Failed", "exit_code": 3, "end": end}
    server.call("POST", "/jobs", {"jobs": [{"job_id": "j1", "state": "Failed", "end": end, "replicas": [ended]}]})
    diagnosing = next(one.work for one in server.application.background if one.work.name == "diagnose")
    for _ in range(4):
        diagnosing.round()
        server.clock.time_ms += SETTLE_MS
        work(server).round()
    assert sorted(finding_events(server)) == [
        ("Finding", "fs_full"),
        ("Finding", "unknown_exit"),
        ("FindingEnded", "fs_full"),
    ]
    assert work(server).open_findings == 0
    events = server.call("GET", "/jobs/j1/events").json()["events"]
    [closed] = [one for one in events if one["reason"] == "FindingEnded"]
    assert closed["time"] == end
    assert "the job ended with it" in closed["message"]
    # A server that starts now finds that the job was evaluated.
    again = Diagnosing(**parts(server))
    again.round()
    server.clock.time_ms += SETTLE_MS
    again.round()
    assert len(finding_events(server)) == 3


class Counting(Executor):
    """Executor that counts the questions of each kind; each question for samples takes ``cost`` milliseconds."""

    def __init__(self, executor, clock=None, cost=0):
        """Wrap another executor."""
        self.executor, self.clock, self.cost = executor, clock, cost
        self.asked, self.order, self.failing = {}, [], set()
        self.cpu, self.load = 0.0, 0.0

    def run(self, question, scope):
        kind = type(question)
        self.asked[kind] = self.asked.get(kind, 0) + 1
        if kind is SampledQuestion:
            self.order.append(question.query.subject.id)
            if self.clock:
                self.clock.time_ms += self.cost
                self.cpu += self.load * self.cost / SECOND
            if question.query.subject.id in self.failing:
                raise QueryTimeoutError("it takes too long")
        return self.executor.run(question, scope)


@pytest.fixture
def counting(server):
    executor = Counting(server.application.services.executor)
    # The process has no other work, unless a test sets some.
    return watcher(server, executor=executor, others_cpu=lambda: executor.cpu), executor


def many(server, count):
    jobs = [runs(f"j{at}", replicas=[{"name": "w-0", "node": f"n{at % 8}"}]) for at in range(count)]
    server.call("POST", "/jobs", {"jobs": jobs, "nodes": [{"name": f"n{at}"} for at in range(8)]})
    return Course(server, *(series(f"j{at}", node=f"n{at % 8}", cpu_usage=busy) for at in range(count)))


def test_of_a_job_one_question_of_samples_is_queried_and_only_where_there_are_new_ones(server, counting):
    own, executor = counting
    course = many(server, 20)
    course.go(TURN, own)
    assert executor.asked[SampledQuestion] == 20
    assert LogQuestion not in executor.asked
    others = sum(executor.asked.values()) - executor.asked[SampledQuestion]
    # The list of jobs, their own records, and the reads for groups of jobs.
    assert others <= 1 + 20 + 4 * math.ceil(20 / TOGETHER)
    for _ in range(3):
        server.clock.time_ms += TURN
        own.round()
    assert executor.asked[SampledQuestion] == 20
    course.rows = course.rows[:5]
    course.go(TURN, own)
    assert executor.asked[SampledQuestion] == 25


def test_a_job_is_not_looked_at_before_its_turn(server, counting):
    own, executor = counting
    course = many(server, 3)
    course.go(TURN, own)
    evaluations = []
    for _ in range(6):
        server.clock.time_ms += int(LIST_SECONDS * SECOND)
        course.put(server.clock.time_ms - 2 * STEP, server.clock.time_ms)
        own.round()
        evaluations.append(len(executor.order))
    assert evaluations == [3, 3, 6, 6, 6, 9]


def executed(work: Callable[[], object]) -> int:
    """Count the lines of Python that the work executes."""
    count, before = 0, sys.gettrace()

    def trace(_frame: FrameType, event: str, _value: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_round_does_not_go_through_the_jobs_that_have_nothing_new(server, counting):
    own, executor = counting
    lines = []
    for count in (10, 40):
        many(server, count).go(TURN, own)
        own.round()
        lines.append(executed(own.round))  # a round without a new list of jobs
    assert lines[0] == lines[1]
    assert len(executor.order) == 10 + 40


def test_a_round_ends_when_its_time_is_over_and_the_next_begins_with_who_waits_longest(server, counting):
    own, executor = counting
    count, cost = 3 * TOGETHER + 5, 21
    many(server, count).put(NOW - MINUTE, NOW)
    executor.clock, executor.cost, executor.load = server.clock, cost, 0.5
    each = math.ceil(BUDGET_SECONDS * SECOND / cost)
    own.round()
    assert len(executor.order) == each < TOGETHER
    waited = own.oldest_seconds
    assert waited > 0
    for rounds in range(2, math.ceil(count / each) + 1):
        server.clock.time_ms += SECOND
        own.round()
        assert len(executor.order) == min(rounds * each, count)
    assert sorted(executor.order) == sorted(f"j{at}" for at in range(count))
    assert own.oldest_seconds == 0
    assert own.figures.evaluations == count


def test_a_process_that_does_little_else_evaluates_more_jobs_in_a_round(server, counting):
    own, executor = counting
    count, cost = 4 * TOGETHER, 19
    many(server, count).put(NOW - MINUTE, NOW)
    executor.clock, executor.cost = server.clock, cost
    own.round()
    assert len(executor.order) == math.ceil(IDLE_BUDGET_SECONDS * SECOND / cost) > 3 * TOGETHER
    server.clock.time_ms += SECOND
    own.round()
    assert sorted(executor.order) == sorted(f"j{at}" for at in range(count))


def test_a_job_that_cannot_be_looked_at_holds_up_no_other(server, counting):
    own, executor = counting
    course = many(server, 4)
    executor.failing = {"j2"}
    course.go(TURN, own)
    course.go(TURN, own)
    assert executor.order.count("j2") == 2
    assert (own.figures.failures, own.figures.evaluations) == (2, 8)


def test_what_could_not_be_reported_is_reported_the_next_time(server):
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1"}]})

    class Away:
        def __init__(self, registry):
            self.registry, self.away = registry, True

        def __getattr__(self, name):
            return getattr(self.registry, name)

        def record(self, *given):
            if self.away:
                raise UnavailableError("it is away")
            return self.registry.record(*given)

    registry = Away(server.application.services.registry)
    made = watcher(server, registry=registry)
    course = Course(server, series(cpu_usage=busy), disk(free=lambda _: 1.0))
    with pytest.raises(UnavailableError):
        course.go(TURN, made)
    assert finding_events(server) == []
    registry.away = False
    course.go(TURN, made)
    course.go(TURN, made)
    assert finding_events(server) == [("Finding", "fs_full")]


def test_a_job_that_ended_or_was_deleted_between_is_left_out(server, counting):
    own, executor = counting
    course = many(server, 3)
    course.go(TURN, own)
    server.call("POST", "/jobs", {"jobs": [{"job_id": "j0", "state": JobState.SUCCEEDED, "end": NOW}]})
    server.call("DELETE", "/jobs/j1")
    course.rows = course.rows[2:]
    course.go(TURN, own)
    course.go(TURN, own)
    assert executor.order.count("j2") == 3
    assert executor.order.count("j0") == executor.order.count("j1") == 1
    assert own.figures.jobs == 1


def test_its_figures_are_among_the_servers_own(server):
    course = many(server, 2)
    course.go(TURN)
    course.go(TURN)
    text = server.raw("GET", "/metrics").body.decode()
    assert "jobmeter_findings_jobs 2.0" in text
    assert "jobmeter_findings_evaluations_total 4.0" in text
    assert "jobmeter_findings_oldest_look_seconds 0.0" in text
    assert {one.name for one in iterate_finding_metrics(work(server))} >= {"jobmeter_findings_open"}


def test_a_line_of_the_kernel_and_the_event_made_of_it_are_one_piece_of_evidence(server):
    server.call("POST", "/jobs", {"jobs": [runs()], "nodes": [{"name": "n1"}]})
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
    at = NOW - MINUTE
    event = {"time": at, "node": "n1", "source": "node", "reason": "Xid", "message": f"{line} - it is gone. Reboot."}
    server.call("POST", "/jobs", {"events": [event]})

    def evidence():
        [one] = server.call("GET", "/jobs/j1/findings").json()
        return one["rule"], [part["kind"] for part in one["evidence"]]

    assert evidence() == ("xid", ["status", "event"])
    sent = LogLine(time_ns=at * 1_000_000 + 7, text=line, node="n1", stream="kernel", facility="kern", severity=3)
    server.application.services.store.logs.append([sent])
    assert evidence() == ("xid", ["status", "log"])
