"""``python -m benchmarks.page``: speed and size of the page in Chromium, and cost of its viewers.

A temporary server has a running job of 128 ranks with 24 hours of samples: six metrics, a sample every 15 s. The first
figures are the times from opening the job's page with an empty browser cache to its first chart. The browser's trace
shows the frames that are dropped while zooming, pointing and scrolling through a long list. Further figures are the
size of the page, and the cost of 100 viewers of the live job beside the cost of one viewer. CPU times stand beside
elapsed times, because only CPU times are comparable on a machine with other load. The run takes five minutes.
"""

import argparse
import gzip
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.page import browser, data
from benchmarks.page.trace import FRAME_MS
from benchmarks.page.viewers import Watched, rounds
from benchmarks.processes import exit_on_sigterm
from jobmeter.client.searches import MetricSearch
from jobmeter.examples.server import OwnServer, run_server
from jobmeter.model.time import HOUR, SystemClock
from jobmeter.server.pages import FOLDER, read_files

FIRST_CHART_MS = 1_000.0
WEIGHT = 300_000
DROPPED = 0.01
"""Share of frames that the page may drop more than an empty page: a busy machine drops frames of every page."""
MANY_BESIDE_ONE = 2.0
"""Highest allowed cost of 100 viewers, as a multiple of the cost of one viewer."""
PLACE = f"#/jobs/{data.JOB}"
COUNTS = (0, 1, 100)
_ROLLED_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Figure:
    """Line of the printed table; ``met`` is None for a line that only explains the line before."""

    name: str
    text: str
    bar: str = ""
    met: bool | None = None


def first_charts(visitor: browser.Visitor, hours: int, runs: int) -> list[Figure]:
    """Measure the time to the first chart for the page's default range, and for the last ``hours``.

    Each range is opened ``runs`` times.
    """
    now = SystemClock().now_ms()
    views = {"the last hour": PLACE, f"{hours} h": f"{PLACE}?from={now - hours * HOUR}&to={now}"}
    opened = [{name: visitor.open(place) for name, place in views.items()} for _ in range(runs)]
    found = []
    for name in views:
        some = [one[name] for one in opened]
        ms, page, server = (
            statistics.median(getattr(one, of) for one in some) for of in ("ms", "page_ms", "server_ms")
        )
        worst = max(one.ms for one in some)
        cost = f"CPU until then: page {page:.0f} ms, server {server:.0f} ms; questions begun: {some[0].asked}"
        met = ms <= FIRST_CHART_MS
        found.append(
            Figure(f"first chart, {name}", f"{ms:.0f} ms (at most {worst:.0f})", f"{FIRST_CHART_MS:.0f} ms", met)
        )
        found.append(Figure("", cost))
    return found


def moved(name: str, both: tuple[browser.Moved, browser.Moved], events: int = 0, over: int = 0) -> list[Figure]:
    """Return the figures of a movement: dropped frames, beside an empty page's, and the CPU time of tasks.

    ``events`` is the number of pointer movements, ``over`` the number of tasks that may last longer than a frame.
    """
    of, empty = both
    if not of.frames.shown or not empty.frames.shown:
        return [Figure(name, "the browser's trace has no frame", f"{DROPPED:.0%}", met=False)]
    share, floor, tasks = of.frames.share, empty.frames.share, of.tasks
    dropped = f"{of.frames.dropped} of {of.frames.shown + of.frames.dropped} frames dropped ({share:.1%})"
    text = f"{dropped}; an empty page with a moving line drops {floor:.1%}"
    rest = f"; {tasks.total / events:.1f} ms a move of the pointer" if events else ""
    busy = f"longest task {tasks.longest:.1f} ms of CPU, {tasks.over} over a frame's {FRAME_MS:.1f} ms{rest}"
    return [
        Figure(name, text, f"{floor + DROPPED:.1%}", share <= floor + DROPPED),
        Figure("", busy, f"{over} over", tasks.over <= over),
    ]


