"""Tests of signed and limited calls through several workers: accepted once, within the limits, until revocation."""

import asyncio
import base64
import hashlib
import hmac
import json
import tempfile
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.http_wire import run
from tests.support.workplace import point, working

from jobmeter.examples.acs3 import KeyPair, sign
from jobmeter.model.time import MINUTE, SECOND, format_iso
from jobmeter.server.workers.frames import AccessKeyLookup

HOST = "127.0.0.1:8400"
FORM = "application/x-www-form-urlencoded"


METRICS = ("gpu.utilization", "gpu.sm.active")


def pair(key):
    return KeyPair(key.access_key_id, key.access_key_secret)


def job_metrics(place, key=None, job="j1"):
    """Return a GetJobMetrics call with a new signature of Alibaba's third version."""
    parameters = {"MetricType": "GpuCoreUsage"}
    path = f"/api/v1/jobs/{job}/metrics"
    headers = sign(
        *("GET", HOST, path, parameters, ("2020-12-03", "GetJobMetrics")),
        *(pair(key or place.served.admin), place.served.clock),
    )
    headers["Host"] = headers.pop("host")
    return "GET", f"{path}?{urlencode(parameters)}", headers, b""


def escaped(text):
    return quote(text, safe="-_.~")


def metric_list(place, key=None, number=0):
    """Return a DescribeMetricList call with a form body and a new signature of Alibaba's first version."""
    key = key or place.served.admin
    query = {
        "Action": "DescribeMetricList",
        "Version": "2019-01-01",
        "AccessKeyId": key.access_key_id,
        "Timestamp": format_iso(place.now_ms // SECOND * SECOND),
        "SignatureNonce": f"nonce-{number}",
        "SignatureMethod": "HMAC-SHA1",
    }
    form = {
        "Namespace": "acs_pai_dlc",
        "MetricName": "JOB_GPU_SM_UTIL",
        "Dimensions": json.dumps([{"jobId": "j1"}]),
        "StartTime": str(place.now_ms - 10 * MINUTE),
        "EndTime": str(place.now_ms),
    }
    text = "&".join(f"{escaped(name)}={escaped(value)}" for name, value in sorted({**query, **form}.items()))
    digest = hmac.new(f"{key.access_key_secret}&".encode(), f"POST&%2F&{escaped(text)}".encode(), "sha1").digest()
    target = f"/?{urlencode({**query, 'Signature': base64.b64encode(digest).decode()})}"
    return "POST", target, {"Content-Type": FORM}, urlencode(form).encode()


def task_metrics(place, key=None):
    """Return a ShowTrainingJobMetrics call with Huawei Cloud's signature, which has no nonce."""
    key = key or place.served.admin
    path, date = "/v2/default/training-jobs/j1/metrics/worker-0", format_iso(place.now_ms // SECOND * SECOND)
    date = date.replace("-", "").replace(":", "")
    lines = f"GET\n{path}/\n\nhost:{HOST}\nx-sdk-date:{date}\n\nhost;x-sdk-date\n{hashlib.sha256(b'').hexdigest()}"
    text = f"SDK-HMAC-SHA256\n{date}\n{hashlib.sha256(lines.encode()).hexdigest()}"
    signature = hmac.new(key.access_key_secret.encode(), text.encode(), "sha256").hexdigest()
    named = f"Access={key.access_key_id}, SignedHeaders=host;x-sdk-date, Signature={signature}"
    return "GET", path, {"Host": HOST, "X-Sdk-Date": date, "Authorization": f"SDK-HMAC-SHA256 {named}"}, b""


async def until_own(place, make):
    """Send new calls until worker 0 answers one itself; return the answer."""
    for number in range(8):
        before = place.own
        found = await place.send(*make(number))
        if place.own > before:
            return found
        await place.settle()
    raise AssertionError("the worker forwards each of these calls")


SIGNED = {
    "acs3": lambda place: lambda _: job_metrics(place),
    "rpc form": lambda place: lambda number: metric_list(place, number=number),
    "sdk-hmac": lambda place: lambda _: task_metrics(place),
}


@pytest.mark.parametrize("scheme", SIGNED)
def test_a_worker_answers_a_signed_call_as_the_storage_process_does(tmp_path, scheme):
    async def main():
        async with working(tmp_path / "data") as place:
            # The decimal digits of the mean, 62.5 %, cannot occur in a time of the answer.
            rows = [(metric, at, value) for metric in METRICS for at, value in ((60, 0.5), (50, 0.75))]
            await place.write(*(point(place, at, value, metric=metric) for metric, at, value in rows))
            make = SIGNED[scheme](place)
            own = await until_own(place, make)
            assert own[0] == 200
            assert b"62.5" in own[1] or b"75.0" in own[1]
            assert own == await place.send(*make("stored"), worker=None)

    run(main())


def test_a_worker_gets_the_secret_of_a_key_only_after_an_accepted_signature(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5))
            searched, admin = place.note_searches(), place.served.admin
            wrong = msgspec.structs.replace(admin, access_key_secret="0" * 64)
            unknown = msgspec.structs.replace(admin, access_key_id="JMAKUNKNOWN")
            for key in (wrong, unknown, wrong):
                assert (await place.send(*job_metrics(place, key)))[0] >= 400
                await place.settle()
            assert searched == []
            await until_own(place, lambda _: job_metrics(place))
            assert AccessKeyLookup(admin.access_key_id) in searched
            before = place.own
            assert (await place.send(*job_metrics(place, wrong)))[0] >= 400
            assert place.own == before

    run(main())


def test_a_revoked_key_has_no_secret_for_workers(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            key = place.reader()
            about = AccessKeyLookup(key.access_key_id)
            assert key.access_key_secret.encode() in (place.records.find(about) or b"")
            await place.change("DELETE", f"/keys/{key.id}")
            assert key.access_key_secret.encode() not in (place.records.find(about) or b"")

    run(main())


def test_of_one_signature_at_all_workers_at_the_same_moment_one_is_accepted(tmp_path):
    async def main():
        async with working(tmp_path / "data", count=3) as place:
            await place.write(point(place, 60, 0.5))
            await warm(place, place.served.admin)
            for _ in range(5):
                call, before = job_metrics(place), place.own
                kept_open = list[bool]()
                note = partial(kept_open.append, True)
                found = await asyncio.gather(*(place.send(*call, worker=worker, kept_open=note) for worker in range(3)))
                assert sorted(status for status, _ in found) == [200, 400, 400]
                assert place.own == before + 1
                assert len(kept_open) == 1, "a repeated call must not keep its connection open"

    run(main())


async def warm(place, key):
    """Send calls of a key until each worker has its records."""
    for worker in range(len(place.workers)):
        for _ in range(4):
            await place.send(*job_metrics(place, key), worker=worker)
            await place.settle()


@settings(max_examples=8, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["new", "new", "again", "revoke", "late"]), st.sampled_from([0, 1, None])),
        min_size=4,
        max_size=14,
    ),
    choose=st.randoms(use_true_random=False),
)
def test_each_signature_holds_once_and_until_its_key_is_revoked(steps, choose):
    """An oracle of used and dated signatures decides each status, whichever process gets the call."""

    async def main(folder):
        async with working(folder, count=2) as place:
            await place.write(point(place, 60, 0.5))
            key = place.reader()
            await warm(place, key)
            sent = list[tuple[str, str, dict[str, str], bytes]]()
            for step, worker in steps:
                if step == "revoke":
                    await place.change("DELETE", f"/keys/{key.id}")
                    former, key = key, place.reader()
                    assert (await place.send(*job_metrics(place, former), worker=worker))[0] != 200
                elif step == "late":
                    place.served.clock.time_ms += choose.choice([SECOND, 16 * MINUTE])
                elif step == "again" and sent:
                    assert (await place.send(*choose.choice(sent), worker=worker))[0] != 200
                else:
                    sent.append(job_metrics(place, key))
                    assert (await place.send(*sent[-1], worker=worker))[0] == 200
                await place.settle()
            assert place.own

    with tempfile.TemporaryDirectory() as folder:
        run(main(Path(folder) / "data"))


