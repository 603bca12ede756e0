"""Tests of the keys of ``jobmeter top`` on screens of several sizes, with the fake server of command tests."""

import asyncio
import time
from contextlib import asynccontextmanager
from io import StringIO

import pytest
from rich.console import Console
from tests.support.fakes import SetClock
from tests.support.waiting import SECONDS
from textual.widgets import Static

from jobmeter.cli.screens.app import TopApp
from jobmeter.cli.screens.findings import FindingsScreen
from jobmeter.cli.screens.job import JobScreen
from jobmeter.cli.screens.jobs import JobsScreen
from jobmeter.cli.screens.table import LiveTable
from jobmeter.client.api import Api
from jobmeter.client.transport import Transport

RANKS, SLOW = 4, 2
START = 1_790_000_000_000
NAME = "[red]evil\x1b[31m"


def value(metric, unit, rank, number, device=""):
    place = {"replica": f"worker-{rank}", "node": f"n{rank}", "device": device}
    return {"metric": metric, "unit": unit, "time": START, "value": number, **place}


def use(rank):
    return 0.3 if rank == SLOW else 0.9


VALUES = [
    one
    for rank in range(RANKS)
    for one in (
        value("cpu.usage", "{core}", rank, rank + 1.5),
        value("gpu.utilization", "1", rank, use(rank), "gpu0"),
        value("gpu.memory.utilization", "1", rank, 0.5, "gpu0"),
        value("gpu.power", "W", rank, 100 * rank, "gpu0"),
    )
]
FINDING = {
    "rule": "straggler_rank",
    "role": "root",
    "severity": "warning",
    "confidence": 0.9,
    "subject": {"kind": "replica", "name": "worker-2"},
    "start": START,
    "end": START + 1000,
    "evidence": [{"kind": "metric", "text": "0.3 where others have 0.9"}, {"kind": "log", "text": NAME}],
    "advice": "look at its node",
    "source": "https://example.org",
    "replicas": ["worker-2"],
}


def metrics(asked):
    by = asked.parameters["by"][0]
    ranks = range(RANKS) if by == "replica" else [0]
    lines = [
        {
            "metric": "gpu.utilization",
            "unit": "1",
            "replica": f"worker-{rank}" if by == "replica" else "",
            "points": [[START + 20_000 * at, use(rank)] for at in range(10)],
        }
        for rank in ranks
    ]
    return 200, {"job": "busy", "start": START, "end": START + 200_000, "step": 1000, "lines": lines}, {}


@pytest.fixture
def fleet(server):
    """Prepare a server with a running job of four ranks, one of them slow, another running job, and an ended one."""
    busy = {"id": "busy", "name": NAME, "state": "Running", "project": "default", "start": START}
    idle = {**busy, "id": "idle", "name": "x"}
    ended = {**busy, "id": "ended", "state": "Failed", "end": START + 5000}

    def jobs(asked):
        found = [idle, busy] if "state" in asked.parameters else [ended, idle, busy]
        return 200, {"jobs": found, "total": len(found)}, {}

    server.on("/jobs", jobs)
    replicas = [{"name": f"worker-{rank}", "rank": rank} for rank in range(RANKS)]
    server.on("/jobs/busy", {"job": busy, "replicas": replicas})
    server.on("/jobs/busy/latest", {"values": VALUES})
    server.on("/jobs/busy/metrics", metrics)
    server.on("/jobs/busy/findings", [FINDING] * 3)
    server.on("/jobs/idle/latest", {"values": [value("cpu.usage", "{core}", 0, 0.01)]})
    return server


class Screens:
    """Running program with its inspected parts."""

    def __init__(self, app, pilot):
        self.app = app
        self.pilot = pilot

    def text(self, name="#title"):
        return text_of(self.app.screen.query_one(name, Static))

    def table(self, name):
        return self.app.screen.query_one(name, LiveTable)

    def column(self, name, at=0):
        table = self.table(name)
        return [str(table.get_row_at(row)[at]).strip() for row in range(table.row_count)]

    def heads(self, name):
        return [str(column.label) for column in self.table(name).ordered_columns]

    def on(self, kind):
        return isinstance(self.app.screen, kind)

    async def until(self, what):
        deadline = time.monotonic() + SECONDS
        while not what():
            assert time.monotonic() < deadline, "it never came to that"
            await self.pilot.pause(0.01)

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.pilot.pause()


