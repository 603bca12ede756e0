"""Tests of kernel log lines: they reach the rules of the jobs they concern, and no others."""

import pytest

from jobmeter.access.principal import Scope
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.kernel import parse_event
from jobmeter.diagnose.kernel import QUIET, read_kernel_lines, read_node_faults
from jobmeter.errors import NotFoundError
from jobmeter.model.event import Event, EventFilter, EventPage
from jobmeter.model.job import Allocation, Job, JobView, Replica
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.log_tree import matches
from jobmeter.model.time import TimeRange
from jobmeter.query.execute import Executor

LINES = [
    LogLine(time_ns=5, text="NVRM: Xid (PCI:0000:3b:00): 79, GPU off the bus", node="n", facility="kern"),
    LogLine(time_ns=6, text="Killed process 7 (python)", node="n", facility="kern", job="mine", replica="w"),
    LogLine(time_ns=7, text="Killed process 8 (python)", node="n", facility="kern", job="theirs"),
    LogLine(time_ns=8, text="Killed process 9 (python)", node="n", facility="kern"),
    LogLine(time_ns=9, text="usb 1-1: new device", node="n", facility="kern"),
]


class Answers(Executor):
    def __init__(self, events=(), lines=LINES):
        """Skip the executor's own initialization, because nothing is read."""
        self.events = list(events)
        self.lines = lines
        self.questions = []

    def run(self, question, scope):
        if isinstance(question, EventFilter):
            ordered = self.events[::-1] if question.descending else self.events
            return EventPage(ordered[: question.limit], len(self.events))
        if question.ref.name != "n":
            raise NotFoundError("no node", "node", question.ref.name)
        self.questions.append(question)
        found = [line for line in self.lines if matches(question.query, line)]
        return LogPage((found[::-1] if question.descending else found)[: question.limit])


def view(*, devices):
    replicas = [Replica(name="w", node="n"), Replica(name="v", node="unknown")]
    allocations = [Allocation(replica="w", node="n", device="gpu0", start=0)] if devices else []
    return JobView(job=Job(id="mine"), replicas=replicas, allocations=allocations)


@pytest.mark.parametrize(("devices", "times"), [(True, [5, 6]), (False, [6])])
def test_what_is_about_the_job_or_its_devices(devices, times):
    found = read_kernel_lines(Answers(), Scope(None), view(devices=devices), TimeRange(0, 1))
    assert [line.time_ns for line in found] == times


def test_nothing_for_a_reader_of_the_job_alone():
    assert read_kernel_lines(Answers(), Scope(None, "mine"), view(devices=True), TimeRange(0, 1)) == ()


def noise(count):
    return [LogLine(time_ns=n, text=f"usb 1-{n}: new device", node="n", facility="kern") for n in range(count)]


@pytest.mark.parametrize(("lines", "questions"), [(QUIET - len(LINES), 1), (3 * QUIET, 2)])
def test_lines_of_a_quiet_and_a_talkative_kernel_are_found_alike(lines, questions):
    answers = Answers(lines=[*noise(lines), *LINES])
    found = read_kernel_lines(answers, Scope(None), view(devices=True), TimeRange(0, 1))
    assert [line.time_ns for line in found] == [5, 6]
    # Long kernel logs are filtered in the engine by the conditions of all rules.
    assert len(answers.questions) == questions


XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"
NS = 1_000_000


def made_of(text, time_ms, node="n"):
    """Return the event that an agent derives from a kernel line."""
    record = parse_event(text, time_ms, NodeIdentity(node))
    assert record is not None
    return Event(**{name: getattr(record, name) for name in record.__struct_fields__})


def line_of(text, time_ms, node="n"):
    return LogLine(time_ns=time_ms * NS + 77, text=text, node=node, facility="kern")


ALL = Scope(None)


def faults(events, scope=ALL, **visible):
    return read_node_faults(Answers(events), scope, view(**{"devices": True, **visible}), TimeRange(0, 10_000))


def test_faults_are_those_of_nodes_where_the_job_had_a_device():
    event = made_of(XID, 5_000)
    assert faults([event], devices=False) == []
    assert faults([made_of(XID, 5_000, "m")]) == []
    assert faults([event], scope=Scope(None, "mine")) == []


def test_a_link_that_flaps_all_the_time_does_not_hide_what_ended_the_job():
    flapping = [
        LogLine(time_ns=at, text=f"eth0: Link is Down {at}", node="n", facility="kern") for at in range(1, 1_000)
    ]
    lines = [*flapping, line_of(XID, 5_000)]
    found = read_kernel_lines(Answers(lines=lines), ALL, view(devices=True), TimeRange(0, 10_000))
    assert [line.text for line in found][-1] == XID
    assert found[0].time_ns == 1
    assert [line.order for line in found] == sorted({line.order for line in found})


def test_the_last_faults_are_read():
    events = [made_of("eth0: Link is Down", at) for at in range(1_000)] + [made_of(XID, 5_000)]
    found = faults(events)
    assert found[-1].message.startswith(XID)
    assert [event.time for event in found] == sorted(event.time for event in found)
