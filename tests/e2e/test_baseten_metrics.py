"""Metrics in the vendor's own SDK, with only the address changed, compared with pandas."""

import json
import socket

import pytest

from tests.e2e.baseten import (
    DAY,
    DONE,
    HOUR,
    PROJECT,
    RUNNING,
    ask,
    check,
    default_step,
    means,
    metrics_of,
    points_of,
    storing,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    with storing(tmp_path_factory.mktemp("baseten")) as made:
        yield made


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("by_get", [True, False], ids=["get", "post"])
def test_every_number_equals_pandas(stored, asynchronous, by_get):
    end_ms = stored.now_ms - DAY - 137_000
    start_ms = end_ms - 1_900_001
    asks = [
        metrics_of(
            DONE, asynchronous, by_get, start_epoch_millis=start_ms, end_epoch_millis=end_ms, step_seconds=seconds
        )
        for seconds in (15, 57, 300, 7200)
    ]
    for seconds, body in zip((15, 57, 300, 7200), ask(stored, *asks), strict=True):
        check(body, stored.job(DONE), start_ms, end_ms, seconds * 1000)


def test_a_finished_job_is_answered_whole_and_a_running_one_of_its_last_hour(stored):
    done, empty, running_one = ask(
        stored,
        metrics_of(DONE),
        metrics_of(DONE, by_get=False, start_epoch_millis=None, end_epoch_millis=None),
        metrics_of(RUNNING, step_seconds=30),
    )
    start_ms, end_ms = stored.now_ms - DAY - HOUR, stored.now_ms - DAY + 1
    check(done, stored.job(DONE), start_ms, end_ms, default_step(start_ms, end_ms))
    assert empty == done
    # The time of the question cuts the first bucket of the last hour.
    inner = stored.now_ms - HOUR + 120_000
    found = points_of(running_one["per_node_metrics"][1]["metrics"])["gpu_utilization"]["1"]
    expected = means(stored.job(RUNNING), "gpu.utilization", 0, 2**62, 30_000)["worker-1", "gpu1"]
    assert {at: value for at, value in found.items() if at >= inner} == pytest.approx(
        {at: value for at, value in expected.items() if at >= inner}
    )


def _raw(stored, request):
    """Send one request over a socket byte by byte. Return the status and the body."""
    host, _, port = stored.server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode("latin-1").lower(), body


@pytest.mark.parametrize("scheme", ["Api-Key", "Bearer"])
@pytest.mark.parametrize("origin", ["http://api.localhost:8000", ""], ids=["absolute", "origin"])
def test_an_absolute_target_and_any_content_type_are_taken(stored, scheme, origin):
    body = b'{"end_epoch_millis": null, "start_epoch_millis": null}'
    request = (
        f"POST {origin}/v1/training_projects/{PROJECT}/jobs/{DONE}/metrics HTTP/1.1\r\n"
        f"Host: api.localhost:8000\r\nAuthorization: {scheme} {stored.keys['own']}\r\nConnection: close\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    status, head, answer = _raw(stored, request.encode() + body)
    assert status == 200
    assert "content-type: application/json" in head
    assert "x-request-id: " in head
    start_ms, end_ms = stored.now_ms - DAY - HOUR, stored.now_ms - DAY + 1
    check(json.loads(answer), stored.job(DONE), start_ms, end_ms, default_step(start_ms, end_ms))
