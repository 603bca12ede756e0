"""Tests that a response ends with the permission to see it: live streams, long answers, a telnet connection."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.asgi import Reply, send
from tests.support.frames import records, samples
from tests.support.serving import BASE, Serving
from tests.support.waiting import until
from tests.unit.server.test_session import PAGE, cookie_of, sign_in

from jobmeter.access.keys import CreatedKey, create_key
from jobmeter.access.policy import encode_policies
from jobmeter.errors import ForbiddenError, UnauthenticatedError
from jobmeter.server.live import CONTENT_TYPE
from jobmeter.server.native import endpoint, fleet
from jobmeter.server.native.router import ENDPOINTS
from jobmeter.server.telnet import TelnetServer

GROUP = {"Effect": "Allow", "Action": "*", "Resource": "acs:*:*:*:resourcegroup/g"}
ANY = {"Effect": "Allow", "Action": "*", "Resource": "*"}
STREAMS = sorted(one.path for one in ENDPOINTS if one.answer_type == CONTENT_TYPE)
OF_A_JOB = [path for path in STREAMS if path.startswith("/jobs/{job}")]
LONG = {
    "exportSamples": "/jobs/j1/samples?metric=cpu.usage",
    "getJobLogs": "/jobs/j1/logs?format=jsonl",
    "getNodeLogs": "/nodes/n1/logs?format=text",
}


@pytest.fixture
def watched(server: Serving, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """Server with a running job on a node, with lines and samples; live updates follow each other closely."""
    now = server.clock.now_ms()
    job = {
        "job_id": "j1",
        "state": "Running",
        "start": now - 60_000,
        "resource_group": "g",
        "replicas": [{"name": "w", "node": "n1", "devices": ["gpu0"]}],
    }
    used = {"metric": "cpu.usage", "job": "j1", "replica": "w", "node": "n1"}
    body = records({"jobs": [job], "nodes": [{"name": "n1", "resource_group": "g"}]})
    assert server.ingest(body + samples([(used, [(now - 50_000 + at, at) for at in range(1_000)])])).status == 200
    lines = [{"text": f"line {at}", "time": now - 50_000 + at} for at in range(2_500)]
    assert server.call("POST", "/jobs/j1/logs", {"lines": lines}).status == 200
    assert server.call("POST", "/nodes/n1/logs", {"lines": lines}).status == 200
    monkeypatch.setattr(server.application.services.hub, "_seconds", 0.001)
    monkeypatch.setattr(fleet, "EVERY_SECONDS", 0.001)
    return server


def policy_key(server: Serving, *statements: dict[str, str]) -> CreatedKey:
    services = server.application.services
    text = encode_policies([("own", json.dumps({"Version": "1", "Statement": list(statements)}).encode())])
    return create_key(services.registry, services.vault, server.clock, "own", "admin", None, text)


End = Callable[[], Awaitable[Reply]]
Way = tuple[dict[str, str], End]
"""Credential of a viewer, and the function that ends it."""


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def by_admin(server: Serving, method: str, path: str, body: Any = None) -> End:
    content = b"" if body is None else json.dumps(body).encode()
    headers = bearer(server.admin.token)
    return lambda: send(server.application, method, BASE + path, content, headers)


def policies(*statements: dict[str, str]) -> dict[str, Any]:
    return {"policies": [{"name": "own", "document": {"Version": "1", "Statement": list(statements)}}]}


def revoked_key(server: Serving) -> Way:
    made = server.key("reader")
    return bearer(made.token), by_admin(server, "DELETE", f"/keys/{made.id}")


def denied_by_policy(server: Serving) -> Way:
    made = policy_key(server, ANY)
    denied = policies(ANY, {"Effect": "Deny", "Action": "*:follow*", "Resource": "*"})
    return bearer(made.token), by_admin(server, "PUT", f"/keys/{made.id}/policies", denied)


def narrowed_by_policy(server: Serving) -> Way:
    """Narrow a key's policy to a group: it still covers all existing data, but may not cover later data."""
    made = policy_key(server, ANY)
    return bearer(made.token), by_admin(server, "PUT", f"/keys/{made.id}/policies", policies(GROUP))


def widened_by_policy(server: Serving) -> Way:
    made = policy_key(server, GROUP)
    return bearer(made.token), by_admin(server, "PUT", f"/keys/{made.id}/policies", policies(ANY))


def session_signed_out(server: Serving) -> Way:
    cookie = {"Cookie": cookie_of(sign_in(server, f"Bearer {server.admin.token}"))}
    return cookie, lambda: send(server.application, "DELETE", f"{BASE}/session", b"", {**cookie, **PAGE})


def key_of_session_revoked(server: Serving) -> Way:
    made = server.key("reader")
    cookie = {"Cookie": cookie_of(sign_in(server, f"Bearer {made.token}"))}
    return cookie, by_admin(server, "DELETE", f"/keys/{made.id}")


def ended_link(server: Serving) -> Way:
    made = server.call("POST", "/jobs/j1/links", {}).json()
    return bearer(made["token"]), by_admin(server, "DELETE", f"/jobs/j1/links/{made['id']}")


