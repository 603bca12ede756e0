"""``/retention`` and ``/projects/{project}/retention``: retention of samples."""

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import ProjectsQuestion
from jobmeter.model.retention import Retention
from jobmeter.query.administration import RetentionQuestion
from jobmeter.server.native.bodies import Deleted, copied
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint

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


HEADING = "server"


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
    return copied(RetentionList, default, projects=rows)


def _row(name: str, found: Retention, default: Retention) -> ProjectRetention:
    return copied(ProjectRetention, found, project=name, own=found != default)


@Endpoint("getRetention", "GET /projects/{project}/retention", "server:admin")
def _retention(context: CallContext) -> RetentionBody:
    """Show the retention of a project."""
    [found] = context.ask(RetentionQuestion((context.path["project"],)))
    return copied(RetentionBody, found)


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
    days = context.body(RetentionBody)
    for field in RetentionBody.__struct_fields__:
        if not 1 <= getattr(days, field) <= MAX_DAYS:
            raise InvalidRequestError(f"{field} must be from 1 to {MAX_DAYS} days", field)
    context.services.registry.set_retention(context.path["project"], copied(Retention, days))
    return days


@Endpoint("dropRetention", "DELETE /projects/{project}/retention", "server:admin")
def _drop_retention(context: CallContext) -> Deleted:
    """Reset a project to the server's default retention."""
    context.services.registry.set_retention(context.path["project"], None)
    return Deleted(deleted=True)