@pytest.mark.parametrize("limit", ["GetJobMetrics=0.001:12", "*=0.001:12"])
def test_workers_together_grant_no_more_than_the_rate_of_one_process(tmp_path, limit):
    async def main():
        async with working(tmp_path / "data", count=3, rate_limits=limit) as place:
            await place.write(point(place, 60, 0.5))
            key = place.reader()
            for worker in range(3):
                for _ in range(3):
                    assert (await place.send(*job_metrics(place, key), worker=worker))[0] == 200
                    await place.settle()
            before = place.own
            calls = [job_metrics(place, key) for _ in range(12)]
            found = await asyncio.gather(*(place.send(*call, worker=at % 3) for at, call in enumerate(calls)))
            assert [status for status, _ in found].count(200) == 3
            assert {status for status, _ in found} == {200, 429}
            assert place.own == before + 3
            assert (await place.send(*job_metrics(place, key), worker=None))[0] == 429
            place.served.clock.time_ms += 1000 * SECOND
            assert (await place.send(*job_metrics(place, key)))[0] == 200

    run(main())


def test_workers_together_spend_one_budget(tmp_path):
    async def main():
        async with working(tmp_path / "data", count=3, query_budgets="rows=12") as place:
            await place.write(point(place, 60, 0.5))
            target, key = place.metrics(), place.reader()
            for worker in range(3):
                for _ in range(3):
                    assert (await place.ask(target, key.token, worker))[0] == 200
                    await place.settle()
            before = place.own
            found = await asyncio.gather(*(place.ask(target, key.token, number % 3) for number in range(9)))
            assert [status for status, _ in found].count(200) == 3, "each question costs the one stored sample"
            assert {status for status, _ in found} == {200, 429}
            assert place.own == before + 3
            assert (await place.ask(target, key.token, None))[0] == 429
            place.served.clock.time_ms += MINUTE
            assert (await place.ask(place.metrics(), key.token))[0] == 200

    run(main())


def test_a_call_whose_body_has_not_arrived_is_forwarded(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5, metric="gpu.sm.active"))
            found = await until_own(place, lambda number: metric_list(place, number=number))
            method, target, headers, body = metric_list(place, number="parts")
            sized = {**headers, "Content-Length": str(len(body))}
            before = place.own
            assert await place.send(method, target, sized, [body[:5], body[5:]]) == found
            assert place.own == before

    run(main())
