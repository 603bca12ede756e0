"""Tests of the comparison of jobs: selection in the list, alignment at their start, and state in the address."""

import re

import pytest

from jobmeter.model.time import HOUR, MINUTE, SystemClock
from tests.e2e.page import import_samples, needs_page, wait_for_page
from tests.support.processes import running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
NOTHING, LESS = "\N{EN DASH}", "\N{MINUS SIGN}40.0 points"
SHORT, LONG = 10, 20
"""Minutes that the two jobs ran."""


def samples(now):
    """Yield CSV of two jobs: the first an hour earlier, twice as long and half as busy."""
    yield "job_id,replica,node,device,metric,time,value"
    for job, begin, minutes, busy in (("fast", now - HOUR, SHORT, 0.8), ("slow", now - 2 * HOUR, LONG, 0.4)):
        for at in range(begin, begin + minutes * MINUTE, 15_000):
            yield f"{job},worker-0,n1,gpu0,gpu.utilization,{at},{busy}"
            if job == "fast":
                yield f"{job},worker-0,n1,,cpu.usage,{at},2"
    for at in range(now - HOUR, now - HOUR + 2 * LONG * MINUTE, 72_000):
        yield f"uneven,worker-0,n1,gpu1,gpu.utilization,{at},0.6"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("compare")
    with running(folder / "data") as made:
        now = SystemClock().now_ms() // HOUR * HOUR
        lengths = (("fast", now - HOUR, SHORT), ("slow", now - 2 * HOUR, LONG), ("uneven", now - HOUR, 2 * LONG))
        times = [{"job_id": job, "start": begin, "end": begin + minutes * MINUTE} for job, begin, minutes in lengths]
        assert made.request("POST", "/jobs", [{"state": "Succeeded", **one} for one in times]).status == 200
        import_samples(made, folder, samples(now))
        yield made


def test_jobs_are_picked_in_the_list_by_keyboard_and_compared(viewer):
    page = viewer.open("?sort=name&order=asc", ".rows .row[data-at] input")
    page.focus("input[aria-label='Compare fast']")
    page.keyboard.press("Space")
    assert page.is_disabled(".picked >> text=Compare")
    page.check("input[aria-label='Compare slow']")
    wait_for_page(page, "location.hash.split('pick=').length === 3")
    page.focus(".picked .primary")
    page.keyboard.press("Enter")
    page.wait_for_selector('.chart[data-metric="gpu.utilization"] canvas')
    assert "job=fast&job=slow&project=default" in page.url
    rows = page.locator("#figures tbody tr").all_inner_texts()
    assert any("80.0 %" in row and "40.0 %" in row and LESS in row for row in rows)
    assert "20 m 00 s" in page.inner_text(".compared >> nth=0")
    assert "+100 %" in page.inner_text(".compared >> nth=0")


def test_each_job_has_its_colour_in_every_chart(viewer):
    page = viewer.open("compare?job=slow&job=fast", '.chart[data-metric="cpu.usage"] canvas')
    each = "[...one.querySelectorAll('i')].map(colour => colour.style.background).join()"
    colours = f"[...document.querySelectorAll('.legend')].map(one => {each})"
    assert len(set(page.evaluate(colours))) == 1
    legend = page.inner_text('.chart[data-metric="cpu.usage"] .legend')
    assert "slow" in legend
    assert NOTHING in legend


DRAWN = """(one => {
  const [, r, g, b] = one.querySelectorAll(".legend i")[1].style.background.match(/(\\d+), (\\d+), (\\d+)/).map(Number);
  const canvas = one.querySelector("canvas");
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const columns = [];
  for (let x = 0; x < width; x += 1)
    for (let y = 0; y < height; y += 1) {
      const at = 4 * (y * width + x);
      const off = Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b);
      if (data[at + 3] > 100 && off < 60) { columns.push(x); break; }
    }
  return columns;
})(document.querySelector('.chart[data-metric="gpu.utilization"]'))"""
"""Script that returns the pixel columns with the second job's colour."""


def test_samples_that_fit_no_step_make_one_line(viewer):
    page = viewer.open("compare?job=fast&job=uneven", '.chart[data-metric="gpu.utilization"] canvas')
    wait_for_page(page, f"{DRAWN}.length > 100")
    columns = page.evaluate(DRAWN)
    assert len(columns) >= 0.98 * (columns[-1] - columns[0])


def test_a_brushed_span_zooms_all_charts_and_stands_in_the_address(viewer):
    page = viewer.open("compare?job=fast&job=slow", '.chart[data-metric="gpu.utilization"] .u-over')
    box = wait_until(page.locator('.chart[data-metric="gpu.utilization"] .u-over').bounding_box)
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 40)
    wait_for_page(
        page, "[...document.querySelectorAll('.chart .when')].every(one => /^[+][45] m/.test(one.textContent))"
    )
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40, steps=5)
    page.mouse.up()
    wait_for_page(page, "location.hash.includes('from=')")
    assert re.match(r"From [45] m .. s to (9|10) m", page.inner_text(".zoomed"))
    page.click("text=Whole jobs")
    wait_for_page(page, "!location.hash.includes('from=')")


def test_one_job_alone_says_what_to_do_and_an_unknown_one_is_named(viewer):
    page = viewer.open("compare?job=fast", ".notice")
    assert "Choose at least two jobs" in page.inner_text(".notice")
    viewer.open("compare?job=fast&job=slow", ".chart canvas")
    page = viewer.open("compare?job=fast&job=nobody", ".notice.problem")
    assert page.locator("table, .chart").count() == 0
    assert "nobody" in page.inner_text(".notice")
    page.click("text=Select other jobs in the list")
    page.wait_for_selector(".rows .row[data-at]")


def test_settings_findings_and_values_per_device_are_beside_each_other(viewer, server):
    record = {"command": "train --lr 1", "labels": {"seed": "7"}, "user": "lin", "limits": {"cpu.limit": 8}}
    other = {"command": "train --lr 2", "limits": {"cpu.limit": 16}}
    jobs = [{"job_id": "fast", **record}, {"job_id": "slow", **record, **other}]
    event = {
        "time": 1_790_000_000_000,
        "job": "slow",
        "reason": "Finding",
        "level": "error",
        "message": "xid (job slow)",
    }
    server.request("POST", "/jobs", {"jobs": jobs, "events": [event]})
    page = viewer.open("compare?job=fast&job=slow", "#settings table")
    rows = [row.split("\t") for row in page.locator("#settings tbody tr").all_inner_texts()]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["command", "train --lr 1", "train --lr 2"],
        ["CPU limit", "8.00 cores", "16.00 cores"],
    ]
    assert "user" in page.inner_text("#settings .hint")
    assert page.locator(".compared >> nth=0 >> .found.critical").count() == 1
    assert page.locator(".compared >> nth=0 >> text=none").count() == 1
    page.click("text=Per device")
    wait_for_page(page, "location.hash.includes('per=device')")
    page.wait_for_selector("text=Mean and peak of one device")
