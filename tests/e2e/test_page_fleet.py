"""Tests of the fleet pages in Chromium: the map, a node, the usage by user, and the administration."""

import json
import re

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from tests.e2e.page import EVIL, LOOKS, Viewer, import_samples, needs_page, wait_for_page
from tests.support.browser import check_view
from tests.support.frames import frame
from tests.support.frames import samples as samples_frame
from tests.support.processes import running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
NODES = 12
TYPE = "NVIDIA H200"


def facts(now):
    """Return twelve nodes of two groups with four devices each; a busy job on five nodes, and an idle job on one.

    The last node has lost a device.
    """
    devices = [{"device": f"gpu{at}", "name": TYPE} for at in range(4)]
    info = {"cores": 64, "memory": 2**39, "devices": devices, "kernel": EVIL}
    nodes = [
        {"name": f"node-{at}", "resource_group": "research" if at < 8 else EVIL, "info": info} for at in range(NODES)
    ]
    nodes[-1]["info"] = {**info, "devices": [*devices[:3], {**devices[3], "state": "lost"}]}
    device_names = [f"gpu{at}" for at in range(4)]
    train = [{"name": f"worker-{at}", "rank": at, "node": f"node-{at}", "devices": device_names} for at in range(5)]
    lazy = [{"name": "worker-0", "node": "node-5", "devices": device_names}]
    own = {"state": "Running", "start": now - 60 * MINUTE, "resource_group": "research"}
    jobs = [
        {"job_id": "train", "name": "llama", "user": "lin", "replicas": train, **own},
        {"job_id": "lazy", "name": EVIL, "user": EVIL, "replicas": lazy, **own},
    ]
    return {"nodes": nodes, "jobs": jobs}


def samples(now):
    yield "job_id,replica,node,device,metric,time,value"
    for at in range(now - 20 * MINUTE, now, 30_000):
        for node in range(6):
            job = "train,worker-" + str(node) if node < 5 else "lazy,worker-0"
            for device in range(4):
                yield f"{job},node-{node},gpu{device},gpu.utilization,{at},{0.9 - node / 10 if node < 5 else 0}"


def say(server, node, text):
    """Send a line of that node's kernel log, like its agent."""
    stream = {"node": node, "stream": "kernel", "facility": "kern", "severity": 3}
    answered = {"streams": [{**stream, "lines": [[SystemClock().now_ms() * 1_000_000, text, "error"]]}]}
    done = server.ingest(frame(json.dumps(answered).encode(), kind=3))
    assert done.status == 200, done.body


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("fleet")
    prices = folder / "prices.toml"
    prices.write_text("[devices]\nH200 = 2.5\n")
    with running(folder / "data", environment={"JOBMETER_PRICES": str(prices)}) as made:
        now = SystemClock().now_ms()
        done = made.request("POST", "/jobs", facts(now))
        assert done.status == 200, done.body
        import_samples(made, folder, samples(now))
        yield made


VIEWS = {
    "nodes": ".fleet .tile",
    "nodes/node-0": ".chart canvas",
    "use": "#users table",
    "admin/usage": "main table",
    "admin/keys": "#keys table",
    "admin/retention": "form.project",
    "admin/shippers": "#shippers",
}


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_view_fits_its_width_and_has_no_serious_fault(viewer, width, scheme):
    viewer.look(width, scheme)
    for place, wanted in VIEWS.items():
        page = viewer.open(place, wanted)
        check_view(page, place)


def test_the_map_shows_groups_and_what_is_idle_with_money(viewer):
    page = viewer.open("nodes", ".fleet .tile")
    assert page.locator(".tile").count() == NODES
    assert page.get_attribute(".tile:has-text('node-5')", "aria-label") == "node-5: 4 devices, 4 idle"
    assert "4 idle at 10.00 CNY/h" in page.inner_text(".heading")
    assert EVIL in page.inner_text(".fleet")
    page.click("role=button[name=Idle]")
    wait_for_page(page, "document.querySelectorAll('.tile').length === 1")
    assert "show=idle" in page.url
    page.click("role=button[name=Down]")
    assert "No node is down" in page.inner_text("main")


