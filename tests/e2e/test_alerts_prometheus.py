"""Alerts of one rule file are equal in a server, and in a Prometheus and a vmalert that read its samples."""

import json
import random
import subprocess
import urllib.request
from contextlib import contextmanager

import pytest
import yaml
from benchmarks.install import program

from jobmeter.model.time import SystemClock
from tests.e2e.page import import_samples
from tests.e2e.test_promql_server import configuration, samples
from tests.support.clusters import free_port
from tests.support.judges import print_count
from tests.support.needs import needs
from tests.support.processes import ServerProcess
from tests.support.promql_random import started
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

EXPRESSIONS = (
    "jobmeter_app_loss > {low}",
    "max_over_time(jobmeter_gpu_utilization_ratio[20m]) > {share}",
    "avg by (job_id, node) (jobmeter_app_loss) < {low}",
    "count by (replica) (rate(jobmeter_cpu_time_seconds_total[10m]) >= 0) > {share}",
    "count(jobmeter_app_loss) > 2",
    "absent(jobmeter_app_none)",
    "absent(jobmeter_app_loss)",
    "topk(2, jobmeter_gpu_utilization_ratio)",
    "jobmeter_app_loss > {low} and on (replica) jobmeter_gpu_utilization_ratio < {share}",
    "vector(0.125)",
)
TEXTS = (
    "{{ $labels.replica }} of {{ $labels.job_id }} is at {{ $value }}",
    '{{ $value | humanizePercentage }} {{ printf "%.2f" $value }}',
    "{{ $labels.node | toUpper }}: {{ humanize $value }}, {{ $labels.missing }}",
    "plain",
)


PRESENT_TEXTS = (TEXTS[0], TEXTS[1], "{{ humanize $value }}, {{ $labels.missing }}", TEXTS[3])
"""Templates without functions of a label: vmalert fails to expand them for an alert without the label."""


def rule_file(rng, texts=TEXTS):
    """Return a random rule file in which each alert has a unique name."""
    rules = []
    for number, expression in enumerate(EXPRESSIONS):
        query = expression.format(low=round(rng.uniform(-2, 2), 2), share=round(rng.random(), 2))
        rule = {"alert": f"A{number}", "expr": query, "annotations": {"summary": rng.choice(texts)}}
        rule |= {"for": rng.choice(["0s", "1s", "1h"])} if rng.random() < 0.8 else {}
        rule |= {"labels": {"severity": rng.choice(["page", "{{ $labels.node }}-x"]), "job": "j"}}
        rules.append(rule)
    recorded = {"record": "rank:loss:max", "expr": "max by (replica) (jobmeter_app_loss)", "labels": {"kind": "r"}}
    return yaml.safe_dump({"groups": [{"name": "g", "interval": "1s", "rules": [*rules, recorded]}]})


def alerts(url, token=""):
    """Return labels, state, value and annotations of each alert. vmalert rounds values and prints absent labels."""
    request = urllib.request.Request(f"{url}/api/v1/alerts", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as reply:
        found = json.loads(reply.read().decode().replace("\\u003cno value\\u003e", "").replace("<no value>", ""))
    return sorted(
        (
            sorted(one["labels"].items()),
            one["state"],
            round(float(one["value"]), 9),
            sorted(one["annotations"].items()),
        )
        for one in found["data"]["alerts"] or ()
    )


@contextmanager
def vmalert(server, folder):
    """Yield the address of a vmalert that evaluates ``rules.yml`` of the folder by queries to the server."""
    port = free_port()
    line = [
        "vmalert",
        f"-rule={folder}/rules.yml",
        f"-datasource.url={server.url}/prometheus",
        f"-datasource.bearerToken={server.token}",
        f"-remoteWrite.url={server.url}",
        f"-remoteWrite.bearerToken={server.token}",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-notifier.url=http://127.0.0.1:{port}",
        "-disableAlertgroupLabel",
    ]
    with (folder / "vmalert.log").open("wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_vmalert_and_a_server_evaluate_the_same_alerts(tmp_path):
    needs("vmalert")
    rng = random.Random(3)
    (tmp_path / "rules.yml").write_text(rule_file(rng, PRESENT_TEXTS))
    server = ServerProcess(
        tmp_path / "data",
        *("--alert-rules", str(tmp_path / "rules.yml")),
        environment={"JOBMETER_ALERT_SHIPPED": "off"},
    ).start()
    try:
        import_samples(server, tmp_path, samples(SystemClock().now_ms(), rng))
        with vmalert(server, tmp_path) as url:

            def compared():
                found = alerts(f"{server.url}/prometheus", server.token)
                states = {state for _, state, *_ in found}
                try:
                    return states == {"firing", "pending"} and found == alerts(url)
                except OSError:
                    return False

            wait_until(compared, "the same alerts", 60)
            equal = len(alerts(url))
            print_count("alerts of a vmalert", equal, equal)
            assert equal > len(EXPRESSIONS) // 2
    finally:
        server.kill()


@pytest.mark.parametrize("seed", [3, 11])
def test_a_server_has_the_alerts_of_a_prometheus_that_reads_from_it(tmp_path, seed):
    if program("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian's package prometheus): make programs")
    rng = random.Random(seed)
    folder = tmp_path / "prometheus"
    folder.mkdir()
    (folder / "rules.yml").write_text(rule_file(rng))
    server = ServerProcess(
        tmp_path / "data",
        "--alert-rules",
        str(folder / "rules.yml"),
        environment={"JOBMETER_ALERT_SHIPPED": "off"},
    ).start()
    try:
        import_samples(server, tmp_path, samples(SystemClock().now_ms(), rng))
        with started(f"{configuration(server)}rule_files: [{folder}/rules.yml]\n", folder) as url:
            ours = f"{server.url}/prometheus"

            def compared():
                found = alerts(ours, server.token)
                states = {state for _, state, *_ in found}
                return states == {"firing", "pending"} and found == alerts(url)

            wait_until(compared, "the same alerts", 60)
            equal = len(alerts(url))
            print_count("alerts of a Prometheus", equal, equal)
            assert equal > len(EXPRESSIONS) // 2
    finally:
        server.kill()
