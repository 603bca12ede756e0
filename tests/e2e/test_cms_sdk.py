"""CloudMonitor's points through CMS and through PAI-DLC's GetMetrics, with the vendor's own SDKs, against pandas."""

import json
import time
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from tests.e2e.alibaba import ask, needs_current
from tests.support.frames import records, samples
from tests.support.processes import running

JOB, OTHER = "dlccloudmonitor01", "dlccloudmonitor02"
FOREIGN = "dlcsomebodyelses1"
STEP_MS = 5_000
MINUTES = 40
LIMITS = {"cpu": 8.0, "memory": 64.0 * 2**30}
STORED = {
    "cpu.usage": lambda random, size: np.round(random.random(size) * 8, 3),
    "memory.usage": lambda random, size: np.round(random.random(size) * 32 * 2**30),
    "network.receive": lambda random, size: np.cumsum(np.round(random.random(size) * 2**25)),
    "gpu.utilization": lambda random, size: np.round(random.random(size), 4),
    "gpu.dram.active": lambda random, size: np.round(random.random(size), 4),
    "gpu.memory.usage": lambda random, size: np.round(random.random(size) * 40 * 2**30),
    "gpu.temperature": lambda random, size: np.round(40 + random.random(size) * 40),
}

pytestmark = [pytest.mark.slow, needs_current]


def _stored(end_ms):
    random = np.random.default_rng(11)
    rows = []
    for job, replicas in ((JOB, ("worker-0", "worker-1")), (OTHER, ("master-0",)), (FOREIGN, ("worker-0",))):
        for replica in replicas:
            times = np.arange(end_ms - MINUTES * 60_000, end_ms, STEP_MS)
            times = times[random.random(len(times)) > 0.3]
            for metric, make in STORED.items():
                for device in ("gpu0", "gpu1") if metric.startswith("gpu") else ("",):
                    values = make(random, len(times))
                    rows += [
                        (job, metric, replica, device, int(at), float(value))
                        for at, value in zip(times, values, strict=True)
                    ]
    return pd.DataFrame(rows, columns=["job", "metric", "replica", "device", "time", "value"])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    with running(tmp_path_factory.mktemp("cms") / "data") as server:
        end_ms = int(time.time() * 1000) // 60_000 * 60_000 - 60_000
        frame = _stored(end_ms)
        series = [
            (
                {
                    "metric": metric,
                    "job": job,
                    "replica": replica,
                    "device": device,
                    "node": f"node-{job[-1]}-{replica}",
                    "project": "theirs" if job == FOREIGN else "ours",
                },
                list(zip(group["time"], group["value"], strict=True)),
            )
            for (job, metric, replica, device), group in frame.groupby(["job", "metric", "replica", "device"])
        ]
        jobs = [
            {
                "job_id": job,
                "project": "theirs" if job == FOREIGN else "ours",
                "state": "Running",
                "user": "ada",
                "workspace": "ws1",
                "start": end_ms - MINUTES * 60_000,
                "limits": LIMITS,
                "replicas": [{"name": name} for name in sorted(set(frame[frame.job == job].replica))],
            }
            for job in (JOB, OTHER, FOREIGN)
        ]
        receipt = server.ingest(records({"jobs": jobs}) + samples(series)).json()
        assert receipt["rejected"] == {}
        made = json.loads(server.request("POST", "/keys", {"name": "ours", "role": "reader", "project": "ours"}).body)
        yield server, made, frame, end_ms


def _config(server, key, **more):
    pair = {"access_key_id": key["access_key_id"], "access_key_secret": key["access_key_secret"]}
    return {**pair, "endpoint": server.url, **more}


def _list(server, key, metric, dimensions, call="describe_metric_list", config=None, asynchronous=False, **request):
    asked = {"Namespace": "acs_pai_dlc", "MetricName": metric, **request}
    if dimensions is not None:
        asked["Dimensions"] = json.dumps(dimensions)
    product = "dlc" if call == "get_metrics" else "cms"
    return {
        "config": _config(server, key, **(config or {})),
        "product": product,
        "call": call,
        "request": asked,
        "async": asynchronous,
    }


def _points(answer):
    assert answer.get("statusCode") == 200, answer
    body = answer["body"]
    assert body["Success"] is True
    assert body["Code"] == "200"
    assert body["RequestId"] == answer["headers"]["x-acs-request-id"]
    return json.loads(body.get("Datapoints", body.get("DataPoints")))


def _buckets(frame, job, metric, start_ms, end_ms, step_ms):
    own = frame[(frame.job == job) & (frame.metric == metric) & (frame.time >= start_ms) & (frame.time < end_ms)].copy()
    own["bucket"] = own.time // step_ms * step_ms
    return own