def test_a_device_that_is_lost_is_not_free(viewer):
    page = viewer.open(f"nodes/node-{NODES - 1}", "table.devices")
    assert page.inner_text("table.devices tbody tr >> nth=2").split("\t")[3] == "free"
    assert page.inner_text("table.devices tbody tr >> nth=3").split("\t")[3] == "not measured: lost"
    page = viewer.open("nodes", ".fleet .tile")
    assert f"{NODES * 4 - 6 * 4 - 1} free" in page.inner_text(".heading")
    tile = f"node-{NODES - 1}: 4 devices, 3 free, 1 lost"
    assert page.get_attribute(f".tile:has-text('node-{NODES - 1}')", "aria-label") == tile


def test_the_keyboard_alone_goes_over_the_map_into_a_node(viewer):
    page = viewer.open("nodes", ".fleet .tile")
    page.focus(".tile")
    assert page.evaluate("document.activeElement.textContent") == "node-8"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "node-0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.textContent") == "node-9"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "node-7"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("header.job h1:text-is('node-0')")


def test_a_node_has_its_devices_jobs_curves_log_and_checks(viewer, server):
    say(server, "node-0", f"EXT4-fs error {EVIL}")
    page = viewer.open("nodes/node-0", '.chart[data-metric="gpu.utilization"] canvas')
    wait_for_page(page, "document.querySelectorAll('table.devices tbody tr').length === 4")
    assert "llama" in page.inner_text("table.devices")
    assert EVIL in page.inner_text(".facts")
    page.wait_for_selector("#syslog .line")
    assert EVIL in page.inner_text("#syslog .line >> nth=-1")
    page.fill("[aria-label='Search in the system log']", "no such words")
    page.wait_for_selector("#syslog p:has-text('No lines match')")
    page.click("text=Check now")
    page.wait_for_selector("#checks details")
    page.click("#devices >> text=llama >> nth=0")
    page.wait_for_selector("header.job h1:text-is('llama')")


def test_late_devices_of_a_node_do_not_shift_the_page(viewer):
    held = []

    def hold(route):
        held.append(route)

    viewer.page.route("**/live/fleet*", hold)
    page = viewer.open("nodes/node-0", "header.job .facts")
    wait_until(lambda: page.evaluate("true") and held, "the question")
    assert page.locator("#curves").count() == 1
    assert not page.is_visible("#curves")
    held[0].continue_()
    page.wait_for_selector("#curves")
    assert page.is_visible("table.devices")


def test_a_line_that_comes_is_followed(viewer, server):
    page = viewer.open("nodes/node-1", "#syslog")
    page.wait_for_selector("#syslog p")
    say(server, "node-1", "a new line")
    page.wait_for_selector("#syslog .line:has-text('a new line')")


def test_lines_of_a_system_log_are_found_and_coloured_by_their_severity(viewer, server):
    lines = [{"text": "all is well", "severity": "info"}, {"text": "NVRM: Xid 79", "severity": "err"}]
    assert server.request("POST", "/nodes/node-2/logs", {"lines": lines}).status == 200
    page = viewer.open("nodes/node-2", "#syslog .line:has-text('all is well')")
    page.wait_for_selector("#syslog .line.error:has-text('Xid 79')")
    page.select_option("[aria-label='Minimum level of the system log']", "error")
    wait_for_page(page, "document.querySelectorAll('#syslog .line').length === 1")
    assert "Xid 79" in page.inner_text("#syslog .line")


def test_a_node_that_is_none_says_so(viewer):
    page = viewer.open("nodes/none-such", ".notice")
    page.wait_for_selector(".notice:has-text('There is no node none-such')")