def expired_link(server: Serving) -> Way:
    made = server.call("POST", "/jobs/j1/links", {"expires_in": 60}).json()

    async def expire() -> Reply:
        server.clock.time_ms += 60_000
        return Reply(200, {}, ())

    return bearer(made["token"]), expire


KEYS = (
    revoked_key,
    denied_by_policy,
    narrowed_by_policy,
    widened_by_policy,
    session_signed_out,
    key_of_session_revoked,
)


async def watch(server: Serving, path: str, headers: dict[str, str], end: End) -> tuple[Reply, int]:
    """Return the whole stream, and the number of its updates after the end of the permission."""
    came: list[bytes] = []

    async def take(part: bytes) -> None:
        came.append(part)

    target = BASE + path.replace("{job}", "j1").replace("{node}", "n1")
    looking = asyncio.create_task(send(server.application, "GET", target, b"", headers, take=take))
    await until(lambda: sum(part.startswith(b"data: ") for part in came) > 1, "an update")
    assert (await end()).status == 200
    before = len(came)
    return await asyncio.wait_for(looking, 60), sum(part.startswith(b"data: ") for part in came[before:])


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("way", KEYS)
def test_a_live_stream_ends_with_the_permission_to_see_it(watched, path, way):
    headers, end = way(watched)
    reply, late = asyncio.run(watch(watched, path, headers, end))
    assert reply.body.endswith(b"event: refused\ndata: {}\n\n")
    assert late <= 1, "an update that was on its way"


@pytest.mark.parametrize("path", OF_A_JOB)
@pytest.mark.parametrize("way", [ended_link, expired_link])
def test_a_live_stream_of_a_job_ends_with_the_link_to_it(watched, path, way):
    headers, end = way(watched)
    reply, late = asyncio.run(watch(watched, path, headers, end))
    assert reply.body.endswith(b"event: refused\ndata: {}\n\n")
    assert late <= 1


def test_a_live_stream_goes_on_while_its_key_is_read_anew(watched):
    """Use of a key updates its row in the registry, but not its permission."""
    made = policy_key(watched, GROUP)

    async def used() -> Reply:
        watched.clock.time_ms += 3_600_000
        watched.application.services.authenticator.forget()
        return await send(watched.application, "GET", f"{BASE}/whoami", b"", bearer(made.token))

    async def look() -> Reply:
        came: list[bytes] = []

        async def take(part: bytes) -> None:
            came.append(part)

        target = f"{BASE}/live/jobs"
        looking = asyncio.create_task(send(watched.application, "GET", target, b"", bearer(made.token), take=take))
        await until(lambda: len(came) > 2)
        assert (await used()).status == 200
        before = len(came)
        await until(lambda: len(came) > before + 2)
        watched.application.services.hub.close()
        return await looking

    assert b"refused" not in asyncio.run(look()).body


def test_every_answer_of_any_length_is_in_the_table():
    found = {
        one.name
        for one in ENDPOINTS
        if "application/x-ndjson" in (one.answer_type, *one.other_types) and one.lane == "read"
    }
    assert found == set(LONG)


@pytest.mark.parametrize("path", LONG.values(), ids=LONG)
@pytest.mark.parametrize(
    ("statements", "error"), [((), UnauthenticatedError), (({**ANY, "Action": "*:whoAmI"},), ForbiddenError)]
)
def test_a_long_answer_is_cut_off_with_the_permission_to_see_it(watched, monkeypatch, path, statements, error):
    monkeypatch.setattr(endpoint, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr("jobmeter.kernel.rows.PIECE", 4_096)
    monkeypatch.setattr("jobmeter.server.native.raw.ROWS", 100)
    made = policy_key(watched, ANY)
    path_of_key = f"/keys/{made.id}"
    ends = by_admin(watched, "PUT", f"{path_of_key}/policies", policies(*statements))
    ends = ends if statements else by_admin(watched, "DELETE", path_of_key)
    whole = watched.raw("GET", BASE + path, headers=bearer(made.token)).body
    came: list[bytes] = []

    async def take(part: bytes) -> None:
        came.append(part)
        if len(came) == 1:
            assert (await ends()).status == 200

    with pytest.raises(error):
        asyncio.run(send(watched.application, "GET", BASE + path, b"", bearer(made.token), take=take))
    assert came
    assert len(b"".join(came)) < len(whole)


def test_a_telnet_connection_answers_no_revoked_key(watched):
    services = watched.application.services
    made = watched.key("admin")
    bound = socket.create_server(("127.0.0.1", 0))
    telnet = TelnetServer(services, bound)
    telnet.start()
    try:
        with socket.create_connection(telnet.address) as line:
            line.settimeout(60)
            line.sendall(f"auth {made.token}\nstats\n".encode())
            assert line.recv(4096).startswith(b"tsd.")
            assert watched.call("DELETE", f"/keys/{made.id}").status == 200
            line.sendall(b"version\n")
            text = b""
            while b"Jobmeter" not in text:
                text += line.recv(4096)
            line.sendall(b"stats\n")
            assert line.recv(4096) == b"stats: the key was revoked\n"
    finally:
        telnet.stop()