def text_of(shown):
    """Return the text of a widget, in one line for a table."""
    text = StringIO()
    Console(file=text, width=500).print(shown.content)
    return text.getvalue()


@asynccontextmanager
async def screens(server, size=(80, 24), job=None):
    api = Api(Transport(server.url, "t0"))
    app = TopApp(api, SetClock(START + 600_000), 0.05, project=None, job=job)
    async with app.run_test(size=size) as pilot:
        made = Screens(app, pilot)
        await made.until(lambda: "Loading" not in made.text())
        yield made


def test_jobs_are_listed_busiest_first_and_sorted_by_keys(fleet):
    async def steps():
        async with screens(fleet, (200, 50)) as shown:
            await shown.until(lambda: shown.column("#jobs") == ["busy", "idle"])
            assert "2 running jobs" in shown.text()
            await shown.press("s")
            assert shown.heads("#jobs")[0] == "id ▲"
            await shown.press("r")
            assert shown.column("#jobs") == ["idle", "busy"]
            name = shown.heads("#jobs").index("name")
            assert shown.column("#jobs", name)[1] == "[red]evil�[31m"

    asyncio.run(steps())


def test_a_shows_jobs_that_ended_too(fleet):
    async def steps():
        async with screens(fleet) as shown:
            await shown.press("a")
            await shown.until(lambda: "ended" in shown.column("#jobs"))
            await shown.press("a")
            await shown.until(lambda: "ended" not in shown.column("#jobs"))

    asyncio.run(steps())


def test_enter_opens_a_job_and_escape_leaves_it(fleet):
    async def steps():
        async with screens(fleet) as shown:
            await shown.until(lambda: shown.table("#jobs").row_count == 2)
            await shown.press("enter")
            await shown.until(lambda: shown.on(JobScreen))
            await shown.until(lambda: shown.column("#ranks") == ["worker-2", "worker-0", "worker-1", "worker-3"])
            await shown.until(lambda: "straggler_rank" in shown.text("#found"))
            assert "1 more: f" in shown.text("#found")
            await shown.press("escape")
            assert shown.on(JobsScreen)

    asyncio.run(steps())


def test_ranks_give_way_to_devices_with_bars_on_a_small_screen(fleet):
    async def steps():
        async with screens(fleet, job="busy") as shown:
            await shown.until(lambda: shown.table("#devices").row_count == RANKS)
            assert shown.table("#ranks").display
            assert not shown.table("#devices").display
            await shown.press("d")
            assert not shown.table("#ranks").display
            use_of = shown.heads("#devices").index("use")
            await shown.until(lambda: shown.column("#devices", use_of)[0] == "███         30.0%")
            assert shown.column("#devices", shown.heads("#devices").index("node")) == ["n2", "n0", "n1", "n3"]
            await shown.press("d")
            assert shown.table("#ranks").display
            await shown.pilot.resize_terminal(120, 50)
            await shown.until(lambda: shown.table("#devices").display and shown.table("#ranks").display)

    asyncio.run(steps())


@pytest.mark.parametrize(
    "subject", [{"kind": "replica", "name": "worker-2"}, {"kind": "device", "name": "n2/gpu0"}, None]
)
def test_the_rank_that_a_finding_is_about_is_marked_and_no_other(fleet, subject):
    """The screen marks only ranks with findings, whatever their distance from the median.

    The marked rank comes first.
    """
    fleet.on("/jobs/busy/findings", [{**FINDING, "subject": subject}] if subject else [])
    expected = ["worker-2"] if subject else []

    def marked(shown):
        cells = [shown.table("#ranks").get_row_at(row)[0] for row in range(shown.table("#ranks").row_count)]
        return [cell.plain for cell in cells if cell.spans]

    async def steps():
        async with screens(fleet, job="busy") as shown:
            await shown.until(lambda: ("straggler_rank" if subject else "no rule found") in shown.text("#found"))
            await shown.until(lambda: shown.table("#ranks").row_count == RANKS and marked(shown) == expected)

    asyncio.run(steps())


