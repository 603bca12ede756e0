"""Tests of NVML events: each is reported once, for the right device, with one call a second while no event comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.nvml import NO_INSTANCE, XID_EVENT, Call, LibraryCall
from tests.support.waiting import wait_until
from tests.unit.collect.gpus import PLACE, Bench, member

from jobmeter.collect.kernel import parse_event
from jobmeter.collect.xids import SAME_MS, XidReports
from jobmeter.model.event import DEVICE_FAULT, EventSource, Level
from jobmeter.model.record import Records
from jobmeter.model.xid import XidReport, read_xid
from jobmeter.testing.collector import NOW_MS

EVERY = 0xFFFF


@pytest.fixture
def bench(make_driver):
    driver = make_driver(2)
    driver.install()
    for device in driver.devices:
        device.set(event_types=EVERY)
    return Bench(driver)


def reported(bench, *happened):
    """Return the node's events after the driver raised these events."""
    for one in happened:
        bench.driver.happen(*one)
    wait_until(lambda: not bench.driver.unread, "the events are read")
    wait_until(lambda: bench.driver.waiting, "the next wait begins")
    bench.look()
    return bench.collector.states.take_records(0).events


def wait_for_the_end(bench, call):
    """Wait until a call of the library has freed the set of events."""
    wait_until(lambda: bench.driver.calls(call) and not bench.driver.sets, "the set is freed")


def test_an_xid_is_an_event_of_the_node_with_its_device_meaning_and_time(bench):
    bench.by_pid[7] = member("j")
    bench.devices[1].run((7, 10))
    bench.look()
    bench.driver.happen(1, 79)
    wait_until(lambda: not bench.driver.unread, "the event is read")
    wait_until(lambda: bench.driver.waiting, "the next wait begins")
    bench.clock.seconds += 4
    bench.look()
    (found,) = bench.collector.states.take_records(0).events
    assert (found.source, found.level, found.job, found.reason) == (EventSource.NODE, Level.ERROR, "", "Xid")
    assert (found.subject, found.time) == ("device gpu1", bench.now_ms - 4_000)
    assert read_xid(found.message) == XidReport(79, bench.nvml.list_devices()[1].pci)
    assert found.message.startswith("gpu1 had Xid (PCI:0000:1c:00): 79, reported by NVML - the GPU has fallen off")


def test_other_events_become_the_xid_of_the_kernel_or_a_fault(bench):
    bench.look()
    found = reported(bench, (0, 0, 0x400), (1, 0, 0x2000), (0, 5, 0x8000))
    assert [(one.reason, one.subject, one.level) for one in found] == [
        ("Xid", "device gpu0", Level.WARNING),
        ("Xid", "device gpu0", Level.WARNING),
        (DEVICE_FAULT, "device gpu1", Level.ERROR),
    ]
    assert [xid.code for one in found if (xid := read_xid(one.message))] == [63, 154]


def test_an_event_under_mig_names_the_instances(bench):
    bench.devices[0].split((3, 0, 3), (5, 1, 2))
    bench.look()
    one, two = reported(bench, (0, 94, XID_EVENT, (3, NO_INSTANCE)), (0, 13, XID_EVENT, (5, 1)))
    assert read_xid(one.message) == XidReport(94, "0000:1b:00", 3)
    assert read_xid(two.message) == XidReport(13, "0000:1b:00", 5, 1)


def test_only_devices_with_events_are_registered_each_once(bench):
    bench.devices[0].set(event_types=0x10)  # clock events only
    for _ in range(3):
        bench.look()
    wait_until(lambda: bench.driver.waiting, "the wait")
    assert [bench.devices[at].calls(Call.REGISTER) for at in (0, 1)] == [0, 1]
    assert [one.subject for one in reported(bench, (0, 79), (1, 48))] == ["device gpu1"]


@pytest.mark.parametrize("missing", ["types", "registration", "set"])
def test_a_driver_without_events_is_tried_once_and_measured(bench, missing):
    for device in bench.devices:
        device.fail({"types": 3, "registration": 3}.get(missing, 0), Call.EVENT_TYPES)
        device.fail(3 if missing == "registration" else 0, Call.REGISTER)
    bench.driver.fail(13 if missing == "set" else 0, LibraryCall.EVENT_SET)
    for _ in range(3):
        assert bench.devices_of("gpu.power") == [0, 1]
        wait_for_the_end(bench, LibraryCall.EVENT_SET)
    assert bench.driver.calls(LibraryCall.EVENT_SET) == 1
    assert bench.driver.calls(LibraryCall.EVENT_WAIT) == 0


