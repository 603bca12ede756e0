"""Letting callers in: the credential, then the permission; each refusal leaves an audit line.

The decision itself is made by ``jobmeter.access.decide`` and nowhere else.
"""

import logging
from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.decide import authorize
from jobmeter.access.principal import Principal, Role
from jobmeter.access.scope import Scope
from jobmeter.access.signatures import Scheme
from jobmeter.errors import ForbiddenError, UnauthenticatedError
from jobmeter.server.services import Services

_audit = logging.getLogger("jobmeter.audit")

ANYBODY = Principal(id="", name="", role=Role.READER, project="")
"""Whoever asks what needs no key."""
NOTHING = Scope(frozenset())
"""What they may see of jobs."""


def authenticated(services: Services, call: Call, schemes: Sequence[Scheme]) -> Principal:
    """Who calls. Raises UnauthenticatedError."""
    try:
        return services.authenticator.authenticate(call, schemes)
    except UnauthenticatedError as error:
        _refused(services, call, error.reason, "-", "")
        raise


def allowed(services: Services, call: Call, principal: Principal, action: str, project: str | None) -> Scope:
    """What the caller may see or do. Raises ForbiddenError."""
    try:
        return authorize(principal, action, project)
    except ForbiddenError:
        _refused(services, call, "forbidden", principal.id, action)
        raise


def _refused(services: Services, call: Call, reason: str, key: str, action: str) -> None:
    services.telemetry.refused(reason)
    _audit.warning(
        "refused reason=%s key=%s action=%s client=%s method=%s path=%r",
        reason, key, action or "-", call.client or "-", call.method, call.raw_path[:200],
    )  # fmt: skip
