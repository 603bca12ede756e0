"""System logs from a real agent through a real server to the vendor's own SDK and the command line."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.alibaba import CURRENT, ask
from tests.support.processes import ServerProcess, run_cli, running
from tests.support.waiting import wait_until

AGENT = [sys.executable, "-m", "jobmeter", "agent"]
NODE = "e01-cn-9lb36u4s601"

pytestmark = pytest.mark.slow


def _has_sdk():
    code = "import alibabacloud_eflo_controller20221215"
    return CURRENT.exists() and subprocess.run([CURRENT, "-c", code], capture_output=True, check=False).returncode == 0


def start_agent(server, folder, *options):
    (folder / "logs").mkdir(exist_ok=True)
    command = [*AGENT, "--server", server.url, "--key", server.token, "--node", NODE, "--interval", "1s"]
    command += [
        "--spool",
        str(folder / "spool"),
        "--no-journal",
        "--log-file",
        str(folder / "logs" / "*.log"),
        *options,
    ]
    with (folder / "agent.err").open("ab") as errors:
        return subprocess.Popen(command, stderr=errors, env={**os.environ, "JOBMETER_DATA": str(folder)})


def finish(process, number=signal.SIGTERM):
    process.send_signal(number)
    process.wait(timeout=60)


def lines_of(server, query=""):
    reply = server.call("GET", f"/api/jobmeter/v1/nodes/{NODE}/logs?format=jsonl{query}")
    return [json.loads(line) for line in reply.body.splitlines()] if reply.status == 200 else []


def append(path, texts):
    with path.open("ab") as out:
        out.write("".join(f"{text}\n" for text in texts).encode())


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("syslogs")
    with running(folder / "data") as server:
        agent = start_agent(server, folder)
        wait_until((folder / "spool" / "logs.json").exists, "the agent's positions")
        append(folder / "logs" / "app.log", (f"step {at} loss 0.{at}" for at in range(249)))
        append(folder / "logs" / "app.log", ["ERROR: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"])
        wait_until(
            lambda: len(lines_of(server, "&stream=file:" + str(folder / "logs" / "app.log"))) == 250, "every line"
        )
        yield server, folder
        finish(agent)


def parameters(**more):
    now = int(time.time())
    return {"FromTime": str(now - 3600), "ToTime": str(now + 60), "NodeId": NODE, **more}


def call_sdk(server, request, **more):
    key = server.admin
    config = {
        "access_key_id": key["access_key_id"],
        "access_key_secret": key["access_key_secret"],
        "endpoint": server.url.removeprefix("http://"),
        "protocol": "http",
    }
    return {"product": "eflo", "call": "list_syslogs", "config": config, "request": request, **more}


@pytest.mark.skipif(not _has_sdk(), reason="no eflo-controller in .venvs/alibaba (make sdk)")
def test_the_vendor_s_sdk_pages_through_a_node_s_log(logged):
    server, folder = logged
    stream = f'stream:"file:{folder / "logs" / "app.log"}"'
    pages, reverse, found, forged = ask(
        call_sdk(server, parameters(Query=stream), pages=True),
        call_sdk(server, parameters(Query=stream, Reverse=True), pages=True),
        call_sdk(server, parameters(Query='Xid AND "off the bus" AND severity:err NOT loss')),
        call_sdk(server, parameters(Query=stream, NextToken="AAAA")),
    )
    assert [len(page["body"]["Logs"]) for page in pages] == [100, 100, 50]
    texts = [log["Msg"] for page in pages for log in page["body"]["Logs"]]
    assert texts[:249] == [f"step {at} loss 0.{at}" for at in range(249)]
    assert [log["Msg"] for page in reverse for log in page["body"]["Logs"]] == texts[::-1]
    (log,) = found["body"]["Logs"]
    assert (log["NodeId"], log["Severity"], log["TagPath"]) == (NODE, "err", str(folder / "logs" / "app.log"))
    assert (forged["code"], forged["status_code"]) == ("InvalidParameter", 400)


def test_the_url_form_with_a_token(logged):
    server, _ = logged
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    body = json.dumps(parameters(Query="Xid")).encode()
    reply = server.call("POST", "/api/eflo-controller/2022-12-15/ListSyslogs", body, headers)
    assert reply.status == 200
    assert any("fallen off the bus" in log["Msg"] for log in reply.json()["Logs"])
    refused = server.call("POST", "/api/eflo-controller/2022-12-15/ListSyslogs", b"{}", headers)
    assert (refused.status, refused.json()["Code"]) == (400, "InvalidParameter")
    other = json.dumps(parameters() | {"NodeId": "nobody"}).encode()
    assert server.call("POST", "/api/eflo-controller/2022-12-15/ListSyslogs", other, headers).status == 404


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg may not be read here")
def test_the_kernel_s_log_is_there(logged):
    server, _ = logged
    lines = wait_until(lambda: lines_of(server, "&stream=kernel"), "lines of the kernel")
    assert {line["facility"] for line in lines} & {"kern", "daemon", "user"}
    assert all(line["severity"] is not None for line in lines)


def test_the_command_line_searches_a_node_s_log(logged):
    server, folder = logged
    environment = {"JOBMETER_SERVER": server.url, "JOBMETER_KEY": server.token}
    found = run_cli("logs", "--node", NODE, "--query", '"fallen off"', "--severity", "err", environment=environment)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"file:{folder / 'logs' / 'app.log'} user.err: ERROR: NVRM: Xid")
    wrong = run_cli("logs", "--node", NODE, "--query", "Xid:79", environment=environment)
    assert wrong.returncode != 0
    assert "unknown field 'Xid'" in wrong.stderr
    assert run_cli("logs", environment=environment).returncode == 2
    assert "no node" in run_cli("logs", "--node", "nobody", environment=environment).stderr


def test_every_line_arrives_once_in_order_while_agent_and_server_are_killed(tmp_path):
    server = ServerProcess(tmp_path / "data").start()
    log, written = tmp_path / "logs" / "flow.log", 0
    agent = start_agent(server, tmp_path, "--no-kernel-log")
    wait_until((tmp_path / "spool" / "logs.json").exists, "the agent's positions")
    for turn in range(6):
        append(log, range(written, written + 500))
        written += 500
        if turn % 2:
            finish(agent, signal.SIGKILL)
            log.rename(tmp_path / "logs" / f"flow.log.{turn}")
            append(log, range(written, written + 100))
            written += 100
            agent = start_agent(server, tmp_path, "--no-kernel-log")
        else:
            port = server.port
            server.kill()
            server = ServerProcess(tmp_path / "data", "--port", str(port)).start()
        some = written // 2
        wait_until(lambda: len(lines_of(server)) >= some, "half of the lines")  # noqa: B023 - it is over by then
    wait_until(lambda: len(lines_of(server)) >= written, "every line")
    finish(agent)
    assert [int(line["text"]) for line in lines_of(server)] == list(range(written))
    server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of several users")
def test_a_running_agent_reads_files_that_last_for_a_moment_and_no_link_of_a_user(tmp_path):
    tmp_path.chmod(0o755)
    logs = tmp_path / "logs"
    secret = tmp_path / "secret"
    secret.write_text("the secret\n")
    secret.chmod(0o600)
    with running(tmp_path / "data") as server:
        agent = start_agent(server, tmp_path, "--no-kernel-log")
        wait_until((tmp_path / "spool" / "logs.json").exists, "the agent's positions")
        try:
            os.chown(logs, 61_234, 61_234)
            (logs / "leak.log").symlink_to(secret)
            os.lchown(logs / "leak.log", 61_234, 61_234)
            for at in range(60):
                append(logs / "brief.log", [at])
                (logs / "brief.log").rename(logs / f"brief.done-{at}")
            append(logs / "last.log", ["the last line"])
            wait_until(lambda: len(lines_of(server)) >= 61, "all lines")
            texts = [line["text"] for line in lines_of(server, "&query=stream:*/brief.log|*/last.log|*/leak.log")]
        finally:
            finish(agent)
    assert "the secret" not in texts
    assert sorted(texts) == sorted([*map(str, range(60)), "the last line"])
    assert f"'{logs / 'leak.log'}' is not read: a symbolic link of user 61234" in (tmp_path / "agent.err").read_text()
