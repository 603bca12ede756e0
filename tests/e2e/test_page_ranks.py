"""Tests of the ranks on a job's page: heat map, panel of a rank, table of replicas, chart lines."""

import re

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from tests.e2e.page import RANKS, SLOW, import_samples, needs_page, training_server, wait_for_page
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TRAIN = "jobs/train-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    with training_server(tmp_path_factory.mktemp("page")) as made:
        yield made


def test_a_phone_shows_how_far_a_rank_is_from_the_median(viewer):
    viewer.look("phone")
    page = viewer.open(f"{TRAIN}?rank=worker-{SLOW}", ".rank-panel table")
    assert "GPU utilization" in page.inner_text(".rank-panel tbody")
    assert page.evaluate("(one => one.scrollWidth <= one.clientWidth)(document.querySelector('.rank-panel .wide'))")


def test_replicas_and_devices_have_their_newest_values_and_are_chosen(viewer):
    page = viewer.open(TRAIN, "#replicas tbody tr")
    wait_until(lambda: "%" in page.inner_text("#replicas tbody"), "values")
    assert page.inner_text("#replicas-title") == f"{RANKS} replicas, {RANKS} devices"
    row = page.locator("#replicas tbody tr", has=page.locator(f"text=worker-{SLOW}"))
    cells = row.inner_text().split("\t")
    assert [text.strip() for text in cells[:4]] == [str(SLOW), f"worker-{SLOW}", f"gpu{SLOW}", "node-0"]
    assert any("40.0 %" in cell for cell in cells)
    heads = page.locator("#replicas thead th").all_inner_texts()
    assert "Running for" not in heads, "all ran as long as the job"
    row.locator("button").click()
    wait_for_page(page, f"location.hash.includes('rank=worker-{SLOW}')")
    assert "chosen" in row.get_attribute("class")


def names(page):
    """Return the replicas of the table from the first row on."""
    return page.locator("#replicas tbody th").all_inner_texts()


def test_replicas_that_findings_name_are_first_with_their_difference_and_every_column_sorts(viewer):
    page = viewer.open(TRAIN, "#replicas tbody tr.named")
    others = [f"worker-{rank}" for rank in range(RANKS) if rank != SLOW]
    assert names(page) == [f"worker-{SLOW}", *others]
    wait_until(lambda: "\N{MINUS SIGN}50.0 points" in page.inner_text("#replicas tr.named"), "the difference")
    assert page.locator("#replicas tr:not(.named) .apart").count() == 0, "nor of a replica that no finding names"
    head = page.locator("#replicas thead th", has_text="CPU")
    for direction, first in (("descending", RANKS - 1), ("ascending", 0)):
        head.locator("button").click()
        wait_until(lambda: head.get_attribute("aria-sort") == direction, direction)  # noqa: B023
        assert names(page)[0] == f"worker-{first}"
    head.locator("button").click()
    wait_until(lambda: names(page)[0] == f"worker-{SLOW}", "the order of findings again")
    assert page.locator("#replicas [aria-sort]").count() == 0


def test_the_line_under_the_pointer_is_named_among_many(viewer):
    page = viewer.open(TRAIN, '.chart[data-metric="gpu.utilization"] .u-over')
    chart = page.locator('.chart[data-metric="gpu.utilization"]')
    assert "grey: all 16" in chart.inner_text()
    over = chart.locator(".u-over")

    def named():
        # Late parts of the page move or redraw the chart, so read its position again.
        if not over.is_visible():
            return False
        width, height = over.evaluate("element => [element.clientWidth, element.clientHeight]")
        # The axis ends a little above 100 %, and the slow rank is at 40 % of it.
        over.hover(position={"x": width / 2, "y": height * (1 - 0.4 / 1.02)}, force=True)
        return f"worker-{SLOW}" in chart.locator(".when").inner_text()

    wait_until(named, "the line is named")


def test_the_heat_map_says_which_time_it_is(viewer):
    page = viewer.open(TRAIN, ".heat .ticks span")
    texts = page.locator(".heat .ticks span").all_inner_texts()
    assert len(texts) >= 2
    assert all(re.fullmatch(r"\d\d:\d\d|\d\d-\d\d", text) for text in texts), "the day where midnight is between two"


