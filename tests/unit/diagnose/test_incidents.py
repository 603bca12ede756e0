"""Tests of incidents: reports by several sources count once, regardless of their order, delays and copies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.kernel import parse_event
from jobmeter.diagnose.case import Case
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.incidents import APART_MS, IncidentReport, group_incidents
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.thresholds import load
from jobmeter.model.event import Event, EventSource, Level
from jobmeter.model.finding import Evidence
from jobmeter.model.job import Allocation, Job, JobState, JobView, Replica
from jobmeter.model.log import LogLine
from jobmeter.model.time import MINUTE, NS_PER_MS, TimeRange

START = 1_767_225_600_000
THRESHOLDS = load()
SOURCES = ("log kernel ", "log journal ", "event")


def report(source, time, number=0):
    evidence = Evidence(kind="log", text=f"{source} {number}", time=time)
    return IncidentReport(source, time, evidence, (source, time, number))


@st.composite
def reported(draw, spacing):
    """Return the number of incidents and their reports, each by some of the sources, delayed and in any order."""
    times, now = [], START
    for pause in draw(st.lists(st.integers(spacing, spacing + 60_000), max_size=12)):
        times.append(now)
        now += pause
    found = []
    for number, time in enumerate(times):
        sources = draw(st.sets(st.sampled_from(SOURCES), min_size=1))
        found += [report(source, time + draw(st.integers(0, APART_MS)), number) for source in sources]
    copies = draw(st.lists(st.sampled_from(found), max_size=10)) if found else []
    return len(times), draw(st.permutations([*found, *copies]))


@given(reported(2 * APART_MS + 1))
def test_incidents_are_counted_whatever_the_order_delay_and_copies_of_reports(case):
    count, reports = case
    found = group_incidents(reports)
    assert len(found) == count
    assert sum(map(len, found)) == len({one.digest for one in reports})
    for some in found:
        assert len({one.source for one in some}) == len(some)
        assert len({one.evidence.text.rpartition(" ")[2] for one in some}) == 1, "reports of one incident"
    assert [some[0].evidence for some in found] == sorted(
        (some[0].evidence for some in found), key=lambda one: one.time or 0
    )


@given(
    st.lists(st.integers(0, 30_000), min_size=1, max_size=30, unique=True),
    st.integers(0, APART_MS),
    st.randoms(use_true_random=False),
)
def test_incidents_that_every_source_reports_are_counted_however_close_they_are(times, delay, random):
    lines = [report(SOURCES[0], START + time, number) for number, time in enumerate(times)]
    events = [report(SOURCES[2], START + time + delay, number) for number, time in enumerate(times)]
    reports = [*lines, *events, *lines]
    random.shuffle(reports)
    assert len(group_incidents(reports)) == len(times)


@given(st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(0, 20_000)), max_size=40))
def test_the_count_lies_between_that_of_the_busiest_source_and_of_all_reports(given_reports):
    reports = [report(source, START + time) for source, time in given_reports]
    by_source = [len({time for one, time in given_reports if one == source}) for source in SOURCES]
    assert max(by_source) <= len(group_incidents(reports)) <= len(set(given_reports))


NODE = "node-7"
ADDRESS = "0000:9b:00"


def job(kernel=(), faults=(), addresses=(), allocations=(), **more):
    allocated = [Allocation(replica=name, node=NODE, device=device, start=START + at, end=end and START + end)
                 for name, device, at, end in allocations]  # fmt: skip
    names = list(dict.fromkeys(one.replica for one in allocated)) or ["worker-3"]
    view = JobView(
        job=Job(id="j", state=JobState.RUNNING, start=START),
        replicas=[Replica(name=name, node=NODE, state=JobState.RUNNING) for name in names],
        allocations=allocated,
    )
    span = TimeRange(START, START + 60 * MINUTE)
    given_addresses = {(NODE, address): device for address, device in addresses}
    return Case(
        view=view, span=span, now_ms=span.end_ms, step_ms=10_000,
        kernel=kernel, faults=faults, addresses=given_addresses, **more,
    )  # fmt: skip


def xid_line(time, code=79, address=ADDRESS, stream="kernel"):
    text = f"NVRM: Xid (PCI:{address}): {code}, pid=1234, GPU has fallen off the bus."
    return LogLine(time_ns=(START + time) * NS_PER_MS, text=text, node=NODE, stream=stream, facility="kern")


def event_of(line, delay=0):
    record = parse_event(line.text, line.time_ns // NS_PER_MS + delay, NodeIdentity(NODE))
    assert record is not None
    return Event(**{name: getattr(record, name) for name in record.__struct_fields__})


def found(case, name):
    which = [rule for rule in list_rules() if rule.name == name]
    return examine(case, THRESHOLDS, which)


OURS = (("worker-2", "gpu1", 0, None), ("worker-3", "gpu2", 0, None))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8, unique=True), st.integers(0, APART_MS), st.booleans())
def test_a_line_and_the_event_of_an_xid_are_one_incident(minutes, delay, copied):
    lines = [xid_line(10_001 * at) for at in minutes]
    more = [replace(line, stream="journal", time_ns=line.time_ns + 300 * NS_PER_MS) for line in lines] if copied else []
    case = job([*lines, *more, *lines], [event_of(line, delay) for line in lines], [(ADDRESS, "gpu2")], OURS)
    [one] = found(case, "xid")
    often = "once" if len(minutes) == 1 else f"{len(minutes)} times"
    assert one.sentence == f"worker-3 ({NODE}, gpu2): XID 79: the GPU has fallen off the bus"
    assert one.evidence[0].text == f"XID 79 was reported {often}"
    assert len(one.evidence) == 1 + len(minutes)
    assert {part.kind for part in one.evidence[1:]} == {"log"}
    assert (one.subject.kind, one.subject.name, one.replicas) == ("device", f"{NODE}/gpu2", ["worker-3"])


def test_only_the_event_is_enough():
    [one] = found(job([], [event_of(xid_line(5_000))], [(ADDRESS, "gpu2")], OURS), "xid")
    assert one.sentence.startswith("worker-3 (node-7, gpu2): XID 79")


@pytest.mark.parametrize("form", ["0000:9b:00", "0000:9B:00.0", "00000000:9B:00.0"])
def test_every_form_of_the_address_is_the_device(form):
    [one] = found(job([xid_line(5_000, address=form)], (), [(ADDRESS, "gpu2")], OURS), "xid")
    assert one.subject.name == f"{NODE}/gpu2"


def test_the_replica_is_the_one_that_had_the_device_then():
    turns = (("worker-2", "gpu2", 0, 10 * MINUTE), ("worker-3", "gpu2", 12 * MINUTE, None))
    for minute, name in ((5, "worker-2"), (20, "worker-3")):
        [one] = found(job([xid_line(minute * MINUTE)], (), [(ADDRESS, "gpu2")], turns), "xid")
        assert one.sentence.startswith(f"{name} (node-7, gpu2): ")
        assert one.replicas == [name]


def test_a_device_of_a_neighbour_is_no_finding_of_the_job():
    assert found(job([xid_line(5_000)], (), [(ADDRESS, "gpu5")], OURS), "xid") == []
    before = (("worker-3", "gpu2", 10 * MINUTE, None), ("worker-2", "gpu1", 0, None))
    assert found(job([xid_line(5_000)], (), [(ADDRESS, "gpu2")], before), "xid") == []


@pytest.mark.parametrize(
    ("instance", "device", "replicas"),
    [
        (" GPU-I:03", "gpu2:3", ["worker-2"]),
        (" GPU-I:05 GPU-CI:01", "gpu2:5:1", ["worker-3"]),
        (" GPU-I:05", "gpu2:5", ["worker-3"]),
        (" GPU-I:04", None, []),
        (" GPU-I:05 GPU-CI:02", None, []),
        ("", "gpu2", ["worker-2", "worker-3"]),
    ],
)
def test_an_xid_names_its_mig_instance_or_all_instances_of_its_gpu(instance, device, replicas):
    ours = (("worker-2", "gpu2:3", 0, None), ("worker-3", "gpu2:5:1", 0, None))
    line = xid_line(5_000, code=94, address=f"{ADDRESS}{instance}")
    shown = found(job([line], [event_of(line)], [(ADDRESS, "gpu2")], ours), "xid")
    assert [(one.subject.name, one.replicas) for one in shown] == ([(f"{NODE}/{device}", replicas)] if device else [])


def test_an_address_that_no_agent_said_is_a_finding_of_the_node_with_its_ranks():
    [one] = found(job([xid_line(5_000)], (), [("0000:1b:00", "gpu0")], OURS), "xid")
    assert (one.subject.kind, one.subject.name) == ("node", NODE)
    assert one.sentence.startswith("node-7 (worker-2, worker-3): XID 79 of the device at 0000:9b:00")
    assert one.replicas == []


def test_kills_are_counted_by_incidents():
    """A kill causes up to three kernel lines, an event and a reason of the end. Two processes are two kills."""
    texts = [
        "python invoked oom-killer: gfp_mask=0xcc0, order=0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid={pid},uid=0",
        "Memory cgroup out of memory: Killed process {pid} (python) total-vm:9kB",
        "oom_reaper: reaped process {pid} (python), now anon-rss:0kB",
    ]
    random = np.random.default_rng(3)
    for pids in ([4711], [4711, 4712]):
        lines = [
            LogLine(
                time_ns=(START + 1_000 * at) * NS_PER_MS + number, text=text.format(pid=pid),
                node=NODE, stream="kernel", facility="kern", job="j", replica="worker-3",
            )
            for at, pid in enumerate(pids)
            for number, text in enumerate(texts)
        ]  # fmt: skip
        events = [
            Event(time=START + 2_000, job="j", replica="worker-3", source=EventSource.REPLICA, level=Level.ERROR,
                  reason="OOMKilled", message=f"1 of its processes was killed {at}.")
            for at in range(len(pids))
        ]  # fmt: skip
        shuffled = [lines[at] for at in random.permutation(len(lines))]
        case = job([*shuffled, *lines], events=events, allocations=OURS)
        [one] = found(case, "host_oom_kill")
        count = "1 process was" if len(pids) == 1 else "2 processes were"
        assert one.sentence == "worker-3 (node-7): memory ran out, and the kernel killed processes"
        assert one.evidence[0].text == f"{count} killed"


def test_drivers_that_report_one_link_in_their_words_count_once():
    texts = ["mlx5_core 0000:3b:00.0 ens1f1: Link down", "bond0: (slave ens1f1): link status definitely down"]
    lines = [
        LogLine(time_ns=(START + 60_000 * at + number) * NS_PER_MS, text=text, node=NODE, stream="kernel")
        for at in range(3)
        for number, text in enumerate(texts)
    ]
    [one] = found(job(lines), "link_flap")
    assert one.evidence[0].value == 3
