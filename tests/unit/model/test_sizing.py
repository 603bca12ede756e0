"""Tests of server sizes: the figures of the capacity page, and their growth."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobmeter.cli.main import cli
from jobmeter.model import sizing
from jobmeter.model.retention import Retention
from jobmeter.model.sizing import PlannedFleet, compute_size

PAGE = (Path(__file__).parents[3] / "docs/how-to/capacity.md").read_text(encoding="utf-8")
FLEETS = st.builds(
    PlannedFleet,
    nodes=st.integers(1, 20_000),
    devices=st.integers(0, 16),
    metrics=st.integers(1, 200),
    interval_ms=st.integers(1_000, 300_000),
    jobs=st.integers(0, 1_000_000),
    answers=st.integers(0, 100_000),
    processes=st.integers(1, 64),
    retention=st.builds(
        Retention, raw_days=st.integers(1, 90), minute_days=st.integers(1, 400), hour_days=st.integers(1, 4_000)
    ),
)


def test_the_page_shows_what_the_command_prints():
    ((command, shown),) = re.findall(r"```sh\n(jobmeter size [^\n]*)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert CliRunner().invoke(cli, command.split()[1:]).stdout == shown


@pytest.mark.parametrize(
    ("sentence", "figure"),
    [
        (r"bodies of agents \| ([\d.]+) s of CPU for a million", sizing.STORE_CPU * 1e6),
        (r"roll-ups \| ([\d.]+) s of CPU for 1\.2 million", sizing.ROLL_UP_CPU * 1.2e6),
        (r"production trace \| ([\d.]+)", sizing.RAW_BYTES),
        (r"a minute of one series \| [\d.]+ to ([\d.]+)", sizing.MINUTE_BYTES),
        (r"an hour of one series \| [\d.]+ to ([\d.]+)", sizing.HOUR_BYTES),
        (r"newest samples \| ([\d.]+) bytes", sizing.NEWEST_BYTES),
        (r"1,000 \| ([\d.]+) ms", sizing.FINDING_CPU * 1e3),
        (r"job list \| ([\d.]+) bytes", sizing.JOB_BYTES),
        (r"`--processes`\) \| (\d+) MiB resident", sizing.WORKER_BYTES / 2**20),
        (r"bodies that it reads \| (\d+) MiB", sizing.WORKER_CACHE_BYTES / 2**20),
        (r"`--processes 1`\) \| (\d+) us", sizing.ANSWER_CPU * 1e6),
        (r"several processes \| (\d+) us", sizing.ADMISSION_CPU * 1e6),
        (r"several processes \| \d+ us \| (\d+) us", sizing.WORKER_ANSWER_CPU * 1e6),
        (r"with at most ([\d.]+) of a core beside", sizing.ANSWERING_CORES),
    ],
)
def test_figures_are_those_of_the_page(sentence, figure):
    (quoted,) = re.findall(sentence, PAGE)
    assert float(quoted) == pytest.approx(figure)


@given(FLEETS, st.integers(2, 9))
def test_more_nodes_need_proportionally_more(fleet, factor):
    one, many = compute_size(fleet), compute_size(PlannedFleet(**{**json_of(fleet), "nodes": fleet.nodes * factor}))
    assert many.series == one.series * factor
    assert many.disk - sizing.JOURNAL_BYTES == pytest.approx((one.disk - sizing.JOURNAL_BYTES) * factor, abs=3 * factor)
    assert many.servers >= one.servers


def json_of(fleet):
    return {name: getattr(fleet, name) for name in PlannedFleet.__struct_fields__}


@given(FLEETS)
def test_a_server_stores_what_it_is_given(fleet):
    size = compute_size(fleet)
    assert size.servers * sizing.STORING_CORES >= size.storing_cores > (size.servers - 1) * sizing.STORING_CORES
    assert size.disk >= size.raw + size.minutes + size.hours
    assert size.memory > size.window
    assert size.evaluation_seconds >= 15


@given(FLEETS, st.integers(2, 64))
def test_each_worker_process_takes_memory_and_a_core_and_answers(fleet, processes):
    alone = compute_size(replace(fleet, processes=1))
    size = compute_size(replace(fleet, processes=processes))
    assert (size.memory - alone.memory, size.workers, alone.workers) == (size.workers, processes * 79 * 2**20, 0)
    assert (size.cores, alone.cores) == (processes, sizing.SERVER_CORES)
    assert size.answering_cores <= alone.answering_cores + fleet.answers * sizing.ADMISSION_CPU
    assert size.times >= alone.times


def test_the_first_limit_of_many_questions_is_that_of_their_answers():
    asked = PlannedFleet(nodes=1, devices=8, metrics=40, interval_ms=10_000, jobs=1, answers=2_000)
    for processes, times in ((1, 0.5), (2, 2), (64, 2)):
        size = compute_size(replace(asked, processes=processes))
        assert size.first_limit == "live answers"
        assert size.times == pytest.approx(times, rel=0.05)
    printed = CliRunner().invoke(cli, ["size", "--nodes", "1", "--answers", "9", "--processes", "3"]).stdout
    assert "237.0 MiB for 3 worker processes" in printed


def test_options_are_checked():
    for wrong in ("1,2,3,4", "0", "x", "15,,3"):
        result = CliRunner().invoke(cli, ["size", "--nodes", "5", "--retention", wrong])
        assert (result.exit_code, "RAW,MINUTES,HOURS in days" in result.output) == (2, True)
    made = json.loads(CliRunner().invoke(cli, ["size", "--nodes", "5", "--retention", "30", "--json"]).stdout)
    assert made["raw"] == 2 * json.loads(CliRunner().invoke(cli, ["size", "--nodes", "5", "--json"]).stdout)["raw"]
