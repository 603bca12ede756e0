"""Tests of the content of ``/metrics`` and of the status."""

import os
import shutil
import subprocess
from unittest.mock import Mock

import pytest

from jobmeter.model.time import SystemClock
from jobmeter.server.figures import iterate_cache_metrics, store_metrics
from jobmeter.server.telemetry import Telemetry
from jobmeter.server.workers.pool import WorkerPool
from jobmeter.store.base import StoreStatistics
from jobmeter.store.cache import Cache

PROMTOOL = shutil.which("promtool") or ""


def shown(statistics):
    telemetry = Telemetry(SystemClock())
    telemetry.register(lambda: store_metrics(statistics))
    return telemetry.render().decode()


def test_what_waits_in_the_journal_is_shown():
    journal = {"rows": 7, "bytes": 280, "flushes": 3, "failures": 1}
    text = shown(StoreStatistics(rows={"samples": 5}, bytes={"samples": 10}, journal=journal))
    for line in (
        "# TYPE jobmeter_journal_rows gauge",
        "jobmeter_journal_rows 7.0",
        "jobmeter_journal_bytes 280.0",
        "jobmeter_journal_flushes_total 3.0",
        "jobmeter_journal_failures_total 1.0",
    ):
        assert line in text.splitlines()


def test_processes_are_this_one_and_its_workers():
    telemetry, pids = Telemetry(SystemClock()), [os.getpid()]
    assert telemetry.processes == 1
    telemetry.count_workers(Mock(WorkerPool, connections=3, pids=pids, iterate_metrics=tuple))
    assert telemetry.processes == 2
    pids.append(os.getppid())
    assert telemetry.processes == 3
    assert 'jobmeter_connections{port="http"} 3.0' in telemetry.render().decode()


def test_parts_and_merges_are_shown_by_table():
    text = shown(StoreStatistics(rows={"samples": 5}, bytes={"samples": 10}, parts={"samples": 3}, merges={"hours": 1}))
    assert 'jobmeter_store_parts{table="samples"} 3.0' in text
    assert 'jobmeter_store_merges{table="hours"} 1.0' in text


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian: apt-get install prometheus)")
def test_promtool_finds_nothing_to_mend_where_everything_is_shown():
    one = {"samples": 1}
    statistics = StoreStatistics(
        rows=one,
        bytes=one,
        parts=one,
        merges=one,
        window=dict.fromkeys(("series", "bytes", "seconds"), 1),
        journal=dict.fromkeys(("rows", "bytes", "flushes", "failures"), 1),
        replicas={"one:8123": 1},
    )
    text = shown(statistics).encode()
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.stdout, checked.stderr, checked.returncode) == (b"", b"", 0)


def test_replicas_are_shown_one_by_one():
    text = shown(StoreStatistics(rows={}, bytes={}, replicas={"one:8123": 1, "[::1]:9001": 0}))
    assert 'jobmeter_store_replica_complete{replica="one:8123"} 1.0' in text
    assert 'jobmeter_store_replica_complete{replica="[::1]:9001"} 0.0' in text


def test_a_store_without_a_journal_shows_none():
    text = shown(StoreStatistics(rows={"samples": 5}, bytes={"samples": 10}))
    assert 'jobmeter_store_rows{table="samples"} 5.0' in text
    assert "journal" not in text


def test_a_loaded_kernel_is_reported(server):
    shown = server.raw("GET", "/metrics", headers={"Authorization": f"Bearer {server.admin.token}"}).body.decode()
    assert "jobmeter_kernel_loaded 1.0" in shown
    assert server.call("GET", "/status").json()["kernel"] == "loaded"


def test_the_memory_of_requests_is_shown(server):
    memory = server.application.services.memory
    memory.take(1_000)
    lines = server.raw("GET", "/metrics").body.decode().splitlines()
    memory.give_back(1_000)
    assert "jobmeter_request_memory_bytes 1000.0" in lines
    assert "jobmeter_request_memory_limit_bytes 1.073741824e+09" in lines
    assert "jobmeter_request_memory_refusals_total 0.0" in lines


def test_the_cache_of_questions_is_shown():
    cache, telemetry = Cache(), Telemetry(SystemClock())
    cache.put("a", 1, "A", 100)
    cache.get("a", 1)
    cache.get("b", 1)
    telemetry.register(lambda: iterate_cache_metrics(cache))
    lines = telemetry.render().decode().splitlines()
    assert "jobmeter_cache_entries 1.0" in lines
    assert "jobmeter_cache_hits_total 1.0" in lines
    assert "jobmeter_cache_misses_total 1.0" in lines
    assert f"jobmeter_cache_bytes {float(cache.statistics.bytes)}" in lines
