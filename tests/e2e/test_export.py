"""Tests of raw exports of a real server to clients that read, leave or lose the connection, and of refused bodies."""

import http.client
import io
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import urllib3

from tests.support.frames import frame, row, samples
from tests.support.needs import needing
from tests.support.processes import API, ServerProcess, running
from tests.support.waiting import wait_until

SERIES, EACH = 16, 60_000
START = (int(time.time()) - 4 * 3600) * 1000
VALUES = np.round(np.random.default_rng(4).random((SERIES, EACH)), 6)


def _many() -> bytes:
    """Build a payload of 960,000 samples. ``tests.support.frames`` is too slow, because it encodes value by value."""
    out = struct.pack("<II", SERIES, SERIES * EACH)
    for at in range(SERIES):
        texts = ("gpu.utilization", "", "", "n1", f"gpu{at}", "big", "worker-0", "0")
        names = b"".join(struct.pack("<H", len(text)) + text.encode() for text in texts)
        out += struct.pack("<I", len(names)) + names
    times = np.tile(START + 200 * np.arange(EACH, dtype="<i8"), SERIES)
    return out + struct.pack("<I", EACH) * SERIES + times.tobytes() + VALUES.astype("<f8").tobytes()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("export") / "data"
    data.mkdir(mode=0o700)
    settings = {"JOBMETER_QUERY_BUDGETS": "exports=1", "JOBMETER_LIMIT_EXPORT_ROWS": str(SERIES * EACH + 10)}
    with running(data, environment={**settings, "JOBMETER_LIMIT_BODY_BYTES": str(2**24)}) as made:
        assert made.ingest(frame(_many(), codec=1)).json()["rejected"] == {}
        yield made


def _path(form: str, job: str = "big") -> str:
    return f"{API}/jobs/{job}/samples?metric=gpu.utilization&since=1d&format={form}"


def test_every_sample_comes_out_as_it_went_in(server: ServerProcess) -> None:
    table = pacsv.read_csv(io.BytesIO(server.call("GET", _path("csv")).body))
    assert table.column_names == ["time", "replica", "device", "value"]
    assert table.num_rows == SERIES * EACH
    device = table["device"].to_pandas()
    for at in range(SERIES):
        own = (device == f"gpu{at}").to_numpy()
        assert np.array_equal(table["value"].to_numpy()[own], VALUES[at])
        assert np.array_equal(table["time"].to_numpy()[own], START + 200 * np.arange(EACH))
    stored = pq.read_table(io.BytesIO(server.call("GET", _path("parquet")).body))
    assert np.array_equal(stored["value"].to_numpy(), table["value"].to_numpy())


def test_a_client_that_hangs_up_frees_its_memory(server: ServerProcess) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            asked = f"GET {_path('json')} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {server.token}\r\n\r\n"
            line.sendall(asked.encode())
            assert line.recv(1000).startswith(b"HTTP/1.1 200")
            # This key may have only one export at a time.
            assert server.call("GET", _path("csv")).status == 429
        wait_until(lambda: server.call("HEAD", _path("csv")).status == 200)
        wait_until(lambda: 'jobmeter_work{lane="read"} 0.0' in _metrics(server))


def _metrics(server: ServerProcess) -> str:
    return server.call("GET", "/metrics").body.decode()


@pytest.fixture(scope="module")
def larger(server: ServerProcess) -> ServerProcess:
    """Create more samples than one export may contain."""
    points = [(START + 200 * at, 0.5) for at in range(EACH, EACH + 20)]
    body = samples([row("gpu.utilization", points, job="big", node="n1", device=f"gpu{at}") for at in range(SERIES)])
    assert server.ingest(body).status == 200
    return server


def test_an_answer_that_cannot_be_completed_is_cut_off(larger: ServerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", larger.port, timeout=60)
    connection.request("GET", _path("csv"), headers={"Authorization": f"Bearer {larger.token}"})
    answer = connection.getresponse()
    assert answer.status == 200
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    connection.close()


def test_the_command_line_leaves_no_partial_file(larger: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "big.csv"
    end = START + 200 * EACH
    whole = _metrics_command(larger, file, "--end", str(end), "--since", "1d")
    assert (whole.returncode, whole.stdout, whole.stderr) == (0, b"", b"")
    assert len(file.read_bytes().splitlines()) == SERIES * EACH + 1
    result = _metrics_command(larger, file, "--since", "1d")
    assert result.returncode == 1
    assert b"no answer from" in result.stderr
    assert len(file.read_bytes().splitlines()) == SERIES * EACH + 1


_RAW = ("metrics", "big", "--metric", "gpu.utilization", "--raw")


def _metrics_command(server: ServerProcess, file: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "jobmeter", *_RAW, "--output", str(file), *more],
        env={**os.environ, "JOBMETER_SERVER": f"http://127.0.0.1:{server.port}", "JOBMETER_KEY": server.token},
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("size", [2**24 + 1, 30 * 2**20, 100 * 2**20])
def test_a_body_that_is_too_large_gets_its_answer(server: ServerProcess, size: int) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    url = f"http://127.0.0.1:{server.port}{API}/ingest"
    reply = urllib3.request("POST", url, body=b"x" * size, headers=headers, retries=False)
    assert (reply.status, reply.json()["error"]["field"]) == (413, "body")
    assert reply.headers["connection"] == "close"
    chunks = (b"x" * 2**16 for _ in range(size // 2**16 + 1))
    assert urllib3.request("POST", url, body=chunks, headers=headers, retries=False).status == 413
    if size <= 2 * 2**24:  # the server reads twice the limit, for clients that read only at the end
        assert server.call("POST", f"{API}/ingest", b"x" * size).status == 413


@needing("curl")
@pytest.mark.parametrize("options", [(), ("-H", "Expect:"), ("-H", "Transfer-Encoding: chunked")])
def test_curl_gets_the_answer_to_a_body_that_is_too_large(
    server: ServerProcess, tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"x" * 40 * 2**20)
    url = f"http://127.0.0.1:{server.port}{API}/ingest"
    credential = f"Authorization: Bearer {server.token}"
    result = subprocess.run(
        ["curl", "-sS", "-w", " %{http_code}", "--data-binary", f"@{file}", "-H", credential, *options, url],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.stdout.endswith(b" 413"), result.stderr
    assert b"limit_exceeded" in result.stdout
