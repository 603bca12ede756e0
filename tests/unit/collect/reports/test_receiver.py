"""Tests of numbers from programs: they become samples of the replica, bounded and counted for any input."""

import math
import os
import socket
import struct
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import wait_until

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.budget import MeasuringBudget
from jobmeter.collect.clock import SampleClock, read_elapsed_ns
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.collect.reports import datagrams, receiver, statsd
from jobmeter.collect.reports.datagrams import DatagramSocket
from jobmeter.collect.reports.receiver import ProgramReports, ReportSource
from jobmeter.collect.reports.reporter import ReportedPoint, Reporter
from jobmeter.errors import ConflictError
from jobmeter.model.device_peaks import PEAKS, find_peak_flops
from jobmeter.model.series import check_series
from jobmeter.model.time import SystemClock
from jobmeter.wire.program import places

OWNER = Owner("j", "worker-0")
PID = os.getpid()


def member(measured=False, **more):
    return Member(owner=OWNER, source=MembershipSource.TAGS, rank=0, measured=measured, **more)


def make(found=None, products=()):
    return ProgramReports(
        NodeIdentity("n", project="p"),
        SampleClock(SystemClock()),
        {PID: member()}.get if found is None else found,
        lambda: products,
    )


def message(**parts):

    return msgspec.json.encode({"jobmeter": 1, **parts})


def now():
    return read_elapsed_ns() // 1_000_000


def collected(reports, later_ms=0):
    """Collect once. Return {metric: [(time, value)]}."""
    found: dict[str, list[tuple[int, float]]] = {}
    for series, time, value in reports.collect(SystemClock().now_ms() + later_ms):
        check_series(series)
        assert (series.job, series.replica, series.project, series.node) == ("j", "worker-0", "p", "n")
        found.setdefault(series.metric, []).append((time, value))
    return found


def values(reports, later_ms=0):
    return {metric: [value for _, value in points] for metric, points in collected(reports, later_ms).items()}


def test_values_have_their_times_and_steps():
    reports = make()
    begin = now() - 1_000
    reports.receive(PID, message(points=[[begin, 1, {"loss": 2.0}], [begin + 500, 2, {"loss": 1.0, "val/acc": 0.5}]]))
    found = collected(reports)
    (first, second) = found["app.loss"]
    assert second[0] - first[0] == 500
    assert found["app.step"] == [(first[0], 1.0), (second[0], 2.0)]
    assert found["app.val_acc"] == [(second[0], 0.5)]
    assert found["app.step_time"][0][1] == 0.5
    assert values(reports) == {}


def test_a_process_of_no_job_is_counted_and_stores_nothing():
    reports = make(lambda _pid: None)
    reports.receive(PID, message(points=[[now(), 1, {"loss": 2.0}]]))
    for _ in range(4):
        assert values(reports) == {}
    assert reports.unattributed == 1


def test_a_process_that_is_found_by_the_next_scan_loses_nothing():
    known: dict[int, Member] = {}
    reports = make(known.get)
    reports.receive(PID, message(points=[[now(), 1, {"loss": 2.0}]]))
    known[PID] = member()
    assert values(reports)["app.loss"] == [2.0]


def test_a_process_that_its_run_measures_is_left_to_the_run():
    reports = make(lambda _pid: member(measured=True))
    reports.receive(PID, message(points=[[now(), 1, {"loss": 2.0}]]))
    assert (values(reports), reports.unattributed) == ({}, 0)
    assert reports.find_reporter(PID) is None


def test_ranks_of_one_replica_have_series_of_their_own():
    reports = make(lambda _pid: member(process_rank=3))
    reports.receive(PID, message(points=[[now(), 1, {"loss": 2.0}]]))
    samples = reports.collect(SystemClock().now_ms())
    assert {series.labels for series, _, _ in samples} == {(("rank", "3"),)}


def test_what_is_no_number_is_an_event_once():
    reports = make()
    for step in (5, 6):
        reports.receive(PID, message(points=[[now(), step, {"loss": "nan"}]]))
    assert "app.loss" not in values(reports)
    (event,) = reports.take_records(0).events
    assert (event.reason, event.message) == ("NotFinite", "The program reported loss = nan at step 5.")