def test_a_jobs_header_says_what_idle_devices_cost(viewer, server):
    first = server.request("GET", "/jobs/lazy/idle").json()
    assert (first["idle"] / 3600, first["cost"]) == (pytest.approx(4 / 3, rel=0.1), pytest.approx(10 / 3, rel=0.1))
    page = viewer.open("jobs/lazy", ".facts .wasted")
    shown = page.inner_text(".facts .wasted")
    last = server.request("GET", "/jobs/lazy/idle").json()
    parts = re.fullmatch(
        r"[\d.]+ % idle, ([\d.]+) of ([\d.]+) device hours, ([\d.]+) CNY, ([\d.]+) % not measured", shown
    )
    assert parts, shown
    # The job continues with idle devices, so the page's number lies between the values before and after.
    for part, before, after in zip(parts.groups(), figures(first), figures(last), strict=True):
        digits = len(part.partition(".")[2])
        assert round(before, digits) <= float(part) <= round(after, digits), shown
    assert "15 minutes" in (page.get_attribute(".facts .wasted", "title") or "")
    page = viewer.open("jobs/train", ".facts div:has-text('Device time')")
    assert "0 % idle" in page.inner_text(".facts div:has-text('Device time')")


def figures(idle):
    """Return the idle hours, the allocated hours, their cost, and the unmeasured share (%)."""
    missing = 100 * (1 - idle["measured"] / idle["allocated"])
    return idle["idle"] / 3600, idle["allocated"] / 3600, idle["cost"], missing


def test_device_hours_are_shown_by_project_and_user_over_time(viewer):
    page = viewer.open("use?by=user&over=1d", "#hours .stack")
    # The hour of 20 devices ends with the test; its measurements cover 20 minutes, which touch 20 or 21 steps.
    row = page.inner_text("#hours tbody tr:has-text('lin')")
    assert re.search(r"lin\s+1\s+2\d\.\d\s+(6\.[6-9]|7\.0)\d?\s+0\.00\s+", row)
    assert page.get_attribute("#hours tbody tr:first-child button", "aria-pressed") == "true"
    assert "lin" not in page.inner_text("#hours figcaption")
    page.click("#hours button:has-text('lin')")
    wait_for_page(page, "document.querySelector('#hours figcaption').textContent.startsWith('lin by hour')")
    assert "who=lin" in page.evaluate("location.hash")
    bars = page.locator("#hours .plot > span").all()
    assert 24 <= len(bars) <= 25
    texts = " ".join(bar.get_attribute("title") for bar in bars)
    assert re.search(r"0\.00 h idle, \d+\.\d+ h used, \d+\.\d+ h not measured", texts)
    page = viewer.open("use?by=project&over=30d", "#hours figcaption:has-text('by day')")
    assert re.search(r"default by day, up to 2\d\.\d device hours in 3[01] days", page.inner_text("#hours figcaption"))


def test_who_wastes_what_and_who_uses_what(viewer):
    page = viewer.open("use?group=research", "#users table")
    assert "4 of 24 devices, 10.00 CNY/h" in page.inner_text("#idle")
    assert EVIL in page.inner_text("#idle table")
    row = page.inner_text("#users tbody tr:has-text('lin')")
    assert "70.0 %" in row
    assert "All users" in page.inner_text("#users")


def test_a_key_is_made_its_secret_shown_once_and_revoked(viewer, server):
    page = viewer.open("admin/keys", "#keys table")
    page.fill("form.make input[name=name]", "pipeline")
    for policy in ("AliyunPAIReadOnlyAccess", "AliyunARMSReadOnlyAccess"):
        page.check(f"form.make label:has-text('{policy}') input")
    page.click("text=Create key")
    page.wait_for_selector(".secrets code")
    token = page.inner_text(".secrets code >> nth=0")
    page.click("text=Done")
    page.wait_for_selector("#keys tbody tr:has-text('pipeline')")
    assert token not in page.content()
    (made,) = [one for one in server.request("GET", "/keys").json()["keys"] if one["name"] == "pipeline"]
    assert set(made["policies"]) == {"AliyunPAIReadOnlyAccess", "AliyunARMSReadOnlyAccess"}
    row = page.inner_text("#keys tbody tr:has-text('pipeline')")
    assert all(policy in row for policy in made["policies"])
    assert page.locator("form.make input:checked").count() == 0
    page.focus("[aria-label='Revoke pipeline']")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Revoke now")
    page.keyboard.press("Enter")
    page.wait_for_selector("#keys header >> text=1 revoked")
    assert page.locator("[aria-label='Revoke pipeline']").count() == 0
    page.fill("form.make input[name=name]", "not a name")
    page.click("text=Create key")
    page.wait_for_selector(".problem[role=alert]")


