"""``/health``, ``/status``, ``/backup``, ``/move`` and the retention of projects: the server itself."""

from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec

from jobmeter import __version__
from jobmeter.errors import InvalidRequestError, JobmeterError
from jobmeter.kernel.library import KERNEL
from jobmeter.model.answers import DamagedBody, Status
from jobmeter.model.job import ProjectsQuestion
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.retention import Retention
from jobmeter.query.administration import RetentionQuestion, SchedulersQuestion, StatisticsQuestion
from jobmeter.server.backup import save_backup
from jobmeter.server.native.bodies import Deleted, copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, Stream
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
        uptime_seconds=round(services.telemetry.uptime_seconds, 3),
        rows=found.rows,
        bytes=found.bytes,
        window=found.window,
        queue_bytes=services.pipeline.queue_bytes,
        work={lane.name: lane.busy for lane in services.lanes.list_lanes()},
        rolled_until=services.telemetry.rolled_until_ms,
        damaged=[_describe_damage(part) for part in found.damaged],
        replicas={name: bool(complete) for name, complete in found.replicas.items()},
        shards={name: bool(up) for name, up in found.shards.items()},
        role=found.role,
        schedulers=context.ask(SchedulersQuestion()),
    )


def _describe_damage(part: DamagedPart) -> DamagedBody:
    start, end = (None, None) if part.span is None else (part.span.start_ms, part.span.end_ms)
    return copy_fields(DamagedBody, part, part=part.name, start=start, end=end)


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
    directory = Path(context.decode_body(BackupBody).directory)
    if not directory.is_absolute():
        raise InvalidRequestError("directory must be an absolute path on the server's machine", "directory")
    save_backup(context.services, directory)
    return BackupDone(str(directory))


@Endpoint(
    "moveStore",
    "POST /store/move",
    "server:admin",
    answer=MoveLine,
    answer_type="application/x-ndjson",
    body=MoveOrder,
    example={"to": "clickhousedb://jobmeter:PASSWORD@clickhouse:8123/jobmeter", "compare": True},
    lane="control",
)
def _move(context: CallContext) -> Stream:
    """Move the samples, roll-ups, log lines and spans to another engine, or compare both.

    The answer has a JSON object per line: the step that begins, at the end the report or the error that ended the move.
    For the last seconds of a move the server refuses writes with 503. After the report it refuses them until it is
    started again with the other engine. The same call continues a move that ended early. If the client disconnects, the
    move stops and writes are accepted again.
    """
    return Stream(_lines(context.services.store.move(context.decode_body(MoveOrder))), "application/x-ndjson")


def _lines(steps: Iterator[MoveLine]) -> Generator[bytes]:
    # A refusal before the first step is an error with a status of its own.
    line = next(steps, None)
    try:
        while line is not None:
            yield msgspec.json.encode(line) + b"\n"
            line = next(steps, None)
    except JobmeterError as error:
        yield msgspec.json.encode(MoveLine(error=error.message)) + b"\n"
    finally:
        if isinstance(steps, Generator):
            steps.close()


MAX_DAYS = 36_500


class ProjectRetention(msgspec.Struct, frozen=True):
    """Days for which a project stores raw samples, minutes and hours; ``own`` if they differ from the server's."""

    project: str
    raw_days: int
    minute_days: int
    hour_days: int
    own: bool


class RetentionList(msgspec.Struct, frozen=True):
    """The server's default retention, and the retention of each project, by name."""

    raw_days: int
    minute_days: int
    hour_days: int
    projects: list[ProjectRetention]


class RetentionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days (1 to 36500) for which raw samples, minutes and hours are stored."""

    raw_days: int
    minute_days: int
    hour_days: int


@Endpoint("listRetention", "GET /retention", "server:admin", queries=(PROJECT,), lane="control")
def _list(context: CallContext) -> RetentionList:
    """List the retention of every project.

    A key of one project must name it.
    """
    default = context.services.settings.retention
    found = context.ask(ProjectsQuestion(names=context.scope.projects))
    names = sorted({one.name for one in found} | ({context.project} if context.project else set()))
    each = context.ask(RetentionQuestion(tuple(names)))
    rows = [_row(name, own, default) for name, own in zip(names, each, strict=True)]
    return copy_fields(RetentionList, default, projects=rows)


def _row(name: str, found: Retention, default: Retention) -> ProjectRetention:
    return copy_fields(ProjectRetention, found, project=name, own=found != default)


@Endpoint("getRetention", "GET /projects/{project}/retention", "server:admin")
def _retention(context: CallContext) -> RetentionBody:
    """Show the retention of a project."""
    [found] = context.ask(RetentionQuestion((context.path["project"],)))
    return copy_fields(RetentionBody, found)


@Endpoint(
    "setRetention",
    "PUT /projects/{project}/retention",
    "server:admin",
    body=RetentionBody,
    example={"raw_days": 30, "minute_days": 180, "hour_days": 730},
)
def _set_retention(context: CallContext) -> RetentionBody:
    """Set the retention of a project.

    Samples already stored keep the retention that was set when they arrived.
    """
    days = context.decode_body(RetentionBody)
    for field in RetentionBody.__struct_fields__:
        if not 1 <= getattr(days, field) <= MAX_DAYS:
            raise InvalidRequestError(f"{field} must be from 1 to {MAX_DAYS} days", field)
    context.services.registry.set_retention(context.path["project"], copy_fields(Retention, days))
    return days


@Endpoint("dropRetention", "DELETE /projects/{project}/retention", "server:admin")
def _drop_retention(context: CallContext) -> Deleted:
    """Reset a project to the server's default retention."""
    context.services.registry.set_retention(context.path["project"], None)
    return Deleted(deleted=True)
