"""Tests of tags and notes on a job's page: writing, chart marks, search in the list, and readers without permission."""

import pytest

from jobmeter.model.time import MINUTE
from tests.e2e.page import Viewer, needs_page, training_server
from tests.support.browser import check_view
from tests.support.processes import API
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
CHART = '.chart[data-metric="gpu.utilization"] canvas'
FLAGS = """(() => {
  const probe = document.createElement("i");
  probe.style.color = "var(--accent)";
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  const [r, g, b] = color.match(/\\d+/g).map(Number);
  const canvas = document.querySelector('.chart[data-metric="cpu.usage"] canvas');
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4)
    found += data[at] === r && data[at + 1] === g && data[at + 2] === b && data[at + 3] === 255;
  return found;
})()"""
"""Number of opaque chart pixels with the colour of flags."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    with training_server(tmp_path_factory.mktemp("notes")) as made:
        yield made


def annotations(server):
    return server.request("GET", "/jobs/train-1/annotations").json()


def test_tags_and_notes_are_written_shown_and_removed(viewer, server):
    page = viewer.open("jobs/train-1", CHART)
    page.fill("[aria-label='New tag']", "baseline")
    page.keyboard.press("Enter")
    page.wait_for_selector(".notes .tags >> text=baseline")
    page.fill("[aria-label='New tag']", "a,b")
    page.keyboard.press("Enter")
    assert "without commas" in page.inner_text(".notes .problem")
    viewer.see('.chart[data-metric="cpu.usage"] canvas')
    before = page.evaluate(FLAGS)
    page.click(".notes >> text=Write a note")
    page.fill("[aria-label='Note']", "rate lowered\nsecond line")
    field = page.locator("[aria-label^='Moment']")
    last = field.input_value()
    assert last
    page.click(".notes >> text=Save")
    page.wait_for_selector(".notes .written >> text=rate lowered")
    (note,) = annotations(server)["notes"]
    assert note["text"] == "rate lowered\nsecond line"
    assert note["time"] is not None
    wait_until(lambda: page.evaluate(FLAGS) > before, "the flag on the chart")
    page.click(".notes .written li button.link >> nth=0")
    page.wait_for_selector(".marked-bar >> text=Zoom to it")
    check_view(page, "a job with a note")
    page.click("[aria-label^='Delete the note']")
    wait_until(lambda: not annotations(server)["notes"], "the note is gone")
    page.click("[aria-label='Remove tag baseline']")
    wait_until(lambda: not annotations(server)["tags"], "the tag is gone")


def test_the_list_shows_tags_and_is_filtered_by_them(viewer, server):
    server.request("POST", "/jobs/train-1/tags", {"add": ["good run"]})
    page = viewer.open("", ".row[data-at] .c-name .tag")
    assert page.locator(".row[data-at] .tag").all_inner_texts() == ["good run"]
    assert page.locator(".row[data-at]").count() == 2
    page = viewer.open("?columns=tags", ".row[data-at] .c-tags span")
    assert page.locator(".row[data-at] .c-tags").all_inner_texts() == ["good run", ""]
    assert page.locator(".row[data-at] .tag").count() == 0, "a column of its own says it"
    page.goto(f"{server.url}/#/jobs/train-1")
    page.click(".notes .tags a")
    page.wait_for_selector("[aria-label='Remove filter: Tag: good run']")
    wait_until(lambda: page.locator(".row[data-at]").count() == 1, "the list is filtered")


def test_a_reader_reads_notes_and_has_no_way_to_write(browser, server):
    server.request("POST", "/jobs/train-1/notes", {"text": "for everybody", "author": "lin"})
    key = server.request("POST", "/keys", {"name": "look", "role": "reader"}).json()["token"]

    class Reader:
        url = server.url

        def request(self, method, path):
            return server.call(method, f"{API}{path}", headers={"Authorization": f"Bearer {key}"})

    reader = Viewer(browser, Reader())
    try:
        page = reader.open("jobs/train-1", ".notes .written >> text=for everybody")
        assert "lin" in page.inner_text(".notes .written")
        assert page.locator(".notes :is(button:not(.link), input)").count() == 0
        assert page.locator("[aria-label^='Delete the note']").count() == 0
    finally:
        reader.close()


def test_a_long_history_of_notes_shows_the_newest(viewer, server):
    for note in annotations(server)["notes"]:
        server.request("DELETE", f"/jobs/train-1/notes/{note['id']}")
    for at in range(5):
        server.request("POST", "/jobs/train-1/notes", {"text": f"number {at}", "time": at * MINUTE})
    page = viewer.open("jobs/train-1", ".notes .written")
    assert page.locator(".notes .written li").count() == 3
    assert "number 4" in page.inner_text(".notes .written")
    page.click(".notes >> text=2 earlier")
    assert page.locator(".notes .written li").count() == 5
