"""Examples of the vendor's page "PAI monitoring", word for word apart from host and key.

``test_shipping`` contains the examples of resource logs. The server is real, with data from a real agent and a real
job.
"""

import json
import os
import shlex
import subprocess
import sys
import time

import pytest

from jobmeter.model.log import LogLine
from jobmeter.wire.native.logs import make_logs_frame
from tests.e2e.test_system_logs import finish
from tests.support.frames import records
from tests.support.processes import running
from tests.support.waiting import wait_until

GROUP, NODE, JOB = "rgf0zhfqn1d4ity2", "e01-cn-9lb36u4s601", "dlc-seed"
HOSTS = ("https://api.aliyun.com", "https://api.alibabacloud.com")
pytestmark = pytest.mark.slow

USER_METRICS = """\
import requests

url = "https://api.aliyun.com/api/PaiStudio/2022-01-12/GetUserViewMetrics"
params = {
    "ResourceGroupID": "rgf0zhfqn1d4ity2",
    "PageNumber": "1",
    "PageSize": "10",
    "SortBy": "GmtModified",
    "Order": "DESC"
}
headers = {
    "Authorization": "Bearer $DASHSCOPE_API_KEY",
    "Content-Type": "application/json"
}

response = requests.get(url, params=params, headers=headers)
print(response.json())
"""
SYSLOGS = """\
curl -X POST 'https://api.aliyun.com/api/eflo-controller/2022-12-15/ListSyslogs' \\
-H 'Authorization: Bearer $DASHSCOPE_API_KEY' \\
-H 'Content-Type: application/json' \\
-d '{
  "FromTime": "1687363300",
  "ToTime": "1687363400",
  "NodeId": "e01-cn-9lb36u4s601"
}'
"""
TOKEN = """\
curl -X GET 'https://api.alibabacloud.com/api/PaiLLMTrace/2024-03-11/GetXtraceToken' \\
-H 'Authorization: Bearer $DASHSCOPE_API_KEY' \\
-H 'Content-Type: application/json'
"""
DIAGNOSE = """\
curl -X POST 'https://api.aliyun.com/api/eflo-controller/2022-12-15/{operation}' \\
-H 'Authorization: Bearer $DASHSCOPE_API_KEY' \\
-H 'Content-Type: application/json' \\
-d '{body}'
"""
"""Example of diagnoses, which the page lacks. It has the form of the others and the parameters of the page's table."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seed")
    with running(folder / "data", environment={"JOBMETER_RETENTION_RAW_DAYS": "3650"}) as made:
        options = ["--server", made.url, "--key", made.token, "--interval", "1s"]
        agent = subprocess.Popen(
            [sys.executable, "-m", "jobmeter", "agent", *options, "--node", NODE, "--cluster", "c1",
             "--resource-group", GROUP, "--spool", str(folder / "spool"), "--no-journal"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "JOBMETER_DATA": str(folder)},
        )  # fmt: skip
        try:
            busy = "import time; end = time.monotonic() + 4\nwhile time.monotonic() < end: sum(range(10000))"
            subprocess.run(
                [sys.executable, "-m", "jobmeter", "run", *options, "--quiet", "--job-id", JOB, "--", sys.executable,
                 "-c", busy],
                check=True, timeout=120, env={**os.environ, "JOBMETER_DATA": str(folder)},
            )  # fmt: skip
            made.ingest(records({"jobs": [{"job_id": JOB, "resource_group": GROUP, "user": "16111111"}]}))
            line = LogLine(
                time_ns=1687363350 * 10**9, text="link is down", node=NODE, stream="kernel", facility="kern", severity=3
            )
            assert made.ingest(make_logs_frame([line])).json()["lines"] == 1
            wait_until(lambda: NODE in {one["name"] for one in made.request("GET", "/nodes").json()["nodes"]})
            yield made
        finally:
            finish(agent)


def placed(server, example):
    """Return the example with this server's host and key.

    Some quote the variable's name against expansion by a shell.
    """
    for host in HOSTS:
        example = example.replace(host, server.url.rstrip("/"))
    return example.replace("$DASHSCOPE_API_KEY", server.token)


def curl(server, example):
    words = shlex.split(placed(server, example).replace("\\\n", " "))
    ran = subprocess.run(
        [*words, "-sS", "-w", "\n%{http_code}"], capture_output=True, text=True, timeout=60, check=True
    )
    body, _, status = ran.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_user_metrics_in_python(server):
    ran = subprocess.run(
        [sys.executable, "-c", placed(server, USER_METRICS)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    body = eval(ran.stdout, {"__builtins__": {}})  # the example prints a Python dict
    assert (body["ResourceGroupId"], body["Total"]) == (GROUP, 1)
    (user,) = body["UserMetrics"]
    assert user["UserId"] == "16111111"
    assert [*user["CpuJobNames"], *user["GpuJobNames"]] == [JOB]
    assert {"Summary", "UserMetrics", "Total"} <= body.keys()


def test_system_logs_by_curl(server):
    status, body = curl(server, SYSLOGS)
    assert status == 200
    (log,) = body["Logs"]
    assert (log["Msg"], log["NodeId"], log["Time"], log["Severity"]) == ("link is down", NODE, "1687363350", "err")
    status, body = curl(server, SYSLOGS.replace(NODE, "e01-cn-none"))
    assert status == 404


def test_a_trace_token_by_curl(server):
    status, body = curl(server, TOKEN)
    assert status == 200
    assert body["Token"].startswith("jmt_")
    assert body["HttpEndpoint"] == f"{server.url.rstrip('/')}/api/otlp/traces"
    assert {"HttpInternalEndpoint", "GrpcEndpoint", "GrpcInternalEndpoint", "RequestId"} <= body.keys()


def test_a_diagnosis_by_curl(server):
    minute = int(time.time()) // 60 * 60

    def answer_of(operation, **body):
        return curl(server, DIAGNOSE.format(operation=operation, body=json.dumps(body)))

    times = {"StartTime": str(minute - 600), "EndTime": str(minute)}
    status, made = answer_of(
        "CreateDiagnosticTask", ClusterId="c1", NodeIds=[NODE], DiagnosticType="NodeCheck", **times
    )  # fmt: skip
    assert status == 200, made
    task = made["DiagnosticId"]

    def over():
        status, body = answer_of("DescribeDiagnosticResult", DiagnosticId=task)
        assert status == 200
        return body if body["DiagnosticState"] != "Running" else None

    described = wait_until(over, "the diagnosis")
    assert (described["NodeIds"], described["DiagnosticType"]) == ([NODE], "NodeCheck")
    status, listed = answer_of("ListDiagnosticResults", DiagType="NodeCheck")
    assert task in [one["DiagId"] for one in listed["DiagnosticResults"]]
    assert answer_of("DescribeDiagnosticResult", DiagnosticId="none")[0] == 404


@pytest.mark.parametrize("example", [SYSLOGS, TOKEN])
def test_a_wrong_key_is_401_and_one_that_may_not_is_403(server, example):
    status, body = curl(server, example.replace("$DASHSCOPE_API_KEY", "sk-wrong"))
    assert (status, body["Code"]) == (401, "Unauthorized")
    policy = {"Version": "1", "Statement": [{"Effect": "Allow", "Action": "paidlc:*", "Resource": "*"}]}
    wanted = {"name": "dlc", "policies": [{"name": "dlc", "document": policy}]}
    other = server.request("POST", "/keys", wanted).json()["token"]
    status, body = curl(server, example.replace("$DASHSCOPE_API_KEY", other))
    assert (status, body["Code"]) == (403, "NoPermission" if example == TOKEN else "UnauthorizedOperation")
