"""Compares answers of Prometheus and of our evaluator to random PromQL queries about random series.

``python -m tests.support.promql_random --queries 10000 --seed 7`` prints how many agree, and each query that does not.
"""

import argparse
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.install import program

from jobmeter.errors import InvalidRequestError
from jobmeter.model.special import STALE_CODE, decode_special
from jobmeter.promql.evaluate import evaluate
from jobmeter.promql.evaluation import Reader
from jobmeter.promql.parse import parse
from jobmeter.promql.values import Scalar, String
from tests.support.clusters import free_port
from tests.support.prometheus import HEADERS_1, request_1, snappy
from tests.support.promql_corpus import Memory, Series, equal
from tests.support.waiting import wait_until

START_MS = 1_700_000_000_000
LENGTH_MS = 3 * 3_600_000
COUNTERS, GAUGES = ("requests_total", "bytes_total"), ("temperature", "usage")
ARITHMETIC = ("abs", "ceil", "floor", "exp", "sqrt", "ln", "log2", "log10", "sgn", "sin", "rad")
DATES = ("hour", "minute", "day_of_week", "month", "day_of_year", "days_in_month")
STALE_NAN = float(decode_special(np.array([STALE_CODE]))[0])
LABELS = {"job": ("a", "b"), "node": ("n1", "n2", "n3"), "device": ("0", "1")}


def random_series(rng: random.Random, start_ms: int = START_MS, *, special: bool = False) -> Memory:
    """Return series with gaps, resets and repeated values; with ``special`` also NaN, infinities and stale markers."""
    memory = Memory()
    for name in (*COUNTERS, *GAUGES):
        for job in LABELS["job"]:
            for node in LABELS["node"]:
                for device in LABELS["device"]:
                    if rng.random() < 0.25:
                        continue
                    labels = {"__name__": name, "job": job, "node": node, "device": device}
                    if rng.random() < 0.2:
                        del labels["device"]
                    key = tuple(sorted(labels.items()))
                    series = memory.series[key] = _random_samples(rng, start_ms, counter=name in COUNTERS)
                    if special and rng.random() < 0.5:
                        _put_special(rng, series)
    _histogram(rng, memory, start_ms)
    return memory


def _put_special(rng: random.Random, series: Series) -> None:
    """Replace some samples by NaN, infinities or stale markers, and the last sample by a stale marker."""
    share = rng.choice((0.0, 0.002, 0.02, 0.2))
    for at in range(len(series.values)):
        if rng.random() < share:
            series.values[at] = rng.choice((math.nan, math.inf, -math.inf, STALE_NAN, STALE_NAN))
    series.values[-1] = STALE_NAN


