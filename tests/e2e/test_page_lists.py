"""Tests of the list of jobs, the findings of all jobs, keys and the palette, in Chromium on a real server."""

import json
import re

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from tests.e2e.page import EVIL, import_samples, needs_page, wait_for_page
from tests.support.browser import check_view
from tests.support.processes import run_cli, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
GIB = 2**30
WIDTHS = {"phone": (390, 844), "tablet": (820, 1180), "desk": (1440, 900), "wall": (1920, 1080)}
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, GPU has fallen off the bus."


def facts(now):
    """Return a job on a broken device, jobs with idle or no devices, a waiting job and many ended jobs."""
    address = {f"gpu{at}": f"0000:{0x1B + 0x40 * at:02x}:00" for at in range(4)}
    devices = [{"device": name, "name": "NVIDIA H200", "pci": one} for name, one in address.items()]
    nodes = [{"name": f"node-{at}", "info": {"cores": 64, "devices": devices}} for at in range(4)]
    limits = {"cpu.limit": 10.0, "memory.limit": 40.0 * GIB}

    def job(name, user, places, **more):
        replicas = [
            {"name": f"worker-{rank}", "rank": rank, "node": node, "devices": [device] if device else []}
            for rank, (node, device) in enumerate(places)
        ]
        times = {"created": now - 60 * MINUTE, "start": now - 60 * MINUTE}
        common = {"state": "Running", "type": "PyTorchJob", "limits": limits, "replicas": replicas}
        return {"job_id": name, "name": name, "user": user, **common, **times, **more}

    train = [(f"node-{rank // 4}", f"gpu{rank % 4}") for rank in range(8)]
    idle = [("node-2", "gpu0"), ("node-2", "gpu1")]
    own = {"state": "Succeeded", "end": now - MINUTE, "limits": {}}
    ended = [job(f"ended-{at}", f"user-{at % 2}", [], **own) for at in range(40)]
    failed = job("failed", EVIL, [], state="Failed", end=now - MINUTE, error=EVIL)
    waits = {"job_id": "waits", "name": "waits", "state": "Queued", "user": "lin", "created": now - 5 * MINUTE}
    jobs = [job("train", "lin", train), job("lazy", "maria", idle), job("etl", "lin", [("node-3", "")]), waits]
    event = {"time": now - 4 * MINUTE, "node": "node-0", "source": "node", "reason": "Xid", "level": "error"}
    events = [{**event, "message": XID, "subject": "device 0000:9b:00"}]
    return {"nodes": nodes, "jobs": [*jobs, failed, *ended], "events": events}


def samples(now):
    yield "job_id,replica,node,device,metric,time,value"
    for at in range(now - 30 * MINUTE, now, 30_000):
        for rank in range(8):
            place = f"train,worker-{rank},node-{rank // 4}"
            yield f"{place},gpu{rank % 4},gpu.utilization,{at},0.9"
            yield f"{place},,cpu.usage,{at},5"
            yield f"{place},,memory.usage,{at},{(20 if at < now - 10 * MINUTE else 10) * GIB}"
        for rank in range(2):
            yield f"lazy,worker-{rank},node-2,gpu{rank},gpu.utilization,{at},0"
        yield f"etl,worker-0,node-3,,cpu.usage,{at},2"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("lists")
    with running(folder / "data") as made:
        now = SystemClock().now_ms()
        assert made.request("POST", "/jobs", facts(now)).status == 200
        import_samples(made, folder, samples(now))
        wait_until(lambda: len(open_findings(made)) >= 3, "the rules have looked at the jobs that run")
        yield made


def open_findings(server):
    return server.call("GET", "/api/jobmeter/v1/findings?open=true").json()["findings"]


def row(page, name):
    return page.locator(f".rows .row[data-at]:has(.c-name b:text-is('{name}'))")


def cell(page, name, column):
    return row(page, name).locator(f".c-{column}").inner_text().replace("\n", " ")


def names(page):
    return [one.strip() for one in page.locator(".rows .row[data-at] .c-name b").all_inner_texts()]


def wait_for_cell(page, name, column, text):
    wait_until(lambda: text in cell(page, name, column), f"{text} in {column} of {name}")