def own_policy(effect, action):
    return {"Version": "1", "Statement": [{"Effect": effect, "Action": action, "Resource": "acs:pai:*:*:job/j-1"}]}


def test_every_time_changes_with_the_zone(browser, server):
    viewer = Viewer(browser, server, timezone_id="Asia/Shanghai")
    page = viewer.open("admin/keys", "#keys time")
    times = "[...document.querySelectorAll('main time')].map(one => [one.textContent, one.dateTime])"
    before = page.evaluate(times)
    page.click(".who button:has-text('UTC+08:00')")
    page.wait_for_selector(".who button:text-is('UTC')")
    for (text, _), (later, iso) in zip(before, page.evaluate(times), strict=True):
        assert later != text
        assert iso[11:19] in later
    viewer.close()


def test_a_table_that_is_scrolled_on_a_phone_still_says_whose_row_it_is(viewer):
    viewer.look("phone")
    page = viewer.open("use", "#users tbody tr")
    page.evaluate("document.querySelector('#users .wide').scrollLeft = 400")
    wait_for_page(page, "document.querySelector('#users .wide').scrollLeft > 100")
    for box in (head.bounding_box() for head in page.locator("#users tbody th").all()):
        assert 0 <= box["x"] < 20
        assert 100 <= box["width"] <= 160


def test_a_policy_of_ones_own_is_pasted_or_loaded_and_described_in_words(viewer, server, tmp_path):
    page = viewer.open("admin/keys", "#keys table")
    page.fill("form.make input[name=name]", "board")
    page.click("text=Add a custom policy")
    page.fill(".own textarea", '{"Version": ')
    page.wait_for_selector(".own .problem:has-text('not valid JSON')")
    page.click("text=Create key")
    assert page.locator(".secrets").count() == 0
    page.fill(".own textarea", json.dumps(own_policy("Perhaps", "pai:Get*")))
    page.click("text=Create key")
    page.wait_for_selector(".own .problem:has-text('not valid')")
    (tmp_path / "group.json").write_text(json.dumps(own_policy("Deny", "pai:GetJob")))
    page.set_input_files(".own input[type=file]", tmp_path / "group.json")
    page.wait_for_selector(".own .described:has-text('May not')")
    page.check("form.make label:has-text('AliyunPAIReadOnlyAccess') input")
    page.select_option("form.make select[name=role]", "")
    page.click("text=Create key")
    page.click("text=Done")
    page.click("#keys tr:has-text('board') button[aria-expanded]")
    page.wait_for_selector(".allowed .described")
    allowed = page.inner_text(".allowed")
    assert "May not pai:GetJob on job j-1 of every project" in allowed
    assert "AliyunPAIReadOnlyAccess" in allowed
    check_view(page, "a key that is opened")
    page.click(".allowed >> text=Change policies")
    page.click(".allowed button[aria-label^='Remove ']")
    page.click("text=Save")
    page.wait_for_selector(".allowed >> text=Change policies")
    wait_for_page(page, "!document.querySelector('.allowed').textContent.includes('May not')")
    (made,) = [one for one in server.request("GET", "/keys").json()["keys"] if one["name"] == "board"]
    assert made["policies"] == ["AliyunPAIReadOnlyAccess"]


def test_retention_is_set_by_level_and_shorter_is_confirmed(viewer, server):
    page = viewer.open("admin/retention", "form.project")
    page.fill("form.project input >> nth=0", "3")
    page.click("role=button[name='Save default']")
    page.click("text=Shorten retention")
    wait_for_page(page, "document.querySelector('[role=status]').textContent.includes('has its own retention')")
    assert server.request("GET", "/projects/default/retention").json()["raw_days"] == 3
    page.click("form.project >> text=Use the server")
    page.wait_for_selector("form.project .none")


