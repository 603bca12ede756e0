"""Policies in the form of Alibaba Cloud's RAM: parsed once, compiled per key, evaluated with one look-up.

A document is ``{"Version": "1", "Statement": [{"Effect", "Action", "Resource"}]}``:
https://www.alibabacloud.com/help/en/ram/user-guide/policy-structure-and-syntax ``*`` matches any characters, ``?`` one.
Everything that no statement allows is denied, and a denial takes precedence.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from jobmeter.access.actions import list_action_names, list_services
from jobmeter.errors import InvalidRequestError
from jobmeter.model.glob import Glob

_PAI = ("pai", "paidlc", "eas", "eflo")
_ARMS = ("arms", "xtrace", "paillmtrace")
_EVERYTHING = ("*",)
_READS = ("Get*", "List*", "Describe*")


def _allow(services: tuple[str, ...], operations: tuple[str, ...]) -> Mapping[str, Any]:
    actions = [f"{service}:{operation}" for service in services for operation in operations]
    return {"Version": "1", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}


SYSTEM_POLICIES: Mapping[str, Mapping[str, Any]] = {
    "AliyunPAIFullAccess": _allow(_PAI, _EVERYTHING),
    "AliyunPAIReadOnlyAccess": _allow(_PAI, _READS),
    "AliyunARMSFullAccess": _allow(_ARMS, _EVERYTHING),
    "AliyunARMSReadOnlyAccess": _allow(_ARMS, _READS),
    "JobmeterFullAccess": _allow(_EVERYTHING, _EVERYTHING),
}
"""Documents of the built-in policies by name."""


MOST_BYTES, MOST_STATEMENTS, MOST_POLICIES, MOST_TEXT = 64 * 1024, 100, 20, 512
_SLOTS = 5
_CLUSTER = "cluster/"
_WHOLES = ("project/", "resourcegroup/")


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="pascal"):
    """Statement of a policy. A condition or a negated form is refused rather than ignored."""

    effect: Literal["Allow", "Deny"]
    action: str | list[str]
    resource: str | list[str]


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="pascal"):
    """Document of a policy."""

    version: Literal["1"]
    statement: list[Statement]


class Attached(msgspec.Struct, frozen=True, omit_defaults=True):
    """Attached policy of a key: its name, and its document unless it is a system policy."""

    name: str
    document: Mapping[str, Any] | None = None


class Resource(msgspec.Struct, frozen=True):
    """Resource pattern ``acs:SERVICE:REGION:ACCOUNT:RELATIVE``; the region is ignored.

    The account is the project. ``literal`` is the project if the pattern matches exactly one whole project.
    """

    service: Glob
    account: Glob
    relative: Glob
    everything: bool
    literal: str | None

    def matches(self, account: str, relatives: Iterable[str]) -> bool:
        """True if the pattern matches a resource, by any of its names."""
        return self.account.matches(account) and any(map(self.relative.matches, relatives))


class Grant(msgspec.Struct, frozen=True):
    """Policies of a key for one operation: the resources on which they allow and deny it.

    Grants with equal patterns are equal, whoever holds them.
    """

    allow: tuple[Resource, ...]
    deny: tuple[Resource, ...]

    @property
    def everything(self) -> bool:
        """True if the operation is allowed on every resource."""
        return not self.deny and any(one.everything for one in self.allow)

    @property
    def whole(self) -> bool:
        """True if no single resource inside a project or a resource group is denied by name."""
        return all(one.relative.text == "*" or one.relative.text.startswith(_WHOLES) for one in self.deny)

    @property
    def clusters(self) -> bool:
        """True if permission depends on the clusters of a resource."""
        return any(_may_mean_clusters(one.relative.text) for one in (*self.allow, *self.deny))

    @property
    def projects(self) -> frozenset[str] | None:
        """Allowed projects if the policies name whole projects only; else None."""
        names = {one.literal for one in self.allow}
        return None if self.deny or None in names else frozenset(name for name in names if name is not None)

    def shows(self, project: str, *relatives: str) -> bool:
        """True if the operation is allowed on a resource of a project with those relative names."""
        names = ("", f"project/{project}", *relatives)
        return any(one.matches(project, names) for one in self.allow) and not any(
            one.matches(project, names) for one in self.deny
        )


class Policies(dict[tuple[str, str], Grant | None]):
    """Policies of a key by (API, operation); None for operations that they do not allow. Filled lazily."""

    def __init__(self, documents: Sequence[Document]) -> None:
        super().__init__()
        self._statements = [
            (
                one.effect,
                [Glob(text.lower()) for text in _texts(one.action)],
                [_resource(text) for text in _texts(one.resource)],
            )
            for document in documents
            for one in document.statement
        ]

    def __missing__(self, key: tuple[str, str]) -> Grant | None:
        names = [name.lower() for name in list_action_names(*key)]
        services = list_services(key[0])
        found: dict[str, list[Resource]] = {"Allow": [], "Deny": []}
        for effect, actions, resources in self._statements:
            if any(action.matches(name) for action in actions for name in names):
                found[effect] += [one for one in resources if any(map(one.service.matches, services))]
        grant = None
        if found["Allow"] and not any(one.everything for one in found["Deny"]):
            grant = Grant(tuple(found["Allow"]), tuple(found["Deny"]))
        self[key] = grant
        return grant


def read_document(content: bytes, field: str = "policy") -> Document:
    """Parse a policy's document. Raises InvalidRequestError describing the fault."""
    if len(content) > MOST_BYTES:
        raise InvalidRequestError(f"a policy may have at most {MOST_BYTES} bytes", field)
    try:
        document = msgspec.json.decode(content, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the policy is not valid: {error}", field) from error
    if not 1 <= len(document.statement) <= MOST_STATEMENTS:
        raise InvalidRequestError(f"a policy has 1 to {MOST_STATEMENTS} statements", field)
    for statement in document.statement:
        actions, resources = _texts(statement.action), _texts(statement.resource)
        if not actions or not resources or any(not text or len(text) > MOST_TEXT for text in (*actions, *resources)):
            raise InvalidRequestError(f"an Action or Resource is a text of 1 to {MOST_TEXT} characters", field)
        for text in resources:
            _check(text, field)
    return document


def encode_policies(policies: Iterable[tuple[str, bytes | None]], field: str = "policy") -> str:
    """Encode policies for storage, by name with document bytes, or without for a system policy.

    Raises InvalidRequestError naming ``field``, in which ``{}`` is replaced by the index of the policy, from 0.
    """
    given = list(policies)
    if len(given) > MOST_POLICIES:
        raise InvalidRequestError(f"a key may have at most {MOST_POLICIES} policies", field.partition("[")[0])
    found: list[Attached] = []
    for place, (name, content) in enumerate(given):
        where = field.format(place)
        if content is None and name not in SYSTEM_POLICIES:
            raise InvalidRequestError(
                f"unknown policy {name[:100]!r}: give its document, or use one of {', '.join(SYSTEM_POLICIES)}",
                where,
            )
        if content is not None:
            read_document(content, where)
        found.append(Attached(name[:100], None if content is None else json.loads(content)))
    return msgspec.json.encode(found).decode() if found else ""


def decode_documents(text: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Decode a key's stored policies by name, with documents. An unknown name allows nothing."""
    if not text:
        return []
    return [
        (one.name, one.document if one.document is not None else SYSTEM_POLICIES.get(one.name, _NOTHING))
        for one in msgspec.json.decode(text, type=list[Attached])
    ]


def compile_policies(text: str) -> Policies | None:
    """Compile a key's policies; None for a key without any, which only its role limits."""
    found = decode_documents(text)
    return Policies([msgspec.convert(document, Document) for _, document in found]) if found else None


_NOTHING: Mapping[str, Any] = {"Version": "1", "Statement": []}


def _texts(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _may_mean_clusters(relative: str) -> bool:
    begin = re.split(r"[*?]", relative, maxsplit=1)[0]
    return relative != "*" and (begin.startswith(_CLUSTER) or _CLUSTER.startswith(begin))


def _check(text: str, field: str) -> None:
    if text != "*" and (len(text.split(":", _SLOTS - 1)) != _SLOTS or text.split(":", 1)[0] not in {"acs", "*"}):
        raise InvalidRequestError(f"resource {text[:100]!r} is not * or acs:SERVICE:REGION:ACCOUNT:RELATIVE", field)


def _resource(text: str) -> Resource:
    _, service, _, account, relative = ("*",) * _SLOTS if text == "*" else text.split(":", _SLOTS - 1)
    everything = account == relative == "*"
    literal = None
    if relative == "*" and not set(account) & set("*?"):
        literal = account
    elif account == "*" and relative.startswith("project/") and not set(relative) & set("*?"):
        literal = relative.removeprefix("project/")
    return Resource(Glob(service), Glob(account), Glob(relative), everything, literal)
