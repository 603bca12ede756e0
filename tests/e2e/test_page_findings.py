"""Tests of the findings on a job's page: the worst is open, others are lines, a failed job shows the end of its log."""

import re

import pytest

from jobmeter.model.time import HOUR, MINUTE, SystemClock
from tests.e2e.page import WIDTHS, needs_page, training_server, wait_for_page
from tests.support.browser import check_view
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TRAIN = "jobs/train-1"
TRACEBACK = """Traceback (most recent call last):
  File "/workspace/train.py", line 212, in <module>
    main()
  File "/workspace/train.py", line 88, in main
    raise ValueError("unexpected sequence length 8193")
ValueError: unexpected sequence length 8193"""


def crashed(now):
    """Store a job of three replicas: worker-1 fails with an exception, and the others end because of it."""
    end = now - 5 * MINUTE

    def replica(rank):
        gone = end - 2_000 if rank == 1 else end + 3_000
        place = {"node": "node-3", "devices": [f"gpu{rank}"], "start": now - 20 * MINUTE}
        return {"name": f"worker-{rank}", "rank": rank, "end": gone, "exit_code": 1, **place}

    times = {"start": now - 20 * MINUTE, "end": end + 3_000}
    job = {"job_id": "crashed", "state": "Failed", "exit_code": 1, "replicas": [replica(rank) for rank in range(3)]}
    steps = [(f"step {at}", end - 60_000 + at * 100, f"worker-{at % 3}") for at in range(300)]
    raised = [(text, end - 3_000 + at, "worker-1") for at, text in enumerate(TRACEBACK.split("\n"))]
    closed = [(f"[rank{rank}] connection closed by peer", end + rank, f"worker-{rank}") for rank in (0, 2)]
    lines = [{"text": text, "time": at, "replica": name} for text, at, name in [*steps, *raised, *closed]]
    lines[-1]["level"] = lines[len(steps)]["level"] = "error"
    return {**job, **times}, lines


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    with training_server(tmp_path_factory.mktemp("page-findings")) as made:
        job, lines = crashed(SystemClock().now_ms())
        silent = {"job_id": "silent", "state": "Failed", "start": job["start"], "end": job["end"], "exit_code": 3}
        assert made.request("POST", "/jobs", [job, silent]).status == 200
        assert made.request("POST", "/jobs/crashed/logs", {"lines": lines}).status == 200
        yield made


def finding(rule, at, *, severity="warning", advice="Free what you no longer need.", subject=None):
    """Return a finding in the form of the server's answer, about device `at`."""
    now = SystemClock().now_ms()
    span = {"start": now - 10 * MINUTE - at, "end": now - 5 * MINUTE}
    none = {"time": None, "replica": "", "metric": "", "value": None, "limit": None, "unit": ""}
    evidence = [{"kind": "metric", "text": f"grew by {at} MiB", **none}]
    text = {"advice": advice, "evidence": evidence, "source": "", "confidence": 1, "replicas": [f"worker-{at}"]}
    subject = subject or {"kind": "device", "name": f"node-0/gpu{at}"}
    sentence = f"worker-{at} (node-0, gpu{at}): {rule} is the matter"
    return {
        "rule": rule,
        "role": "root",
        "severity": severity,
        "subject": subject,
        "sentence": sentence,
        **span,
        **text,
    }


def answer(page, findings):
    """Make the server's answer contain these findings."""
    page.route("**/jobs/train-1/findings*", lambda route: route.fulfill(json=findings))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_finding_with_long_names_wraps(viewer, width):
    viewer.look(width)
    now = SystemClock().now_ms()
    subject = {"kind": "device", "name": f"{'gpu-node-0017.' * 4}example.org/gpu0"}
    told = finding("gpu_mem_near_full", 0, severity="critical", advice="See xid.", subject=subject)
    told |= {"start": now - 72 * HOUR, "end": now - 71 * HOUR, "sentence": f"{subject['name']} is nearly full"}
    answer(viewer.page, [told])
    page = viewer.open(TRAIN, ".finding abbr")
    viewer.see(".chart canvas")
    check_view(page, width)