def test_f_reports_the_evidence_and_the_advice(fleet):
    async def steps():
        async with screens(fleet, job="busy") as shown:
            await shown.until(lambda: "straggler_rank" in shown.text("#found"))
            await shown.press("f")
            assert shown.on(FindingsScreen)
            text = shown.text("#text Static")
            assert "look at its node" in text
            assert "[red]evil�[31m" in text
            await shown.press("escape")
            assert shown.on(JobScreen)

    asyncio.run(steps())


def test_a_table_begins_with_the_marked_device_and_is_as_wide_as_its_cells(fleet):
    async def steps():
        async with screens(fleet, (80, 20), job="busy") as shown:
            await shown.until(lambda: shown.column("#devices", 1)[:1] == ["worker-2"])
            devices, ranks = shown.table("#devices"), shown.table("#ranks")
            await shown.press("d")
            assert (devices.cursor_row, devices.scroll_y) == (0, 0)
            # Reordered rows are drawn again, and no column shrinks to its header meanwhile.
            before = [column.content_width for column in ranks.ordered_columns]
            ranks.sort_next()
            assert [column.content_width for column in ranks.ordered_columns][1:] == before[1:]

    asyncio.run(steps())


def test_columns_come_and_go_with_the_width_and_an_id_is_never_cut(fleet):
    async def steps():
        async with screens(fleet, (200, 50)) as shown:
            await shown.until(lambda: "power" in shown.heads("#jobs"))
            await shown.pilot.resize_terminal(50, 24)
            await shown.until(lambda: "power" not in shown.heads("#jobs"))
            assert shown.column("#jobs") == ["busy", "idle"]
            await shown.until(lambda: "hidden columns" in shown.text("#note"))

    asyncio.run(steps())


def test_the_cursor_stays_on_its_row_when_others_move(fleet):
    async def steps():
        async with screens(fleet, job="busy") as shown:
            await shown.until(lambda: shown.column("#ranks")[:1] == ["worker-2"])
            await shown.press("down")
            chosen = shown.table("#ranks").chosen
            await shown.press("s", "r")
            assert shown.column("#ranks")[0] == "worker-3"
            assert shown.table("#ranks").chosen == chosen

    asyncio.run(steps())


def test_a_refusal_is_shown_and_the_rows_stay(fleet):
    async def steps():
        async with screens(fleet) as shown:
            await shown.until(lambda: shown.table("#jobs").row_count == 2)
            problem = {"error": {"code": "unavailable", "message": "the registry is away"}, "request_id": "X"}
            fleet.on("/jobs", lambda asked: (503, problem, {}))
            await shown.until(lambda: "the registry is away" in shown.text())
            assert shown.table("#jobs").row_count == 2

    asyncio.run(steps())


def test_nothing_runs_says_what_to_do(server):
    server.on("/jobs", {"jobs": [], "total": 0})

    async def steps():
        async with screens(server) as shown:
            await shown.until(lambda: "no running jobs; press a" in shown.text("#note"))
            await shown.press("a")
            await shown.until(lambda: "no jobs yet: `jobmeter demo`" in shown.text("#note"))

    asyncio.run(steps())


def test_jobs_with_critical_findings_come_first_and_say_why(fleet):
    sentence = "worker-2 (n1, gpu2): XID 79: the GPU has fallen off the bus"
    found = {"id": "idle", "project": "default", "severity": "critical", "count": 1, "rules": ["xid"], "open": 1}
    jobs = [{"id": name, "state": "Running", "project": "default", "start": START} for name in ("busy", "idle")]
    fleet.on("/jobs", {"jobs": jobs, "total": 2, "findings": [{**found, "sentence": sentence}]})

    async def steps():
        async with screens(fleet, (200, 50)) as shown:
            await shown.until(lambda: shown.table("#jobs").row_count == 2)
            assert shown.column("#jobs") == ["idle", "busy"], "the busiest comes first where nothing is critical"
            assert "1 with critical findings" in shown.text()
            assert f"idle: critical: {sentence}" in shown.text("#note")
            assert "critical xid" in shown.column("#jobs", shown.heads("#jobs").index("finding"))

    asyncio.run(steps())
