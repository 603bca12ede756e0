"""Tests of plug-ins of installed packages: the example, installed without a network, beside broken packages."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.collect.trees import plant, plant_process

ROOT = Path(__file__).parents[2]
BROKEN = {
    "jobmeter.rules": {
        "lost": "no_such_module:RULE",
        "swap": "jobmeter_example.rule:many_threads",
        "many_threads": "jobmeter_example.rule:many_threads",
        "fails": "acme:FAILS",
        "odd": "acme:ODD",
        "lists": "acme:LISTS",
        "duck": "acme:DUCK",
        "evil": "acme:EVIL",
        "kernel": "acme:KERNEL",
        "lines": "acme:LINES",
        "gauge": "acme:GAUGE",
        "none": "acme:NONE",
    },
    "jobmeter.dialects": {"text": "acme:WORD", "boom": "acme:BOOM", "half": "acme:HALF"},
    "jobmeter.verbs": {"hello": "acme:hello", "explode": "acme_bomb:command", "jobs": "acme:hello"},
    "jobmeter.sinks": {"null": "acme:NullSink", "nothing": "acme:absent", "closed": "acme:fail_to_open"},
    "jobmeter.collectors": {"acme.bad": "acme:BadCollector", "acme.raises": "acme:broken_collector"},
    "jobmeter.vendors": {
        "nvidia": "acme:SAME",
        "xpu": "acme:XPU",
        "shut": "acme:SHUT",
        "wrong": "acme:WORD",
        "other": "acme:SHUT",
    },
}
MODULE = '''
import click
WORD = "a word"
@click.command()
@click.option("--name", default="world")
def hello(name):
    """Greet somebody."""
    click.echo(f"hello {name}")
class NullSink:
    def __init__(self, settings, guard, origin): self.origin = origin
class BadCollector:
    name, metrics = "acme.bad", ("acme.own",)
    def __init__(self, place): pass
def broken_collector(place):
    raise RuntimeError("no device")
def find(rule, case, numbers):
    return iter([numbers["absent"]])
def rule(name, **more):
    from jobmeter.diagnose.rule import Rule
    return Rule(name=name, title=name, sees="", advice="", source="", find=find, **more)
def fail(given):
    raise LookupError("boom")
from types import SimpleNamespace
BOOM = SimpleNamespace(
    name="boom",
    title="Boom",
    schemes=(),
    operations=(),
    gaps=(),
    find_operation=fail,
    view_call=fail,
    render_error=fail,
)
HALF = SimpleNamespace(name="half", title="Half", operations=(), find_operation=fail)
def fail_to_open(settings, policy, origin):
    raise OSError("no disk")
class Duck:
    name, title, metrics = "duck", "Duck", ()
    def find(self, case, numbers): pass
class Evil(Duck):
    @property
    def title(self): raise RuntimeError("no title")
DUCK, EVIL = Duck(), Evil()
def fail_to_open_device(clock, machine, patience):
    raise OSError("no driver")
from dataclasses import replace
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR as SAME
XPU, SHUT = replace(SAME, name="xpu", prefix="xpu"), replace(SAME, name="shut", title="Shut", open=fail_to_open_device)
FAILS = rule("fails", suspects=lambda case, numbers: numbers["absent"])
ODD = rule("odd", numbers=(("hold", "a while", ""),))
LISTS = rule("lists", metrics=["cpu.usage"])
KERNEL, LINES = rule("kernel", kernel="("), rule("lines", lines='"open')
GAUGE, NONE = rule("gauge", counters=("cpu.usage",)), rule("none", metrics=None)
'''
PROGRAM = """
import json, logging, sys
import numpy as np
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("jobmeter.plugins").addHandler(handler)
from pathlib import Path
from tests.support.diagnosed import Sampled
from tests.support.fakes import NOW
from tests.support.serving import serving
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.accelerators.registry import list_device_variables, find_resource_vendor, list_vendors
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.doctor.base import run_checks
from jobmeter.collect.doctor.examine import list_device_checks
from jobmeter.collect.machine import Machine
from jobmeter.collect.registry import create_accelerator_collectors, create_host_collectors, create_plugin_collectors
from jobmeter.model.time import SystemClock
from jobmeter.diagnose.registry import load_thresholds, list_rules
from jobmeter.dialects.registry import list_dialects
from jobmeter.errors import ConfigurationError
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.registry import find_opener
from jobmeter.ship.sink import Origin