@given(st.binary(max_size=200) | st.builds(lambda text: b'{"jobmeter":' + text, st.binary(max_size=100)))
def test_no_bytes_make_it_fail(data):
    reports = make()
    reports.receive(PID, data)
    values(reports)
    reports.take_records(0)


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**62), 2**62),
            st.none() | st.floats(),
            st.dictionaries(st.text(max_size=300), st.floats(), max_size=5),
        )
    )
)
def test_names_times_and_values_of_any_kind_make_valid_series(points):
    reports = make()
    reports.add(Reporter(OWNER), ReportSource.LOG, [ReportedPoint(at, step, some) for at, step, some in points])
    assert all(math.isfinite(value) for some in values(reports).values() for value in some)


def test_names_are_bounded_and_the_rest_is_counted():
    reports = make()
    names = {f"m{at}": 1.0 for at in range(receiver.MOST_SERIES + 7)}
    reports.receive(PID, message(points=[[now(), None, names]], dropped=3))
    found = values(reports)
    assert len(found) == receiver.MOST_SERIES + 1
    assert found["app.dropped"] == [10.0]


def test_values_a_second_are_bounded_and_the_rest_is_counted():
    reports = make()
    at, total = now() - 80_000, receiver.VALUES_AT_ONCE * 2
    for begin in range(0, total, 1_000):
        reports.receive(PID, message(points=[[at + begin + more, None, {"x": 1.0}] for more in range(1_000)]))
    stored = 0
    dropped = 0.0
    while found := values(reports):
        stored += len(found.get("app.x", ()))
        dropped = found.get("app.dropped", [dropped])[-1]
    assert stored + dropped == total
    assert dropped > 0


def test_the_last_collection_returns_all_that_waits():
    reports = make(lambda pid: Member(owner=Owner("j", f"worker-{pid}"), source=MembershipSource.TAGS, rank=pid))
    for pid in range(3):
        for begin in range(0, 15_000, 1_000):
            sent = [[now() - 15_000 + begin + more, None, {"x": 1.0}] for more in range(1_000)]
            reports.receive(pid + 2**22, message(points=sent))
    assert len(reports.collect(SystemClock().now_ms())) < 45_000
    reports.is_closed = True
    assert sum(series.metric == "app.x" for series, *_ in reports.collect(SystemClock().now_ms())) >= 25_000


def test_events_and_facts_are_bounded():
    reports = make()
    for at in range(receiver.EVENTS_AT_ONCE + 40):
        reports.receive(PID, message(events=[[now(), "info", "resumed again", f"{at}"]]))
    reports.receive(PID, message(meta={f"k{at}": "v" for at in range(receiver.MOST_META + 40)}))
    records = reports.take_records(0)
    assert receiver.EVENTS_AT_ONCE <= len(records.events) < receiver.EVENTS_AT_ONCE + 40
    assert {event.reason for event in records.events} == {"ResumedAgain"}
    (job,) = records.jobs
    assert len(job.extra["program"]) == receiver.MOST_META
    reports.receive(PID, message(meta={"k0": "v"}))
    assert not reports.take_records(0).jobs


def test_the_most_trusted_source_of_a_name_counts():
    reports = make()
    reporter = Reporter(OWNER)
    for source, value in ((ReportSource.LINES, 1.0), (ReportSource.LOG, 2.0), (ReportSource.STATSD, 3.0)):
        at = SystemClock().now_ms() + source
        reports.add(reporter, source, [ReportedPoint(at, None, {"loss": value})])
    assert values(reports)["app.loss"] == [1.0, 2.0]


def test_steps_of_late_lines_do_not_disturb_those_that_the_program_logs():
    reports = make()
    reporter = Reporter(OWNER)
    at = SystemClock().now_ms() - 60_000
    for step in range(1, 51):
        logged = ReportedPoint(at + step * 1_000, step, {"loss": 1.0, "tokens": 10.0})
        reports.add(reporter, ReportSource.LOG, [logged])
        if step % 10 == 0:  # a pipe holds lines back, and then many arrive at once
            lines = [ReportedPoint(at + step * 1_000 + 1, late, {"lr": 0.1}) for late in range(step - 9, step)]
            reports.add(reporter, ReportSource.LINES, lines)
    found = values(reports)
    assert found["app.step"] == [float(step) for step in range(1, 51)]
    assert (found["app.step_time"], found["app.tokens_per_second"]) == ([1.0], [10.0])
    assert found["app.lr"]


