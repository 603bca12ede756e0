"""``jobmeter scheduler``: sends a cluster's jobs from its scheduler to a server."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobmeter.cli.options import (
    FOLDER,
    GroupedCommand,
    VerbGroup,
    build_env_option,
    build_interval_option,
    build_job_ids_option,
    build_key_option,
    ca_file_option,
    check_option,
    check_server,
    define_group,
    find_data_folder,
    make_stop_event,
    parse_interval,
)
from jobmeter.client.transport import Transport
from jobmeter.collect.deliver import Delivery
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.scheduler.base import SchedulerKind
from jobmeter.collect.scheduler.health import SchedulerHealth
from jobmeter.collect.scheduler.registry import SUMMARIES, find_scheduler_kind
from jobmeter.collect.scheduler.watch import ClusterScopedIds, SchedulerWatch
from jobmeter.collect.spool import Spool
from jobmeter.errors import ConfigurationError
from jobmeter.model.cluster import JobIds
from jobmeter.model.series import check_name
from jobmeter.model.time import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

_SHORTEST_INTERVAL_MS = 1000
_FLUSH_SECONDS = 8.0


class _Kinds(VerbGroup):
    """A verb for each kind of scheduler; the module of a kind is imported when its verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return _command(cmd_name, find_scheduler_kind(cmd_name)) if cmd_name in SUMMARIES else None


@define_group(
    "jobmeter scheduler slurm --cluster alpha --server https://meter.example --key TOKEN",
    "jobmeter scheduler kubernetes --cluster beta --server https://meter.example --key TOKEN",
    cls=_Kinds,
)
def command() -> None:
    """Read the jobs of a cluster from its scheduler and send them to a server. Run one process per cluster."""


def _command(name: str, kind: SchedulerKind) -> click.Command:
    def run(**options: Any) -> None:  # noqa: ANN401 - click gives each option its own type
        _run(name, kind, **options)

    run.__doc__ = kind.summary
    found: Callable[..., None] = run
    for option in reversed(kind.options):
        found = click.option(
            f"--{option.name}", metavar=option.metavar, help=option.help, envvar=option.envvar or None
        )(found)
    for decorate in reversed(_COMMON):
        found = decorate(found)
    return click.command(name, cls=GroupedCommand, short_help=SUMMARIES[name])(found)


_COMMON = (
    build_env_option("--server", "The server ({}).", metavar="URL", required=True),
    build_key_option("A writer's token (JOBMETER_KEY).", envvar="JOBMETER_KEY", required=True),
    click.option("--cluster", metavar="NAME", required=True, help="Name of the cluster."),
    build_interval_option("10s", "Time between two polls of the scheduler."),
    click.option(
        "--spool",
        type=FOLDER,
        metavar="DIR",
        help="Folder for data that waits for the server (default: spool/scheduler-CLUSTER in the data folder).",
    ),
    ca_file_option,
    build_job_ids_option("Form of job ids: the scheduler's own, or with @CLUSTER appended (JOBMETER_JOB_IDS)."),
    click.option(
        "--once", is_flag=True, help="Poll once, send, and exit; with status 1 if the server did not accept the jobs."
    ),
)


def _run(  # noqa: PLR0913 - one for each option
    name: str,
    kind: SchedulerKind,
    *,
    server: str,
    key: str,
    cluster: str,
    interval: str,
    spool: Path | None,
    ca_file: str | None,
    job_ids: str,
    once: bool,
    **options: str | None,
) -> None:
    logging.basicConfig(level=logging.INFO, format=f"jobmeter scheduler {name}: %(message)s")
    check_server(server)
    check_option(check_name, cluster, "--cluster")
    interval_ms = parse_interval(interval, _SHORTEST_INTERVAL_MS)
    spool_folder = Spool(spool or find_data_folder() / "spool" / f"scheduler-{cluster}")
    clock, outbox = SystemClock(), Outbox(spool_folder)
    transport = Transport(server, key, ca_file=ca_file)
    delivery = Delivery(outbox, lambda: transport, clock)
    scheduler = kind.make(cluster, options, spool_folder.directory)
    if job_ids == JobIds.CLUSTER:
        scheduler = ClusterScopedIds(scheduler, cluster.lower())
    watch = SchedulerWatch(
        scheduler, outbox, clock, interval_ms, SchedulerHealth(name, cluster, interval_ms, outbox, clock)
    )
    delivery.start()
    try:
        if once:
            _poll_once(watch, delivery)
        else:
            logging.getLogger("jobmeter").info("polling every %s for %s", interval, server)
            watch.run(make_stop_event())
            delivery.flush(_FLUSH_SECONDS)
    finally:
        scheduler.close()
        delivery.stop()
        outbox.close()


def _poll_once(watch: SchedulerWatch, delivery: Delivery) -> None:
    if problem := watch.poll_once():
        raise ConfigurationError(problem)
    if not delivery.flush(_FLUSH_SECONDS):
        raise ConfigurationError(f"the jobs were not delivered and stay in the spool: {delivery.last_error}")
    if delivery.set_aside:
        raise ConfigurationError(f"the server refused some data, which is quarantined: {delivery.set_aside}")