def _random_samples(rng: random.Random, start_ms: int, *, counter: bool) -> Series:
    series = Series()
    interval = rng.choice((5_000, 15_000, 30_000, 60_000))
    value = rng.uniform(0, 1000)
    at = start_ms + rng.randrange(interval) + (rng.randrange(LENGTH_MS // 3) if rng.random() < 0.3 else 0)
    end = start_ms + LENGTH_MS - (rng.randrange(LENGTH_MS // 3) if rng.random() < 0.3 else 0)
    while at < end:
        if counter:
            value = value + rng.choice((0, 1, rng.uniform(0, 50))) if rng.random() > 0.01 else rng.uniform(0, 5)
        else:
            value = rng.choice((value, round(rng.gauss(0, 100), rng.randrange(4)), 0.0, -value or 0.0))
        series.times.append(at)
        series.values.append(value)
        at += interval if rng.random() > 0.02 else rng.randrange(interval, 10 * interval)
        if rng.random() < 0.5:
            at += rng.randrange(-40, 40)
    return series


def _histogram(rng: random.Random, memory: Memory, start_ms: int) -> None:
    for job in LABELS["job"]:
        times = list(range(start_ms + rng.randrange(15_000), start_ms + LENGTH_MS, 15_000))
        counts = np.zeros(6)
        rows = []
        for _ in times:
            counts = counts + np.array([rng.randrange(4) for _ in range(6)])
            rows.append(np.cumsum(counts))
        for at, bound in enumerate(("0.1", "0.5", "1.0", "5.0", "10.0", "+Inf")):
            key = tuple(sorted({"__name__": "latency_bucket", "job": job, "le": bound}.items()))
            memory.series[key] = Series(list(times), [float(row[at]) for row in rows])


class Queries:
    """Generator of random queries."""

    def __init__(self, rng: random.Random, start_ms: int = START_MS) -> None:
        self._rng = rng
        self._start_ms = start_ms

    def selector(self, names: tuple[str, ...] = (*COUNTERS, *GAUGES)) -> str:
        """Return an instant selector."""
        rng = self._rng
        matchers = []
        for label, values in LABELS.items():
            if rng.random() < 0.3:
                operator = rng.choice(("=", "!=", "=~", "!~"))
                value = rng.choice(values)
                if "~" in operator:
                    value = rng.choice((value, "|".join(rng.sample(values, 2)), f"{value[0]}.*", ".+", ""))
                matchers.append(f'{label}{operator}"{value}"')
        inner = "{" + ",".join(matchers) + "}" if matchers else ""
        return rng.choice(names) + inner

    def moved(self, text: str) -> str:
        """Return a selector, sometimes at another time."""
        rng = self._rng
        if rng.random() < 0.15:
            text += f" offset {rng.choice(('5m', '90s', '-1m', '1h'))}"
        if rng.random() < 0.1:
            text += rng.choice((" @ start()", " @ end()", f" @ {(self._start_ms + 5_000_000) / 1000:.3f}"))
        return text

    def range(self, names: tuple[str, ...] = (*COUNTERS, *GAUGES)) -> str:
        """Return a range selector."""
        rng = self._rng
        length = rng.choice(("1m", "5m", "7m30s", "1h", "45s", "5m7s"))
        if rng.random() < 0.15:
            inner = rng.choice((self.selector(names), f"rate({self.selector(COUNTERS)}[5m])", self.aggregation(1)))
            return self.moved(f"({inner})[{length}:{rng.choice(('', '30s', '1m', '17s'))}]")
        return self.moved(f"{self.selector(names)}[{length}]")

    def over_time(self) -> str:
        """Return a function of a range."""
        rng = self._rng
        counter = rng.choice(("rate", "increase", "irate", "resets", "changes"))
        gauge = rng.choice(("avg", "sum", "min", "max", "count", "last", "present", "stddev", "stdvar"))
        return rng.choice(
            (
                f"{counter}({self.range(COUNTERS)})",
                f"{gauge}_over_time({self.range()})",
                f"{rng.choice(('delta', 'idelta', 'deriv'))}({self.range(GAUGES)})",
                f"quantile_over_time({rng.choice((0, 0.25, 0.5, 0.9, 1, 1.5))}, {self.range()})",
                f"predict_linear({self.range(GAUGES)}, {rng.choice((60, 3600))})",
                f"absent_over_time({self.range()})",
            )
        )

    def aggregation(self, depth: int) -> str:
        """Return an aggregation."""
        rng = self._rng
        labels = ", ".join(rng.sample(tuple(LABELS), rng.randrange(3)))
        modifier = rng.choice(("", f" by ({labels})", f" without ({labels})"))
        inner = self.vector(depth - 1)
        operators = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "quantile")
        operator = rng.choice(operators)
        if rng.random() < 0.1:
            # Any of several equal values may be chosen. The sum shows that it was one of them.
            chosen = rng.choice(("topk", "bottomk"))
            return f"sum{modifier} ({chosen}{modifier} ({rng.randrange(1, 4)}, {inner}))"
        if operator == "quantile":
            return f"quantile{modifier} ({rng.choice((0.1, 0.5, 0.99))}, {inner})"
        return f"{operator}{modifier} ({inner})"

    def binary(self, depth: int) -> str:
        """Return a binary operation."""
        rng = self._rng
        left = self.vector(depth - 1)
        if rng.random() < 0.4:
            operator = rng.choice(("+", "-", "*", "/", "%", "^", ">", "<", ">=", "== bool", "!= bool", "atan2"))
            scalar = rng.choice(("2", "0", "-3.5", "0.1", "scalar(usage)", "time() / 1e9", "1e3"))
            return f"({left}) {operator} {scalar}" if rng.random() < 0.7 else f"{scalar} {operator} ({left})"
        labels = ", ".join(rng.sample(tuple(LABELS), rng.randrange(1, 4)))
        matching = rng.choice(("", f" on ({labels})", f" ignoring ({labels})"))
        if rng.random() < 0.35:
            return f"({left}) {rng.choice(('and', 'or', 'unless'))}{matching} ({self.vector(depth - 1)})"
        if matching and rng.random() < 0.4:
            matching += rng.choice((" group_left ()", " group_right ()", " group_left (device)"))
        operator = rng.choice(("+", "-", "*", "/", ">", "<=", "> bool", "!="))
        return f"({left}) {operator}{matching} ({self.vector(depth - 1)})"

    def function(self, depth: int) -> str:
        """Return a function of an instant vector."""
        rng = self._rng
        inner = self.vector(depth - 1)
        return rng.choice(
            (
                f"{rng.choice(ARITHMETIC)}({inner})",
                f"round({inner}, {rng.choice((0.1, 1, 5))})",
                f"clamp({inner}, {rng.choice((-10, 0))}, {rng.choice((5, 100, -20))})",
                f"clamp_min({inner}, 3)",
                f"clamp_max({inner}, 3)",
                f'label_replace({inner}, "{rng.choice(("x", "node"))}", "v-$1", "node", "n(.*)")',
                f'label_join({inner}, "y", "/", "job", "node")',
                f"absent({inner})",
                f"timestamp({inner})",
                f"vector({rng.choice(('1', 'time()', 'scalar(temperature)'))})",
                f"histogram_quantile({rng.choice((0.1, 0.5, 0.99, 1))}, sum by (le) (rate(latency_bucket[5m])))",
                f"histogram_quantile(0.9, rate(latency_bucket{{job!='{rng.choice('abc')}'}}[7m]))",
                f"{rng.choice(DATES)}(vector(time() * 7))",
                f"-({inner})",
            )
        )

    def vector(self, depth: int) -> str:
        """Return a query with a vector result."""
        rng = self._rng
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice((self.moved(self.selector()), self.over_time()))
        return rng.choice((self.aggregation, self.binary, self.function, lambda _: self.over_time()))(depth)

    def question(self) -> tuple[str, int, int, int]:
        """Return a query with its start, end and step in ms."""
        rng = self._rng
        query = self.vector(rng.randrange(1, 4))
        start = self._start_ms + rng.randrange(LENGTH_MS)
        step = rng.choice((15_000, 60_000, 47_000))
        return query, start, start + step * rng.choice((0, 1, 10, 37)), step


@contextmanager
def prometheus(memory: Memory, folder: Path) -> Iterator[str]:
    """Yield the address of a Prometheus that contains the series."""
    with started("global: {}\n", folder, "--web.enable-remote-write-receiver") as url:
        write(memory, f"{url}/api/v1/write")
        yield url


def write(memory: Memory, url: str, token: str = "") -> None:
    """Send the series by remote write, the series with the earliest sample first."""
    ordered = sorted(memory.series.items(), key=lambda pair: pair[1].times[0])
    rows = [(labels, list(zip(series.values, series.times, strict=True))) for labels, series in ordered]
    headers = {**HEADERS_1, "Authorization": f"Bearer {token}"} if token else HEADERS_1
    with urllib.request.urlopen(urllib.request.Request(url, snappy(request_1(rows)), headers)) as reply:
        assert reply.status == 204


@contextmanager
def started(configuration: str, folder: Path, *options: str) -> Iterator[str]:
    """Yield the address of a Prometheus with a configuration, options, and the samples in ``data`` of the folder."""
    (folder / "prometheus.yml").write_text(configuration)
    port = free_port()
    line = [
        str(program("prometheus")),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=20y",
        f"--web.listen-address=127.0.0.1:{port}",
        *options,
    ]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _ready(url))
        yield url
    finally:
        process.terminate()
        process.wait()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready") as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


Rows = dict[tuple[tuple[str, str], ...], dict[int, float]]


_FIXED_PREDICTION = re.compile(r"predict_linear\([a-z_]+(\{[^}]*\})?\[\w+\][^()]*@ ")
_MOVED_TIMESTAMP = re.compile(r"(timestamp\([a-z_]+(?:\{[^}]*\})?) offset (-?\d+)([smh]) @ ([\d.]+)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def ask(url: str, query: str, start: int, end: int, step: int, token: str = "") -> Rows | str:
    """Return a server's answer to a range query, or its error."""
    form = urllib.parse.urlencode({"query": query, "start": start / 1000, "end": end / 1000, "step": step / 1000})
    request = urllib.request.Request(f"{url}/api/v1/query_range", form.encode(), {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request) as reply:
            data = json.load(reply)["data"]
    except urllib.error.HTTPError as error:
        return str(json.load(error)["error"])
    return rows_of(data)


def theirs(url: str, query: str, start: int, end: int, step: int) -> Rows | str:
    """Return Prometheus' answer or error, with a workaround for two faults of Prometheus.

    Prometheus 2.42 loses samples of ``predict_linear`` at a fixed time from step to step, so each step is a separate
    query. Prometheus 3.5 returns no ``timestamp()`` of a selector with both an offset and a fixed time, so the offset
    is added to the time.
    """
    fixed = query.replace("@ start()", f"@ {start / 1000:.3f}").replace("@ end()", f"@ {end / 1000:.3f}")
    fixed, moved = _MOVED_TIMESTAMP.subn(_without_offset, fixed)
    if not (moved or _FIXED_PREDICTION.search(query)):
        return ask(url, query, start, end, step)
    rows: Rows = {}
    for time in range(start, end + 1, step):
        answer = ask(url, fixed, time, time, step)
        if isinstance(answer, str):
            return answer
        for labels, values in answer.items():
            rows.setdefault(labels, {}).update(values)
    return rows


def _without_offset(found: re.Match[str]) -> str:
    selector, offset, unit, time = found.groups()
    return f"{selector} @ {float(time) - int(offset) * _SECONDS[unit]:.3f}"


def rows_of(data: dict[str, Any]) -> Rows:
    """Return the rows of an answer by their labels."""
    return {
        tuple(sorted(row["metric"].items())): {round(time * 1000): float(value) for time, value in row["values"]}
        for row in data["result"]
    }


def ours(memory: Reader, query: str, start: int, end: int, step: int) -> Rows | str:
    """Return our answer or error."""
    times = np.arange(start, end + 1, step, dtype=np.int64)
    try:
        value = evaluate(parse(query), memory, times, step_ms=step).value
    except InvalidRequestError as error:
        return error.message
    if isinstance(value, Scalar):
        return {(): dict(zip(times.tolist(), value.values.tolist(), strict=True))}
    assert not isinstance(value, String)
    return {
        labels: dict(zip(times[present].tolist(), values[present].tolist(), strict=True))
        for labels, values, present in zip(value.labels, value.values, value.present, strict=True)
    }


def difference(one: Rows | str, other: Rows | str) -> str:
    """Describe the difference between two answers; empty without a difference."""
    if isinstance(one, str) or isinstance(other, str):
        return "" if isinstance(one, str) and isinstance(other, str) else f"{str(one)[:200]} / {str(other)[:200]}"
    if set(one) != set(other):
        return f"series {sorted(set(one) ^ set(other))[:4]}"
    for labels, values in one.items():
        if set(values) != set(other[labels]):
            return f"times of {labels}: {sorted(set(values) ^ set(other[labels]))[:4]}"
        for time, value in values.items():
            if not equal(value, other[labels][time]):
                return f"{labels} at {time}: {value} / {other[labels][time]}"
    return ""


def is_version_difference(one: Rows | str, other: Rows | str) -> bool:
    """Return True for a difference between Prometheus 3.5 and later versions. The later versions are right.

    Prometheus 3.5 accepts several matches on the left side if the comparison filters them out.
    """
    return not isinstance(one, str) and isinstance(other, str) and "many-to-one matching must be explicit" in other


def compare(seed: int, count: int, folder: Path) -> list[str]:
    """Return the differing queries, each with its difference."""
    rng = random.Random(seed)
    memory = random_series(rng, special=True)
    queries = Queries(rng)
    found = []
    with prometheus(memory, folder) as url:
        for _ in range(count):
            query, start, end, step = queries.question()
            one, other = theirs(url, query, start, end, step), ours(memory, query, start, end, step)
            differs = difference(one, other)
            if differs and not is_version_difference(one, other):
                found.append(f"{query}\n    from {start} to {end} by {step}: {differs}")
    return found


def main() -> int:
    """Print the differing queries and their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = compare(options.seed, options.queries, Path(folder))
    print("\n".join(found))
    print(f"seed {options.seed}: {options.queries - len(found)} of {options.queries} queries agree with Prometheus")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