def test_findings_of_one_rule_are_read_once_and_each_can_be_marked(viewer):
    leak, oom = "gpu_mem_leak", "Use less; see gpu_mem_leak, link_flap and num_workers."
    answer(viewer.page, [*(finding(leak, at) for at in range(4)), finding("cuda_oom", 4, advice=oom)])
    page = viewer.open(TRAIN, "section.findings details")
    assert page.locator(".finding").count() == 2
    assert page.inner_text(".finding >> nth=0").count("Free what you no longer need.") == 1
    assert "Also (3): worker-1, worker-2, worker-3" in page.inner_text(".finding summary")
    assert page.inner_text(".finding .rule >> nth=0") == leak
    assert "Use less" not in page.inner_text("section.findings"), "the worst alone is open"
    page.click(".finding[data-rule=cuda_oom] button")
    advice = page.locator(".finding[data-rule=cuda_oom] p")
    page.wait_for_selector(".finding p >> text=Link flapping")  # rule titles are fetched with a request
    assert advice.inner_text() == "Use less; see “GPU memory leak”, “Link flapping” and num_workers."
    assert advice.locator("abbr").get_attribute("title") == "rule link_flap"
    advice.locator("a").click()
    wait_for_page(page, "document.activeElement.closest('[data-rule]')?.dataset.rule === 'gpu_mem_leak'")
    page.click(".finding summary")
    page.click(".finding details button >> nth=1")
    page.wait_for_selector(".marked-bar")
    assert page.get_attribute(".finding details button >> nth=1", "aria-pressed") == "true"


def hold(page, pattern):
    """Hold back the answers to requests of this address. Return the list of held requests."""
    held = []

    def keep(route):
        held.append(route)

    page.route(pattern, keep)
    return held


def wait_for_requests(page, held):
    """Wait until a request is held. A call of the page lets Playwright deliver requests."""
    wait_until(lambda: page.evaluate("true") and held, "a request to hold")


RULES = ("xid", "thermal", "swap", "segfault", "nan_loss", "killed", "fs_full")


def test_the_worst_finding_is_open_and_each_other_one_is_a_line(viewer):
    answer(viewer.page, [finding(rule, at) for at, rule in enumerate(RULES)])
    page = viewer.open(TRAIN, ".finding.open")
    assert page.locator(".finding.open").count() == 1
    shown = page.inner_text(".finding.open")
    parts = [shown.index(part) for part in ("worker-0 (node-0, gpu0): xid", "grew by 0 MiB", "Free what")]
    assert parts == sorted(parts), "the sentence, then the reason, then what to do"
    lines = page.locator(".finding.line")
    assert [lines.nth(at).get_attribute("data-rule") for at in range(lines.count())] == list(RULES[1:4])
    assert all(lines.nth(at).bounding_box()["height"] < 40 for at in range(lines.count()))
    page.click("section.findings >> text=3 more")
    assert page.locator(".finding").count() == len(RULES)
    assert page.locator(".finding.open").count() == 1


def test_a_chosen_finding_is_open_marked_and_in_the_address(viewer):
    answer(viewer.page, [finding(rule, at) for at, rule in enumerate(RULES)])
    page = viewer.open(TRAIN, ".finding[data-rule=thermal] button")
    page.click(".finding[data-rule=thermal] button")
    page.wait_for_selector(".marked-bar")
    assert page.get_attribute(".finding.open", "data-rule") == "thermal"
    address = page.url
    assert "finding=thermal+node-0%2Fgpu1" in address
    page.click(".marked-bar >> text=Clear")
    wait_for_page(page, "document.querySelector('.finding.open').dataset.rule === 'xid'")
    assert "finding=" not in page.url
    # A link to a finding beyond the first ones opens it.
    page = viewer.open(f"{TRAIN}?finding=fs_full+node-0%2Fgpu6", ".marked-bar")
    assert page.get_attribute(".finding.open", "data-rule") == "fs_full"
    assert page.locator(".finding").count() == 5


