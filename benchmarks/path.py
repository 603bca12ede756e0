"""Paths of a frame and of a query through the running program: modules entered, and the longest chain of calls.

``python -m benchmarks.path`` sends both through the whole application, with the embedded engine in a temporary folder,
and traces the calls of the package's functions on every thread. The HTTP server and its sockets are left out. The
table also has the counts of ``benchmarks.sources``, and the aim of each row.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.asgi import Reply, send

from benchmarks import sources
from jobmeter.access.keys import create_key
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.model.time import SECOND, Clock, SystemClock
from jobmeter.server.app import Application, build
from jobmeter.settings import Settings
from jobmeter.wire.native.encode import make_samples_frame

PACKAGE = "jobmeter."
DEVICES, INTERVAL_MS, SPAN_MS = 8, 15 * SECOND, 3_600 * SECOND
FRAMES = "application/vnd.jobmeter.frames"
NATIVE = "/api/jobmeter/v1/jobs/j1/metrics?metric=gpu.utilization&since=1h&step=5m&by=device"
GET_JOB_METRICS = "/api/v1/jobs/j1/metrics?MetricType=GpuCoreUsage&TimeStep=5m"


@dataclass
class Trace:
    """Path of one request: its modules in the order of their first call, and its longest chain of modules."""

    name: str
    modules: dict[str, None] = field(default_factory=dict)
    chain: tuple[str, ...] = ()

    @property
    def hops(self) -> int:
        """Return the number of modules in the longest chain of nested calls."""
        return len(self.chain)


class Tracer:
    """Tracer of calls on this thread, and on every thread that starts later, while ``watch`` runs."""

    def __init__(self) -> None:
        self._trace: Trace | None = None
        self._stacks = threading.local()
        self._lock = threading.Lock()
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    @contextmanager
    def watch(self, name: str) -> Iterator[Trace]:
        """Record calls until the end of the block."""
        self._trace = trace = Trace(name)
        try:
            yield trace
        finally:
            self._trace = None

    def stop(self) -> None:
        """Stop tracing."""
        threading.setprofile(None)
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        trace = self._trace
        if trace is None or event not in {"call", "return"}:
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(PACKAGE):
            return
        stack: list[str] = self._stacks.__dict__.setdefault(trace.name, [])
        if event == "return":
            if stack:
                stack.pop()
            return
        stack.append(module)
        with self._lock:
            trace.modules[module] = None
            chain = _hops(stack)
            if len(chain) > len(trace.chain):
                trace.chain = chain


def _hops(stack: list[str]) -> tuple[str, ...]:
    """Return the modules of a stack of calls. Calls within a module count once."""
    return tuple(module for place, module in enumerate(stack) if place == 0 or stack[place - 1] != module)


def _frame(now_ms: int, points: int) -> bytes:
    """Return a frame with ``points`` samples of each of eight devices, the last one interval before ``now_ms``."""
    series = [
        Series("gpu.utilization", job="j1", replica="worker-0", node="n1", device=f"gpu{device}")
        for device in range(DEVICES)
    ]
    return make_samples_frame(
        [Sample(one, now_ms - back * INTERVAL_MS, 0.5) for one in series for back in range(points, 0, -1)]
    )


def measure(folder: Path, clock: Clock) -> list[Trace]:
    """Return the paths of a frame, of a live query and of GetJobMetrics, each with warm caches."""
    tracer = Tracer()
    application = build(Settings(data=folder), clock)
    try:
        return asyncio.run(_all(application, tracer, clock))
    finally:
        tracer.stop()
        application.close()


async def _all(application: Application, tracer: Tracer, clock: Clock) -> list[Trace]:
    services = application.services
    key = create_key(services.registry, services.vault, clock, "path", "admin", None)
    credential = {"Authorization": f"Bearer {key.token}"}

    async def ingest(body: bytes) -> Reply:
        headers = {**credential, "Content-Type": FRAMES, "Content-Length": str(len(body))}
        return await send(application.edge, "POST", "/api/jobmeter/v1/ingest", body, headers)

    def newest() -> Coroutine[Any, Any, Reply]:
        return ingest(_frame(clock.now_ms(), 1))

    def asking(target: str) -> Callable[[], Coroutine[Any, Any, Reply]]:
        return lambda: send(application.edge, "GET", target, b"", credential)

    requests = {"a frame": newest, "a live question": asking(NATIVE), "GetJobMetrics": asking(GET_JOB_METRICS)}
    await ingest(_frame(clock.now_ms(), SPAN_MS // INTERVAL_MS))
    return [await _traced(tracer, name, request) for name, request in requests.items()]


async def _traced(tracer: Tracer, name: str, request: Callable[[], Coroutine[Any, Any, Reply]]) -> Trace:
    """Return the path of a request after it was sent three times. Raises SystemExit unless the status is 200."""
    for _ in range(3):
        await request()
    warm = request()
    with tracer.watch(name) as trace:
        reply = await warm
    if reply.status != 200:
        raise SystemExit(f"{name}: {reply.status} {reply.body.decode()}")
    return trace


def main() -> None:
    """Print the table and its lists, or all of them as JSON."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--modules", action="store_true", help="name every module and the chains too")
    arguments.add_argument("--json", action="store_true", help="all of it as JSON")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = measure(Path(folder) / "data", SystemClock())
    rows = table(traces)
    if chosen.json:
        document = {
            "requests": [{"name": one.name, "modules": [*one.modules], "chain": one.chain} for one in traces],
            "rows": [{"name": name, "measured": measured, "aim": aim} for name, measured, aim in rows],
            "private_words": sources.private_words(),
            "twins": sources.twins(),
            "states": [one.name for one in sources.states()],
            "states_on_the_paths": on_the_paths(traces),
        }
        print(json.dumps(document, indent=1))
        return
    _print(rows, traces, modules=chosen.modules)


