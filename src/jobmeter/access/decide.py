"""Authorisation: the only module that decides permissions. Everything not named here is denied."""

from collections.abc import Mapping

from msgspec.structs import replace

from jobmeter.access.actions import list_action_names
from jobmeter.access.principal import Principal, Role, Scope
from jobmeter.errors import ForbiddenError
from jobmeter.model.series import DEFAULT_PROJECT, check_project

ACTIONS: Mapping[str, Role] = {
    "catalog:read": Role.READER,
    "metrics:read": Role.READER,
    "jobs:read": Role.READER,
    "nodes:read": Role.READER,
    "usage:read": Role.READER,
    "alerts:read": Role.READER,
    "jobs:write": Role.WRITER,
    "ingest:write": Role.WRITER,
    "traces:read": Role.READER,
    "traces:write": Role.WRITER,
    "runs:read": Role.READER,
    "runs:write": Role.WRITER,
    "share:write": Role.WRITER,
    "tasks:write": Role.WRITER,
    "alerts:write": Role.WRITER,
    "jobs:delete": Role.ADMIN,
    "keys:read": Role.ADMIN,
    "keys:write": Role.ADMIN,
    "shippers:read": Role.ADMIN,
    "shippers:write": Role.ADMIN,
    "server:read": Role.ADMIN,
    "server:admin": Role.ADMIN,
}
"""Least role for each action."""

SHARED = frozenset({"metrics:read"})
"""Actions of a share token, on its job only. A job's record, events and lines may contain secrets."""

LINKED = SHARED | {"catalog:read", "jobs:read"}
"""Actions of a link, which opens the page of its job, with the record, events and lines."""

WHOLE_SERVER = frozenset({"server:read", "server:admin"})
"""Actions that reach beyond one project: a key with a project may perform them on that project only."""

_READS = frozenset(
    {
        "catalog:read",
        "metrics:read",
        "jobs:read",
        "nodes:read",
        "usage:read",
        "alerts:read",
        "traces:read",
        "runs:read",
        "keys:read",
        "server:read",
        "shippers:read",
    }
)

UNNAMED = ("", "")
"""Placeholder for no operation, which policies never allow."""

EVERYTHING = Scope(None)
"""Scope of a caller who sees every project, and of the server itself."""

_RANK = {Role.READER: 1, Role.WRITER: 2, Role.ADMIN: 3}


def writes(action: str) -> bool:
    """True if the action changes data."""
    return action not in _READS


def authorize(
    principal: Principal,
    action: str,
    project: str | None = None,
    operation: tuple[str, str] = UNNAMED,
    *,
    by_resource: bool = False,
) -> Scope:
    """Return the scope in which the principal may perform the action, on ``project`` if given.

    ``operation`` is the called operation as (API, name); a key's policies decide by it. ``by_resource``: the operation
    honours ``Scope.grant``. Other operations are refused to a key whose policies allow only some resources of a
    project. Raises ForbiddenError when the principal may not perform the action, InvalidRequestError for an invalid
    project.
    """
    least = ACTIONS.get(action)
    if least is None or _RANK[principal.role] < _RANK[least]:
        raise ForbiddenError(f"a key of role {principal.role} may not do {action}")
    if principal.actions is not None and action not in principal.actions:
        raise ForbiddenError(f"a {'link' if principal.job else 'trace token'} may not do {action}")
    if principal.job is not None and action not in (LINKED if principal.linked else SHARED):
        raise ForbiddenError(f"a share token may not do {action}")
    if project:
        check_project(project)
    named = project or None
    if principal.policies is not None:
        return _apply_policies(principal, action, named, operation, by_resource=by_resource and not writes(action))
    return _limit_to_project(principal, action, named)


def _limit_to_project(principal: Principal, action: str, named: str | None) -> Scope:
    """Scope that the key's role and project allow."""
    if principal.project is None:
        if named is None and principal.job is None:
            return EVERYTHING
        return Scope(frozenset({named}) if named else None, principal.job, record=principal.linked)
    if named not in {None, principal.project}:
        raise ForbiddenError(f"this key belongs to project {principal.project}, not to {named}")
    if action in WHOLE_SERVER and named is None:
        raise ForbiddenError(f"a key of project {principal.project} may not do {action} for the whole server")
    return Scope(frozenset({principal.project}), principal.job, record=principal.linked)


def _apply_policies(
    principal: Principal, action: str, named: str | None, operation: tuple[str, str], *, by_resource: bool
) -> Scope:
    """Narrow the scope of the key's role to the projects, or resources of projects, that its policies allow."""
    scope = _limit_to_project(principal, action, named)
    grant = None if principal.policies is None or operation == UNNAMED else principal.policies[operation]
    if grant is None:
        raise ForbiddenError(f"the key's policies do not allow {list_action_names(*operation)[0]}")
    if grant.everything or action == "catalog:read":
        return scope
    whole = grant.projects
    if by_resource and whole is None:
        return replace(scope, grant=grant)
    if action in WHOLE_SERVER or action.startswith("keys:") or whole is None:
        raise ForbiddenError(
            f"the key's policies allow {list_action_names(*operation)[0]} on some resources only, and "
            "this operation answers "
            "for whole projects: it needs a policy that allows a whole project and denies nothing in it"
        )
    if writes(action):
        whole &= frozenset({named or principal.project or ""}) if principal.project else frozenset()
    projects = whole if scope.projects is None else scope.projects & whole
    if not projects:
        raise ForbiddenError(f"the key's policies do not allow {list_action_names(*operation)[0]} here")
    return replace(scope, projects=projects)


def write_project(principal: Principal, named: str | None = None) -> str:
    """Return the project of written data: the key's own, else the named one, else ``default``.

    Raises ForbiddenError when the key may not write there, InvalidRequestError for an invalid project.
    """
    if principal.job is not None or _RANK[principal.role] < _RANK[Role.WRITER]:
        raise ForbiddenError(f"a key of role {principal.role} may not write")
    if named:
        check_project(named)
    if principal.project is None:
        return named or DEFAULT_PROJECT
    if named and named != principal.project:
        raise ForbiddenError(f"this key belongs to project {principal.project}, not to {named}")
    return principal.project


def choose_key_project(principal: Principal, named: str | None = None) -> str | None:
    """Return the project of a key that the principal creates; None for a key that sees all projects.

    A key with a project creates keys of that project only. Raises ForbiddenError, or InvalidRequestError for an invalid
    project.
    """
    authorize(principal, "keys:write", named)
    return named or principal.project
