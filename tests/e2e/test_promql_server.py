"""PromQL of a running server beside a real Prometheus that reads the same samples from it by remote read."""

import json
import random
import shutil

import pytest
from benchmarks.install import program

from jobmeter.model.time import MINUTE, SystemClock
from tests.e2e.page import import_samples
from tests.support.clusters import free_port
from tests.support.documents import ROOT, blocks, type_in
from tests.support.judges import print_count
from tests.support.processes import ServerProcess
from tests.support.promql_random import (
    LENGTH_MS,
    Queries,
    ask,
    difference,
    is_version_difference,
    prometheus,
    random_series,
    started,
    theirs,
    write,
)

pytestmark = pytest.mark.slow

QUERIES = (
    "jobmeter_gpu_utilization_ratio",
    'jobmeter_gpu_utilization_ratio{{replica=~"worker-[0-3]"}}',
    "avg by (node) (jobmeter_gpu_utilization_ratio)",
    "max_over_time(jobmeter_gpu_utilization_ratio[{range}])",
    "rate(jobmeter_cpu_time_seconds_total[{range}])",
    "sum(rate(jobmeter_cpu_time_seconds_total[{range}]))",
    "increase(jobmeter_cpu_time_seconds_total[{range}] offset 2m)",
    "quantile_over_time(0.9, jobmeter_gpu_utilization_ratio[{range}])",
    "topk(3, jobmeter_app_loss) or vector(1)",
    "absent(jobmeter_app_none)",
    "count_over_time(jobmeter_app_loss[{range}])",
    'label_replace(jobmeter_app_loss, "rank", "$1", "replica", "worker-(.*)")',
    "jobmeter_gpu_utilization_ratio * on (replica) group_left () jobmeter_app_loss",
    'count({{__name__=~"jobmeter_.*", job_id="train-1"}})',
)
QUESTIONS = 60
"""Number of random queries of a test."""
START = 60 * MINUTE
"""Time of the first samples before now."""


def samples(now, rng):
    """Yield samples of a job as CSV, at irregular times, with gaps and counter resets."""
    yield "job_id,replica,node,device,metric,time,value"
    for rank in range(5):
        used = 0.0
        place = f"train-1,worker-{rank},node-{rank // 2}"
        at = now - START + rng.randrange(20_000)
        while at < now - 10_000:
            used = used + rng.uniform(0, 15) if rng.random() > 0.03 else 0.0
            yield f"{place},gpu{rank},gpu.utilization,{at},{rng.random():.3f}"
            yield f"{place},,cpu.time,{at},{used:.3f}"
            yield f"{place},,app.loss,{at},{rng.gauss(0, 3):.4f}"
            at += 15_000 + rng.randrange(-50, 50) if rng.random() > 0.02 else rng.randrange(15_000, 400_000)


def test_the_page_for_users_of_prometheus_works_as_it_is_written(tmp_path):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian's package prometheus): make programs")
    script = "".join(blocks(ROOT / "docs" / "how-to" / "promql.md", "sh")).replace("8418", str(free_port()))
    output = type_in(f"trap 'kill $(jobs -p)' EXIT\n{script}", tmp_path)
    # curl's answers have no line ends
    decoder = json.JSONDecoder()
    memory, at = decoder.raw_decode(output, output.index('{"status"'))
    rate, at = decoder.raw_decode(output, at)
    info = output[at:]
    assert memory["data"]["result"][0]["metric"] == {"replica": "worker-0"}
    assert float(rate["data"]["result"][0]["value"][1]) > 0
    assert info.startswith("jobmeter_job_info{")
    assert 'job_id="train-1"' in info


def configuration(server):
    """Return the configuration of a Prometheus that reads the samples of a server."""
    return (
        "remote_read:\n"
        f"  - url: {server.url}/prometheus/api/v1/read\n"
        "    read_recent: true\n"
        f"    authorization: {{credentials: {server.token}}}\n"
    )


def count(differing, judge):
    print_count(judge, sum(not how for how in differing.values()), len(differing))


def test_a_server_answers_as_a_prometheus_that_reads_from_it(tmp_path):
    if program("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian's package prometheus): make programs")
    rng = random.Random(5)
    folder = tmp_path / "prometheus"
    folder.mkdir()
    now = SystemClock().now_ms()
    server = ServerProcess(tmp_path / "data").start()
    try:
        import_samples(server, tmp_path, samples(now, rng))
        with started(configuration(server), folder) as url:
            differing = {}
            for template in QUERIES:
                query = template.format(range=rng.choice(("1m", "5m", "90s", "20m")))
                start = now - START + rng.randrange(START // 2)
                step = rng.choice((15_000, 47_000, 60_000))
                times = start, start + step * rng.randrange(30), step
                found = ask(f"{server.url}/prometheus", query, *times, server.token)
                assert not isinstance(found, str), found
                differing[query] = difference(theirs(url, query, *times), found)
        count(differing, "a Prometheus that reads from the server")
        assert {query: how for query, how in differing.items() if how} == {}
    finally:
        server.kill()


def test_a_server_answers_as_a_prometheus_to_which_the_same_series_were_written(tmp_path):
    """Series contain NaN, infinities and stale markers. Queries go to Jobmeter directly and through a Prometheus."""
    if program("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian's package prometheus): make programs")
    rng = random.Random(17)
    start_ms = SystemClock().now_ms() - LENGTH_MS
    memory = random_series(rng, start_ms, special=True)
    folders = [tmp_path / name for name in ("written", "reading")]
    for folder in folders:
        folder.mkdir()
    server = ServerProcess(tmp_path / "data").start()
    try:
        write(memory, f"{server.url}/api/v1/write", server.token)
        queries, differing = Queries(rng, start_ms), {}
        with prometheus(memory, folders[0]) as written, started(configuration(server), folders[1]) as reading:
            for _ in range(QUESTIONS):
                query, start, end, step = queries.question()
                times = start, end, step
                wanted = theirs(written, query, *times)
                found = ask(f"{server.url}/prometheus", query, *times, server.token)
                if not is_version_difference(wanted, found):
                    differing["asked", query] = difference(wanted, found)
                differing["read", query] = difference(wanted, theirs(reading, query, *times))
        count(differing, "a Prometheus with the same samples")
        assert {query: how for query, how in differing.items() if how} == {}
    finally:
        server.kill()