def weight() -> Figure:
    """Return the size of all files of the page, compressed with gzip."""
    size = sum(len(gzip.compress(file.forms[""], 9)) for file in read_files(FOLDER).values())
    return Figure("page, all files in gzip", f"{size / 1000:.1f} kB", f"{WEIGHT / 1000:.0f} kB", size <= WEIGHT)


def viewers(some: Sequence[Sequence[Watched]]) -> list[Figure]:
    """Return the cost of viewers: the lowest CPU time of a round with viewers, minus the lowest one without viewers."""
    none, one, many = (min(row[at].cpu for row in some) for at in range(len(COUNTS)))
    single, hundred = one - none, many - none
    least = min(row[2].updates for row in some)
    size = statistics.median(row[2].size / max(row[2].updates, 1) for row in some)
    met = single > 0 and hundred <= MANY_BESIDE_ONE * single
    text = f"{hundred:.1f} ms of CPU a second, one costs {single:.1f}"
    levels = f"server in all: {none:.1f} with none, {one:.1f} with one, {many:.1f} with {COUNTS[2]}, samples arriving"
    reached = f"each viewer had at least {least} updates of {size / 1000:.0f} kB in a round"
    bar = f"{MANY_BESIDE_ONE:.0f} times"
    return [Figure(f"{COUNTS[2]} viewers of a live job", text, bar, met), Figure("", levels), Figure("", reached)]


def wait_for_roll_ups(server: OwnServer, hours: int) -> None:
    """Wait until the job's samples are rolled up, as they are for a job that ran for a day.

    Raises RuntimeError after two minutes.
    """
    end = SystemClock().now_ms()
    deadline = time.monotonic() + _ROLLED_SECONDS
    while time.monotonic() < deadline:
        end -= 1
        search = MetricSearch(metrics=("cpu.usage",), start=end - hours * HOUR, end=end, by="job", step="10m")
        if "minute" in server.api.read_metrics(data.JOB, search).tiers:
            return
        time.sleep(1)
    raise RuntimeError("the samples were not rolled up")


def measure(options: argparse.Namespace) -> Iterator[list[Figure]]:
    """Yield the figures of each measurement, in the order of the table."""
    with run_server() as server:
        data.fill_job(server, options.hours)
        wait_for_roll_ups(server, options.hours)
        with data.feeding(server):
            with browser.visiting(server) as visitor:
                yield first_charts(visitor, options.hours, options.runs)
                yield moved("pointing at a chart", visitor.move(PLACE, browser.CHART, browser.hover), browser.HOVERS)
                yield moved("zooming all charts", visitor.move(PLACE, browser.CHART, browser.zoom), over=browser.ZOOMS)
                address = visitor.live_address(PLACE)
            yield viewers(list(rounds(server, address, COUNTS, options.seconds, options.rounds)))
        data.fill_list(server, options.jobs)
        with browser.visiting(server) as visitor:
            yield moved(f"scrolling {options.jobs:,} jobs", visitor.move("#/", ".rows .row[data-at]", browser.scroll))
    yield [weight()]


def shown(found: Sequence[Figure]) -> str:
    """Return the figures as text: a line for each, with its bar and verdict."""
    lines = []
    for one in found:
        verdict = "" if one.met is None else "met" if one.met else "NOT MET"
        bar = f"at most {one.bar}" if one.bar else ""
        lines.append(f"{one.name:26}  {one.text:92}  {bar:16}  {verdict}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """Measure the page and print the figures. Exits with a message without Chromium or a built page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--hours", type=int, default=24, help="how long the job has run")
    parser.add_argument("--jobs", type=int, default=100_000, help="how long the list is")
    parser.add_argument("--runs", type=int, default=5, help="how often each page is opened")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long the viewers of a round look")
    parser.add_argument("--rounds", type=int, default=3, help="how often viewers are counted")
    options = parser.parse_args()
    if shutil.which("chromium") is None:
        sys.exit("chromium is not installed: make programs")
    if not read_files(FOLDER):
        sys.exit("the page is not built: make page")
    exit_on_sigterm()
    for found in measure(options):
        print(shown(found), flush=True)


if __name__ == "__main__":
    main()
