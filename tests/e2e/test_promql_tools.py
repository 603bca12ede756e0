"""promtool and vmctl with a server: answers equal Prometheus' on the same samples, and every sample can be moved."""

import json
import random
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from benchmarks.install import program

from jobmeter.model.time import SystemClock
from tests.support.clusters import free_port
from tests.support.documents import ROOT
from tests.support.judges import print_count
from tests.support.processes import running
from tests.support.promql_corpus import Memory, Series
from tests.support.promql_random import LENGTH_MS, prometheus, random_series, write
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

STEP_MS = 15_000
MACHINE = {"instance": "gpu-1:9100", "job": "node"}
EXPORTED = {
    "DCGM_FI_DEV_GPU_UTIL": {
        "gpu": "3",
        "UUID": "GPU-6a",
        "Hostname": "gpu-1",
        "instance": "gpu-1:9400",
        "job": "dcgm",
    },
    "node_load1": MACHINE,
    "node_cpu_seconds_total": {"cpu": "0", "mode": "idle", **MACHINE},
    "container_memory_working_set_bytes": {
        "container": "main",
        "id": "/kubepods/x",
        "instance": "gpu-1:10250",
        "job": "kubelet",
        "namespace": "lab",
        "node": "gpu-1",
        "pod": "train-7-worker-1",
    },
}
"""Exporter metrics that become metrics of the catalogue, with their labels."""


def exported(rng, start_ms):
    """Return series of exporters, with whole numbers up to 100."""
    memory = Memory()
    for name, labels in EXPORTED.items():
        times = list(range(start_ms + rng.randrange(STEP_MS), start_ms + LENGTH_MS, STEP_MS))
        values = sorted(float(rng.randrange(101)) for _ in times)
        memory.series[tuple(sorted({"__name__": name, **labels}.items()))] = Series(times, values)
    return memory


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Store samples, and yield the server, their start, and the series of any system and of exporters."""
    rng = random.Random(31)
    start_ms = SystemClock().now_ms() - LENGTH_MS
    memories = random_series(rng, start_ms), exported(rng, start_ms)
    with running(tmp_path_factory.mktemp("tools") / "data") as server:
        for memory in memories:
            write(memory, f"{server.url}/api/v1/write", server.token)
        yield server, start_ms, memories


def promtool(*words):
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def rounded(line: str) -> str:
    """Round the numbers of a line to 12 digits, because a sum depends on the order of its terms."""
    return re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.12g}", line)


def test_promtool_prints_the_same_of_a_server_and_of_a_prometheus(stored, tmp_path):
    if shutil.which("promtool") is None or program("prometheus") is None:
        pytest.skip("promtool is not installed (Debian's package prometheus): make programs")
    server, start_ms, memories = stored
    start, end = (str(at // 1000) for at in (start_ms, start_ms + LENGTH_MS))
    middle = str((start_ms + LENGTH_MS // 2) // 1000)
    both = Memory()
    both.series = {**memories[0].series, **memories[1].series}
    questions = (
        ("instant", "--time", middle, "{}", "sum by (job) (rate(requests_total[5m]))"),
        ("instant", "--time", middle, "{}", 'node_load1{job="node",instance="gpu-1:9100"}'),
        ("instant", "--time", middle, "{}", "DCGM_FI_DEV_GPU_UTIL * on () group_left () node_load1"),
        ("range", "--start", start, "--end", end, "--step", "10m", "{}", "max by (job, node) (temperature)"),
        ("range", "--start", start, "--end", end, "--step", "10m", "{}", "rate(node_cpu_seconds_total[10m])"),
        ("series", "--start", start, "--end", end, "--match", '{job="a"}', "{}"),
        ("series", "--start", start, "--end", end, "--match", "requests_total", "--match", "node_load1", "{}"),
        ("labels", "--start", start, "--end", end, "{}", "instance"),
        ("labels", "--start", start, "--end", end, "{}", "job"),
    )
    mine = f"http://x:{server.token}@127.0.0.1:{server.port}/prometheus"
    with prometheus(both, tmp_path) as url:
        for words in questions:
            own, other = (
                promtool("query", *(word.replace("{}", address) if word == "{}" else word for word in words))
                for address in (mine, url)
            )
            assert own, words
            assert list(map(rounded, own)) == list(map(rounded, other)), words
    print_count("answers to promtool", len(questions), len(questions))


def test_promtool_accepts_the_shipped_rules():
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian's package prometheus): make programs")
    output = promtool("check", "rules", str(ROOT / "src" / "jobmeter" / "alerts" / "jobmeter.rules.yml"))
    assert any("SUCCESS" in line for line in output)


@contextmanager
def victoria_metrics(folder):
    """Yield the address of an empty VictoriaMetrics."""
    address = f"127.0.0.1:{free_port()}"
    line = [str(program("victoria-metrics")), f"-storageDataPath={folder}", f"-httpListenAddr={address}"]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ready():
        try:
            with urllib.request.urlopen(f"http://{address}/health") as reply:
                return reply.status == 200
        except OSError:
            return False

    try:
        wait_until(ready)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def moved(url):
    """Return every stored series with its samples."""
    query = urllib.parse.urlencode({"match[]": '{__name__!=""}', "reduce_mem_usage": "1"})
    with urllib.request.urlopen(f"{url}/internal/force_flush"):
        pass
    found: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
    with urllib.request.urlopen(f"{url}/api/v1/export?{query}") as reply:
        for line in reply:
            row = json.loads(line)
            samples = found.setdefault(tuple(sorted(row["metric"].items())), {})
            samples.update(zip(row["timestamps"], row["values"], strict=True))
    return found


@pytest.mark.parametrize("streamed", [False, True], ids=["samples", "chunks"])
def test_vmctl_moves_every_sample(stored, tmp_path, streamed):
    mover = program("vmctl")
    if mover is None or program("victoria-metrics") is None:
        pytest.skip("vmctl is not installed (Debian's package victoria-metrics): make programs")
    if "remote-read" not in subprocess.run([mover, "--help"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("this vmctl has no remote-read: python -m benchmarks.install fetches a newer one")
    server, start_ms, memories = stored
    span = [datetime.fromtimestamp(at / 1000, UTC) for at in (start_ms - 60_000, start_ms + LENGTH_MS + 60_000)]
    start, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in span)
    with victoria_metrics(tmp_path / "moved") as url:
        done = subprocess.run(
            [
                mover,
                "remote-read",
                "-s",
                "--disable-progress-bar",
                "--remote-read-user=x",
                f"--remote-read-password={server.token}",
                f"--remote-read-src-addr={server.url}/prometheus",
                f"--remote-read-filter-time-start={start}",
                f"--remote-read-filter-time-end={end}",
                "--remote-read-step-interval=hour",
                *(["--remote-read-use-stream"] if streamed else []),
                f"--vm-addr={url}",
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        found = moved(url)
    every = sum(len(memory.series) for memory in memories)
    for memory in memories:
        for labels, series in memory.series.items():
            wanted = dict(zip(series.times, series.values, strict=True))
            assert found.pop(labels) == pytest.approx(wanted, rel=1e-12), labels
    print_count("series moved by vmctl", every, every)
    # The exporters' metrics also have Jobmeter's names.
    assert {dict(labels)["__name__"] for labels in found} == {
        "jobmeter_gpu_utilization_ratio",
        "jobmeter_node_load1",
        "jobmeter_node_cpu_time_seconds_total",
        "jobmeter_memory_usage_bytes",
    }