def refusal(kind):
    try:
        find_opener(kind)(None, DestinationPolicy.from_settings(()), Origin("0", "p", "l"))
    except ConfigurationError as error:
        return error.message

place = NodeIdentity("n1")
planned = create_plugin_collectors(place, create_host_collectors(place))
samples = planned[0].collector.collect(NOW)
root = Path(sys.argv[2])
machine = Machine(**{name: str(root / name) for name in ("proc", "sys", "dev", "run", "var")})
table = ProcessTable(NodeClassifier("n1", machine.proc), machine.proc)
names = DeviceNames(list_vendors(), machine)
table.refresh()
groups = Hierarchies(machine.proc, str(root))
devices = create_accelerator_collectors(place, table, SystemClock(), groups, names, patience=90.0)
powers = {one.name: [s for s in one.collect(NOW) if s.series.metric == "npu.power"] for one in devices}
server = serving(Path(sys.argv[1]))
server.call("POST", "/jobs", [{"job_id": "j1", "state": "Failed"}])
time = np.arange(NOW - 3_600_000, NOW, 10_000)
many = Sampled({("thread.count", "worker-0"): (time, np.full(len(time), 9_000.0))}, NOW - 3_600_000)
key = {"Authorization": f"Bearer {server.admin.token}"}
plain = [server.raw("GET", f"/plain/v1/{path}", headers=key) for path in ("jobs/j1", "jobs/none", "nothing")]
plain.append(server.raw("GET", "/plain/v1/jobs/j1"))
plain.append(server.raw("GET", "/elsewhere", headers=key))
listed = server.call("GET", "/rules").json()["rules"]
server.application.close()
print(json.dumps({
    "rules": [rule.name for rule in list_rules()],
    "suspects": [rule.suspects(None, {}) for rule in list_rules() if rule.name == "fails"],
    "titles": {rule["name"]: rule["title"] for rule in listed},
    "findings": [[one.rule, one.subject.name, one.evidence[0].text] for one in many.findings(load_thresholds())],
    "dialects": [dialect.name for dialect in list_dialects()],
    "plain": [[answer.status, answer.body.decode()] for answer in plain],
    "collectors": [[one.collector.name, one.every_ms] for one in planned],
    "samples": [[one.series.metric, one.series.node, one.value] for one in samples],
    "sink": find_opener("null")(None, DestinationPolicy.from_settings(()), Origin("0", "p", "l")).origin.project,
    "refusals": [refusal(kind) for kind in ("nothing", "unknown", "closed")],
    "vendors": [vendor.name for vendor in list_vendors()],
    "measured": sorted(powers),
    "powers": [[s.series.device, s.series.job, s.value] for s in powers["example"]],
    "doctor": {row.name: [row.status, row.text] for row in run_checks(list_device_checks(machine), 60.0)},
    "words": ["EXAMPLE_VISIBLE_DEVICES" in list_device_variables(), find_resource_vendor("example.org/npu").name],
    "logged": logged,
}))
"""


def run(target, *arguments, **environment):
    own = {name: value for name, value in os.environ.items() if not name.startswith("JOBMETER_")}
    own |= {"PYTHONPATH": str(target), "COLUMNS": "200", **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """Install the example with pip into a folder, without a network."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copytree(ROOT / "examples" / "plugin", folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder / "site", folder / "source"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def mixed(target, tmp_path_factory):
    """Return a folder with the example and the package acme, most of whose plug-ins are broken."""
    site = tmp_path_factory.mktemp("mixed") / "site"
    shutil.copytree(target, site)
    (site / "acme.py").write_text(MODULE)
    (site / "acme_bomb.py").write_text("raise SystemExit(3)\n")
    folder = site / "zz_acme-2.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: zz-acme\nVersion: 2.1\n")
    text = "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in BROKEN.items()
    )
    (folder / "entry_points.txt").write_text(text)
    return site


