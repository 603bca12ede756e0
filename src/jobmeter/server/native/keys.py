"""``/keys`` and ``/whoami``."""

import msgspec

from jobmeter.access.decide import key_project
from jobmeter.access.keys import create_key, list_keys, revoke_key
from jobmeter.access.principal import Role
from jobmeter.server.native.bodies import Deleted
from jobmeter.server.native.endpoint import Ask, Endpoint


class KeyBody(msgspec.Struct, frozen=True):
    """A key, without its secrets."""

    id: str
    name: str
    role: str
    project: str | None
    access_key_id: str
    created: int
    revoked: int | None
    last_used: int | None


class KeyList(msgspec.Struct, frozen=True):
    """Keys, by creation, revoked ones included."""

    keys: list[KeyBody]


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key to make; without a project it sees every project."""

    name: str
    role: Role
    project: str | None = None


class CreatedKeyBody(msgspec.Struct, frozen=True):
    """A new key with its secrets, which are shown this once."""

    id: str
    token: str
    access_key_id: str
    access_key_secret: str
    role: str
    project: str | None


class WhoAmI(msgspec.Struct, frozen=True):
    """The key that the call was made with."""

    id: str
    name: str
    role: str
    project: str | None


def _list(ask: Ask) -> KeyList:
    keys = list_keys(ask.services.registry, ask.scope.projects)
    return KeyList([KeyBody(**{name: getattr(key, name) for name in KeyBody.__struct_fields__}) for key in keys])


def _create(ask: Ask) -> CreatedKeyBody:
    services = ask.services
    wanted = ask.body(NewKey)
    project = key_project(ask.principal, wanted.project)
    made = create_key(services.registry, services.vault, services.clock, wanted.name, wanted.role, project)
    return CreatedKeyBody(made.id, made.token, made.access_key_id, made.access_key_secret, str(made.role), made.project)


def _revoke(ask: Ask) -> Deleted:
    revoke_key(ask.services.registry, ask.services.clock, ask.path["key"], ask.scope.projects)
    ask.services.authenticator.forget(ask.path["key"])
    return Deleted(deleted=True)


def _whoami(ask: Ask) -> WhoAmI:
    who = ask.principal
    return WhoAmI(who.id, who.name, str(who.role), who.project)


ENDPOINTS = (
    Endpoint(
        name="listKeys",
        tag="keys",
        method="GET",
        path="/keys",
        action="keys:read",
        summary="List keys",
        work=_list,
        answer=KeyList,
    ),
    Endpoint(
        name="createKey",
        tag="keys",
        method="POST",
        path="/keys",
        action="keys:write",
        summary="Make a key",
        work=_create,
        answer=CreatedKeyBody,
        body_text='`{"name", "role": "admin|writer|reader", "project"}`.',
        example={"name": "ci", "role": "reader", "project": "default"},
    ),
    Endpoint(
        name="revokeKey",
        tag="keys",
        method="DELETE",
        path="/keys/{key}",
        action="keys:write",
        summary="Revoke a key",
        work=_revoke,
        answer=Deleted,
        paths={"key": "The key's id."},
    ),
    Endpoint(
        name="whoAmI",
        tag="keys",
        method="GET",
        path="/whoami",
        action="catalog:read",
        summary="The key that the call was made with",
        work=_whoami,
        answer=WhoAmI,
    ),
)