def test_the_number_and_length_of_names_are_bounded():
    reports = make()
    for turn in range(20):
        reports.receive(PID, message(points=[[now(), None, {f"{turn}.{at}" + "n" * 400: 1.0 for at in range(120)}]]))
    (replica,) = reports.replicas.values()
    assert len(replica.sources) == receiver.MOST_NAMES
    assert max(map(len, replica.sources)) <= 256


def test_a_fact_whose_name_is_changed_counts_once_and_can_change():
    reports = make()
    reports.receive(PID, message(meta={f"optim/{at}": "v" for at in range(receiver.MOST_META)}))
    reports.receive(PID, message(meta={"optim/0": "w"}))
    (job,) = reports.take_records(0).jobs
    assert job.extra["program"]["optim_0"] == "w"


def test_statsd_becomes_gauges_totals_means_and_counts():
    reports = make()
    reports.receive(
        PID, b"temp:3|g\nn:2|c|@0.5\nn:1|c\nt:10:30|ms\nu:a:b:a|s\nloss:0.5|g|#step:7,part:x\nq:5|g\nq:-2|g"
    )
    found = values(reports)
    assert found["app.temp"] == [3.0]
    assert found["app.n"] == [5.0]
    assert (found["app.t"], found["app.t_count"], found["app.t_max"]) == ([20.0], [2.0], [30.0])
    assert found["app.u"] == [2.0]
    assert found["app.step"] == [7.0]
    assert found["app.q"][-1] == 3.0
    reports.receive(PID, b"n:4|c")
    found = values(reports, 60_000)
    assert found["app.n"] == [9.0]
    assert found["app.n_per_second"][0] > 0
    assert "app.t" not in found


@pytest.mark.parametrize("kind", ["c", "ms", "s", "g"])
def test_metrics_of_statsd_are_bounded_for_each_replica(kind):
    owners = {PID + at: Owner("j", f"worker-{at}") for at in range(2)}
    reports = make(lambda pid: Member(owner=owners[pid], source=MembershipSource.TAGS, rank=0))
    for at in range(statsd.MOST_KEYS + 9):
        reports.receive(PID, f"m{at}:1|{kind}|#part:{'x' * 5_000}".encode())
    reports.receive(PID + 1, f"other:1|{kind}".encode())
    found = {(one.replica, one.metric): value for one, _, value in reports.collect(SystemClock().now_ms())}
    assert ("worker-1", "app.other") in found
    assert found["worker-0", "app.dropped"] >= 9


def test_values_of_timers_and_members_of_sets_are_bounded_for_a_replica(monkeypatch):
    monkeypatch.setattr(statsd, "MOST_TIMES", 5)
    monkeypatch.setattr(statsd, "MOST_MEMBERS", 5)
    reports = make()
    for turn in range(2):
        reports.receive(PID, b"a:1:2:3:4|ms\nb:1:9|h\nc:7|d\nu:a:b:c:d|s\nu:a|s\nv:e:f|s")
        found = values(reports, turn)
        assert (found["app.a_count"], found["app.b_count"], found["app.c_count"]) == ([4.0], [2.0], [1.0])
        assert (found["app.b"], found["app.b_max"], found["app.b_p95"]) == ([5.0], [9.0], [1.0])
        assert found["app.c"] == [7.0]
        assert "app.c_p95" not in found
        assert (found["app.u"], found["app.v"]) == ([4.0], [1.0])


def test_tokens_and_the_share_of_the_peak_follow_from_the_reports():
    reports = make(products=["NVIDIA H100 80GB HBM3"])
    begin = now() - 20_000
    reports.receive(PID, message(meta={"flops_per_token": 6e9}))
    steps = [[begin + 1_000 * step, step, {"tokens": 20_000}] for step in range(11)]
    reports.receive(PID, message(points=steps))
    found = values(reports)
    assert found["app.tokens_per_second"] == [20_000.0]
    assert found["app.step_time"] == [1.0]
    assert found["app.mfu"] == [pytest.approx(6e9 * 20_000 / 989.5e12)]