@pytest.fixture(scope="module")
def outputs(mixed, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    for number in range(2):
        device = {"power": "250000\n", "errors": "0\n", "uuid": f"EXAMPLE-{number}\n"}
        plant(root, {f"sys/class/example/{number}/{name}": text for name, text in device.items()})
    plant(root, {"proc/uptime": "1 1"})
    group = "/slurm_n1/uid_65534/job_21/step_0/task_0"
    groups, visible = f"4:memory:{group}\n", "EXAMPLE-1"
    plant_process(root, 100, groups=groups, SLURM_JOB_ID="21", SLURM_PROCID="0", EXAMPLE_VISIBLE_DEVICES=visible)
    done = run(mixed, "-c", PROGRAM, str(tmp_path_factory.mktemp("data") / "data"), str(root))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_rule_of_a_package_finds_its_fault_and_the_api_lists_it(outputs):
    assert outputs["titles"]["many_threads"] == "Too many threads"
    assert ["many_threads", "worker-0", "worker-0 (node-0) has 9,000 threads"] in outputs["findings"]


def test_a_dialect_of_a_package_answers_behind_the_server_s_permissions(outputs):
    assert "plain" in outputs["dialects"]
    found, missing, wrong, refused, elsewhere = outputs["plain"]
    assert found == [200, "j1 is Failed\n"]
    assert (missing[0], wrong[0], refused[0]) == (404, 404, 401)
    assert elsewhere[0] == 404, "another dialect that fails for every path takes none"


def test_a_collector_of_a_package_measures_at_its_interval(outputs):
    assert outputs["collectors"] == [["example.files", 60_000]]
    ((metric, node, value),) = outputs["samples"]
    assert (metric, node) == ("external.file.handles", "n1")
    assert value > 0


def test_a_vendor_of_a_package_is_measured_like_the_built_in_vendors(outputs):
    assert outputs["vendors"] == ["nvidia", "amd", "ascend", "neuron", "example", "shut"]
    assert outputs["powers"] == [["npu0", "", 250.0], ["npu1", "21", 250.0]]
    assert outputs["doctor"]["example"] == ["ok", "2 NPUs (Example One)"]
    assert outputs["words"] == [True, "example"]


def test_a_vendor_whose_driver_cannot_be_opened_does_not_stop_the_others(outputs):
    assert outputs["measured"] == ["amd", "ascend", "example", "neuron", "nvidia"]
    assert outputs["doctor"]["shut"][0] == "problem"


def test_a_sink_of_a_package_opens_and_a_broken_one_is_refused_by_name(outputs):
    assert outputs["sink"] == "p"
    broken, unknown, closed = outputs["refusals"]
    assert broken.startswith("the plug-in nothing (sinks) of zz-acme 2.1 is not loaded: AttributeError")
    assert unknown == "kind 'unknown' is not one of file, loki, otlp, s3, sls, closed, null"
    assert closed == "the plug-in closed (sinks) of zz-acme 2.1 is not loaded: OSError: no disk"


def test_broken_plugins_are_left_out_and_logged_once_with_package_and_reason(outputs):
    assert "lost" not in outputs["rules"]
    assert outputs["suspects"] == [None], "it fails, and suspects nothing"
    assert (outputs["rules"].count("swap"), outputs["rules"].count("many_threads")) == (1, 1)
    assert "text" not in outputs["dialects"]
    logged = outputs["logged"]
    assert len(logged) == len(set(logged))
    reasons = {
        "lost (rules)": "ModuleNotFoundError: No module named 'no_such_module'",
        "swap (rules)": "jobmeter_example.rule:many_threads has the name 'many_threads'; use it in both places",
        "many_threads (rules)": "another part has the same name; rename it",
        "fails (rules)": "KeyError: 'absent'",
        "boom (dialects)": "LookupError: boom",
        "duck (rules)": "it is not a jobmeter.diagnose.rule.Rule",
        "evil (rules)": "RuntimeError: no title",
        "gauge (rules)": "cpu.usage is no counter",
        "half (dialects)": "acme:HALF is not a jobmeter.dialects.base.Dialect",
        "text (dialects)": "acme:WORD is not a jobmeter.dialects.base.Dialect",
        "acme.bad (collectors)": "unknown metric 'acme.own'; use a metric of the catalogue or one below app.",
        "acme.raises (collectors)": "RuntimeError: no device",
        "nvidia (vendors)": "another part has the same name; rename it",
        "xpu (vendors)": "unknown metric 'xpu.state'; use the prefix gpu or npu, and the catalogue",
        "wrong (vendors)": "acme:WORD is not a jobmeter.collect.accelerators.vendor.Vendor",
        "other (vendors)": "acme:SHUT has the name 'shut'; use it in both places",
    }
    odd = "the plug-in odd (rules) of zz-acme 2.1 is not loaded: its thresholds are wrong: "
    assert any(text.startswith(odd) for text in logged)
    assert any(text.startswith("the plug-in lists (rules) of zz-acme 2.1 is not loaded: its rule") for text in logged)
    for name in ("kernel", "lines", "none"):
        assert name not in outputs["rules"]
        assert any(text.startswith(f"the plug-in {name} (rules) of zz-acme 2.1 is not loaded: ") for text in logged)
    for name, reason in reasons.items():
        assert f"the plug-in {name} of zz-acme 2.1 is not loaded: {reason}" in logged


def test_a_verb_of_a_package_runs_and_help_lists_it(mixed):
    done = run(mixed, "-m", "jobmeter", "hello", "--name", "Ada")
    assert (done.returncode, done.stdout) == (0, "hello Ada\n")
    text = run(mixed, "-m", "jobmeter", "--help").stdout
    assert "Plug-ins:" in text
    assert "Greet somebody." in text
    assert "Not loaded: SystemExit: 3" in text


def test_a_broken_verb_fails_with_its_package_and_leaves_other_verbs_alone(mixed):
    done = run(mixed, "-m", "jobmeter", "explode")
    assert done.returncode == 1
    assert "the plug-in explode (verbs) of zz-acme 2.1 is not loaded: SystemExit: 3" in done.stderr
    assert "List jobs" in run(mixed, "-m", "jobmeter", "jobs", "--help").stdout


def test_doctor_lists_the_plugins_and_reports_broken_ones_as_problems(target, mixed, tmp_path):
    def checks(site):
        done = run(site, "-m", "jobmeter", "doctor", "--json", "--data", str(tmp_path))
        return [check for check in json.loads(done.stdout) if check["area"] == "plug-ins"]

    listed = [(check["name"], check["status"], check["text"]) for check in checks(target)]
    assert listed == [
        ("rules", "ok", "many_threads of jobmeter-example 0.1.0"),
        ("dialects", "ok", "plain of jobmeter-example 0.1.0"),
        ("collectors", "ok", "example.files of jobmeter-example 0.1.0"),
        ("vendors", "ok", "example of jobmeter-example 0.1.0"),
    ]
    problems = [check["text"] for check in checks(mixed) if check["status"] == "problem"]
    assert any("explode (verbs) of zz-acme 2.1" in text for text in problems)
    assert [check["status"] for check in checks(tmp_path)] == ["absent"]


def test_a_verb_of_jobmeter_starts_without_reading_the_list_of_packages(mixed):
    program = (
        "import sys; from jobmeter.cli.main import main\n"
        "try: main(['catalog', '--metric', 'cpu.usage'])\n"
        "except SystemExit: pass\n"
        "print('importlib.metadata' in sys.modules, 'acme' in sys.modules)"
    )
    assert run(mixed, "-c", program).stdout.endswith("False False\n")
