"""Writers that check each answer of several servers, and the servers' roles."""

import threading
from typing import Any

from tests.e2e.test_several_servers import Servers
from tests.support.frames import row, samples
from tests.support.processes import API, ServerProcess

LEADS, FOLLOWS = "this server leads", "this server follows"


class Writer(threading.Thread):
    """Sends samples to one server after another, a new one each time, and asks the next server for each at once."""

    def __init__(self, several: Servers, base: int, number: int) -> None:
        super().__init__()
        self.several, self.base, self.number = several, base, number
        self.acknowledged: set[int] = set()
        self.stale: list[tuple[object, object]] = []
        self.answers = 0
        self.over = threading.Event()

    def run(self) -> None:
        at = 0
        while not self.over.is_set():
            at += 1
            body = samples([row("app.number", [(self.base + at * 1000, float(at))], job="crash", replica=self.replica)])
            if self.send(at, body) == 200:
                self.acknowledged.add(at)
                self._look(at)
            self.write_more(at)

    def write_more(self, at: int) -> None:
        """Send other data than samples, and look at them."""

    @property
    def replica(self) -> str:
        return f"worker-{self.number}"

    def send(self, at: int, body: bytes) -> int:
        server = self.several.all[(at + self.number) % 3]
        headers = {"Content-Type": "application/vnd.jobmeter.frames"}
        try:
            return server.call("POST", f"{API}/ingest", body, headers, seconds=5.0).status
        except (OSError, ValueError, AssertionError):
            return 0
        except Exception:  # noqa: BLE001 - a torn answer (http.client has many kinds) is no acknowledgement
            return 0

    def find_reader(self, at: int) -> ServerProcess:
        """Return the server to ask after a write."""
        return self.several.all[(at + self.number + 1) % 3]

    def _look(self, at: int) -> None:
        server = self.find_reader(at)
        try:
            found = values(server, self.replica, self.base + at * 1000, 1, seconds=5.0)
        except Exception:  # noqa: BLE001 - as above
            return
        if found is not None:
            self.answers += 1
            if found != {at: float(at)} and found != {0: float(at)}:
                self.stale.append((at, len(found)))


def values(
    server: ServerProcess, replica: str, start: int, count: int, seconds: float = 60.0
) -> dict[int, float] | None:
    """Return the samples of a replica by their number in the span; None if the server refuses to answer."""
    query: dict[str, Any] = {
        "metric": "app.number",
        "replica": replica,
        "start": start,
        "end": start + count * 1000,
        "step": "1s",
        "statistic": "last",
    }
    reply = server.call("GET", f"{API}/jobs/crash/metrics", seconds=seconds, **query)
    if reply.status != 200:
        return None
    points = [point for line in reply.json()["lines"] for point in line["points"]]
    return {(time_ms - start) // 1000: value for time_ms, value in points if value is not None}


def role_of(server: ServerProcess) -> str:
    """Return the last role that a server has logged."""
    lines = [line for line in server.output().splitlines() if LEADS in line or FOLLOWS in line]
    return LEADS if lines and LEADS in lines[-1] else FOLLOWS


def leader_of(several: Servers) -> ServerProcess:
    return next(one for one in several.all if role_of(one) == LEADS)
