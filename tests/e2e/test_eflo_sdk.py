"""Diagnostic tasks with a real server, a real agent on this machine, and the vendor's own SDK."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.alibaba import CURRENT, ask, needs_current
from tests.e2e.conftest import start
from tests.e2e.conversation import has_package
from tests.support.frames import records
from tests.support.processes import running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, needs_current]
needs_eflo = pytest.mark.skipif(
    not has_package(CURRENT, "alibabacloud_eflo_controller20221215"),
    reason="no eflo-controller SDK in .venvs/alibaba (make sdk)",
)


PAGE = 20
NODES = [("rack-0", "rg-0"), ("rack-1", "rg-1")]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eflo")
    with running(folder / "data", environment={"JOBMETER_TASK_SECONDS": "30"}) as made:
        agent = subprocess.Popen(
            [sys.executable, "-m", "jobmeter", "agent", "--server", made.url, "--key", made.token,
             "--interval", "1s", "--node", "here", "--cluster", "c1", "--spool", str(folder / "spool")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ),
        )  # fmt: skip
        try:
            wait_until(lambda: "here" in {one["name"] for one in made.request("GET", "/nodes").json()["nodes"]})
            yield made
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait(30)


def _ask(server, call, **request):
    pair = {"access_key_id": server.admin["access_key_id"], "access_key_secret": server.admin["access_key_secret"]}
    config = {**pair, "endpoint": server.url}
    return {"config": config, "product": "eflo", "call": call, "request": request}


def _finished(server, task):
    def done():
        found = server.request("GET", f"/tasks/{task}").json()
        return found if found["state"] in {"done", "interrupted"} else None

    return wait_until(done, "the task")


@needs_eflo
def test_a_node_is_checked_by_its_agent(server):
    [made] = ask(_ask(server, "create_diagnostic_task", ClusterId="c1", NodeIds=["here"], DiagnosticType="NodeCheck"))
    task = made["body"]["DiagnosticId"]
    found = _finished(server, task)
    [answer] = found["answers"]
    assert answer["node"] == "here"
    assert answer["verdict"] in {"healthy", "fault"}
    assert {"disks", "clock", "tasks", "kernel_log", "memory"} <= {one["name"] for one in answer["checks"]}
    described, listed = ask(
        _ask(server, "describe_diagnostic_result", DiagnosticId=task),
        _ask(server, "list_diagnostic_results", DiagType="NodeCheck"),
    )
    body = described["body"]
    assert (body["ClusterId"], body["NodeIds"], body["DiagnosticType"]) == ("c1", ["here"], "NodeCheck")
    assert body["DiagnosticState"] in {"Normal", "Fault"}
    [node] = [one for one in body["DiagnosticResults"] if one["Kind"] == "Node"]
    assert node["NodeId"] == "here"
    [row] = listed["body"]["DiagnosticResults"]
    assert (row["DiagId"], row["ServerName"], row["DiagResult"]) == (task, "here", "Success")
    assert row["ResourceId"] == "here"


@needs_eflo
def test_logs_that_come_along_are_looked_at(server):
    minute = int(time.time()) // 60 * 60
    texts = [
        "Traceback (most recent call last):",
        '  File "t.py", line 1',
        "torch.OutOfMemoryError: CUDA out of memory",
    ]
    info = {
        "StartTime": str(minute - 600),
        "EndTime": str(minute),
        "AiJobLogs": [
            {
                "NodeId": "n",
                "AiInstance": "worker-0",
                "Logs": [{"Datetime": "20261122", "LogContent": one} for one in texts],
            }
        ],
    }
    clean = {
        **info,
        "AiJobLogs": [{"NodeId": "n", "AiInstance": "worker-0", "Logs": [{"LogContent": "step 1 loss 2.0"}]}],
    }
    bad, good, crooked = ask(
        _ask(server, "create_diagnostic_task", DiagnosticType="CheckByAiJobLogs", AiJobLogInfo=info),
        _ask(server, "create_diagnostic_task", DiagnosticType="CheckByAiJobLogs", AiJobLogInfo=clean),
        _ask(
            server,
            "create_diagnostic_task",
            DiagnosticType="CheckByAiJobLogs",
            AiJobLogInfo={**info, "StartTime": "61"},
        ),
    )
    assert [one["rule"] for one in _finished(server, bad["body"]["DiagnosticId"])["findings"]] == ["cuda_oom"]
    assert _finished(server, good["body"]["DiagnosticId"])["verdict"] == "healthy"
    assert crooked["code"] == "InvalidParameter"
    [described] = ask(_ask(server, "describe_diagnostic_result", DiagnosticId=bad["body"]["DiagnosticId"]))
    assert described["body"]["DiagnosticState"] == "Fault"


@needs_eflo
def test_tasks_are_listed_page_by_page_and_by_resource_group(server):
    server.ingest(records({"nodes": [{"name": name, "resource_group": group} for name, group in NODES]}))
    made = [
        server.request("POST", "/tasks", {"nodes": [NODES[at % 2][0]], "label": "Paged"}).json()["id"]
        for at in range(2 * PAGE + 4)
    ]
    pages: list[list[str]] = []
    token = ""
    while token or not pages:
        [page] = ask(_ask(server, "list_diagnostic_results", DiagType="Paged", MaxResults=PAGE, NextToken=token))
        pages.append([row["DiagId"] for row in page["body"]["DiagnosticResults"]])
        assert page["body"]["MaxResults"] == PAGE
        token = page["body"]["NextToken"]
    assert [len(page) for page in pages] == [PAGE, PAGE, 4]
    listed = [task for page in pages for task in page]
    assert (len(listed), set(listed)) == (len(made), set(made))
    assert (listed[-1], listed[0]) == (made[0], made[-1])  # newest first
    small, large, of_group, forged = ask(
        _ask(server, "list_diagnostic_results", MaxResults=1),
        _ask(server, "list_diagnostic_results", DiagType="Paged", MaxResults=1_000),
        _ask(server, "list_diagnostic_results", DiagType="Paged", ResourceGroupId="rg-0", MaxResults=100),
        _ask(server, "list_diagnostic_results", DiagType="Paged", NextToken="diag-forged"),
    )
    assert (small["body"]["MaxResults"], large["body"]["MaxResults"]) == (PAGE, 100)
    assert {row["DiagId"] for row in of_group["body"]["DiagnosticResults"]} == set(made[::2])
    assert (forged["code"], forged["status_code"]) == ("InvalidParameter", 400)


@needs_eflo
def test_refusals_are_the_vendors(server):
    unknown, nowhere, nothing, logs = ask(
        _ask(server, "describe_diagnostic_result", DiagnosticId="diag-none"),
        _ask(server, "create_diagnostic_task", NodeIds=["nowhere"]),
        _ask(server, "create_diagnostic_task", ClusterId="c1"),
        _ask(server, "create_diagnostic_task", DiagnosticType="CheckByAiJobLogs"),
    )
    assert [one.get("code") for one in (unknown, nowhere, nothing, logs)] == [
        "ResourceNotFound", "ResourceNotFound", "InvalidParameter", "MissingParameter",
    ]  # fmt: skip


def test_the_command_line_checks_a_node(server):
    environment = {"JOBMETER_SERVER": server.url, "JOBMETER_KEY": server.token}
    found = json.loads(start("diagnose", "--node", "here", "--json", **environment).out)
    assert found["state"] == "done"
    assert found["answers"][0]["time"]
    shown = start("diagnose", "--node", "here", **environment).out
    assert "node here" in shown
    listed = json.loads(start("diagnose", "--tasks", "--json", **environment).out)
    assert found["id"] in {one["id"] for one in listed}
    assert found["id"] in start("diagnose", "--task", found["id"], **environment).out
    assert start("diagnose", **environment).status == 2


def test_a_node_without_an_agent_is_unknown_and_the_task_outlives_the_server(tmp_path):
    with running(tmp_path / "data", environment={"JOBMETER_TASK_SECONDS": "2"}) as server:
        server.ingest(records({"nodes": [{"name": "dead"}]}))
        task = server.request("POST", "/tasks", {"nodes": ["dead"]}).json()["id"]
    with running(tmp_path / "data", environment={"JOBMETER_TASK_SECONDS": "2"}) as server:
        found = _finished(server, task)
    assert (found["state"], found["verdict"]) == ("done", "unknown")
    assert found["answers"][0]["text"] == "no answer from the agent"
