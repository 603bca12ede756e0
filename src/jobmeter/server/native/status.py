"""``/health``, ``/status`` and ``/backup``."""

from pathlib import Path

import msgspec

from jobmeter import __version__
from jobmeter.errors import InvalidRequestError
from jobmeter.kernel.library import KERNEL
from jobmeter.model.answers import DamagedBody, Status
from jobmeter.query.administration import StatisticsQuestion
from jobmeter.server.backup import back_up
from jobmeter.server.native.bodies import copied
from jobmeter.server.native.endpoint import CallContext, Endpoint
from jobmeter.store.damage import DamagedPart


class Health(msgspec.Struct, frozen=True):
    """The server answers."""

    status: str
    version: str


class BackupBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Folder for the backup: an absolute path on the server's machine, empty or not existing yet."""

    directory: str


class BackupDone(msgspec.Struct, frozen=True):
    """The folder of the finished backup."""

    directory: str


HEADING = "server"


@Endpoint("health", "GET /health", None, lane="control")
def _health(context: CallContext) -> Health:  # noqa: ARG001 - the shape of every work function
    """Check that the server answers."""
    return Health("ok", __version__)


@Endpoint("status", "GET /status", "server:read", lane="control")
def _status(context: CallContext) -> Status:
    """Show sizes, running work, roll-ups and cluster schedulers."""
    services = context.services
    found = context.ask(StatisticsQuestion())
    return Status(
        version=__version__,
        kernel=KERNEL.missing or "loaded",
        processes=services.telemetry.processes,
        uptime_seconds=round(services.telemetry.uptime_seconds(), 3),
        rows=found.rows,
        bytes=found.bytes,
        window=found.window,
        queue_bytes=services.pipeline.queue_bytes,
        work={lane.name: lane.busy for lane in services.lanes.all()},
        rolled_until=services.telemetry.rolled_until_ms,
        damaged=[_describe_damage(part) for part in found.damaged],
        replicas={name: bool(complete) for name, complete in found.replicas.items()},
        shards={name: bool(up) for name, up in found.shards.items()},
        schedulers=services.pipeline.schedulers.all(),
    )


def _describe_damage(part: DamagedPart) -> DamagedBody:
    start, end = (None, None) if part.span is None else (part.span.start_ms, part.span.end_ms)
    return copied(DamagedBody, part, part=part.name, start=start, end=end)


@Endpoint(
    "backup",
    "POST /backup",
    "server:admin",
    body=BackupBody,
    example={"directory": "/var/backups/jobmeter/2026-11-20"},
    lane="control",
)
def _backup(context: CallContext) -> BackupDone:
    """Write a backup while the server runs.

    The folder also contains the secret key: protect it like the data folder.
    """
    directory = Path(context.body(BackupBody).directory)
    if not directory.is_absolute():
        raise InvalidRequestError("directory must be an absolute path on the server's machine", "directory")
    back_up(context.services, directory)
    return BackupDone(str(directory))