@pytest.mark.parametrize("products", [[], ["Unknown X1"], ["NVIDIA H100 80GB HBM3", "Tesla T4"]])
def test_without_a_peak_of_the_product_there_is_no_share(products):
    reports = make(products=products)
    begin = now() - 20_000
    reports.receive(PID, message(meta={"flops_per_step": 6e9}))
    reports.receive(PID, message(points=[[begin, 0, {"loss": 1}], [begin + 1_000, 1, {"loss": 1}]]))
    assert "app.mfu" not in values(reports)


@pytest.mark.parametrize(
    ("product", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5e12),
        ("NVIDIA H100 PCIe", "bf16", 756.5e12),
        ("NVIDIA A100-SXM4-40GB", "bf16", 312e12),
        ("NVIDIA A100-SXM4-40GB", "fp8", None),
        ("Tesla V100-SXM2-16GB", "bf16", 125e12),
        ("NVIDIA L4", "bf16", 121e12),
        ("NVIDIA L40S", "fp8", 733e12),
        ("NVIDIA A10", "bf16", 125e12),
        ("AMD Instinct MI300X", "fp8", 2_614.9e12),
        ("NVIDIA GeForce RTX 3090 Ti", "bf16", None),
        ("NVIDIA H100 80GB HBM3", "int4", None),
    ],
)
def test_peaks_by_product(product, precision, peak):
    assert find_peak_flops(product, precision) == peak


def test_every_peak_has_a_source():
    assert all(row.source.startswith("https://") for row in PEAKS)


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("p")


def test_a_flood_takes_no_more_than_the_share_of_the_cpu(folder):
    """Each message takes a second here, and the clock stands still: the receiver stops after its burst."""
    spent = [0.0]

    def take(_pid, _data):
        spent[0] += 1.0

    path = str(folder / "s")
    receiving = DatagramSocket(path, take, MeasuringBudget(0.01, 1.0, lambda: 0.0, lambda: spent[0]))
    receiving.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(path)
        sender.setblocking(False)

        def is_full():
            try:
                while True:
                    sender.send(b"x")
            except BlockingIOError:
                return spent[0] > 1.0

        wait_until(is_full)
        for _ in range(10):
            assert is_full()
        taken = spent[0]
        assert taken <= 128  # batches of 64
    receiving.stop()
    assert spent[0] > taken, "what has arrived is taken at the end"


def test_the_kernel_says_who_sends_and_nobody_can_say_otherwise(folder):
    taken = []
    path = str(folder / "s")
    receiving = DatagramSocket(path, lambda pid, data: taken.append((pid, data)))
    receiving.start()
    code = f"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect({path!r}); s.send(b'mine')"
    with subprocess.Popen([sys.executable, "-c", code]) as sender:
        child = sender.pid
    wait_until(lambda: taken)
    assert taken == [(child, b"mine")]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.connect(path)
        forged = struct.pack("3i", 1, os.getuid(), os.getgid())
        if os.getuid():
            with pytest.raises(PermissionError):
                one.sendmsg([b"forged"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, forged)])
    with pytest.raises(ConflictError, match="another process receives"):
        DatagramSocket(path, lambda _pid, _data: None)
    receiving.stop()
    assert not (folder / "s").exists()


def test_sockets_of_killed_runs_are_removed_and_those_of_other_containers_stay(folder, monkeypatch):
    monkeypatch.setattr(places, "find_own_folder", lambda _user: str(folder / "own"))
    before = os.umask(0o077)
    try:
        place = datagrams.run_socket(2**22 + 1)  # no process here has this number
    finally:
        os.umask(before)
    assert (folder / "own").stat().st_mode & 0o777 == 0o755
    receiving = DatagramSocket(place, lambda _pid, _data: None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(folder / "own" / f"run-{PID}.sock"))
    other = datagrams.run_socket(2**22 + 1)
    assert [str(path) for path in (folder / "own").iterdir()] == [place]
    DatagramSocket(other, lambda _pid, _data: None).stop()
    receiving.stop()


def test_a_socket_that_a_killed_process_left_is_replaced(folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(folder / "s"))
    DatagramSocket(str(folder / "s"), lambda _pid, _data: None).stop()
    (folder / "s").write_text("mine")
    with pytest.raises(ConflictError, match="is no socket"):
        DatagramSocket(str(folder / "s"), lambda _pid, _data: None)
