"""``/retention``: how long the samples of every project are stored, at one look."""

import msgspec

from jobmeter.model.job import ProjectsQuestion
from jobmeter.model.retention import Retention
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, tagged


class ProjectRetention(msgspec.Struct, frozen=True):
    """How many days a project stores raw samples, minutes and hours; ``own`` where that differs from the server's."""

    project: str
    raw_days: int
    minute_days: int
    hour_days: int
    own: bool


class RetentionList(msgspec.Struct, frozen=True):
    """The server's own retention, and that of each project, by name."""

    raw_days: int
    minute_days: int
    hour_days: int
    projects: list[ProjectRetention]


def _list(context: CallContext) -> RetentionList:
    """How long every project's samples are kept.

    A key of one project names it.
    """
    services, default = context.services, context.services.settings.retention
    found = services.executor.run(ProjectsQuestion(names=context.scope.projects), context.scope)
    names = sorted({one.name for one in found} | ({context.project} if context.project else set()))
    return RetentionList(*_days(default), [_row(name, services.registry.retention(name), default) for name in names])


def _row(name: str, own: Retention, default: Retention) -> ProjectRetention:
    return ProjectRetention(name, *_days(own), own=_days(own) != _days(default))


def _days(one: Retention) -> tuple[int, int, int]:
    return one.raw_days, one.minute_days, one.hour_days


ENDPOINTS = tagged(
    "server",
    Endpoint("listRetention", "GET /retention", "server:admin", _list, queries=(PROJECT,), lane="control"),
)
