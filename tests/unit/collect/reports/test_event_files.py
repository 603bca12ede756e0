"""Tests of event files: open files of processes are read to their ends, other names and kinds are ignored."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

from tests.unit.collect.reports.test_receiver import make, member, values
from tests.unit.wire.test_tfevents import START, event, record, simple

from jobmeter.collect.clock import SampleClock
from jobmeter.collect.reports.programs import MOST_BYTES, EventFileCollector
from jobmeter.model.time import SystemClock


@contextmanager
def followed(descriptor):
    """Yield a process that has the file open, and a function that collects once and returns the values by metric."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[descriptor]) as holder:
        reports = make({holder.pid: member()}.get)
        clock = SampleClock(SystemClock())
        collector = EventFileCollector(reports, lambda: [holder.pid], clock, 2_000)

        def turn(later_ms=0):
            assert collector.collect(clock.now_ms() + later_ms) == []
            return values(reports)

        yield holder, turn
        collector.close()
        holder.communicate()


def scalar(step, value=1.0):
    return record(event(SystemClock().now_ms() / 1_000, step, simple("loss", value)))


def own_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_is_appended_is_read_also_after_the_file_was_removed(tmp_path):
    path = tmp_path / "events.out.tfevents.5.host"
    with path.open("wb", buffering=0) as file, followed(file.fileno()) as (_, follow):
        file.write(START + scalar(1))
        assert follow()["app.loss"] == [1.0]
        second = scalar(2, 0.5)
        file.write(second[:-3])
        assert "app.loss" not in follow()
        path.unlink()
        file.write(second[-3:])
        assert follow()["app.loss"] == [0.5]


def test_a_file_that_no_process_has_open_any_more_is_closed(tmp_path):
    with (tmp_path / "a.tfevents.1").open("wb", buffering=0) as file, followed(file.fileno()) as (holder, follow):
        file.write(START)
        before = own_descriptors()
        follow()
        assert own_descriptors() == before + 1
        holder.kill()
        holder.wait()
        file.write(scalar(1))
        assert follow(10_000)["app.loss"] == [1.0], "what was written last"
        follow(61_000)
        assert own_descriptors() == before


def test_pipes_and_files_of_other_names_are_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe.tfevents")
    pipe = os.open(tmp_path / "pipe.tfevents", os.O_RDWR)
    with followed(pipe) as (_, follow):
        assert follow() == {}
    os.close(pipe)
    with (tmp_path / "other").open("wb", buffering=0) as file, followed(file.fileno()) as (_, follow):
        file.write(START + scalar(1))
        assert follow() == {}


def test_a_long_file_is_read_in_parts(tmp_path):
    with (tmp_path / "a.tfevents.1").open("wb", buffering=0) as file, followed(file.fileno()) as (_, follow):
        file.write(START + b"".join(record(b"\x12" * 1_000) for _ in range(MOST_BYTES // 1_000)) + scalar(1))
        assert "app.loss" not in follow()
        assert follow()["app.loss"] == [1.0]
