"""Real jobs with a known fault, on a real server: each appears in the findings and in the events."""

import json
import os

import pytest

from jobmeter.examples.faults.real import SCRIPTS, THRESHOLDS, run
from jobmeter.examples.server import own_server
from jobmeter.model.finding import Role
from tests.e2e.conftest import start

QUICK = ("exception", "exit 3", "SIGSEGV", "a rank dies first", "memory limit of a group", "clean: short")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    rules = tmp_path_factory.mktemp("rules") / "rules.toml"
    rules.write_text(THRESHOLDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBMETER_RULES", str(rules))
        with own_server() as made:
            yield made


def check(script, server):
    findings = run(script, server, {**os.environ, **server.environment})
    if findings is None:
        pytest.skip("no such control group can be made here")
    roots = {one.rule for one in findings if one.role is Role.ROOT}
    assert roots == ({script.rule} if script.rule else set()), findings


@pytest.mark.parametrize("script", [one for one in SCRIPTS if one.name in QUICK], ids=lambda one: one.name)
def test_a_fault_is_named(script, server):
    check(script, server)


@pytest.mark.slow
@pytest.mark.parametrize("script", [one for one in SCRIPTS if one.name not in QUICK], ids=lambda one: one.name)
def test_a_fault_that_takes_time_is_named(script, server):
    check(script, server)


def test_the_command_line_reports_it_and_the_server_stores_it(server):
    environment = dict(server.environment)
    start("run", "--job-id", "told", "--quiet", "--", "sh", "-c", "echo gone wrong >&2; exit 9", **environment)
    [one] = json.loads(start("diagnose", "told", "--json", **environment).out)
    assert one["rule"] == "unknown_exit"
    shown = start("show", "told", **environment).out
    assert "critical unknown_exit (root, replica worker-0): worker-0 exited with status 9" in shown
    assert start("diagnose", "nobody", **environment).status == 1
