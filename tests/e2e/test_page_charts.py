"""Tests of the header, phases and charts of a job's page: limits, counts, constant zeros, wide screens, printing."""

import re

import pytest

from jobmeter.model.time import HOUR, MINUTE, SystemClock
from tests.e2e.page import WIDTHS, import_samples, needs_page, wait_for_page
from tests.support.browser import check_view
from tests.support.processes import running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
PHASED, STARVED = "jobs/phased-1", "jobs/starved"
START_MINUTES, WORK_MINUTES, END_MINUTES = 6, 30, 4
GIB = 2**30


def phased(now):
    """Store a job that ended long ago: queued for 10 minutes, prepared for 2, then the phases named above."""
    start = now - 30 * HOUR
    end = start + (START_MINUTES + WORK_MINUTES + END_MINUTES) * MINUTE
    job = {"job_id": "phased-1", "state": "Succeeded", "created": start - 12 * MINUTE, "start": start, "end": end}
    event = {"time": start - 2 * MINUTE, "job": "phased-1", "reason": "Scheduled", "message": "assigned"}
    replica = {"name": "worker-0", "node": "node-0", "devices": ["gpu0"], "start": start, "end": end}
    lines = []
    for at in range(start, end, 10_000):
        works = START_MINUTES <= (at - start) / MINUTE < START_MINUTES + WORK_MINUTES
        lines.append(f"phased-1,worker-0,node-0,gpu0,gpu.utilization,{at},{0.9 if works else 0}")
    return {"jobs": [{**job, "replicas": [replica]}], "events": [event]}, lines


def starved(now):
    """Store a job at its memory limit: the kernel killed two of its processes, and later one more."""
    start, end = now - 50 * MINUTE, now - 10 * MINUTE
    replica = {"name": "worker-0", "node": "node-1", "devices": ["gpu0"], "start": start, "end": end}
    job = {"job_id": "starved", "state": "Failed", "start": start, "end": end, "exit_code": 137}
    lines = []
    for at in range(start, end, 15_000):
        share, killed = (at - start) / (end - start), (at >= end - 5 * MINUTE) * 2 + (at >= end - 2 * MINUTE)
        place = "starved,worker-0,node-1,"
        lines += [f"{place},memory.usage,{at},{GIB * (2 + 6 * share):.0f}", f"{place},memory.limit,{at},{8 * GIB}"]
        lines += [f"{place},memory.oom.kills,{at},{killed}", f"{place},cpu.usage,{at},2"]
        lines += [f"{place},{name},{at},0" for name in ("disk.read", "disk.write", "network.receive")]
        lines += [f"{place}gpu0,gpu.utilization,{at},0", f"{place}gpu0,gpu.power,{at},90"]
        lines += [f"{place}gpu0,gpu.memory.usage,{at},{GIB}", f"{place}gpu0,gpu.temperature,{at},40"]
    return {**job, "replicas": [replica]}, lines


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("page-charts")
    with running(folder / "data") as made:
        now = SystemClock().now_ms() // MINUTE * MINUTE
        records, lines = phased(now)
        job, more = starved(now)
        ended = {"job_id": "ended-1", "state": "Failed", "start": now - 9 * HOUR, "end": now - 8 * HOUR}
        limits = {"cpu.limit": 16, "memory.limit": GIB}
        waits = {"job_id": "waits", "state": "Queued", "created": now - 35 * MINUTE, "limits": limits}
        records["jobs"] += [job, ended, waits]
        assert made.request("POST", "/jobs", records).status == 200
        rows = ["job_id,replica,node,device,metric,time,value", *lines, *more, *slower(now)]
        import_samples(made, folder, rows)
        yield made


def slower(now):
    """Store a job of three ranks that is measured every 10 s, then every minute, with half an hour without samples."""
    times = [*range(now - 90 * MINUTE, now - 75 * MINUTE, 10_000), *range(now - 45 * MINUTE, now, MINUTE)]
    return [f"slower,worker-{rank},node-2,gpu{rank},gpu.utilization,{at},0.5" for at in times for rank in range(3)]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_phases_of_a_job_are_a_band_on_the_time_axis_with_their_lengths(viewer, width):
    viewer.look(width)
    page = viewer.open(PHASED, ".phases .band i")
    texts = [text.strip() for text in page.locator(".phases li").all_inner_texts()]
    assert texts == [
        "queued 10 m 00 s",
        "image pull or prolog 2 m 00 s",
        "start 6 m 00 s",
        "training 30 m 00 s",
        "end 4 m 00 s",
    ]
    # The chart begins at the start of the job. The earlier phases show a duration, and have no place on the axis.
    parts = page.locator(".phases .band i")
    classes = [part.get_attribute("class") for part in parts.all()]
    assert classes == ["phase-start", "phase-training", "phase-end"]
    band = page.locator(".phases .band").bounding_box()
    boxes = [part.bounding_box() for part in parts.all()]
    assert boxes[1]["x"] - band["x"] == pytest.approx(band["width"] * 6 / 40, abs=2)
    assert boxes[1]["width"] == pytest.approx(band["width"] * 30 / 40, abs=2)
    assert band["height"] <= 12
    check_view(page, width)


def test_the_band_follows_the_range_that_is_shown(viewer):
    page = viewer.open(PHASED, ".phases .band i")
    assert page.locator(".phases .band .phase-end").count() == 1
    page.click("button[aria-label='Zoom in']")
    wait_for_page(page, "document.querySelectorAll('.phases .band i').length === 1")
    width = page.evaluate("document.querySelector('.phases .band .phase-training').style.width")
    assert width == "100%"
    assert page.locator(".phases li").count() == 5


