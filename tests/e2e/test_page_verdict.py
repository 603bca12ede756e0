"""Summaries of a fault in the list, on a job, on a node, in the terminal and in the API: all agree at first sight."""

import json
import re
from functools import partial

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from tests.e2e.page import LOOKS, import_samples, needs_page, wait_for_page
from tests.support.browser import check_view
from tests.support.processes import run_cli, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, GPU has fallen off the bus."
FAULT = "gpu2: XID 79: the GPU has fallen off the bus"
SENTENCE = "worker-3 (node-7, gpu2): XID 79: the GPU has fallen off the bus"


def facts(now):
    """Return three running jobs (one on a broken device, one idle), a waiting job, and newer ended jobs."""
    address = {f"gpu{at}": f"0000:{0x1B + 0x40 * at:02x}:00" for at in range(4)}
    devices = [{"device": name, "name": "NVIDIA H200", "pci": one} for name, one in address.items()]
    nodes = [{"name": f"node-{at}", "info": {"cores": 64, "devices": devices}} for at in (6, 7, 8)]

    def job(name, node, state="Running", age=60, **more):
        replicas = [{"name": f"worker-{rank + 1}", "rank": rank, "node": node, "devices": [f"gpu{rank}"]}
                    for rank in range(4)]  # fmt: skip
        times = {"created": now - age * MINUTE, "start": now - age * MINUTE}
        return {"job_id": name, "name": name, "state": state, "user": "lin", "replicas": replicas, **times, **more}

    ended = [job(f"ended-{at}", "node-6", "Succeeded", 5, end=now - MINUTE, replicas=[]) for at in range(60)]
    waits = {"job_id": "waits", "name": "waits", "state": "Queued", "created": now - 90 * MINUTE}
    jobs = [job("train", "node-7", age=300), job("lazy", "node-8", age=200), job("well", "node-6"), waits, *ended]
    event = {"time": now - 4 * MINUTE, "node": "node-7", "source": "node", "reason": "Xid", "level": "error"}
    return {"nodes": nodes, "jobs": jobs, "events": [{**event, "message": XID, "subject": "device 0000:9b:00"}]}


def samples(now):
    yield "job_id,replica,node,device,metric,time,value"
    for at in range(now - 30 * MINUTE, now, 15_000):
        for name, node, use in (("train", "node-7", 0.9), ("lazy", "node-8", 0.0), ("well", "node-6", 0.9)):
            for rank in range(4):
                yield f"{name},worker-{rank + 1},{node},gpu{rank},gpu.utilization,{at},{use}"
                yield f"{name},worker-{rank + 1},{node},,cpu.usage,{at},2"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("verdict")
    with running(folder / "data") as made:
        now = SystemClock().now_ms()
        done = made.request("POST", "/jobs", facts(now))
        assert done.status == 200, done.body
        import_samples(made, folder, samples(now))
        wait_until(lambda: len(summaries(made)) == 2, "the rules have looked at the jobs that run")
        yield made


def summaries(server):
    listed = server.call("GET", "/api/jobmeter/v1/jobs?state=Running&findings=true").json()
    return {one["id"]: one for one in listed.get("findings") or []}


def shows(page, names):
    return rows(page) == names


def rows(page):
    return [one.strip() for one in page.locator(".rows .row[data-at] .c-name b").all_inner_texts()]


