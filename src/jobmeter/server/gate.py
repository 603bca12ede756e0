"""Letting callers in: the credential, the rate, the permission; each refusal leaves an audit line.

The decision itself is made by ``jobmeter.access.decide`` and nowhere else.
"""

from collections.abc import Callable, Sequence

from jobmeter.access.authenticate import Credential
from jobmeter.access.call import Call
from jobmeter.access.decide import authorize
from jobmeter.access.limit import Rate
from jobmeter.access.principal import Principal, Role
from jobmeter.access.scope import Scope
from jobmeter.access.signatures import Scheme
from jobmeter.errors import ForbiddenError, ThrottledError, UnauthenticatedError
from jobmeter.server.services import Services

ANYBODY = Principal(id="", name="", role=Role.READER, project="")
"""Whoever asks what needs no key."""
NOTHING = Scope(frozenset())
"""What they may see of jobs."""


def identified(
    services: Services, call: Call, request_id: str, schemes: Sequence[Scheme], operation: str, *, at_once: bool = False
) -> Credential:
    """The credential that the headers of a call name, its body not read yet.

    Raises UnauthenticatedError. ``at_once``: NotAtOnceError where the registry would have to be asked.
    """
    try:
        return services.authenticator.identify_without_body(call, schemes, at_once=at_once)
    except UnauthenticatedError as error:
        _unauthenticated(services, call, request_id, schemes, operation, error)
        raise


def authenticated(
    services: Services,
    call: Call,
    request_id: str,
    schemes: Sequence[Scheme],
    operation: str,
    rate: Rate | None = None,
    *,
    credential: Credential | None = None,
    at_once: bool = False,
) -> Principal:
    """Who calls; ``credential`` is what was ``identified`` of it before.

    Raises UnauthenticatedError, or ThrottledError when they call ``operation`` too often: by the settings, else by
    ``rate``. ``at_once``: NotAtOnceError, and nothing is counted, where the registry would have to be asked or told.
    """
    authenticator = services.authenticator
    try:
        credential = credential or authenticator.identify(call, schemes, at_once=at_once)
        principal = authenticator.prove(call, credential, at_once=at_once)
    except UnauthenticatedError as error:
        _unauthenticated(services, call, request_id, schemes, operation, error)
        raise
    call.authenticated()
    try:
        services.limiter.take(principal.id, operation, rate)
    except ThrottledError as error:
        services.telemetry.refused("throttled")
        services.audit.refused(error, action=operation, principal=principal, client=call.client, request_id=request_id)
        raise
    return principal


def _unauthenticated(
    services: Services,
    call: Call,
    request_id: str,
    schemes: Sequence[Scheme],
    operation: str,
    error: UnauthenticatedError,
) -> None:
    claimed = services.authenticator.claimed(call, schemes)
    services.telemetry.refused(error.reason)
    services.audit.refused(error, action=operation, claimed=claimed, client=call.client, request_id=request_id)


def within_budget(services: Services, call: Call, request_id: str, principal: Principal, operation: str) -> None:
    """Raises ThrottledError when the caller's questions have cost what those of a key may in a minute."""
    try:
        services.turns.check(principal.id)
    except ThrottledError as error:
        _over_budget(services, call, request_id, principal, operation, error)
        raise


def seated(services: Services, call: Call, request_id: str, principal: Principal, operation: str) -> Callable[[], None]:
    """A seat for a raw export of the caller's; gives what gives it back. Raises ThrottledError when none is free."""
    try:
        return services.exports.take(principal.id)
    except ThrottledError as error:
        _over_budget(services, call, request_id, principal, operation, error)
        raise


def _over_budget(
    services: Services, call: Call, request_id: str, principal: Principal, operation: str, error: ThrottledError
) -> None:
    services.telemetry.refused("budget")
    services.audit.refused(error, action=operation, principal=principal, client=call.client, request_id=request_id)


def allowed(
    services: Services, call: Call, request_id: str, principal: Principal, action: str, project: str | None
) -> Scope:
    """What the caller may see or do. Raises ForbiddenError."""
    try:
        return authorize(principal, action, project)
    except ForbiddenError as error:
        services.telemetry.refused("forbidden")
        services.audit.refused(
            error, action=action, principal=principal, project=project, client=call.client, request_id=request_id
        )
        raise