def _values(points, what):
    return {(point["timestamp"], point.get("pod", ""), point.get("gpu", "")): point[what] for point in points}


def _near(one, other):
    return one == pytest.approx(other, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_every_level_equals_pandas(stored, asynchronous):
    server, key, frame, end_ms = stored
    start_ms = end_ms - 30 * 60_000
    span = {"StartTime": str(start_ms), "EndTime": str(end_ms), "Period": "300"}
    names = {
        "CARD_GPU_DRAM_ACTIVE_UTIL": "gpu.dram.active",
        "POD_GPU_MEMORY_USED": "gpu.memory.usage",
        "JOB_GPU_ACCELERATOR_DUTTY_UTIL": "gpu.utilization",
        "POD_CPU_UTIL": "cpu.usage",
        "JOB_MEMORY_FREE": "memory.usage",
        "POD_NETWORK_RECEIVE": "network.receive",
    }
    asks = [
        _list(server, key, name, {"jobId": JOB, "userId": "ada"}, asynchronous=asynchronous, **span) for name in names
    ]
    cards, pods, jobs, shares, free, rates = (_points(answer) for answer in ask(*asks))

    own = _buckets(frame, JOB, "gpu.dram.active", start_ms, end_ms, 300_000).groupby(["bucket", "replica", "device"])
    for what, means in (("Average", own.value.mean()), ("Minimum", own.value.min()), ("Maximum", own.value.max())):
        expected = {
            (bucket, f"{JOB}-{replica}", device[3:]): value * 100 for (bucket, replica, device), value in means.items()
        }
        assert _near(_values(cards, what), expected)

    own = _buckets(frame, JOB, "gpu.memory.usage", start_ms, end_ms, 300_000).groupby(["bucket", "replica", "device"])
    for what, means in (("Value", own.value.mean()), ("Minimum", own.value.min()), ("Maximum", own.value.max())):
        sums = means.groupby(["bucket", "replica"]).sum() / 2**20
        assert _near(_values(pods, what), {(b, f"{JOB}-{r}", ""): value for (b, r), value in sums.items()})

    own = _buckets(frame, JOB, "gpu.utilization", start_ms, end_ms, 300_000).groupby(["bucket", "replica", "device"])
    means = own.value.mean().groupby("bucket").mean() * 100
    assert _near(_values(jobs, "Average"), {(bucket, "", ""): value for bucket, value in means.items()})
    least = own.value.min().groupby("bucket").min() * 100
    assert _near(_values(jobs, "Minimum"), {(bucket, "", ""): value for bucket, value in least.items()})

    own = _buckets(frame, JOB, "cpu.usage", start_ms, end_ms, 300_000).groupby(["bucket", "replica"]).value.mean() / 8
    assert _near(_values(shares, "Value"), {(b, f"{JOB}-{r}", ""): value * 100 for (b, r), value in own.items()})

    own = _buckets(frame, JOB, "memory.usage", start_ms, end_ms, 300_000).groupby(["bucket", "replica"]).value.mean()
    left = (LIMITS["memory"] - own).groupby("bucket").sum() / 2**20
    assert _near(_values(free, "Value"), {(bucket, "", ""): value for bucket, value in left.items()})

    own = frame[(frame.job == JOB) & (frame.metric == "network.receive")].sort_values(["replica", "time"]).copy()
    own["growth"] = own.groupby("replica").value.diff()
    own["gap"] = own.groupby("replica").time.diff() / 1000
    own["bucket"] = own.time // 300_000 * 300_000
    own = own[(own.time >= start_ms) & (own.time < end_ms)].groupby(["bucket", "replica"])[["growth", "gap"]].sum()
    expected = {(b, f"{JOB}-{r}", ""): row.growth / row.gap / 2**20 for (b, r), row in own.iterrows()}
    assert _near(_values(rates, "Value"), expected)
    assert _values(rates, "Minimum") == _values(rates, "Maximum") == _values(rates, "Value")
    assert {point["userId"] for point in rates} == {"ada"}


def _joined(answers, length):
    pages = [_points(answer) for answer in answers]
    assert all(len(page) == length for page in pages[:-1])
    return [point for page in pages for point in page]


def test_pages_are_the_whole(stored):
    server, key, frame, end_ms = stored
    start_ms = end_ms - 20 * 60_000
    span = {"StartTime": str(start_ms), "EndTime": str(end_ms), "Period": "60"}
    both = [{"jobId": JOB}, {"jobId": OTHER, "pod": f"{OTHER}-master-0", "gpu": "1"}]
    cards = _list(server, key, "CARD_GPU_TEMPERATURE", both, **span)
    rates = _list(server, key, "POD_NETWORK_RECEIVE", {"jobId": JOB}, **span)
    nothing = _list(server, key, "POD_NETWORK_TRANSMIT", both, **span)
    asks = [{**asked, "pages": True, "request": {**asked["request"], "Length": "7"}} for asked in (cards, rates)]
    all_cards, all_rates, none, by_cards, by_rates = ask(cards, rates, nothing, *asks)
    whole = _points(all_cards)
    own = _buckets(frame, JOB, "gpu.temperature", start_ms, end_ms, 60_000)
    others = _buckets(frame, OTHER, "gpu.temperature", start_ms, end_ms, 60_000)
    count = len(own.groupby(["bucket", "replica", "device"])) + others[others.device == "gpu1"].bucket.nunique()
    assert len(whole) == count
    assert [point["timestamp"] for point in whole] == sorted(point["timestamp"] for point in whole)
    assert _joined(by_cards, 7) == whole
    assert len(by_cards) == -(-count // 7)
    # A page can begin in the middle of a counter, and still has a correct first rate.
    assert _joined(by_rates, 7) == _points(all_rates) != []
    assert _points(none) == []


def test_get_metrics_gives_the_same_points(stored):
    server, key, _, end_ms = stored
    span = {"StartTime": _iso(end_ms - 600_000), "EndTime": _iso(end_ms), "Period": "15"}
    pod = {"jobId": JOB, "pod": f"{JOB}-worker-1", "regionId": "cn-wulanchabu", "userId": "1458867964644701"}
    cms, dlc, alone = ask(
        _list(server, key, "CARD_GPU_DUTY_CYCLE", [pod], **span),
        _list(server, key, "CARD_GPU_DUTY_CYCLE", [pod], "get_metrics", asynchronous=True, JobId=JOB, **span),
        _list(server, key, "JOB_CPU_UTIL", None, "get_metrics", JobId=JOB),
    )
    assert _points(dlc) == _points(cms) != []
    assert {(point["pod"], point["regionId"]) for point in _points(dlc)} == {(pod["pod"], "cn-wulanchabu")}
    assert dlc["body"]["Period"] == "15"
    assert {point["jobId"] for point in _points(alone)} == {JOB}


def _iso(time_ms):
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_the_newest_points_and_the_names(stored):
    server, key, frame, end_ms = stored
    answers = ask(
        _list(server, key, "CARD_GPU_TEMPERATURE", {"jobId": JOB}, "describe_metric_last"),
        {
            "config": _config(server, key),
            "product": "cms",
            "call": "describe_metric_meta_list",
            "request": {"Namespace": "acs_pai_dlc", "PageSize": 1000},
        },
        _list(server, key, "JOB_CPU_UTIL", None, StartTime=str(end_ms - 600_000), EndTime=str(end_ms), Length="1440"),
    )
    last = _points(answers[0])
    own = _buckets(frame, JOB, "gpu.temperature", 0, 2**62, 60_000)
    newest = own[own.bucket == own.bucket.max()].groupby(["bucket", "replica", "device"]).value.mean()
    assert _near(_values(last, "Value"), {(b, f"{JOB}-{r}", d[3:]): value for (b, r, d), value in newest.items()})
    names = answers[1]["body"]["Resources"]["Resource"]
    assert answers[1]["body"]["TotalCount"] == str(len(names))
    assert {"JOB_MEMORY_FREE", "CARD_GPU_SM_UTIL"} <= {name["MetricName"] for name in names}
    assert {point["jobId"] for point in _points(answers[2])} == {JOB, OTHER}, "every job of the caller's, and no other"


@pytest.mark.parametrize(("field", "how"), [("Average", "mean"), ("Minimum", "min"), ("Maximum", "max")])
def test_the_tops_equal_pandas(stored, field, how):
    server, key, frame, end_ms = stored
    both = [{"jobId": JOB}, {"jobId": OTHER}]
    span = {"StartTime": str(end_ms - 1_800_000), "EndTime": str(end_ms), "Period": "300"}
    greatest, least, data = ask(
        _list(server, key, "CARD_GPU_TEMPERATURE", both, "describe_metric_top", Orderby=field, Length="4", **span),
        _list(
            server, key, "CARD_GPU_TEMPERATURE", both, "describe_metric_top", Orderby=field, OrderDesc="True", **span
        ),
        _list(server, key, "CARD_GPU_TEMPERATURE", both, "describe_metric_data", **span),
    )
    parts = {job: _buckets(frame, job, "gpu.temperature", end_ms - 1_800_000, end_ms, 300_000) for job in (JOB, OTHER)}
    expected = {}
    for job, own in parts.items():
        newest = own.groupby(["replica", "device"]).bucket.max()
        values = own.groupby(["replica", "device", "bucket"]).value.agg(how)
        for (replica, device), bucket in newest.items():
            expected[bucket, f"{job}-{replica}", device[3:]] = values[replica, device, bucket]
    ordered = sorted(expected.values(), reverse=True)
    for answer, wanted in ((greatest, ordered[:4]), (least, ordered[::-1])):
        points = json.loads(answer["body"]["Datapoints"])
        assert [point[field] for point in points] == pytest.approx(wanted)
        assert [point["order"] for point in points] == list(range(1, len(wanted) + 1))
    assert _near(_values(json.loads(data["body"]["Datapoints"]), field), expected)


def test_the_namespaces(stored):
    server, key, *_ = stored
    asks = [
        {"config": _config(server, key), "product": "cms", "call": "describe_project_meta", "request": request}
        for request in ({}, {"Labels": '{"name":"product","value":"ECS"}'}, {"PageNumber": 101})
    ]
    found, nothing, refused = ask(*asks)
    [own] = found["body"]["Resources"]["Resource"]
    assert (own["Namespace"], found["body"]["Total"]) == ("acs_pai_dlc", "1")
    assert (nothing["body"]["Resources"]["Resource"], nothing["body"]["Total"]) == ([], "0")
    assert refused["code"] == "InvalidParameter"


def test_every_way_to_sign(stored):
    server, key, _, _ = stored
    no_pair = {"access_key_id": None, "access_key_secret": None, "type": "bearer", "bearer_token": key["token"]}
    ways = [
        {},
        {"signature_algorithm": "v2"},
        {"signature_algorithm": "ACS3-HMAC-SM3"},
        {"security_token": "t"},
        {"signature_algorithm": "v2", "security_token": "t"},
        no_pair,
        {**no_pair, "signature_algorithm": "v2"},
    ]
    asks = [
        _list(server, key, "JOB_CPU_UTIL", {"jobId": JOB, "userId": "a b/ü+*~%&="}, config=way, asynchronous=later)
        for way in ways
        for later in (False, True)
    ]
    for answer in ask(*asks):
        assert {point["userId"] for point in _points(answer)} == {"a b/ü+*~%&="}


def test_refusals(stored):
    server, key, _, _ = stored
    mine = {"jobId": JOB}
    v2 = {"signature_algorithm": "v2"}
    cases = [
        (_list(server, key, "CPUUtilization", mine), "ResourceNotFound"),
        (_list(server, key, "JOB_CPU_UTIL", mine, Namespace="acs_ecs_dashboard"), "ResourceNotFound"),
        (_list(server, key, "JOB_CPU_UTIL", mine, Period="7"), "InvalidParameter"),
        (_list(server, key, "JOB_CPU_UTIL", mine, Length="1441"), "InvalidParameter"),
        (_list(server, key, "JOB_CPU_UTIL", mine, NextToken="x"), "InvalidParameter"),
        (_list(server, key, None, mine), "MissingParameter"),
        (_list(server, key, "JOB_CPU_UTIL", mine, config={"access_key_secret": "wrong"}), "SignatureDoesNotMatch"),
        (_list(server, key, "JOB_CPU_UTIL", mine, config={**v2, "access_key_secret": "no"}), "SignatureDoesNotMatch"),
        (_list(server, key, "JOB_CPU_UTIL", mine, config={**v2, "access_key_id": "no"}), "InvalidAccessKeyId.NotFound"),
        (_list(server, key, "JOB_CPU_UTIL", {"jobId": FOREIGN}, "get_metrics"), "InvalidJobId.NotFound"),
        (_list(server, key, "JOB_CPU_UTIL", None, "get_metrics", JobId=FOREIGN), "InvalidJobId.NotFound"),
        (_list(server, key, "JOB_CPU_UTIL", None, "get_metrics"), "MissingParameter"),
    ]
    stale = {**_list(server, key, "JOB_CPU_UTIL", mine, config=v2), "date": "2020-01-01T00:00:00Z"}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    once = {**_list(server, key, "JOB_CPU_UTIL", mine, config=v2), "nonce": "same-rpc-nonce", "date": now}
    answers = ask(*(asked for asked, _ in cases), stale, once, once)
    for (asked, code), answer in zip(cases, answers, strict=False):
        assert answer.get("code") == code, (asked, answer)
        assert answer["error"] == "ClientException"
        assert answer["request_id"]
    assert answers[-3]["code"] == "InvalidTimeStamp.Expired"
    assert answers[-2]["statusCode"] == 200
    assert answers[-1]["code"] == "SignatureNonceUsed"
    (foreign,) = ask(_list(server, key, "JOB_CPU_UTIL", {"jobId": FOREIGN}))
    assert _points(foreign) == []