def test_a_shipper_to_no_sink_is_refused_in_words(viewer):
    page = viewer.open("admin/shippers", "#shippers p")
    assert "There are no log shippers" in page.inner_text("#shippers")
    for name in ("group", "sink", "logstore"):
        page.fill(f"form.make input[name={name}]", "a")
    page.click("text=Start shipping")
    page.wait_for_selector(".problem[role=alert]")


def test_the_calls_of_a_month_are_reported(viewer):
    page = viewer.open("admin/usage", "main table")
    assert "followFleet" in page.inner_text("main table")
    heads = page.locator("main table thead th").all_inner_texts()
    assert heads == ["Operation", "API", "Project", "Calls", "Failed"], "no column of prices without a price"


def test_a_reader_learns_who_may(browser, server):
    made = server.request("POST", "/keys", {"name": "reader", "role": "reader"}).json()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/#/admin/keys")
    page.fill("#token", made["token"])
    page.click("button[type=submit]")
    for part in ("keys", "retention", "shippers"):
        page.goto(f"{server.url}/#/admin/{part}")
        page.wait_for_selector(".notice:has-text('Your key may not')")
        assert "role admin" in page.inner_text(".notice")
    context.close()


@pytest.fixture(scope="module")
def partly_down(tmp_path_factory):
    """Store four nodes with two devices each.

    All but two devices are down, and a job of pods runs on one of each kind.
    """
    needs_page()
    with running(tmp_path_factory.mktemp("down") / "data", environment=QUICK) as made:
        now = SystemClock().now_ms()
        devices = [{"device": f"gpu{at}", "name": TYPE} for at in range(2)]
        nodes = [{"name": f"node-{at}", "info": {"cores": 4, "devices": devices}} for at in range(4)]
        both = {"devices": ["gpu0", "gpu1"]}
        own = [dict(both, name=f"worker-{at}", node=f"node-{at * 2}", pod=f"train-x7k2{at}") for at in range(2)]
        job = {"job_id": "train", "state": "Running", "start": now - MINUTE, "replicas": own}
        assert made.request("POST", "/jobs", {"nodes": nodes, "jobs": [job]}).status == 200
        # A clock ahead of the server's, within its tolerance, stands for an agent that continues.
        alive = [({"metric": "node.load1", "node": f"node-{at}"}, [(now + 4 * MINUTE, 1.0)]) for at in range(2)]
        assert made.ingest(samples_frame(alive)).status == 200
        yield made


QUICK = {"JOBMETER_NODE_SECONDS": "2"}


def test_devices_of_a_node_that_is_down_are_not_free(browser, partly_down):
    viewer = Viewer(browser, partly_down)
    page = viewer.open("nodes", ".fleet .tile")
    wait_for_page(page, "document.querySelectorAll('.tile.down').length === 2")
    assert "8 devices, 2 free" in page.inner_text(".figures").replace("\n", " ")
    assert "8 devices · 2 free" in page.inner_text(".fleet header.section")
    page.click("role=button[name=Free]")
    wait_for_page(page, "document.querySelectorAll('.tile').length === 1")
    assert "node-1" in page.inner_text(".fleet")
    page = viewer.open("nodes/node-3", "table.devices tbody tr")
    wait_for_page(page, "document.querySelector('table.devices').innerText.includes('node is down')")
    assert "free" not in page.inner_text("table.devices")
    page = viewer.open("use", "#idle")
    assert "4 of 4 allocated devices were not measured" in page.inner_text("#idle")
    viewer.close()


def test_a_replica_is_shown_with_its_pod(browser, partly_down):
    viewer = Viewer(browser, partly_down)
    page = viewer.open("jobs/train", "#replicas tbody tr")
    rows = page.locator("#replicas tbody tr").all_inner_texts()
    assert [[name for name in ("train-x7k20", "train-x7k21") if name in row] for row in rows] == [
        ["train-x7k20"],
        [],
        ["train-x7k21"],
        [],
    ]
    viewer.close()
