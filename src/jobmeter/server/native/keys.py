"""``/keys`` and ``/whoami``."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from jobmeter.access.decide import choose_key_project
from jobmeter.access.keys import change_policies, create_key, revoke_key
from jobmeter.access.policy import MOST_POLICIES, SYSTEM_POLICIES, encode_policies
from jobmeter.access.principal import Role
from jobmeter.errors import InvalidRequestError
from jobmeter.model.answers import WhoAmI
from jobmeter.query.administration import KeyPoliciesQuestion, KeysQuestion
from jobmeter.server.native.bodies import Deleted, copy_fields
from jobmeter.server.native.endpoint import CallContext, Endpoint

_MOST_NAME = 100


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
    policies: tuple[str, ...]


class KeyList(msgspec.Struct, frozen=True):
    """Keys in order of creation, including revoked ones."""

    keys: list[KeyBody]


class OwnPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy with its document in RAM form; the name is for listings."""

    name: str
    document: dict[str, Any]


_Shipped = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(SYSTEM_POLICIES)})]
_Policies = Annotated[
    list[_Shipped | OwnPolicy],
    msgspec.Meta(
        description="Name of a built-in policy, or a custom policy: its name and its document in RAM form.",
        extra_json_schema={"maxItems": MOST_POLICIES},
    ),
]


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key to create, with role admin, writer or reader.

    Without a project it sees every project; without a role only its policies decide.
    """

    name: str
    role: Literal["admin", "writer", "reader"] | None = None
    project: str | None = None
    policies: _Policies = []


class NewPolicies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new policies of a key."""

    policies: _Policies


class PolicyDocument(msgspec.Struct, frozen=True):
    """A policy: its name and document."""

    name: str
    document: Mapping[str, Any]


class PolicyNames(msgspec.Struct, frozen=True):
    """Built-in policies that a key can be given by name, sorted, with their documents."""

    policies: list[str]
    documents: list[PolicyDocument]


class KeyPolicies(msgspec.Struct, frozen=True):
    """The policies of a key in their order, with documents; empty if only its role decides."""

    policies: list[PolicyDocument]


class CreatedKeyBody(msgspec.Struct, frozen=True):
    """A new key with its secrets, which are never shown again."""

    id: str
    token: str
    access_key_id: str
    access_key_secret: str
    role: str
    project: str | None
    policies: tuple[str, ...] = ()


HEADING = "keys"
_OWN_POLICY = {
    "name": "read-group",
    "document": {
        "Version": "1",
        "Statement": [
            {"Effect": "Allow", "Action": "pai:Get*", "Resource": "acs:pai:*:*:resourcegroup/rg-1"},
        ],
    },
}


@Endpoint("listKeys", "GET /keys", "keys:read")
def _list(context: CallContext) -> KeyList:
    """List keys."""
    return KeyList([copy_fields(KeyBody, key) for key in context.ask(KeysQuestion())])


def _encode_policies(given: Sequence[str | OwnPolicy]) -> str:
    """Validate policies and encode them for storage. Raises InvalidRequestError naming ``policies[PLACE]``."""
    for place, one in enumerate(given):
        if isinstance(one, OwnPolicy) and not (one.name.isprintable() and 1 <= len(one.name) <= _MOST_NAME):
            raise InvalidRequestError(
                f"the name of a policy has 1 to {_MOST_NAME} printable characters", f"policies[{place}].name"
            )
    pairs = [(one, None) if isinstance(one, str) else (one.name, msgspec.json.encode(one.document)) for one in given]
    return encode_policies(pairs, "policies[{}]")


@Endpoint(
    "createKey",
    "POST /keys",
    "keys:write",
    body=NewKey,
    example={"name": "ci", "role": "reader", "project": "default", "policies": ["AliyunPAIReadOnlyAccess"]},
)
def _create(context: CallContext) -> CreatedKeyBody:
    """Create a key.

    Needs an administrator without policies; an administrator of one project creates keys of that project. Without a
    project the key sees every project. With `policies`, everything that no policy allows is denied, whatever the role;
    without a `role` only the policies decide. For an invalid policy `field` names it: `policies[0]`.
    """
    services = context.services
    new_key = context.decode_body(NewKey)
    project = choose_key_project(context.principal, new_key.project)
    if new_key.role is None and not new_key.policies:
        raise InvalidRequestError("a key needs a role, policies, or both", "role")
    policies, role = _encode_policies(new_key.policies), Role(new_key.role or Role.ADMIN)
    actor, vault, clock = context.principal.id, services.vault, services.clock
    made = create_key(services.registry, vault, clock, new_key.name, role, project, policies, actor=actor)
    names = tuple(one if isinstance(one, str) else one.name for one in new_key.policies)
    return copy_fields(CreatedKeyBody, made, policies=names)


@Endpoint(
    "changeKeyPolicies", "PUT /keys/{key}/policies", "keys:write", body=NewPolicies, example={"policies": [_OWN_POLICY]}
)
def _change(context: CallContext) -> KeyBody:
    """Replace the policies of a key.

    All of them, from its next call on; other servers follow within a second. A key keeps at least one policy.
    """
    services, key = context.services, context.path["key"]
    choose_key_project(
        context.principal
    )  # refuses callers that may not create keys: they could extend their own access
    policies = _encode_policies(context.decode_body(NewPolicies).policies)
    whose, actor = context.scope.projects, context.principal.id
    changed = change_policies(services.registry, services.clock, key, policies, whose, actor=actor)
    services.authenticator.forget(key)
    return copy_fields(KeyBody, changed)


@Endpoint("revokeKey", "DELETE /keys/{key}", "keys:write")
def _revoke(context: CallContext) -> Deleted:
    """Revoke a key."""
    services, key = context.services, context.path["key"]
    revoke_key(services.registry, services.clock, key, context.scope.projects, actor=context.principal.id)
    services.authenticator.forget(key)
    return Deleted(deleted=True)


@Endpoint("listPolicies", "GET /policies", "keys:read")
def _policies(context: CallContext) -> PolicyNames:  # noqa: ARG001 - the shape of every work function
    """List the built-in policies with their documents."""
    names = sorted(SYSTEM_POLICIES)
    return PolicyNames(names, [PolicyDocument(name, SYSTEM_POLICIES[name]) for name in names])


@Endpoint("getKeyPolicies", "GET /keys/{key}/policies", "keys:read")
def _key_policies(context: CallContext) -> KeyPolicies:
    """List the policies of a key.

    Each with its document, including built-in ones. A key without policies may do everything that its role allows.
    """
    found = context.ask(KeyPoliciesQuestion(context.path["key"]))
    return KeyPolicies([PolicyDocument(name, document) for name, document in found])


@Endpoint("whoAmI", "GET /whoami", "catalog:read")
def _whoami(context: CallContext) -> WhoAmI:
    """Show the calling key."""
    who, credential = context.principal, context.request.credential
    expires = credential.key.expires if credential and credential.key else None
    return copy_fields(WhoAmI, who, expires=expires)