def test_one_event_set_serves_all_collections_with_one_wait_a_second(bench):
    for _ in range(3):
        bench.look()
        wait_until(lambda: bench.driver.waiting, "the wait")
    assert bench.driver.wait_ms == 1_000, "a call a second while nothing happens"
    assert bench.driver.calls(LibraryCall.EVENT_SET) == 1
    assert [device.calls(Call.REGISTER) for device in bench.devices] == [1, 1]


def test_a_release_frees_the_set_and_events_are_waited_for_again_later(bench):
    bench.look()
    wait_until(lambda: bench.driver.waiting, "the wait")
    assert bench.collector.release()
    assert (bench.driver.sets, bench.driver.misuse) == (0, 0)
    for _ in range(7):
        bench.look()
    wait_until(lambda: bench.driver.waiting, "the wait")
    assert [one.reason for one in reported(bench, (0, 79))] == ["DriverReleased", "Xid"]
    assert bench.driver.misuse == 0


@pytest.mark.parametrize("call", [Call.EVENT_TYPES, Call.REGISTER, LibraryCall.EVENT_WAIT])
def test_a_call_of_events_that_does_not_return_keeps_the_driver_open_and_the_devices_measured(bench, call):
    at = bench.driver if isinstance(call, LibraryCall) else bench.devices[0]
    at.block(1, call)
    bench.look()
    wait_until(lambda: at.calls(call), "the call")
    assert bench.devices_of("gpu.power") == [0, 1]
    bench.nvml.patience = 0.1
    assert not bench.collector.release()
    assert bench.driver.sets == 1
    bench.driver.unblock()


def test_a_failed_wait_begins_again_at_the_next_look(bench):
    bench.driver.fail(15, LibraryCall.EVENT_WAIT)
    bench.look()
    wait_for_the_end(bench, LibraryCall.EVENT_WAIT)
    bench.driver.fail(0, LibraryCall.EVENT_WAIT)
    bench.look()
    wait_until(lambda: bench.driver.waiting, "the wait")
    assert bench.driver.misuse == 0


class Given:
    """Record source with events that a test sets."""

    def __init__(self):
        self.events = []

    def take_records(self, now_ms):
        found, self.events = self.events, []
        return Records(events=found)


def line(time_ms, code=79, device="0000:3b:00"):
    event = parse_event(f"NVRM: Xid (PCI:{device}): {code}, pid=1, name=train", time_ms, PLACE)
    assert event is not None
    return event


def report(time_ms, code=79, device="0000:3b:00"):
    return PLACE.make_event(time_ms, Level.ERROR, "Xid", f"gpu0 had {XidReport(code, device)}, reported by NVML - x.")


def by_tick(*ticks):
    """Return the number of events of each tick: (events from kernel lines, events from the driver)."""
    kernel, driver = Given(), Given()
    reports = XidReports(kernel, [driver])
    found = []
    for lines, events in ticks:
        kernel.events, driver.events = list(lines), list(events)
        now = [one.message for one in reports.take_records(0).events]
        found.append((sum("name=train" in one for one in now), sum("by NVML" in one for one in now)))
    return found


def test_an_xid_that_both_report_is_one_event():
    assert by_tick(([line(0)], [report(3)])) == [(1, 0)]
    assert by_tick(([line(0)], []), ([], [report(SAME_MS)])) == [(1, 0), (0, 0)]
    assert by_tick(([], [report(0)]), ([line(3)], [])) == [(0, 1), (0, 0)]
    assert by_tick(([line(0, 13), line(1, 31)], [report(2, 31), report(2, 31)])) == [(2, 0)], "NVML repeats the last"


def test_different_xids_are_separate_events():
    assert by_tick(([line(0)], [report(0, 48)])) == [(1, 1)]
    assert by_tick(([line(0)], [report(0, device="0000:3c:00")])) == [(1, 1)]
    assert by_tick(([line(0)], [report(SAME_MS + 1)])) == [(1, 1)]
    assert by_tick(([], [report(0)]), ([line(1), line(2)], [])) == [(0, 1), (1, 0)], "a report is one line"


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from([13, 79]), st.booleans()), max_size=12))
def test_no_xid_of_the_kernel_or_of_the_driver_is_lost(happened):
    """Each line of a tick is an event. Each driver event has an event with its code at most ``SAME_MS`` away."""
    lines = [line(second * 1_000, code) for second, code, is_line in happened if is_line]
    events = [report(second * 1_000, code) for second, code, is_line in happened if not is_line]
    kernel, driver = Given(), Given()
    kernel.events, driver.events = list(lines), list(events)
    found = XidReports(kernel, [driver]).take_records(NOW_MS).events
    codes = [(xid.code, one.time) for one in found if (xid := read_xid(one.message))]
    assert [one for one in found if "name=train" in one.message] == lines
    for second, code, _ in happened:
        assert any(other == code and abs(time - second * 1_000) <= SAME_MS for other, time in codes)
