"""Tests of a server whose files were damaged or lost while it was down: it reports that, and invents nothing."""

import itertools
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.frames import row, samples
from tests.support.processes import API, ServerProcess, run_cli, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
DAY, HOUR = 86_400_000, 3_600_000
NOW = int(time.time() * 1000) // DAY * DAY
"""Current day."""
POINTS = 400


def frame(days_ago: int, job: str = "hurt") -> bytes:
    """Return samples of an earlier day, 15 s apart."""
    begin = NOW - days_ago * DAY
    return samples([row("app.number", [(begin + at * 15_000, float(at)) for at in range(POINTS)], job=job)])


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a data folder with samples of job ``hurt`` on each of the last three days, a part of the store each."""
    data = tmp_path_factory.mktemp("three-days") / "data"
    with running(data) as server:
        for days_ago in (1, 2, 3):
            assert server.ingest(frame(days_ago)).json()["accepted"] == POINTS
        # Until the journal has inserted them, samples count twice.
        wait_until(lambda: server.request("GET", "/status").json()["rows"]["samples"] == 3 * POINTS, "all are counted")
        assert server.stop() == 0
    return data


@pytest.fixture
def filled(three_days: Path, tmp_path: Path) -> Path:
    """Copy of the folder of ``three_days``."""
    return Path(shutil.copytree(three_days, tmp_path / "data", symlinks=True))


def part_of(data: Path, days_ago: int) -> Path:
    """Return the folder of the part that contains a day's samples."""
    (found,) = data.glob(f"telemetry/store/*/*/{NOW // DAY - days_ago}_*")
    return found


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 64):
        content[place] ^= 0xFF
    path.write_bytes(content)


def cut(part: Path) -> None:
    (part / "data.bin").write_bytes((part / "data.bin").read_bytes()[:100])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "data cut off": cut,
    "data deleted": lambda part: (part / "data.bin").unlink(),
    "checksums cut off": lambda part: (part / "checksums.txt").write_bytes(b"checksums"),
    "index deleted": lambda part: (part / "primary.cidx").unlink(),
}


def export(server: ServerProcess, job: str = "hurt", days: int = 4) -> str:
    return f"{API}/jobs/{job}/samples?metric=app.number&start={NOW - days * DAY}&end={NOW}&format=csv"


def gauge(server: ServerProcess, table: str, counted: str = "parts") -> float:
    lines = server.call("GET", "/metrics").body.decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f'jobmeter_store_damaged_{counted}{{table="{table}"}}')]
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_part_that_was_set_aside_is_named_everywhere(tmp_path: Path, filled: Path, kind: str) -> None:
    data = filled
    hurt = part_of(data, 2)
    DAMAGE[kind](hurt)
    with running(data) as server:
        # The other days are readable. An answer names the missing one.
        reply = server.call("GET", export(server))
        assert (reply.status, reply.body.count(b"\n")) == (200, 2 * POINTS + 1)
        assert f"samples {hurt.name} (broken-on-start)" in reply.headers["x-jobmeter-damaged"]
        metrics = server.call("GET", f"{API}/jobs/hurt/metrics?metric=app.number")
        assert hurt.name in metrics.headers["x-jobmeter-damaged"]
        ready = server.call("GET", "/readyz")
        assert (ready.status, ready.body.startswith(b"ready, degraded: ")) == (200, True)
        assert b"1 of samples" in ready.body
        assert str(tmp_path).encode() not in ready.body
        assert (gauge(server, "samples"), gauge(server, "samples", "rows")) == (1, POINTS)
        (damaged_part,) = server.request("GET", "/status").json()["damaged"]
        assert (damaged_part["table"], damaged_part["part"], damaged_part["rows"]) == ("samples", hurt.name, POINTS)
        assert NOW - 2 * DAY <= damaged_part["start"] < damaged_part["end"] <= NOW - DAY
        log = server.output()
        assert f"was set aside: samples {hurt.name} (broken-on-start), {POINTS} rows" in log
        assert f"accept the loss: remove {data}/telemetry/store/" in log
        # That part contains no samples of the other job, so its answers report no damage.
        assert server.ingest(frame(0, "whole")).status == 200
        if kind != "index deleted":
            assert "x-jobmeter-damaged" not in server.call("GET", export(server, "whole")).headers
        (left,) = data.glob("telemetry/store/*/*/detached/broken*")
        shutil.rmtree(left)
        assert server.request("GET", "/status").json()["damaged"] == []
        assert server.call("GET", "/readyz").body == b"ready\n"


def test_damage_that_is_found_on_reading_is_an_error_of_its_own(filled: Path) -> None:
    data = filled
    hurt = part_of(data, 2)
    flip(hurt / "data.bin")
    with running(data) as server:
        reply = server.call("GET", export(server))
        assert (reply.status, reply.json()["error"]["code"]) == (500, "damaged")
        message = reply.json()["error"]["message"]
        assert hurt.name in message
        assert "trying again does not help" in message
        assert str(data) not in message
        assert "retry-after" not in reply.headers
        assert "give up the part" in server.output()
        assert str(hurt) in server.output()
        assert gauge(server, "samples") == 1
        assert b"degraded" in server.call("GET", "/readyz").body
        # A vendor's API returns its own internal error, without names of ours.
        body = json.dumps(
            {"start": NOW - 4 * DAY, "end": NOW, "queries": [{"metric": "app.number", "aggregator": "sum"}]}
        )
        vendor = server.call("POST", "/api/query", body.encode(), {"Content-Type": "application/json"})
        assert vendor.status == 500
        assert hurt.name.encode() not in vendor.body
        # The other days are readable as before.
        whole = server.call("GET", export(server, days=1))
        assert (whole.status, whole.body.count(b"\n")) == (200, POINTS + 1)
        assert hurt.name in whole.headers["x-jobmeter-damaged"]