def test_a_job_of_which_no_phase_is_separate_has_no_band(viewer):
    with viewer.page.expect_response(lambda one: "/jobs/ended-1/phases" in one.url) as answer:
        page = viewer.open("jobs/ended-1", "header.job h1")
    assert set(answer.value.json()["totals"]) == {"unattributed"}
    page.wait_for_selector("#events li, #events .hint")
    assert page.locator(".phases").count() == 0


def test_memory_has_its_limit_as_a_line_and_kills_are_counted(viewer):
    page = viewer.open(STARVED, '.chart[data-metric="memory.usage"] .bound')
    viewer.see('.chart[data-metric="memory.usage"] canvas')
    assert page.inner_text('.chart[data-metric="memory.usage"] .bound').split() == ["limit", "8.00", "GiB"]
    assert page.locator('.chart[data-metric="cpu.usage"] .bound').count() == 0
    critical = """(() => {
      const canvas = document.querySelector('.chart[data-metric="memory.usage"] canvas');
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const probe = document.body.appendChild(document.createElement("i"));
      probe.style.color = "var(--critical)";
      const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
      let found = 0;
      for (let at = 0; at < data.length; at += 4)
        found += data[at + 3] > 60 && [r, g, b].every((part, place) => Math.abs(data[at + place] - part) < 16);
      return found;
    })()"""
    wait_for_page(page, f"{critical} > 100")
    kills = page.locator('.chart[data-metric="memory.oom.kills"] .legend')
    wait_until(lambda: "3 processes" in kills.inner_text(), "the number of kills")
    assert "/s" not in kills.inner_text()


def test_charts_that_stayed_0_are_behind_a_line_that_names_them(viewer):
    page = viewer.open(STARVED, "details.quiet")
    assert page.inner_text("details.quiet summary") == "3 that stayed 0: Received, Read, Written"
    assert page.locator('.chart[data-metric="disk.read"]').count() == 0
    assert page.locator("#disk, #network").count() == 0
    assert page.locator('.chart[data-metric="gpu.utilization"]').count() == 1, "an idle device is no quiet chart"
    page.click("details.quiet summary")
    page.wait_for_selector('details.quiet .chart[data-metric="disk.read"]')


def test_the_header_says_how_much_is_idle_and_how_long_a_queued_job_waits(viewer):
    page = viewer.open(STARVED, ".facts div:has-text('Device time')")
    assert re.fullmatch(
        r"Device time\s+100 % idle, 0\.\d+ of 0\.\d+ device hours",
        page.inner_text(".facts div:has-text('Device time')"),
    )
    page = viewer.open(PHASED, ".facts div:has-text('Device time')")
    page = viewer.open("jobs/waits", ".facts div:has-text('Waiting')")
    facts = page.inner_text(".facts")
    assert re.search(r"Waiting\s+\d+ m \d\d s", facts)
    assert re.search(r"CPU limit\s+16.0 cores", facts)
    assert re.search(r"Memory limit\s+1.00 GiB", facts)
    assert "Started" not in facts


MAP = """(() => {
  const canvas = document.querySelector(".heat canvas");
  const ratio = canvas.width / canvas.clientWidth;
  const row = canvas.getContext("2d").getImageData(62 * ratio, 3, canvas.width - 80 * ratio, 1).data;
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = "var(--nodata)";
  const ground = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  const runs = [];
  for (let at = 0; at < row.length; at += 4) {
    const empty = ground.every((part, place) => Math.abs(row[at + place] - part) < 3);
    if (runs.length && runs.at(-1)[0] === empty) runs.at(-1)[1] += 1;
    else runs.push([empty, 1]);
  }
  return runs.filter(([, length]) => length > 1).map(([empty]) => empty);
})()"""
"""Script that returns, for each stretch of the first row of the heat map, True if it has no data."""


def test_the_map_has_no_gaps_where_a_job_is_measured_more_rarely(viewer):
    page = viewer.open("jobs/slower", ".heat canvas")
    page.click("role=button[name='all']")
    wait_until(lambda: page.evaluate(MAP)[:3] == [False, True, False], "one gap, where nothing was measured")
    assert page.evaluate(MAP).count(True) <= 2, "besides it the end alone may be without data"


@pytest.mark.parametrize(("width", "columns"), [(1280, 3), (1440, 4)])
def test_a_wide_screen_has_a_fourth_chart_in_a_row(viewer, width, columns):
    viewer.page.set_viewport_size({"width": width, "height": 1000})
    page = viewer.open(STARVED, '#accelerators .chart[data-metric="gpu.temperature"]')
    tops = (
        "[...document.querySelectorAll('#accelerators figure')].map(one => Math.round(one.getBoundingClientRect().top))"
    )
    in_first_row = f"(tops => tops.length === 4 && tops.filter(top => top === tops[0]).length)({tops})"
    wait_for_page(page, f"{in_first_row} === {columns}")
    check_view(page, str(width))


def test_paper_has_what_is_read_and_nothing_that_is_pressed(viewer):
    page = viewer.open(STARVED, '.chart[data-metric="memory.usage"] canvas')
    page.emulate_media(media="print")
    assert page.is_hidden("header.top")
    assert page.is_hidden(".timebar >> text=Export")
    assert page.is_visible("header.job h1")
    assert page.is_visible(".finding")
    assert page.evaluate("getComputedStyle(document.querySelector('.timebar')).position") == "static"
