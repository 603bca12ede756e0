"""Tests of the vendor's own SDK against a real server, with nothing but the endpoint changed."""

import json
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
import urllib3

from jobmeter.model.catalog import map_dialect_names
from tests.e2e.alibaba import FORMER, ask, needs_current, needs_former
from tests.e2e.conversation import end_all
from tests.support import certificates
from tests.support.frames import records, samples
from tests.support.processes import running

JOB = "dlc-20261120-x1"
STEP_MS = 15_000
METRICS = {name: metric.name for name, metric in map_dialect_names("pai-dlc").items()}
COUNTERS = {"NetworkInputRate", "NetworkOutputRate", "DiskReadRate", "DiskWriteRate"}

pytestmark = [pytest.mark.slow, needs_current]


def _samples(end_ms):
    """Return an hour of samples of two replicas with two GPUs each, with gaps and one counter reset."""
    random = np.random.default_rng(7)
    rows = []
    for replica in ("worker-0", "worker-1"):
        times = np.arange(end_ms - 3_600_000, end_ms, STEP_MS)
        times = times[random.random(len(times)) > 0.2]
        times = times[(times < end_ms - 1_500_000) | (times > end_ms - 800_000)]
        for name, metric in METRICS.items():
            for device in ("gpu0", "gpu1") if name.startswith("Gpu") else ("",):
                values = np.round(random.random(len(times)), 4)
                if name in COUNTERS:
                    values = np.cumsum(np.round(values * 1e7))
                    values[len(values) // 2 :] -= values[len(values) // 2]
                rows += [
                    (name, metric, replica, device, int(at), float(value))
                    for at, value in zip(times, values, strict=True)
                ]
    return pd.DataFrame(rows, columns=["type", "metric", "replica", "device", "time", "value"])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pai-dlc")
    made = certificates.make(folder)
    with running(folder / "data") as server:
        end_ms = int(time.time() * 1000) // 1000 * 1000 - 60_000
        frame = _samples(end_ms)
        series = [
            (
                {"metric": metric, "job": JOB, "replica": replica, "node": f"node-{replica[-1]}", "device": device},
                list(zip(group["time"], group["value"], strict=True)),
            )
            for (metric, replica, device), group in frame.groupby(["metric", "replica", "device"])
        ]
        replicas = [{"name": "worker-0", "pod_id": "pod-abc"}, {"name": "worker-1"}]
        record = {"jobs": [{"job_id": JOB, "start": end_ms - 3_600_000, "state": "Running", "replicas": replicas}]}
        receipt = server.ingest(records(record) + samples(series)).json()
        del receipt["time"]
        assert receipt == {"accepted": len(frame), "records": 1, "rejected": {}}
        yield server, frame, end_ms, made


def _key(server):
    return {"access_key_id": server.admin["access_key_id"], "access_key_secret": server.admin["access_key_secret"]}


def _metrics(server, metric_type="GpuCoreUsage", config=None, **options):
    endpoint = {"endpoint": server.url}
    request = {"MetricType": metric_type, **options.pop("request", {})}
    return {
        "config": {**_key(server), **endpoint, **(config or {})},
        "call": "get_job_metrics",
        "args": [JOB],
        "request": request,
        **options,
    }


def _iso(time_ms):
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _expected(frame, metric_type, start_ms, end_ms, step_ms):
    """Compute {replica: {bucket: value}} with pandas, in the vendor's units."""
    own = frame[(frame.type == metric_type) & (frame.time >= start_ms) & (frame.time < end_ms)].copy()
    own["bucket"] = own.time // step_ms * step_ms
    if metric_type not in COUNTERS:
        devices = own.groupby(["replica", "device", "bucket"])["value"].mean()
        means = devices.groupby(["replica", "bucket"]).mean() * 100
    else:
        own = own.sort_values(["replica", "time"])
        own["growth"] = own.groupby("replica")["value"].diff()
        own.loc[own.growth < 0, "growth"] = own.value
        own["gap"] = own.groupby("replica")["time"].diff()
        sums = own.groupby(["replica", "bucket"])[["growth", "gap"]].sum()
        means = (sums.growth / (sums.gap / 1000))[sums.gap > 0] / 1e6
    return {
        replica: {int(bucket): value for (_, bucket), value in group.items()}
        for replica, group in means.groupby("replica")
    }


def _found(body):
    return {pod["PodId"]: {point["Time"]: point["Value"] for point in pod["Metrics"]} for pod in body["PodMetrics"]}


def _check_values(body, frame, metric_type, start_ms, end_ms, step_ms):
    expected = _expected(frame, metric_type, start_ms, end_ms, step_ms)
    pods = {"worker-0": "pod-abc", "worker-1": f"{JOB}-worker-1"}
    found = _found(body)
    assert set(found) == {pods[replica] for replica in expected}
    for replica, points in expected.items():
        assert found[pods[replica]] == pytest.approx(points, rel=1e-9, abs=1e-12)
    assert body["JobId"] == JOB


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_every_metric_equals_pandas(stored, asynchronous):
    server, frame, end_ms, _ = stored
    start_ms, until_ms = end_ms - 3_605_000, end_ms
    span = {"StartTime": _iso(start_ms), "EndTime": _iso(until_ms)}
    steps = {"5m": 300_000, "57s": 57_000, "1": 60_000, "1h": 3_600_000}
    cases = [(name, step) for name in METRICS for step in steps]
    asks = [
        _metrics(server, name, request={**span, "TimeStep": step}, **{"async": asynchronous}) for name, step in cases
    ]
    for (name, step), answer in zip(cases, ask(*asks), strict=True):
        assert answer.get("statusCode") == 200, answer
        _check_values(answer["body"], frame, name, start_ms, until_ms, steps[step])


def test_defaults_are_the_last_hour_in_five_minutes(stored):
    server, frame, _, _ = stored
    before_ms = int(time.time() * 1000)
    (answer,) = ask(_metrics(server))
    body = answer["body"]
    found = _found(body)
    assert {moment % 300_000 for points in found.values() for moment in points} == {0}
    inner = [moment for moment in next(iter(found.values())) if moment > before_ms - 3_000_000][:-1]
    expected = _expected(frame, "GpuCoreUsage", 0, 2**62, 300_000)["worker-0"]
    assert {moment: found["pod-abc"][moment] for moment in inner} == pytest.approx({m: expected[m] for m in inner})
    assert body["RequestId"] == answer["headers"]["x-acs-request-id"] == body["RequestId"].upper()


def test_every_way_to_name_the_endpoint_and_to_sign(stored):
    server, _, _, _ = stored
    address = server.url.removeprefix("http://")
    configs = {
        "host and protocol": {"endpoint": address, "protocol": "http"},
        "upper-case protocol": {"endpoint": address, "protocol": "HTTP"},
        "url": {"endpoint": server.url},
        "url with a slash": {"endpoint": f"{server.url}/"},
        "v2": {"signature_algorithm": "v2"},
        "sm3": {"signature_algorithm": "ACS3-HMAC-SM3"},
        "bearer": {
            "access_key_id": None,
            "access_key_secret": None,
            "type": "bearer",
            "bearer_token": server.admin["token"],
        },
    }
    asks = [
        _metrics(server, config=config, **{"async": asynchronous})
        for config in configs.values()
        for asynchronous in (False, True)
    ]
    for asked, answer in zip(asks, ask(*asks), strict=True):
        assert answer.get("statusCode") == 200, (asked, answer)
        assert answer["body"]["PodMetrics"], asked


def test_share_tokens(stored):
    server, _, _, _ = stored
    (made,) = ask(
        {**_metrics(server), "call": "get_token", "args": [], "request": {"TargetId": JOB, "TargetType": "job"}}
    )
    token = made["body"]["Token"]
    middle = len(token) // 2
    changed = token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]
    anonymous = {"access_key_id": "x", "access_key_secret": "y"}
    asks = [
        _metrics(server, config=anonymous, anonymous=True, request={"Token": token}),
        _metrics(server, request={"Token": "nonsense"}),
        _metrics(server, config=anonymous, anonymous=True, request={"Token": changed}),
        {**_metrics(server, config=anonymous, anonymous=True, request={"Token": token}), "args": ["another"]},
        _metrics(server, config=anonymous, anonymous=True),
    ]
    opened, signed, refused, other, nothing = ask(*asks)
    assert opened["body"]["PodMetrics"]
    assert signed["body"]["PodMetrics"], "a valid signature wins over the token"
    assert (refused["code"], other["code"], nothing["code"]) == (
        "SignatureDoesNotMatch",
        "InvalidJobId.NotFound",
        "IncompleteSignature",
    )


