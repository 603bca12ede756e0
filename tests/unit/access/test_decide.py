"""Tests of permissions: the whole table of roles and actions, written a second time."""

import pytest

from jobmeter.access.decide import ACTIONS, SHARED, authorize, choose_key_project, write_project
from jobmeter.access.principal import Principal, Role, Scope
from jobmeter.errors import ForbiddenError, InvalidRequestError

READS = {
    "catalog:read",
    "metrics:read",
    "jobs:read",
    "nodes:read",
    "usage:read",
    "traces:read",
    "runs:read",
    "alerts:read",
}
WRITES = {"jobs:write", "ingest:write", "traces:write", "runs:write", "share:write", "tasks:write"}
WRITES |= {"alerts:write"}
ALLOWED = {
    Role.READER: READS,
    Role.WRITER: READS | WRITES,
    Role.ADMIN: {
        *READS, *WRITES, "jobs:delete", "keys:read", "keys:write", "server:read", "server:admin", "shippers:read",
        "shippers:write",
    },
}  # fmt: skip


def key(role: Role, project: str | None = None) -> Principal:
    return Principal(id="k", name="k", role=role, project=project)


SHARE = Principal(id="share", name="share", role=Role.READER, project="p", job="j")


def may(principal: Principal, action: str, project: str | None = None) -> bool:
    try:
        authorize(principal, action, project)
    except ForbiddenError:
        return False
    return True


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_each_role_may_do_what_it_is_for(role: Role, action: str) -> None:
    assert may(key(role), action) == (action in ALLOWED[role])


@pytest.mark.parametrize("principal", [*(key(role) for role in Role), SHARE])
@pytest.mark.parametrize("action", ["", "metrics", "metrics:write", "*", "Metrics:read"])
def test_what_is_not_named_is_denied(principal: Principal, action: str) -> None:
    assert not may(principal, action)


def test_a_key_sees_its_projects() -> None:
    assert authorize(key(Role.READER), "metrics:read") == Scope(None)
    assert authorize(key(Role.READER), "metrics:read", "p") == Scope(frozenset({"p"}))
    assert authorize(key(Role.READER, "p"), "metrics:read") == Scope(frozenset({"p"}))
    assert authorize(key(Role.READER, "p"), "metrics:read", "p") == Scope(frozenset({"p"}))
    assert not may(key(Role.ADMIN, "p"), "metrics:read", "q")
    with pytest.raises(InvalidRequestError):
        authorize(key(Role.ADMIN), "metrics:read", "no project")


@pytest.mark.parametrize("action", ["server:read", "server:admin"])
def test_a_projects_administrator_does_not_reach_the_server(action: str) -> None:
    assert not may(key(Role.ADMIN, "p"), action)
    assert may(key(Role.ADMIN, "p"), action, "p")
    assert not may(key(Role.ADMIN, "p"), action, "q")


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_a_share_token_opens_its_job_and_nothing_else(action: str) -> None:
    assert may(SHARE, action) == (action in SHARED)
    if action in SHARED:
        scope = authorize(SHARE, action)
        assert scope.allows("p", "j")
        assert not scope.allows("p", "i")
        assert not scope.allows("p")
        assert not scope.allows("q", "j")
        assert not may(SHARE, action, "q")


def test_writes_go_to_the_keys_project() -> None:
    assert write_project(key(Role.WRITER)) == "default"
    assert write_project(key(Role.WRITER), "q") == "q"
    assert write_project(key(Role.WRITER, "p")) == "p"
    assert write_project(key(Role.ADMIN, "p"), "p") == "p"
    for principal, named in ((key(Role.WRITER, "p"), "q"), (key(Role.READER), None), (SHARE, None), (SHARE, "p")):
        with pytest.raises(ForbiddenError):
            write_project(principal, named)
    with pytest.raises(InvalidRequestError):
        write_project(key(Role.WRITER), "no project")


def test_a_projects_administrator_makes_keys_of_it_alone() -> None:
    assert choose_key_project(key(Role.ADMIN)) is None
    assert choose_key_project(key(Role.ADMIN), "q") == "q"
    assert choose_key_project(key(Role.ADMIN, "p")) == "p"
    for principal, named in ((key(Role.ADMIN, "p"), "q"), (key(Role.WRITER), None)):
        with pytest.raises(ForbiddenError):
            choose_key_project(principal, named)