def test_a_row_of_the_heat_map_opens_the_rank_beside_the_median(viewer):
    page = viewer.open(TRAIN, ".heat canvas")
    page.wait_for_selector(".outliers button")
    box = page.locator(".heat canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * (SLOW + 0.5) / RANKS)
    page.wait_for_selector(".rank-panel")
    assert page.inner_text("#rank-title") == f"Rank {SLOW}: worker-{SLOW}"
    row = page.inner_text(".rank-panel tr[data-metric='gpu.utilization']")
    assert re.search(r"40\.0 %\s+90\.0 %\s+\N{MINUS SIGN}50\.0 points", row)
    page.click("[aria-label='Next rank']")
    wait_for_page(page, f"document.querySelector('#rank-title').textContent.includes('worker-{SLOW + 1}')")
    assert f"rank=worker-{SLOW + 1}" in page.url
    page.focus("[aria-label='Next rank']")
    page.keyboard.press("Escape")
    page.wait_for_selector(".rank-panel", state="detached")


def active(page):
    """Return the text that a screen reader reads for the row with the focus."""
    row = page.get_attribute(".heatrows", "aria-activedescendant")
    return page.get_attribute(f"#{row}", "aria-label")


def test_the_keyboard_alone_goes_over_the_heat_map_into_a_rank_and_back(viewer):
    page = viewer.open(TRAIN, ".heatrows [role=option]")
    page.wait_for_selector(".outliers button")
    page.focus(".outliers button")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "listbox"
    assert active(page) == f"rank {SLOW}, worker-{SLOW}: mean 40.0 %, computes at 40 %; the median is 90 %"
    assert active(page) in page.inner_text(".heat .caption")
    for key, rank in (("ArrowDown", SLOW + 1), ("ArrowUp", SLOW), ("Home", 0), ("ArrowUp", 0), ("End", RANKS - 1)):
        page.keyboard.press(key)
        assert active(page).startswith(f"rank {rank}, worker-{rank}: mean"), key
    page.keyboard.press("Enter")
    page.wait_for_selector(".rank-panel")
    wait_for_page(page, "document.activeElement.id === 'rank-title'")
    assert page.inner_text("#rank-title") == f"Rank {RANKS - 1}: worker-{RANKS - 1}"
    assert page.get_attribute(".heatrows [aria-selected=true]", "id") == f"heat-row-{RANKS - 1}"
    page.keyboard.press("Escape")
    page.wait_for_selector(".rank-panel", state="detached")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "listbox"
    assert active(page).startswith(f"rank {RANKS - 1}, ")


def test_the_rank_that_a_finding_names_is_named_in_every_chart_without_a_click(viewer):
    page = viewer.open(TRAIN, '.chart[data-metric="cpu.usage"] .legend .flagged')
    for chart in page.locator("figure.chart").all():
        flagged = chart.locator(".legend .flagged")
        [name] = flagged.locator(".name").all_inner_texts()
        assert name.split(" ")[0] == f"worker-{SLOW}", chart.get_attribute("data-metric")
        assert "computes at 40 %" in flagged.locator(".name").get_attribute("title")
        warning = "getComputedStyle(document.querySelector('.outliers button')).borderColor"
        assert flagged.locator("i").evaluate("one => getComputedStyle(one).backgroundColor") == page.evaluate(warning)
    assert "rank=" not in page.url


def test_a_sentence_breaks_no_line_between_a_number_and_its_unit(viewer):
    page = viewer.open(TRAIN, ".finding.open .measure")
    whole = page.locator(".finding.open .measure")
    assert whole.all_inner_texts()[:2] == ["40 %", "90 %"]
    assert whole.first.evaluate("one => getComputedStyle(one).whiteSpace") == "nowrap"


def test_the_rank_panel_lies_beside_the_map_and_says_why_the_device_is_slow(viewer, server, tmp_path):
    now = SystemClock().now_ms() // MINUTE * MINUTE
    rows = ["job_id,replica,node,device,metric,time,value"]
    for rank in range(RANKS):
        place = f"train-1,worker-{rank},node-{rank // 8},gpu{rank % 8}"
        for at in range(now - 20 * MINUTE, now, MINUTE):
            rows += [f"{place},gpu.clock.sm,{at},{1.1e9 if rank == SLOW else 1.98e9:.0f}"]
            rows += [f"{place},gpu.temperature,{at},{92 if rank == SLOW else 65}"]
    import_samples(server, tmp_path, rows)
    page = viewer.open(f"{TRAIN}?rank=worker-{SLOW}", ".rank-panel tr[data-metric='gpu.clock.sm']")
    panel, cells = page.locator(".rank-panel").bounding_box(), page.locator(".heat .cells").bounding_box()
    assert panel["x"] >= cells["x"] + cells["width"]
    assert panel["y"] < cells["y"] + cells["height"]
    text = re.sub(r"\s+", " ", page.inner_text(".rank-panel tbody"))
    assert "GPU temperature 92.0 °C 65.0 °C +27.0 °C" in text
    assert "GPU clock 1.10 GHz 1.98 GHz \N{MINUS SIGN}44 %" in text
    viewer.see('.chart[data-metric="gpu.temperature"] canvas')
    metrics = page.locator(".rank-panel tr[data-metric]").evaluate_all("rows => rows.map(one => one.dataset.metric)")
    assert sorted(metrics) == sorted(set(metrics)), "each metric once"
    assert page.inner_text(".rank-panel p.apart") == "reached 92 °C; the limit is 85 °C"
    page.click(".rank-panel a")
    wait_for_page(page, "location.hash === '#/nodes/node-0'")


def test_the_map_explains_its_colours_and_fits_them_to_what_it_shows(viewer):
    page = viewer.open(TRAIN, ".heat canvas")
    scale = page.inner_text(".heat .scale")
    assert "no data" in scale
    assert re.search(r"40\.0 %\s+90\.0 %", scale)
    page.select_option("select[aria-label='Metric of the heat map']", "cpu.usage")
    wait_for_page(page, "document.querySelector('.heat .scale').textContent.startsWith('2.00 cores3.50 cores')")