def test_refusals_are_the_vendors_own(stored):
    server, _, _, _ = stored
    now = datetime.now(UTC)
    date, stale = now.strftime("%Y-%m-%dT%H:%M:%SZ"), (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    old = (now - timedelta(hours=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    cases = {
        "SignatureDoesNotMatch": _metrics(server, config={"access_key_secret": "wrong"}),
        "InvalidAccessKeyId.NotFound": _metrics(server, config={"access_key_id": "nobody"}),
        "InvalidTimeStamp.Expired": _metrics(server, date=stale),
        "MissingParameter": {**_metrics(server), "request": {}},
        "InvalidParameter": _metrics(server, "Everything"),
        "InvalidJobId.NotFound": {**_metrics(server), "args": ["nothing"]},
    }
    answers = ask(*cases.values())
    for code, answer in zip(cases, answers, strict=True):
        assert answer.get("code") == code, answer
        assert answer["error"] == "ClientException"
        assert answer["request_id"]
    no_pair = {"access_key_id": None, "access_key_secret": None}
    asks = [
        _metrics(server, nonce="same-nonce", date=date),
        _metrics(server, nonce="same-nonce", date=date),
        _metrics(server, config={"signature_algorithm": "v2"}, date=old),
        _metrics(server, config={"signature_algorithm": "v2", "access_key_secret": "wrong"}),
        _metrics(server, config={**no_pair, "type": "bearer", "bearer_token": "jm_wrong"}),
    ]
    first, again, old_roa, wrong_roa, wrong_bearer = ask(*asks)
    assert first["statusCode"] == 200
    assert again["code"] == "SignatureNonceUsed"
    assert old_roa["code"] == "InvalidTimeStamp.Expired"
    assert wrong_roa["code"] == "SignatureDoesNotMatch"
    assert wrong_bearer["code"] == "InvalidAccessKeyId.NotFound"


@needs_former
def test_the_former_generation_of_the_core(stored):
    server, frame, end_ms, _ = stored
    span = {"StartTime": _iso(end_ms - 3_600_000), "EndTime": _iso(end_ms)}
    ways = [{}, {"signature_algorithm": "v2"}, {"signature_algorithm": "ACS3-HMAC-SM3"}]
    asks = [
        _metrics(server, config=config, request=span, **{"async": asynchronous})
        for config in ways
        for asynchronous in (False, True)
    ]
    refused = [_metrics(server, config={**config, "access_key_secret": "wrong"}) for config in ways]
    answers = ask(*asks, *refused, {**_metrics(server), "args": ["nothing"]}, python=FORMER)
    for answer in answers[: len(asks)]:
        _check_values(answer["body"], frame, "GpuCoreUsage", end_ms - 3_600_000, end_ms, 300_000)
    codes = [answer["code"] for answer in answers[len(asks) :]]
    assert codes == ["SignatureDoesNotMatch"] * 3 + ["InvalidJobId.NotFound"]
    assert {answer["error"] for answer in answers[len(asks) :]} == {"TeaException"}


def test_throttling_is_what_the_sdk_understands(tmp_path):
    with running(tmp_path / "data", environment={"JOBMETER_RATE_LIMITS": "GetJobMetrics=0.01:1"}) as server:
        _, throttled = ask(_metrics(server), _metrics(server))
    assert throttled["error"] == "ThrottlingException"
    assert throttled["code"] == "Throttling.User"
    assert 0 < int(throttled["retry_after"]) <= 100_000


def test_the_sdk_waits_as_it_is_advised_and_tries_again(tmp_path):
    condition = {"maxAttempts": 3, "exception": ["ThrottlingException"], "errorCode": ["Throttling.User"]}
    retry = {"retryable": True, "maxAttempts": 3, "retryCondition": [condition]}
    with running(tmp_path / "data", environment={"JOBMETER_RATE_LIMITS": "GetJobMetrics=0.25:1"}) as server:
        asked = {**_metrics(server), "retry": retry}
        answers = ask(asked, asked)
        token = json.loads((server.data / "admin.key").read_text())["token"]
        address = f"{server.url}/api/jobmeter/v1/usage"
        page_body = urllib3.request("GET", address, headers={"Authorization": f"Bearer {token}"}).json()
    assert [answer["code"] for answer in answers] == ["InvalidJobId.NotFound"] * 2
    assert [row["calls"] for row in page_body["usage"] if row["operation"] == "GetJobMetrics"] == [3]


def test_tls_with_a_private_authority(stored, tmp_path):
    _, _, end_ms, made = stored
    options = ("--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    with running(tmp_path / "data", *options) as server:
        address = server.url.removeprefix("https://")
        transport = server.transport(ca_file=str(made.ca))
        body = samples(
            [
                (
                    {"metric": "gpu.utilization", "job": JOB, "replica": "worker-0", "node": "n", "device": "gpu0"},
                    [(end_ms, 0.5)],
                )
            ]
        )
        transport.request("POST", "/api/jobmeter/v1/ingest", body, {"Content-Type": "application/vnd.jobmeter.frames"})
        transport.close()
        bare = {"endpoint": address, "ca": str(made.ca)}
        with_scheme = {"endpoint": server.url, "ca": str(made.ca)}
        asks = [
            _metrics(server, config=config, **{"async": asynchronous})
            for config in (bare, with_scheme)
            for asynchronous in (False, True)
        ]
        for answer in ask(*asks):
            assert answer.get("statusCode") == 200, answer
            assert [point["Value"] for pod in answer["body"]["PodMetrics"] for point in pod["Metrics"]] == [50.0]
        end_all()  # the SDK keeps its trusted connections
        (distrusted,) = ask(_metrics(server, config={"endpoint": address}))
        assert "certificate" in str(distrusted["message"]).lower()