Row = tuple[str, str, str]


def table(traces: list[Trace]) -> list[Row]:
    """Return the rows of the table: name, figure and aim."""
    by_name = {one.name: one for one in traces}
    frame, question, vendors = (by_name[name] for name in ("a frame", "a live question", "GetJobMetrics"))
    return [
        ("modules entered by a frame / longest chain", f"{len(frame.modules)} / {frame.hops}", "35 / 8"),
        (
            "modules entered by GetJobMetrics, warm / longest chain",
            f"{len(vendors.modules)} / {vendors.hops}",
            "30 / 9",
        ),
        ("modules entered by a live question / longest chain", f"{len(question.modules)} / {question.hops}", "-"),
        ("objects that outlive a request, on these paths", str(len(on_the_paths(traces))), "12"),
        ("objects that outlive a request, in all", str(len(sources.states())), "-"),
        ("modules with a way of their own not to wait", str(len(sources.twins())), "1"),
        ("private words in names", str(sources.private_words().total()), "0"),
        ("page that shows the way of the data", "one" if sources.PAGE.is_file() else "none", "one"),
    ]


def on_the_paths(traces: list[Trace]) -> list[str]:
    """Return the objects that outlive a request and belong to a module that one of the requests enters."""
    entered = {module for one in traces for module in one.modules}
    return [state.name for state in sources.states() if state.entered_by(entered)]


def _print(rows: list[Row], traces: list[Trace], *, modules: bool) -> None:
    width = max(len(name) for name, _, _ in rows)
    print(f"{'':{width}} {'measured':>10} {'aim':>8}")
    for name, measured, aim in rows:
        print(f"{name:{width}} {measured:>10} {aim:>8}")
    print(
        "\nprivate words:",
        ", ".join(f"{word} {count}" for word, count in sources.private_words().most_common()) or "none",
    )
    print("not to wait:", ", ".join(sources.twins()) or "none")
    print("outlive a request, on these paths:", "; ".join(on_the_paths(traces)) or "none")
    for one in traces if modules else ():
        print(f"\n{one.name}")
        print("  modules:", ", ".join(sorted(module.removeprefix(PACKAGE) for module in one.modules)))
        print("  chain:  ", " > ".join(module.removeprefix(PACKAGE) for module in one.chain))


if __name__ == "__main__":
    main()
