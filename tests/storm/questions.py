"""Asks random questions, and compares each answer with the ledger."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.storm.ledger import METRIC, JobLedger, Report, Versions
from tests.storm.traffic import Client, Traffic
from tests.support.processes import API, Reply

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_AGGREGATES: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "count": len,
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "last": lambda values: values[-1],
}


@dataclass(frozen=True)
class Range:
    """Consecutive batches of a job, and their versions that were acknowledged before the question."""

    ledger: JobLedger
    first: int
    acknowledged: Versions

    @property
    def start(self) -> int:
        return self.ledger.shape.time_of(self.first)

    @property
    def end(self) -> int:
        return self.ledger.shape.time_of(self.first + len(self.acknowledged))

    def sent(self) -> Versions:
        """Return the versions that were sent until now."""
        return np.array(self.ledger.sent[self.first : self.first + len(self.acknowledged)])

    def times(self) -> Versions:
        return np.arange(self.start, self.end, self.ledger.shape.spacing_ms)


def choose_range(ledger: JobLedger, most: int, generator: random.Random) -> Range | None:
    """Choose at most that many batches, preferably the newest; None without an acknowledged batch."""
    count = len(ledger.acknowledged)
    if not count:
        return None
    length = generator.randint(1, min(most, count))
    first = count - length if generator.random() < 0.5 else generator.randint(0, count - length)
    return Range(ledger, first, np.array(ledger.acknowledged[first : first + length]))


def judge_values(asked: Range, sent: Versions, replica: int, values: NDArray[np.float64]) -> dict[str, int]:
    """Count wrong samples of a replica; NaN is a missing one.

    A sample is ``stale`` if it is older than the acknowledged version or missing, and ``invented`` if it was never
    sent.
    """
    points = asked.ledger.shape.points
    least, most = np.repeat(asked.acknowledged, points), np.repeat(sent, points)
    missing = np.isnan(values)
    versions = asked.ledger.shape.versions(asked.first, replica, np.where(missing, 0.0, values))
    versions[missing] = 0
    wrong = {"stale": (versions >= 0) & (versions < least), "invented": ((versions < 0) | (versions > most)) & ~missing}
    return {kind: int(found.sum()) for kind, found in wrong.items()}


def place_values(asked: Range, points: Sequence[Sequence[float]]) -> tuple[NDArray[np.float64], int]:
    """Return a value for each time of the range (NaN for none), and the number of points at other times."""
    times = asked.times()
    values = np.full(len(times), np.nan)
    odd = 0
    for time_ms, value in points:
        place, rest = divmod(int(time_ms) - asked.start, asked.ledger.shape.spacing_ms)
        if rest or not 0 <= place < len(times) or not np.isnan(values[place]):
            odd += 1
        else:
            values[place] = value
    return values, odd


class Reader(Traffic):
    """Asks random questions of random servers."""

    def __init__(
        self,
        ledgers: Sequence[JobLedger],
        client: Client,
        report: Report,
        rate: float,
        generator: random.Random,
    ) -> None:
        super().__init__(client, report)
        self._ledgers, self._rate, self._generator = ledgers, rate, generator
        self._kinds = (self._ask_samples, self._ask_lines, self._ask_aggregates, self._ask_latest, self._ask_promql)

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / self._rate, time.monotonic() - 1.0)
            self._generator.choice(self._kinds)(self._generator.choice(self._ledgers))

    def _ask(self, path: str, **query: Any) -> Reply | None:
        """Send a question. Return None if it is refused."""
        number = self._client.choose()
        self._report.count("questions asked")
        reply = self._client.call(number, "GET", path, **query)
        if reply.status == 200 and "x-jobmeter-damaged" not in reply.headers:
            self._report.answers.append(time.monotonic())
            self._report.count("questions answered")
            return reply
        self._report.count("questions refused" if reply.status else "questions unanswered")
        if reply.status == 404:
            self._report.note("stale", f"server {number} does not know {path}: {reply.body[:200]!r}")
        elif reply.status not in {0, 200, 429, 503}:
            self._report.note("odd refusals", f"server {number}, {path} {query}: {reply.status} {reply.body[:200]!r}")
        return None

    def _judge(self, what: str, asked: Range, wrong: dict[str, int]) -> None:
        for kind, count in wrong.items():
            if not count:
                continue
            where = f"{asked.ledger.job} batches {asked.first} to {asked.first + len(asked.acknowledged) - 1}"
            self._report.note(kind, f"{what} of {where}: {count}")

    def _range(self, ledger: JobLedger, most: int) -> Range | None:
        asked = choose_range(ledger, most, self._generator)
        return asked if asked is not None and asked.acknowledged.any() else None

    def _ask_samples(self, ledger: JobLedger) -> None:
        """Ask for the raw samples of all replicas."""
        asked = self._range(ledger, 6)
        if asked is None:
            return
        reply = self._ask(
            f"{API}/jobs/{ledger.job}/samples", format="csv", metric=METRIC, start=asked.start, end=asked.end
        )
        if reply is None:
            return
        sent = asked.sent()
        found: dict[str, list[tuple[int, float]]] = {}
        for line in reply.body.decode().splitlines()[1:]:
            time_ms, name, _, value = line.split(",")
            found.setdefault(name, []).append((int(time_ms), float(value)))
        for replica in range(ledger.shape.replicas):
            values, odd = place_values(asked, found.get(f"w{replica}", ()))
            wrong = judge_values(asked, sent, replica, values)
            self._judge("samples", asked, {**wrong, "doubled": odd})

    def _ask_lines(self, ledger: JobLedger) -> None:
        """Ask for the last value of each second of one replica."""
        asked = self._range(ledger, 6)
        if asked is None or ledger.shape.spacing_ms != 1_000:
            return
        replica = self._generator.randrange(ledger.shape.replicas)
        points = self._ask_metrics(asked, replica, "last", 1_000)
        if points is not None:
            values, odd = place_values(asked, points)
            wrong = judge_values(asked, asked.sent(), replica, values)
            self._judge("lines", asked, {**wrong, "doubled": odd})

    def _ask_metrics(self, asked: Range, replica: int, statistic: str, step: int) -> Sequence[tuple[int, float]] | None:
        reply = self._ask(
            f"{API}/jobs/{asked.ledger.job}/metrics", metric=METRIC, replica=f"w{replica}", by="replica",
            statistic=statistic, step=f"{step // 1_000}s", start=asked.start, end=asked.end,
        )  # fmt: skip
        if reply is None:
            return None
        return [(at, value) for line in reply.json()["lines"] for at, value in line["points"] if value is not None]

    def _ask_aggregates(self, ledger: JobLedger) -> None:
        """Ask for a statistic of minutes or hours. The answer is exact if nothing was in transit meanwhile."""
        asked = self._range(ledger, 100_000)
        if asked is None:
            return
        replica = self._generator.randrange(ledger.shape.replicas)
        statistic = self._generator.choice(sorted(_AGGREGATES))
        step = _HOUR_MS if asked.end - asked.start > 100 * _MINUTE_MS else _MINUTE_MS
        points = self._ask_metrics(asked, replica, statistic, step)
        sent = asked.sent()
        if points is None or (sent != asked.acknowledged).any():
            return
        buckets = asked.times() // step * step
        starts = np.flatnonzero(np.concatenate(([True], buckets[1:] != buckets[:-1])))
        values = ledger.shape.values(asked.first, replica, sent).astype(float)
        parts = np.split(values, starts[1:])
        expected = {int(buckets[at]): _AGGREGATES[statistic](part) for at, part in zip(starts, parts, strict=True)}
        self._report.count("questions compared exactly")
        found = dict(points)
        bad = [at for at in expected if not np.isclose(found.get(at, np.nan), expected[at], rtol=1e-12, atol=0)]
        if bad or len(points) != len(expected):
            first = bad[0] if bad else 0
            text = f"{statistic} of w{replica} by {step} ms from {asked.start} to {asked.end}: {len(bad)} of "
            text += f"{len(expected)} differ, first {first}: {found.get(first)} instead of {expected.get(first)}"
            self._report.note("wrong", f"{ledger.job} {text}")

    def _ask_latest(self, ledger: JobLedger) -> None:
        """Ask for the newest sample of each replica."""
        count = len(ledger.acknowledged)
        least = next((at for at in range(count - 1, -1, -1) if ledger.acknowledged[at]), None)
        if least is None:
            return
        reply = self._ask(f"{API}/jobs/{ledger.job}/latest", metric=METRIC)
        if reply is None:
            return
        newest = {one["replica"]: one["time"] for one in reply.json()["values"]}
        end = ledger.shape.time_of(least + 1) - ledger.shape.spacing_ms
        late = [name for name in (f"w{at}" for at in range(ledger.shape.replicas)) if newest.get(name, 0) < end]
        if late:
            self._report.note("stale", f"latest of {ledger.job}: {late} are older than {end}")

    def _ask_promql(self, ledger: JobLedger) -> None:
        """Count samples with PromQL."""
        asked = self._range(ledger, 6)
        if asked is None:
            return
        query = f'count_over_time(jobmeter_app_number{{job_id="{ledger.job}"}}[{asked.end - asked.start}ms])'
        # A PromQL range excludes its first moment and includes its last one.
        reply = self._ask("/prometheus/api/v1/query", query=query, time=(asked.end - ledger.shape.spacing_ms) / 1_000)
        if reply is None:
            return
        least = int((asked.acknowledged > 0).sum()) * ledger.shape.points
        counted = {one["metric"].get("replica"): int(one["value"][1]) for one in reply.json()["data"]["result"]}
        counts = [counted.get(f"w{replica}", 0) for replica in range(ledger.shape.replicas)]
        self._judge("PromQL", asked, {"stale": sum(count < least for count in counts)})
        self._judge("PromQL", asked, {"doubled": sum(count > len(asked.times()) for count in counts)})
