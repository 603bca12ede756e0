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
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import build_console, build_fitted_table, format_count, format_time
from jobmeter.cli.resource_columns import COLUMNS, SPARE, format_age, format_cells, load, read_newest
from jobmeter.client.api import Api
from jobmeter.client.searches import JobSearch
from jobmeter.errors import NotFoundError, UnavailableError
from jobmeter.model.finding import Finding, FindingSummary, Severity
from jobmeter.model.time import Clock, SystemClock, parse_duration

MOST_JOBS = 25
_HINT = "for sorting, sparklines and findings: pip install 'jobmeter[top]'"


@define_verb("jobmeter top", "jobmeter top last --once")
@click.argument("job", required=False, shell_complete=completion.complete_jobs)
@click.option("--interval", default="2s", show_default=True, metavar="DURATION", help="Time between two updates.")
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
    running = api.list_jobs(JobSearch(states=("Running",), project=project, limit=MOST_JOBS))
    now_ms = clock.now_ms()
    title = f"{format_time(now_ms)} UTC  {format_count(running.total, 'running job')}"
    if not running.jobs:
        return Group(title, "nothing runs now" if api.list_jobs(JobSearch(limit=1)).total else FIRST_STEP)
    used = [(job, read_newest(api, job)) for job in running.jobs]
    found = {(one.project, one.id): one for one in running.findings or () if one.open}
    critical = {key for key, one in found.items() if one.severity is Severity.CRITICAL}
    used.sort(key=lambda pair: ((pair[0].project, pair[0].id) in critical, load(pair[1])), reverse=True)
    if critical:
        title += f", {len(critical)} with critical findings"
    marks = [_mark(found.get((job.project, job.id))) for job, _ in used]
    heads = ("id", "name", *(("finding",) if any(marks) else ()), "user", "running")
    rows = [
        (job.id, job.name, *((mark,) if any(marks) else ()), job.user, format_age(job, now_ms), *format_cells(values))
        for mark, (job, values) in zip(marks, used, strict=True)
    ]
    lines = [
        Text(f"{job.id}: {format_summary(one, job.state)}", style=choose_summary_style(one, job.state))
        for job, _ in used
        if (one := found.get((job.project, job.id)))
    ]
    return Group(title, _table(heads, rows), *lines)


def _mark(one: FindingSummary | None) -> str:
    return f"{one.severity} {one.rules[0]}" if one and one.rules else ""


def _job(api: Api, job: str, project: str | None, clock: Clock) -> RenderableType:
    detail = api.read_job(job, project)
    values = api.read_latest(job, by="device", project=detail.job.project)
    now_ms = clock.now_ms()
    title = (
        f"{format_time(now_ms)} UTC  {detail.job.id} {detail.job.name}  {detail.job.state}  "
        f"{format_age(detail.job, now_ms)}"
    )
    if not values:
        return Group(title, "no measurements yet")
    found: Sequence[Finding] = ()
    with suppress(NotFoundError):  # a server of an older release has no findings
        found = api.list_findings(job, detail.job.project)
    named = rank_marked_replicas(found)
    values = sorted(values, key=lambda value: named.get(value.replica, len(named)))
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
    columns = [*heads, *(name for name, _ in COLUMNS)]
    shown = [at for at in range(len(columns)) if at < len(heads) or any(row[at] != "-" for row in rows)]
    return build_fitted_table(
        build_console().width,
        [columns[at] for at in shown],
        [[row[at] for at in shown] for row in rows],
        right=[name for name, _ in COLUMNS],
        spare=SPARE,
    )


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Wait for at most some seconds; True once q (or the end of input) was pressed."""
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