SENT, EACH = 6, 10
"""Requests of a steady sender, and the samples in each request."""


def steady(number: int, replica: str = "worker-0") -> bytes:
    """Return a request of a sender that repeats the same series."""
    begin = NOW - HOUR + number * EACH * 1000
    return samples(
        [row("app.number", [(begin + at * 1000, number + at / 100) for at in range(EACH)], "steady", replica)]
    )


def stored(server: ServerProcess) -> dict[str, set[float]]:
    """Return the stored values of each replica of the steady sender's job."""
    path = f"{API}/jobs/steady/samples?metric=app.number&start={NOW - DAY}&end={NOW + DAY}"
    found: dict[str, set[float]] = {}
    for line in server.call("GET", path).body.splitlines():
        reading = json.loads(line)
        found.setdefault(reading["replica"], set()).add(reading["value"])
    return found


@pytest.fixture(scope="module")
def killed_while_its_journal_had_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a data folder with a single journal segment that contains every request."""
    folder = tmp_path_factory.mktemp("killed")
    for attempt in itertools.count():
        data = folder / f"data-{attempt}"
        with running(data) as server:
            for number in range(SENT):
                assert server.ingest(steady(number)).json()["accepted"] == EACH
            for replica in ("worker-1", "worker-2"):
                # Other senders use their own series lists, which include the first sender's series.
                assert server.ingest(steady(0, replica) + steady(SENT)).status == 200
            server.kill()
        segments = list(data.glob("telemetry/journal/*.journal"))
        # A slow machine may already have inserted some of it into the engine.
        if len(segments) == 1 and segments[0].read_bytes().count(b"4JMJ") == SENT + 2:
            return data
    raise AssertionError


@pytest.mark.parametrize("place", ["head", "length", "keys", "values", "end"])
def test_a_flipped_bit_in_a_journal_loses_only_the_samples_of_its_record(
    tmp_path: Path, killed_while_its_journal_had_all: Path, place: str
) -> None:
    data = Path(shutil.copytree(killed_while_its_journal_had_all, tmp_path / "data", symlinks=True))
    (segment,) = data.glob("telemetry/journal/*.journal")
    content = bytearray(segment.read_bytes())
    second = content.index(b"JMJ4", 4)
    at = {"head": 2, "length": 36, "keys": 56 + 30, "values": 56 + 140, "end": second - 10}[place]
    content[at] ^= 4
    segment.write_bytes(content)
    lost = EACH if place in {"keys", "values"} else 0
    values = {number + at / 100 for number in range(SENT + 1) for at in range(EACH)}
    first = {at / 100 for at in range(EACH)}
    with running(data) as server:
        found = stored(server)
        assert found == {
            "worker-0": values - (first if lost else set()), "worker-1": first, "worker-2": first,
        }  # fmt: skip
        assert (gauge(server, "journal"), gauge(server, "journal", "rows")) == ((1, lost) if lost else (0, 0))
        if lost:
            assert f"{lost} samples that were acknowledged are lost" in server.output()
            assert b"1 of journal" in server.call("GET", "/readyz").body
            (part,) = server.request("GET", "/status").json()["damaged"]
            assert (part["table"], part["rows"], part["at_most"]) == ("journal", lost, False)
            told = run_cli("status", "--server", server.url, "--key", server.token)
            assert f"{lost} rows lost" in told.stdout
        else:
            assert "every sample in it was recovered" in server.output()
        # The server recognizes repeated data at once.
        assert server.ingest(steady(0)).json()["accepted"] == EACH
        assert stored(server)["worker-0"] == values


def fails(data: Path, *options: str) -> str:
    ran = run_cli("serve", "--data", str(data), "--port", "0", "--idle-exit", "1", *options)
    assert ran.returncode == 1, ran.stdout
    return ran.stderr


def without(folder: Path, name: str) -> None:
    for path in folder.glob(f"{name}*"):
        path.unlink()


def test_a_lost_registry_beside_samples_is_no_new_start(filled: Path) -> None:
    data = filled
    saved = {path.name: path.read_bytes() for path in data.glob("registry.db*")}
    without(data, "registry.db")
    assert "jobmeter serve --new-registry" in fails(data)
    # The failed attempt did not create a key.
    assert "jobmeter serve --new-registry" in fails(data)
    (data / "registry.db").write_bytes(b"")
    assert "the registry is empty, but" in fails(data)
    without(data, "registry.db")
    for name, content in saved.items():
        (data / name).write_bytes(content)
    with running(data) as server:
        assert server.call("GET", export(server)).body.count(b"\n") == 3 * POINTS + 1
    without(data, "registry.db")
    with running(data, "--new-registry") as server:
        # The key file belongs to the new registry.
        assert server.request("GET", "/jobs").json()["total"] == 0
        assert server.stop() == 0
    with running(data) as server:
        assert server.request("GET", "/whoami").status == 200


def test_a_lost_secret_key_beside_sealed_secrets_is_no_new_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as server:
        assert server.stop() == 0
    secret = data / "secret.key"
    content = secret.read_bytes()
    secret.unlink()
    assert "jobmeter serve --new-secret-key" in fails(data)
    assert not secret.exists()
    made = run_cli("key", "create", "--name", "n", "--role", "reader", "--data", str(data))
    assert made.returncode == 1
    assert not secret.exists()
    with running(data, "--new-secret-key") as server:
        assert server.request("GET", "/whoami").status == 200  # tokens are not sealed
        assert server.stop() == 0
    secret.write_bytes(content)
    secret.chmod(0o600)
    with running(data) as server:
        assert server.request("GET", "/whoami").status == 200
