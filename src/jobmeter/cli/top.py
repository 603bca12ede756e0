"""``jobmeter top``: what running jobs, or the parts of one job, use right now."""

import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import click
from rich.console import Group, RenderableType
from rich.live import Live

from jobmeter.cli import completion, local
from jobmeter.cli.jobs import FIRST_STEP
from jobmeter.cli.listing import fitted
from jobmeter.cli.output import console, counted, duration, moment, quantity
from jobmeter.client.api import Api, JobSearch, LatestValue
from jobmeter.errors import NotFoundError, UnavailableError
from jobmeter.model import catalog
from jobmeter.model.job import Job
from jobmeter.model.time import Clock, SystemClock, parse_duration

MOST_JOBS = 25

_COLUMNS = (
    ("cpu", "cpu.usage"),
    ("memory", "memory.usage"),
    ("net in", "network.receive"),
    ("net out", "network.transmit"),
    ("disk read", "disk.read"),
    ("disk write", "disk.write"),
    ("gpu", "gpu.utilization"),
    ("gpu memory", "gpu.memory.usage"),
    ("power", "gpu.power"),
    ("npu", "npu.utilization"),
    ("npu memory", "npu.memory.usage"),
)
_SPARE = ("user", "node", "disk read", "net in", "disk write", "net out", "power", "npu memory", "gpu memory", "name")
"""What a narrow terminal shows no column of, in this order."""


@click.command(short_help="Watch jobs, or one job, live.")
@click.argument("job", required=False, shell_complete=completion.jobs)
@click.option("--interval", default="2s", show_default=True, metavar="LENGTH", help="How often to look.")
@click.option("--once", is_flag=True, help="Print one table and leave; so it is, too, without a terminal.")
@local.connection_options
def command(job: str | None, interval: str, once: bool, connection: local.Connection) -> None:
    """Watch the running jobs by what they use, or the replicas and devices of JOB. q leaves.

    What a job or a replica uses is that of its parts together, of a ratio or a temperature their mean.
    """
    pause = parse_duration(interval, "--interval") / 1000
    clock = SystemClock()
    api, project = connection.open(), connection.project
    if job is not None:
        api, job, project = connection.find(job)
    if once or not sys.stdout.isatty():
        console().print(view(api, job, project, clock))
        return
    # Interrupting is how one leaves a live view: it is no failure.
    with (
        suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(console=console(), screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_shown(api, job, project, clock), refresh=True)
            if pressed(pause):
                return


def view(api: Api, job: str | None, project: str | None, clock: Clock) -> RenderableType:
    """One look: the running jobs, or the parts of one job."""
    return _jobs(api, project, clock) if job is None else _job(api, job, project, clock)


def _shown(api: Api, job: str | None, project: str | None, clock: Clock) -> RenderableType:
    try:
        return view(api, job, project, clock)
    except UnavailableError as error:
        return f"{moment(clock.now_ms())} UTC  {error.message}"


def _jobs(api: Api, project: str | None, clock: Clock) -> RenderableType:
    running = api.jobs(JobSearch(states=("Running",), project=project, limit=MOST_JOBS))
    now_ms = clock.now_ms()
    title = f"{moment(now_ms)} UTC  {counted(running.total, 'running job')}"
    if not running.jobs:
        return Group(title, "nothing runs now" if api.jobs(JobSearch(limit=1)).total else FIRST_STEP)
    used = [(job, _latest(api, job)) for job in running.jobs]
    used.sort(key=lambda pair: (_joined(pair[1], "gpu.utilization")[0], _joined(pair[1], "cpu.usage")[0]), reverse=True)
    rows = [(job.id, job.name, job.user, _age(job, now_ms), *_cells(values)) for job, values in used]
    return Group(title, _table(("id", "name", "user", "running"), rows))


def _latest(api: Api, job: Job) -> list[LatestValue]:
    try:
        return api.latest(job.id, by="device", project=job.project)
    except NotFoundError:
        return []


def _job(api: Api, job: str, project: str | None, clock: Clock) -> RenderableType:
    detail = api.job(job, project)
    values = api.latest(job, by="device", project=detail.job.project)
    now_ms = clock.now_ms()
    title = f"{moment(now_ms)} UTC  {detail.job.id} {detail.job.name}  {detail.job.state}  {_age(detail.job, now_ms)}"
    if not values:
        return Group(title, "nothing was measured yet")
    replicas = list(dict.fromkeys(value.replica for value in values))
    rows = [(name, *_cells([value for value in values if value.replica == name])) for name in replicas]
    parts: list[RenderableType] = [title, _table(("replica",), rows)]
    devices = list(dict.fromkeys((value.replica, value.node, value.device) for value in values if value.device))
    if devices:
        of_device = [
            (*key, *_cells([value for value in values if (value.replica, value.node, value.device) == key]))
            for key in devices
        ]
        parts += ["", _table(("replica", "node", "device"), of_device)]
    return Group(*parts)


def _age(job: Job, now_ms: int) -> str:
    start = job.start if job.start is not None else job.first_sample
    end = job.end if job.end is not None else job.last_sample
    until = end if job.state.finished and end is not None else now_ms
    return "-" if start is None else duration(max(until - start, 0))


def _cells(values: Sequence[LatestValue]) -> list[str]:
    return [quantity(*joined) if (joined := _joined(values, metric))[1] else "-" for _, metric in _COLUMNS]


def _joined(values: Sequence[LatestValue], metric: str) -> tuple[float, str]:
    """The members' values of a metric as one, with its unit; an empty unit when there is none."""
    found = [value for value in values if value.metric == metric]
    if not found:
        return 0.0, ""
    total = sum(value.value for value in found)
    known = catalog.find(metric)
    adds = known is not None and known.on_node is catalog.Aggregate.SUM
    return (total if adds else total / len(found)), found[0].unit


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """The rows under their heads and the columns of use, without those in which nothing was measured."""
    columns = [*heads, *(name for name, _ in _COLUMNS)]
    kept = [at for at in range(len(columns)) if at < len(heads) or any(row[at] != "-" for row in rows)]
    return fitted(
        console().width,
        [columns[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
        right=[name for name, _ in _COLUMNS],
        spare=_SPARE,
    )


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Tells, after at most some seconds, whether q (or the end of input) was pressed meanwhile."""
    if not sys.stdin.isatty():
        yield lambda seconds: bool(select.select([], [], [], seconds)[0])
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield _pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and sys.stdin.read(1) in {"q", "Q", ""}
