"""Tests of kill -9 during ingestion: every acknowledged sample is stored once."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.frames import row, samples
from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until

KILLS = 8
PER_REQUEST = 50


class Sender(threading.Thread):
    """Sends batches until the server ends, and records the acknowledged ones."""

    def __init__(self, server: ServerProcess, base: int, worker: int, first: int) -> None:
        super().__init__()
        self.server, self.base, self.worker, self.number = server, base, worker, first
        self.acknowledged: list[int] = []

    def run(self) -> None:
        while True:
            try:
                reply = self.server.ingest(batch(self.base, self.worker, self.number))
            except OSError:
                return
            except Exception:  # noqa: BLE001 - a torn answer (http.client has many kinds) is no acknowledgement
                return
            if reply.status == 200:
                self.acknowledged.append(self.number)
            self.number += 1


def batch(base: int, worker: int, number: int) -> bytes:
    """Return 50 unique samples, a second apart. The value encodes batch and position."""
    points = [(base + (number * PER_REQUEST + i) * 1000, number + i / 100) for i in range(PER_REQUEST)]
    return samples([row("app.number", points, job="crash", replica=f"worker-{worker}")])


@pytest.mark.slow
def test_every_acknowledged_sample_survives_kill_9_once(tmp_path: Path) -> None:
    generator = random.Random(11)
    base = int(time.time() * 1000) // 3_600_000 * 3_600_000 - 48 * 3_600_000
    server = ServerProcess(tmp_path / "data")
    acknowledged: dict[int, list[int]] = {0: [], 1: []}
    next_number = {0: 0, 1: 0}
    for _ in range(KILLS):
        server.start()
        senders = [Sender(server, base, worker, next_number[worker]) for worker in (0, 1)]
        for sender in senders:
            sender.start()
        enough = generator.randint(0, 40)
        wait_until(lambda: sum(len(one.acknowledged) for one in senders) >= enough)  # noqa: B023 - it is over by then
        server.kill()
        for sender in senders:
            sender.join()
            acknowledged[sender.worker] += sender.acknowledged
            # Resend the unanswered request together with the next batches, as an agent does.
            next_number[sender.worker] = sender.number
    server.start()
    try:
        assert sum(map(len, acknowledged.values())) > 0
        for worker, numbers in acknowledged.items():
            check(server, base, worker, numbers)
    finally:
        server.stop()


def check(server: ServerProcess, base: int, worker: int, numbers: list[int]) -> None:
    """Check that each acknowledged sample is stored once with its value."""
    first, end = (base + number * PER_REQUEST * 1000 for number in (min(numbers), max(numbers) + 1))
    span: dict[str, Any] = {"start": first, "end": end}
    found = {}
    for statistic in ("count", "last"):
        reply = server.call(
            "GET", f"{API}/jobs/crash/metrics", metric="app.number", step="1s", by="replica",
            replica=f"worker-{worker}", statistic=statistic, **span,
        )  # fmt: skip
        assert reply.status == 200, reply.body
        (line,) = reply.json()["lines"]
        found[statistic] = dict(map(tuple, line["points"]))
    for number in numbers:
        for i in range(PER_REQUEST):
            moment = base + (number * PER_REQUEST + i) * 1000
            assert found["count"].get(moment) == 1, (worker, number, i)
            assert found["last"][moment] == pytest.approx(number + i / 100)
