"""Tests of the usage reports of two real servers on one PostgreSQL registry, one of them killed, against counts."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import urllib3

from jobmeter.cli.local import await_server
from jobmeter.examples.server import stop
from tests.e2e.conftest import start
from tests.support.postgresql import fresh_database, own_server
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
THREADS, CALLS = 6, 40
PATHS = (
    ("/jobs", "listJobs", 200),
    ("/jobs/none", "getJob", 404),
    ("/status", "status", 403),
    ("/jobs?x=1", "listJobs", 400),
)
USER = "/api/PaiStudio/2022-01-12/GetUserViewMetrics?ResourceGroupID=rg&PageNumber=1&PageSize=10"


def _limited(secret: str) -> dict[str, str]:
    return {"JOBMETER_RATE_LIMITS": "GetUserViewMetrics=1:3/account", "JOBMETER_SECRET_KEY_FILE": secret}


class Server:
    """Server with its own folder on a shared registry."""

    def __init__(self, data: Path, registry: str, secret: str = "") -> None:
        self.data, self._registry, self._secret = data, registry, secret
        data.mkdir(mode=0o700, exist_ok=True)
        self.run()

    def run(self) -> None:
        log = self.data / "server.log"
        command = [sys.executable, "-m", "jobmeter", "serve", "--data", str(self.data), "--port", "0"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--registry", self._registry], stdout=output, stderr=output,
                env={**os.environ, **_limited(self._secret)},
            )  # fmt: skip
        self.url = await_server(self.process, self.data, log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        (self.data / "server.json").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server, str]]:
    folder = tmp_path_factory.mktemp("usage")
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(stack.enter_context(own_server()).url))
        first = Server(folder / "first", url)
        stack.callback(lambda: stop(first.process))
        second = Server(folder / "second", url, str(first.data / "secret.key"))
        stack.callback(lambda: stop(second.process))
        made = start("key", "create", "--name", "team", "--role", "reader", "--project", "team-a", "--json",
                     JOBMETER_DATA=str(first.data), JOBMETER_REGISTRY=url)  # fmt: skip
        assert made.status == 0, made.err
        yield first, second, json.loads(made.out)["token"]


def burst(servers: tuple[Server, ...], token: str, expected: Counter[tuple[str, bool]]) -> None:
    """Call every server from many threads, and count the answers."""
    lock = threading.Lock()

    def work(number: int) -> None:
        pool = urllib3.PoolManager(headers={"Authorization": f"Bearer {token}"}, retries=False)
        for turn in range(CALLS):
            server = servers[(number + turn) % len(servers)]
            path, operation, status = PATHS[(number * 7 + turn) % len(PATHS)]
            reply = pool.request("GET", f"{server.url}/api/jobmeter/v1{path}")
            assert reply.status == status
            with lock:
                expected[operation, status >= 400] += 1
            if turn % 8 == 0:
                reply = pool.request("GET", server.url + USER)
                assert reply.status in {404, 429}
                with lock:
                    expected["GetUserViewMetrics", True] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def reported(server: Server, token: str) -> Counter[tuple[str, bool]]:
    """Return the usage that a server reports, without the calls that read it."""
    reply = urllib3.request("GET", f"{server.url}/api/jobmeter/v1/usage", headers={"Authorization": f"Bearer {token}"})
    found: Counter[tuple[str, bool]] = Counter()
    for row in reply.json()["usage"]:
        assert row["account"] == "team-a"
        if row["operation"] != "getUsage":
            found[row["operation"], False] += row["calls"] - row["failed"]
            found[row["operation"], True] += row["failed"]
    return +found


def test_two_servers_add_up_and_a_kill_loses_nothing_that_was_flushed(servers: tuple[Server, Server, str]) -> None:
    first, second, token = servers
    expected: Counter[tuple[str, bool]] = Counter()
    burst((first, second), token, expected)
    # The second server learns of the first one's calls only from the registry.
    wait_until(lambda: reported(second, token) == expected, "the first server's calls in the registry")
    first.kill()
    first.run()
    assert reported(first, token) == expected
    burst((first, second), token, expected)
    wait_until(lambda: reported(second, token) == expected, "the calls of both servers after the kill")
    wait_until(lambda: reported(first, token) == expected, "the same by the other one")


def test_the_verb_fits_a_terminal_and_gives_programs_everything(servers: tuple[Server, Server, str]) -> None:
    first, _, token = servers
    reach = {"JOBMETER_SERVER": first.url, "JOBMETER_KEY": token}
    urllib3.request("GET", first.url + USER, headers={"Authorization": f"Bearer {token}"})
    terminal = Terminal(80, 24, "usage", **reach)
    terminal.read()
    assert terminal.close() == 0
    shown = terminal.lines
    assert all(len(line) <= 80 for line in shown)
    assert "in Asia/Shanghai, in CNY" in shown[0]
    assert any("GetUserViewMetrics" in line and " 9" in line for line in shown), shown
    report = json.loads(start("usage", "--format", "json", **reach).out)
    row = next(one for one in report["usage"] if one["operation"] == "GetUserViewMetrics")
    assert row["free"] == 1000
    assert row["free_left"] == 1000 - row["calls"]
    assert row["unit_price"] == "0.001"
    lines = start("usage", "--format", "csv", **reach).out.splitlines()
    assert lines[0] == "month,account,api,operation,calls,failed,pricing,free,free_left,unit_price,cost"
    assert any(line.startswith(f"{report['month']},team-a,pai-studio,GetUserViewMetrics,") for line in lines)
    none = start("usage", "--month", "2001-01", **reach)
    assert none.out == "2001-01 in Asia/Shanghai, in CNY\nno calls in this month\n"
    wrong = start("usage", "--month", "2001-1", **reach)
    assert (wrong.status, wrong.out) == (1, "")
    assert "2001-1" in wrong.err
