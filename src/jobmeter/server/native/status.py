"""``/health``, ``/status``, ``/backup`` and the retention of projects."""

from pathlib import Path

import msgspec

from jobmeter import __version__
from jobmeter.errors import InvalidRequestError
from jobmeter.kernel.library import KERNEL
from jobmeter.model.answers import DamagedBody, Status
from jobmeter.model.retention import Retention
from jobmeter.server.backup import back_up
from jobmeter.server.native.bodies import Deleted
from jobmeter.server.native.endpoint import CallContext, Endpoint, tagged
from jobmeter.store.damage import DamagedPart

MAX_DAYS = 36_500


class Health(msgspec.Struct, frozen=True):
    """The server answers."""

    status: str
    version: str


class BackupBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the server writes the backup: an absolute path on its machine, a folder that is empty or not there yet."""

    directory: str


class BackupDone(msgspec.Struct, frozen=True):
    """The backup lies here."""

    directory: str


class RetentionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many days (1 to 36500) raw samples, minutes and hours are stored."""

    raw_days: int
    minute_days: int
    hour_days: int


def _health(context: CallContext) -> Health:  # noqa: ARG001 - the shape of every work function
    """Whether the server answers."""
    return Health("ok", __version__)


def _status(context: CallContext) -> Status:
    """Sizes, work under way, roll-ups."""
    services = context.services
    found = services.store.statistics()
    return Status(
        version=__version__,
        kernel=KERNEL.missing or "loaded",
        uptime_seconds=round(services.telemetry.uptime_seconds(), 3),
        rows=found.rows,
        bytes=found.bytes,
        window=found.window,
        queue_bytes=services.pipeline.queue_bytes,
        work={lane.name: lane.busy for lane in services.lanes.all()},
        rolled_until=services.telemetry.rolled_until_ms,
        damaged=[_damaged(part) for part in found.damaged],
    )


def _damaged(part: DamagedPart) -> DamagedBody:
    start, end = (None, None) if part.span is None else (part.span.start_ms, part.span.end_ms)
    return DamagedBody(table=part.table, part=part.name, reason=part.reason, rows=part.rows, start=start, end=end)


def _backup(context: CallContext) -> BackupDone:
    """Write a backup while the server runs.

    The folder also holds the key that seals secrets: keep it as safe as the data folder.
    """
    directory = Path(context.body(BackupBody).directory)
    if not directory.is_absolute():
        raise InvalidRequestError("directory must be an absolute path on the server's machine", "directory")
    back_up(context.services, directory)
    return BackupDone(str(directory))


def _retention(context: CallContext) -> RetentionBody:
    """How long a project's samples are kept."""
    found = context.services.registry.retention(context.path["project"])
    return RetentionBody(found.raw_days, found.minute_days, found.hour_days)


def _set_retention(context: CallContext) -> RetentionBody:
    """Keep a project's samples for another time.

    Samples that are stored already keep the time that was set when they came.
    """
    days = context.body(RetentionBody)
    for field in RetentionBody.__struct_fields__:
        if not 1 <= getattr(days, field) <= MAX_DAYS:
            raise InvalidRequestError(f"{field} must be from 1 to {MAX_DAYS} days", field)
    retention = Retention(raw_days=days.raw_days, minute_days=days.minute_days, hour_days=days.hour_days)
    context.services.registry.set_retention(context.path["project"], retention)
    return days


def _drop_retention(context: CallContext) -> Deleted:
    """Go back to the server's own retention."""
    context.services.registry.set_retention(context.path["project"], None)
    return Deleted(deleted=True)


ENDPOINTS = tagged(
    "server",
    Endpoint("health", "GET /health", None, _health, lane="control"),
    Endpoint("status", "GET /status", "server:read", _status, lane="control"),
    Endpoint(
        "backup",
        "POST /backup",
        "server:admin",
        _backup,
        body=BackupBody,
        example={"directory": "/var/backups/jobmeter/2026-11-20"},
        lane="control",
    ),
    Endpoint("getRetention", "GET /projects/{project}/retention", "server:admin", _retention),
    Endpoint(
        "setRetention",
        "PUT /projects/{project}/retention",
        "server:admin",
        _set_retention,
        body=RetentionBody,
        example={"raw_days": 30, "minute_days": 180, "hour_days": 730},
    ),
    Endpoint("dropRetention", "DELETE /projects/{project}/retention", "server:admin", _drop_retention),
)