def test_a_failed_job_shows_the_traceback_under_its_finding(viewer):
    page = viewer.open("jobs/crashed", ".finding.open .log-end .line")
    assert "End of the log of worker-1" in page.inner_text(".log-end")
    assert page.locator(".log-end .text").all_inner_texts() == TRACEBACK.split("\n")
    heights = page.locator(".log-end .line").evaluate_all("lines => lines.map(one => getComputedStyle(one).marginTop)")
    assert set(heights) == {"0px"}, "lines of every level have the same distance"
    assert page.inner_text(".finding.open").index("ValueError") < page.inner_text(".finding.open").index("Traceback")
    page.click(".log-end >> text=Whole log")
    wait_for_page(page, "location.hash.includes('rank=worker-1')")
    wait_until(lambda: page.inner_text("#logs-title") == "Log of worker-1", "the whole log")


def test_a_failed_job_without_a_log_or_without_a_finding_shows_no_empty_box(viewer):
    page = viewer.open("jobs/silent", ".finding, .findings.none")
    page.wait_for_selector("#logs .hint")
    assert page.locator(".log-end").count() == 0


def test_the_stored_finding_is_there_before_the_others_are_looked_for(viewer, server):
    def stored():
        listed = server.request("GET", "/jobs?id=train-1&findings=true").json()
        return listed.get("findings")

    wait_until(stored, "the server has looked at the job by itself")
    held = hold(viewer.page, "**/jobs/train-1/findings*")
    page = viewer.open(TRAIN, ".finding.stored")
    assert "computes at 40 %" in page.inner_text(".finding.stored")
    assert "Searching the measurements" in page.inner_text("section.findings")
    wait_for_requests(page, held)
    for route in held:
        route.continue_()
    page.wait_for_selector(".finding.open[data-rule=straggler_gpu]")
    assert page.locator(".finding.stored").count() == 0


def test_the_shape_of_a_job_is_there_before_its_answers(viewer):
    held = hold(viewer.page, re.compile(r"/jobs/train-1\?"))
    page = viewer.open(TRAIN, ".job-skeleton .bar")
    assert page.get_attribute(".job-skeleton", "role") == "status"
    wait_for_requests(page, held)
    for route in held:
        route.continue_()
    page.wait_for_selector("header.job h1")
    assert page.locator(".job-skeleton").count() == 0


def test_what_arrives_late_moves_no_chart(viewer):
    held = hold(viewer.page, re.compile(r"/jobs/train-1/(annotations|phases)"))
    page = viewer.open(TRAIN, ".finding.open .rule")
    page.wait_for_selector(".outliers button")
    wait_until(lambda: page.evaluate("true") and len(held) == 2, "both questions")
    place = "(one => one.getBoundingClientRect().top + scrollY)(document.querySelector('.heat'))"
    before = page.evaluate(place)
    for route in held:
        route.continue_()
    page.wait_for_selector(".notes input")
    page.wait_for_selector(".phases li")
    assert abs(page.evaluate(place) - before) < 2, "not by a line"


def test_what_lies_below_the_charts_waits_until_the_charts_have_their_places(viewer):
    held = hold(viewer.page, "**/jobs/train-1/metrics/names*")
    page = viewer.open(TRAIN, "header.job h1")
    wait_for_requests(page, held)
    assert page.locator("#replicas, #events, #logs").count() == 0
    for route in held:
        route.continue_()
    page.wait_for_selector("#events")
    page.wait_for_selector("#logs")


def test_an_event_of_a_finding_says_its_sentence_alone(viewer, server):
    now = SystemClock().now_ms()
    message = "xid (device node-1/gpu0): worker-0 (node-1, gpu0): XID 79 (since 2026-11-27T12:00:00Z)"
    event = {"time": now, "job": "noted", "reason": "Finding", "level": "error", "message": message}
    other = {**event, "reason": "Saved", "message": "model (step 7): saved"}
    server.request("POST", "/jobs", {"jobs": [{"job_id": "noted", "state": "Stopped"}], "events": [event, other]})
    page = viewer.open("jobs/noted", "#events .text >> text=saved")
    text = page.locator("#events li:has-text('Finding') .text")
    assert text.inner_text() == "worker-0 (node-1, gpu0): XID 79"
    assert text.get_attribute("title") == message
    assert page.locator("#events .text", has_text=other["message"]).count() == 1
