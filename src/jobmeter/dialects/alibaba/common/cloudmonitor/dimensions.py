"""Dimensions: the jobs, pods and cards of a request."""

from typing import Any

import msgspec

from jobmeter.errors import InvalidRequestError

MOST = 50
"""Most resources of one query, as CloudMonitor documents it."""
FIELD = "Dimensions"


class MonitoredResource(msgspec.Struct, frozen=True, kw_only=True):
    """A member of Dimensions. Empty parts match everything; ``user`` and ``region`` are returned unchanged."""

    job: str = ""
    pod: str = ""
    card: str = ""
    workspace: str = ""
    user: str = ""
    region: str = ""

    def covers(self, pod: str, card: str) -> bool:
        """Return True if this member includes the card of the pod."""
        return self.pod in {"", pod} and self.card in {"", card}


def read(text: str, job: str = "") -> tuple[MonitoredResource, ...]:
    """Parse a JSON object, or an array of objects; ``job`` is the job of members that name none."""
    members = _members(text) if text else [{}]
    if not 1 <= len(members) <= MOST:
        raise InvalidRequestError(f"{FIELD} may name 1 to {MOST} resources, these are {len(members)}", FIELD)
    return tuple(_resource(member, job) for member in members)


def name_card(device: str) -> str:
    """Return the vendor's name of a device: ``0`` for ``gpu0``."""
    return device.lstrip("abcdefghijklmnopqrstuvwxyz") or device


def _members(text: str) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(text if text.lstrip().startswith("[") else f"[{text}]", type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidRequestError(f"{FIELD} is neither a JSON object nor an array of them", FIELD) from error


def _resource(member: dict[str, Any], job: str) -> MonitoredResource:
    def part(*names: str) -> str:
        found = next((member[name] for name in names if member.get(name) not in {None, ""}), "")
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()

    for name, value in member.items():
        if not isinstance(value, str | int | None):
            raise InvalidRequestError(f"{FIELD}: {name[:64]} is not a text", FIELD)
    named = part("jobId")
    if job and named not in {"", job}:
        raise InvalidRequestError(f"{FIELD} names job {named[:128]!r}, JobId names {job[:128]!r}", FIELD)
    return MonitoredResource(
        job=named or job,
        pod=part("pod", "podId"),
        card=name_card(part("gpu", "gpuId")),
        workspace=part("workspaceId"),
        user=part("userId"),
        region=part("regionId"),
    )