def test_the_list_has_sizes_and_what_the_whole_job_uses(viewer, server):
    columns = "replicas,devices,nodes,memory,cpu,gpu"
    page = viewer.open(f"?columns={columns}", ".rows .row[data-at]")
    assert [cell(page, "train", one) for one in ("replicas", "devices", "nodes")] == ["8", "8", "2"]
    assert [cell(page, "etl", one) for one in ("replicas", "devices", "nodes")] == ["1", "\u2013", "1"]
    wait_for_cell(page, "train", "cpu", "40.0 cores")
    assert cell(page, "train", "cpu") == "40.0 cores of 80"
    wait_for_cell(page, "train", "memory", "160 GiB")
    assert cell(page, "train", "memory") == "160 GiB 50 % of limit"
    wait_for_cell(page, "train", "gpu", "90.0 %")
    # The command line prints the same text for the whole job.
    shown = run_cli("jobs", "--state", "Running", "--name", "train", "--server", server.url, "--key", server.token)
    assert {"40.00", "160.0"} <= set(re.findall(r"[\d.]+", shown.stdout)), shown.stdout


def test_the_list_says_how_long_a_queued_job_has_waited(viewer):
    page = viewer.open("?columns=duration", ".rows .row[data-at]")
    wait_until(lambda: re.fullmatch(r"\d+ m \d\d s", cell(page, "waits", "duration")), "the time since its creation")
    assert row(page, "waits").locator(".c-duration [title='Time in the queue']").count() == 1


def test_the_curve_is_drawn_on_the_scale_of_the_limit(viewer):
    page = viewer.open("?columns=cpu", ".rows .row[data-at]")
    wait_for_cell(page, "train", "cpu", "of 80")
    path = row(page, "train").locator(".spark .line").first.get_attribute("d") or ""
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
    assert all(11 < one < 13 for one in heights), "half of the limit is half of the height"


