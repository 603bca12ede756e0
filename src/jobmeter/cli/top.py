"""``jobmeter top``: shows the current usage of running jobs, or of the parts of one job."""

import importlib.util
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from jobmeter.cli import completion, local
from jobmeter.cli.findings import (
    choose_summary_style,
    format_headline,
    format_origin,
    format_summary,
    rank_marked_replicas,
)
from jobmeter.cli.jobs import FIRST_STEP
from jobmeter.cli.options import build_interval_option, define_verb
from jobmeter.cli.output import build_console, build_fitted_table, format_count, format_time
from jobmeter.cli.resource_columns import COLUMNS, SPARE, format_age, format_cells
from jobmeter.cli.screens.watch import WatchScreen
from jobmeter.client.api import Api
from jobmeter.client.searches import JobSearch
from jobmeter.errors import UnavailableError
from jobmeter.model.time import Clock, SystemClock, parse_duration

MOST_JOBS = 25
_HINT = "for sorting, sparklines and findings: pip install 'jobmeter[top]'"


@define_verb("jobmeter top", "jobmeter top last --once")
@click.argument("job", required=False, shell_complete=completion.complete_jobs)
@build_interval_option("2s", "Time between two updates.")
@click.option("--once", is_flag=True, help="Print one table and exit; the default without a terminal.")
@local.connection_options
def command(job: str | None, interval: str, once: bool, connection: local.LocalConnection) -> None:
    """Watch the usage of running jobs, or of the replicas and devices of JOB. Press q to leave.

    Usage of a job or a replica is the sum over its parts; of ratios and temperatures the mean. With the extra
    jobmeter[top] the view can be sorted and a job opened; its keys are shown at the bottom.
    """
    pause = parse_duration(interval, "--interval") / 1000
    clock = SystemClock()
    api, project = connection.open(), connection.project
    if job is not None:
        api, job, project = connection.find(job)
    if once or not sys.stdout.isatty():
        build_console().print(build_view(api, job, project, clock))
        return
    if sys.stdin.isatty() and importlib.util.find_spec("textual") is not None:
        from jobmeter.cli.screens.app import TopApp

        TopApp(api, clock, pause, project=project, job=job).run()
        return
    _tables(api, job, project, clock, pause)


def build_view(api: Api, job: str | None, project: str | None, clock: Clock) -> RenderableType:
    """Build one table: the running jobs, or the parts of one job."""
    return _jobs(api, project, clock) if job is None else _job(api, job, project, clock)


def _tables(api: Api, job: str | None, project: str | None, clock: Clock, pause: float) -> None:
    """Redraw the tables every interval, if Textual is not installed."""
    # Ctrl-C is the normal way to leave a live view, not a failure.
    with (
        suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(console=build_console(), screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_draw_view(api, job, project, clock), refresh=True)
            if pressed(pause):
                return


def _draw_view(api: Api, job: str | None, project: str | None, clock: Clock) -> RenderableType:
    try:
        return Group(build_view(api, job, project, clock), Text(f"\n{_HINT}", style="dim"))
    except UnavailableError as error:
        return f"{format_time(clock.now_ms())} UTC  {error.message}"


def _jobs(api: Api, project: str | None, clock: Clock) -> RenderableType:
    running = WatchScreen(api, clock, project).read_overview(running=True, most=MOST_JOBS, with_curves=False)
    now_ms = running.now_ms
    title = f"{format_time(now_ms)} UTC  {format_count(running.total, 'running job')}"
    if not running.jobs:
        return Group(title, "no running jobs" if api.list_jobs(JobSearch(limit=1)).total else FIRST_STEP)
    if critical := sum(one.is_critical for one in running.jobs):
        title += f", {critical} with critical findings"
    found = [(one, one.found if one.found and one.found.open else None) for one in running.jobs]
    marks = [f"{one.severity} {one.rules[0]}" if one and one.rules else "" for _, one in found]
    heads = ("id", "name", *(("finding",) if any(marks) else ()), "user", "running")
    rows = [
        (
            *(one.job.id, one.job.name, *((mark,) if any(marks) else ()), one.job.user),
            *(format_age(one.job, now_ms), *format_cells(one.values)),
        )
        for mark, one in zip(marks, running.jobs, strict=True)
    ]
    lines = [
        Text(f"{used.job.id}: {format_summary(one, used.job.state)}", style=choose_summary_style(one, used.job.state))
        for used, one in found
        if one
    ]
    return Group(title, _table(heads, rows), *lines)


def _job(api: Api, job: str, project: str | None, clock: Clock) -> RenderableType:
    watch = WatchScreen(api, clock, project)
    parts_of_job = watch.query_parts(job, project)
    shown, now_ms = parts_of_job.job, parts_of_job.now_ms
    title = f"{format_time(now_ms)} UTC  {shown.id} {shown.name}  {shown.state}  {format_age(shown, now_ms)}"
    if not parts_of_job.values:
        return Group(title, "no measurements yet")
    found = watch.query_findings(job, shown.project)
    named = rank_marked_replicas(found)
    values = sorted(parts_of_job.values, key=lambda value: named.get(value.replica, len(named)))
    replicas = list(dict.fromkeys(value.replica for value in values))
    rows = [(name, *format_cells([value for value in values if value.replica == name])) for name in replicas]
    lines = [Text.from_markup(f"{format_headline(one)} {format_origin(one)}") for one in found]
    parts: list[RenderableType] = [title, *lines, _table(("replica",), rows)]
    devices = list(dict.fromkeys((value.replica, value.node, value.device) for value in values if value.device))
    if devices:
        of_device = [
            (*key, *format_cells([value for value in values if (value.replica, value.node, value.device) == key]))
            for key in devices
        ]
        parts += ["", _table(("replica", "node", "device"), of_device)]
    return Group(*parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """Build the rows with the columns of usage, without columns that have no values."""
    used = [name for name, _ in COLUMNS]
    return build_fitted_table(build_console().width, [*heads, *used], rows, right=used, spare=SPARE, optional=used)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yield a call that waits for a number of seconds at most, and returns True once q or the end of input came."""
    if not sys.stdin.isatty():
        yield lambda seconds: bool(select.select([], [], [], seconds)[0])
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield _await_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _await_key(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    try:
        return bool(ready) and sys.stdin.read(1) in {"q", "Q", ""}
    except OSError:
        return True  # the terminal is gone