def test_the_api_says_the_same_of_a_job_in_its_list_and_by_itself(server):
    found = summaries(server)
    [train] = server.call("GET", "/api/jobmeter/v1/jobs/train/findings").json()
    assert (train["sentence"], train["replicas"], train["subject"]["name"]) == (SENTENCE, ["worker-3"], "node-7/gpu2")
    assert (found["train"]["sentence"], found["train"]["severity"]) == (train["sentence"], train["severity"])
    assert (found["train"]["start"], found["train"]["open"]) == (train["start"] // 1000 * 1000, 1)
    assert found["lazy"]["idle_devices"] == 4


def test_the_list_begins_with_what_runs_and_says_what_is_wrong(viewer):
    page = viewer.open("", ".band")
    assert rows(page)[:4] == ["well", "lazy", "train", "waits"]
    state = page.locator("[role=columnheader][aria-sort]")
    assert (state.count(), state.inner_text().split()[0]) == (1, "State")
    assert SENTENCE in page.inner_text(".rows .row[data-at]:has-text('train')")
    wait_for_page(page, "document.querySelector('.band').textContent.includes('4 idle')")
    band = re.sub(r"\s+", " ", page.inner_text(".band"))
    assert band.startswith("3 running 1 with critical findings 4 idle GPUs")


def test_the_numbers_of_the_band_show_the_jobs_that_they_count(viewer):
    page = viewer.open("", ".band")
    for text, names in (("running", ["well", "lazy", "train"]), ("critical", ["train"]), ("idle", ["lazy"])):
        page.click(f".band button:has-text('{text}')")
        wait_until(partial(shows, page, names), text)
        assert page.get_attribute(f".band button:has-text('{text}')", "aria-pressed") == "true"
    page.click(".band button:has-text('idle')")
    wait_until(lambda: len(rows(page)) > 4, "all jobs again")


def test_a_job_says_which_rank_and_why_before_what_to_do(viewer):
    page = viewer.open("jobs/train", ".finding[data-rule=xid]")
    shown = page.inner_text(".finding[data-rule=xid]")
    places = [
        shown.index(part) for part in (SENTENCE, "since " if "since " in shown else "at ", XID, "Drain and reboot")
    ]
    assert places == sorted(places)
    page.wait_for_selector(".outliers button")
    assert page.locator(".outliers button").all_inner_texts() == ["worker-3 XID 79: the GPU has fallen off the bus"]


def test_a_node_is_not_simply_up(viewer):
    page = viewer.open("nodes", ".fleet .tile")
    assert "1 with faults" in page.inner_text(".heading")
    assert page.locator(".tile.faulty").count() == 1
    page.click(".heading a.lost")
    wait_for_page(page, "document.querySelectorAll('.tile').length === 1")
    assert FAULT in (page.get_attribute(".tile", "aria-label") or "")
    page.click(".tile")
    page.wait_for_selector("#faults li")
    assert page.inner_text("header.job .state").strip() == "Up, with a fault"
    fault = page.inner_text("#faults li")
    assert re.fullmatch(rf"{FAULT} since \S+\. Affected job: train", fault)
    assert page.locator("table.devices tr:has-text('with a fault') th").all_inner_texts() == ["gpu2"]
    page.click("#faults li a")
    page.wait_for_selector("header.job h1:has-text('train')")


@pytest.mark.parametrize("width", ["middle", "phone"])
def test_a_narrow_list_says_why_too(viewer, width):
    viewer.look(width)
    page = viewer.open("", ".band")
    assert SENTENCE in page.inner_text(".rows .row[data-at]:has-text('train')")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_verdict_fits_every_width(viewer, width, scheme):
    viewer.look(width, scheme)
    for place, wanted in {
        "": ".band",
        "jobs/train": ".finding",
        "nodes": ".tile.faulty",
        "nodes/node-7": "#faults li",
    }.items():
        check_view(viewer.open(place, wanted), place)


def test_the_terminal_says_the_same(server):
    to = ("--server", server.url, "--key", server.token)
    shown = run_cli("jobs", *to)
    assert shown.returncode == 0, shown.stderr
    assert "XID 79" in shown.stdout
    listed = json.loads(run_cli("jobs", "--json", *to).stdout)
    assert {one["id"]: one["finding"] for one in listed if one["finding"]}["train"]["sentence"] == SENTENCE
    for verb in ("show", "diagnose"):
        assert SENTENCE in " ".join(run_cli(verb, "train", *to).stdout.split())
    nodes = run_cli("nodes", *to)
    assert "XID 79" in nodes.stdout


@pytest.mark.parametrize("job", ["train", "lazy", "well"])
def test_the_map_marks_the_ranks_that_findings_name_and_no_others(viewer, server, job):
    found = server.call("GET", f"/api/jobmeter/v1/jobs/{job}/findings").json()
    named = {name for one in found for name in one["replicas"]}
    page = viewer.open(f"jobs/{job}", ".heatrows [role=option]")
    page.wait_for_selector(".outliers button" if named else ".outliers .hint")
    assert set(page.locator(".outliers button b").all_inner_texts()) == named
    label = page.get_attribute(".heat canvas", "aria-label") or ""
    assert {name for name in (f"worker-{at}" for at in range(1, 5)) if name in label} == named