def test_usual_columns_without_content_are_not_shown(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    heads = page.locator(".row.head [role=columnheader]").all_inner_texts()
    assert not {"Project", "Group"} & set(heads)
    assert {"User", "GPUs", "Findings"} <= set(heads)


def test_states_are_counted_and_filters_are_chips(viewer):
    page = viewer.open("?user=lin", ".chips")
    wait_for_page(page, "document.querySelector('.states').textContent.includes('Succeeded 0')")
    states = re.sub(r"\s+", " ", page.inner_text(".states"))
    assert states == "All Running 2 Queued 1 Succeeded 0 Failed 0 Stopped 0 Unknown 0"
    page.click(".states button:has-text('Queued')")
    wait_until(lambda: names(page) == ["waits"], "queued jobs of that user")
    assert "Running 2" in re.sub(r"\s+", " ", page.inner_text(".states"))
    chips = page.locator(".chips button").all_inner_texts()
    assert [one.strip(" \u00d7") for one in chips] == ["State: Queued", "User: lin", "Clear all"]
    page.click(".chips button:has-text('State')")
    wait_until(lambda: len(names(page)) == 3, "all jobs of that user")
    page.click("text=Clear all")
    wait_until(lambda: len(names(page)) > 10, "all jobs")
    assert page.locator(".chips").count() == 0


def test_the_band_says_how_jobs_nodes_and_users_are(viewer):
    page = viewer.open("", ".band")
    wait_for_page(page, "document.querySelector('.band').textContent.includes('faults')")
    band = re.sub(r"\s+", " ", page.inner_text(".band"))
    of_jobs, others = "3 running 1 with critical findings 2 idle GPUs", "maria has 2 idle GPUs lin has 1 critical job"
    assert band == f"{of_jobs} 1 node with faults {others}"
    page.click(".band a:has-text('maria')")
    wait_until(lambda: names(page) == ["lazy"], "the jobs of that user")
    page.click(".band a:has-text('faults')")
    page.wait_for_selector(".tile.faulty")
    assert page.locator(".tile").count() == 1


def test_findings_of_all_jobs_lead_to_the_jobs(viewer, server):
    page = viewer.open("findings", ".foundtable tbody tr")
    rows = page.locator(".foundtable tbody tr").all_inner_texts()
    assert len(rows) == len(open_findings(server))
    assert "XID 79" in rows[0], "the worst first"
    page.click("role=button[name=Critical]")
    wait_for_page(page, "location.hash.includes('severity=critical')")
    wait_until(lambda: "computes nothing" not in page.inner_text("main"), "critical ones alone")
    page.click("role=button[name='Last week']")
    page.wait_for_selector(".foundtable .state")
    page.click(".foundtable a:has-text('train')")
    page.wait_for_selector("header.job h1:has-text('train')")


def test_the_terminal_lists_the_same_findings(server):
    to = ("--server", server.url, "--key", server.token)
    listed = json.loads(run_cli("findings", "--open", "--json", *to).stdout)
    assert [(one["job"], one["rule"]) for one in listed] == [(one["job"], one["rule"]) for one in open_findings(server)]
    shown = run_cli("findings", "--severity", "critical", *to)
    assert "XID 79" in shown.stdout
    wrong = run_cli("findings", "--finding", "xidd", *to)
    assert (wrong.returncode, "did you mean" in wrong.stderr.lower()) == (1, True), wrong.stderr


def test_keys_lead_everywhere_and_escape_closes(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    page.keyboard.press("?")
    page.wait_for_selector("dialog.keylist[open]")
    assert "palette" not in page.inner_text("dialog")
    assert "next row" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('[data-at]').dataset.at") == "0"
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.closest('[data-at]').dataset.at") == "1"
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_selector(".foundtable tbody tr")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("header.job h1")


def test_letters_in_a_field_are_no_keys(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    page.keyboard.press("/")
    page.keyboard.type("gj?k")
    assert page.input_value("[aria-label='Search by name or id']") == "gj?k"
    assert page.locator("dialog").count() == 0


def test_the_palette_takes_the_place_of_the_list_of_keys(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    page.keyboard.press("?")
    page.wait_for_selector("dialog.keylist[open]")
    page.keyboard.press("Control+k")
    page.wait_for_selector("dialog.keylist", state="detached")
    page.wait_for_selector("dialog.palette[open] [role=option]")
    page.keyboard.type("tra")
    page.wait_for_selector(".palette [aria-selected=true] b:has-text('tra')")
    page.keyboard.press("Enter")
    page.wait_for_selector("header.job h1:has-text('train')")


def test_the_palette_receives_letters_typed_immediately_after_its_shortcut(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    # A script without waits runs before any later task of the browser, such as the next key.
    focused = page.evaluate("""async () => {
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, bubbles: true }));
        await null;
        return document.activeElement.getAttribute("role");
    }""")
    assert focused == "combobox"
    page.keyboard.type("maria")
    assert page.input_value(".palette input") == "maria"


def test_a_filter_chosen_while_typing_rests_stays(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    page.evaluate("""() => {
        const field = document.querySelector("[aria-label='Search by name or id']");
        field.value = "fail";
        field.dispatchEvent(new Event("input", { bubbles: true }));
        [...document.querySelectorAll(".states button")].find((one) => one.textContent.startsWith("Failed")).click();
    }""")
    wait_for_page(page, "location.hash.includes('q=fail')")
    assert "state=Failed" in page.evaluate("location.hash")


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("tra", "header.job h1:has-text('train')"), ("node-3", "article.node h1"), ("reten", "form.project")],
)
def test_the_palette_leads_to_jobs_nodes_and_pages(viewer, typed, wanted):
    page = viewer.open("", ".rows .row[data-at]")
    page.keyboard.press("Control+k")
    page.wait_for_selector("dialog.palette[open] [role=option]")
    page.keyboard.type(typed)
    page.wait_for_selector(
        f".palette [aria-selected=true] b:has-text('{typed[:3]}')"
        if typed != "reten"
        else ".palette b:text-is('Retention')"
    )
    page.keyboard.press("Enter")
    page.wait_for_selector(wanted)


def test_the_palette_leads_to_the_jobs_of_a_user(viewer):
    page = viewer.open("nodes", ".tile")
    page.keyboard.press("Control+k")
    page.keyboard.type("maria")
    page.click(".palette [role=option]:has(small:text-is('User')):has-text('maria')")
    wait_until(lambda: names(page) == ["lazy"], "the jobs of that user")


def test_views_are_saved_and_my_jobs_are_one_click_away(viewer):
    page = viewer.open("?state=Failed", ".rows .row[data-at]")
    page.click("summary:text-is('Views')")
    page.fill(".sheet [name=view]", EVIL)
    page.click(".sheet button:text-is('Save')")
    page.wait_for_selector("[aria-label='Saved views'] a")
    page.fill(".sheet [name=user]", "maria")
    page.click("text=My jobs")
    wait_until(lambda: names(page) == ["lazy"], "my jobs")
    page.reload()
    page.click("summary:text-is('Views')")
    page.click("[aria-label='Saved views'] a")
    wait_until(lambda: names(page) == ["failed"], "the saved view")
    page.click("summary:text-is('Views')")
    page.click("[aria-label^='Delete']")
    assert page.locator("[aria-label='Saved views']").count() == 0
    page.keyboard.press("Escape")
    assert page.evaluate("document.querySelector('details[open]')") is None


def test_signing_in_names_the_server_and_an_unknown_token(browser, server):
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.url)
    page.wait_for_selector("form")
    assert server.url.split("/")[2] in page.inner_text("main")
    page.fill("#token", "wrong")
    page.click("button[type=submit]")
    page.wait_for_selector("[role=alert]:has-text('This token belongs to no key of this server.')")
    context.close()


def test_a_key_of_one_project_sees_the_devices_of_its_jobs_alone(browser, server, tmp_path):
    now = SystemClock().now_ms()
    replica = {"name": "worker-0", "node": "node-1", "devices": ["gpu0"]}
    job = {"job_id": "other", "project": "vision", "state": "Running", "start": now - MINUTE, "replicas": [replica]}
    assert server.request("POST", "/jobs", job).status == 200
    key = server.request("POST", "/keys", {"name": "vision", "role": "writer", "project": "vision"}).json()
    line = f"other,worker-0,node-1,gpu0,gpu.utilization,{now},0.7"
    (tmp_path / "one.csv").write_text(f"job_id,replica,node,device,metric,time,value\n{line}\n")
    done = run_cli("import", str(tmp_path / "one.csv"), "--server", server.url, "--key", key["token"])
    assert done.returncode == 0, done.stderr
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/#/nodes")
    page.fill("#token", key["token"])
    page.click("button[type=submit]")
    page.wait_for_selector(".fleet .tile")
    assert page.locator(".tile").evaluate_all("tiles => tiles.map(one => one.ariaLabel)") == [
        "node-1: 1 device, 1 busy"
    ]
    page.goto(f"{server.url}/#/")
    page.wait_for_selector(".states:has-text('Running 1')")
    assert re.sub(r"\s+", " ", page.inner_text(".states")).endswith("Succeeded 0 Failed 0 Stopped 0 Unknown 0")
    page.goto(f"{server.url}/#/findings")
    page.wait_for_selector(".notice:has-text('No open findings')")
    context.close()


@pytest.mark.parametrize(("width", "scheme"), list(zip(WIDTHS, ["light", "dark"] * 2, strict=True)))
def test_lists_fit_every_width(viewer, width, scheme):
    viewer.look("wide", scheme)
    viewer.page.set_viewport_size(dict(zip(("width", "height"), WIDTHS[width], strict=True)))
    for place, wanted in {"": ".band", "?user=lin&open=true": ".chips", "findings?show=7d": ".foundtable"}.items():
        check_view(viewer.open(place, wanted), place)
    fits = "(one => one.scrollWidth <= one.clientWidth)(document.querySelector('.wide:has(.foundtable)'))"
    assert viewer.page.evaluate(fits), "findings are read without scrolling sideways"
    page = viewer.open("", ".rows .row[data-at]")
    tops = page.locator(".filters summary").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert len(tops) == 2
    assert tops[0] == tops[1]
    page.click("summary:text-is('Views')")
    check_view(page, "views")
    page.keyboard.press("Escape")
    for key, dialog in (("?", "dialog.keylist"), ("Control+k", ".palette [role=option]")):
        page.keyboard.press(key)
        page.wait_for_selector(dialog)
        check_view(page, dialog)
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
