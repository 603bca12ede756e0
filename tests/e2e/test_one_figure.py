"""Figures of a single job in each command: equal values under the same names, in the same units."""

import os
import re
import sys

import pytest

REPLICA = """
import threading, time
held = bytearray(48 << 20)
idle = threading.Event()
until = time.monotonic() + 6
while time.monotonic() < until:
    sum(range(20_000))
    idle.wait(0.002)
"""
JOB = f"two-{os.getpid()}"
"""Unique job id: a machine runs an id once at a time, and other tests run in parallel."""
_SCALE = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "cores": 1}


def figures(text):
    """Return every number with a unit, in bytes or cores."""
    found = re.findall(r"([0-9.]+) (KiB|MiB|GiB|cores|B)\b", text)
    return [float(number) * _SCALE[unit] for number, unit in found]


def row(text, name):
    return next(line for line in text.splitlines() if line.strip().startswith(name))


@pytest.fixture(scope="module")
def job(reach):
    from tests.e2e.conftest import start

    api, token = reach
    environment = {"JOBMETER_SERVER": api.transport.server, "JOBMETER_KEY": token}
    result = start("run", "--replicas", "2", "--job-id", JOB, "--", sys.executable, "-c", REPLICA, **environment)
    assert result.status == 0, result.err
    return result.err


def test_run_show_jobs_and_metrics_agree(jobmeter, job):
    mean, peak = figures(row(job, "memory "))
    of_one = figures(row(job, "memory.peak"))[0]
    cpu_mean, cpu_peak = figures(row(job, "CPU"))
    assert peak > 2 * 48 * 2**20, "of both replicas together"

    shown = jobmeter("show", JOB).out
    shown_mean, shown_peak, one_mean, one_peak = figures(row(shown, "memory.usage"))
    assert shown_peak == pytest.approx(peak, rel=0.05)
    assert shown_mean == mean, "one definition: the mean of the steps of the summary"
    assert (one_mean, one_peak) == pytest.approx((shown_mean / 2, shown_peak / 2), rel=0.15)
    assert figures(row(shown, "memory.peak"))[-1] == pytest.approx(of_one, rel=0.01)
    shown_cpu_mean, shown_cpu_peak, *_ = figures(row(shown, "cpu.usage"))
    assert shown_cpu_mean == pytest.approx(cpu_mean, rel=0.5, abs=0.05)
    assert shown_cpu_peak == pytest.approx(cpu_peak, rel=0.5, abs=0.05)

    listed = figures(row(jobmeter("jobs").out, JOB))
    assert listed == [shown_cpu_mean, shown_peak]

    asked = jobmeter("metrics", JOB, "--metric", "memory.usage", "--by", "job", "--step", "1s").out
    asked_mean, _, asked_peak, asked_last = figures(row(asked, "job"))
    assert (asked_mean, asked_peak) == pytest.approx((shown_mean, shown_peak), rel=0.05)

    top = row(jobmeter("top", JOB, "--once").out, "worker-0")
    other = row(jobmeter("top", JOB, "--once").out, "worker-1")
    assert figures(top)[1] + figures(other)[1] == pytest.approx(asked_last, rel=0.05)


def test_memory_has_one_family_of_units(jobmeter, job):
    for text in (job, jobmeter("show", JOB).out, jobmeter("jobs").out, jobmeter("top", JOB, "--once").out):
        assert not re.search(r"[0-9] [kMG]B(?!/s)", text), text
