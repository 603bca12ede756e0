"""Steps of every request in order, for our own API and every dialect. Only this module decides access.

1. **Route**: the first router that accepts the path returns the handler (``jobmeter.server.edge``).
2. **Authenticate** the credential in the headers. A signature of the whole call is checked once its body is there.
3. **Authorise**: the rate of the key, the project that the call names, the permission, the query budget. Everything
   that ``jobmeter.access.decide`` does not name is denied. Each refusal is counted and written to the audit log.
4. **Admit the body** of an authenticated sender, within its limit and the memory that all requests share.
5. **Run**: from memory on the event loop; when that returns None, on a worker thread of the operation's lane.
6. **Finish**: ``finish`` gets every request once, with its operation, caller, project and outcome.

Steps 2, 3 and 5 try memory first. They return None or False when the registry, a disk or much computing is needed; the
step then runs again on a worker thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from jobmeter.access.authenticate import Credential
from jobmeter.access.call import Call
from jobmeter.access.decide import authorize
from jobmeter.access.limit import Rate
from jobmeter.access.memory import MemoryBudget
from jobmeter.access.principal import Principal, Role, Scope
from jobmeter.access.signatures import Scheme
from jobmeter.dialects.base import Answer
from jobmeter.errors import ForbiddenError, JobmeterError, ThrottledError, UnauthenticatedError
from jobmeter.server.admission import Lane, run_admitted
from jobmeter.server.exchange import ClientGoneError, Exchange, make_request_id
from jobmeter.server.services import Services

_access = logging.getLogger("jobmeter.access")

ANYBODY = Principal(id="", name="", role=Role.READER, project="")
"""Caller of an operation that needs no key."""
NOTHING = Scope(frozenset())
"""Scope of a caller without a key: no jobs."""
WATCH_AFTER_SECONDS = 0.05
"""Run time in seconds after which the server watches for the client's disconnect."""


class RequestSource(Protocol):
    """Origin of a request. ``status`` is the HTTP status of its answer; 0 until there is an answer."""

    request_id: str
    call: Call
    status: int


class Incoming(msgspec.Struct):
    """Origin of a request outside HTTP: a gRPC call or a telnet line."""

    call: Call
    request_id: str = msgspec.field(default_factory=make_request_id)
    status: int = 0


class AccessRule(msgspec.Struct, frozen=True):
    """Access properties of an operation.

    ``name`` is used in limits and logs. ``action`` and ``by_resource`` are for ``jobmeter.access.decide``; without an
    action any caller may use the operation. ``schemes`` are the accepted credentials. ``rate`` is the vendor's rate
    limit, used if the settings have none. With ``is_question`` the call counts against the query budget of its key.
    """

    name: str
    action: str | None
    schemes: Sequence[Scheme]
    rate: Rate | None = None
    is_question: bool = False
    by_resource: bool = False


NO_RULE = AccessRule("", "", ())
"""Rule of a request whose operation is not found yet: it allows nothing."""


class ServedRequest(msgspec.Struct, eq=False):
    """Request and the results of its steps so far.

    ``router`` names the router. ``scope`` is unset until the caller is authorised.
    """

    source: RequestSource
    router: str = ""
    rule: AccessRule = NO_RULE
    credential: Credential | None = None
    principal: Principal = ANYBODY
    project: str | None = None
    scope: Scope | None = None
    error: JobmeterError | None = None

    @property
    def call(self) -> Call:
        """Call as received; its body is empty until it is read."""
        return self.source.call


class Handler(Protocol):
    """Handler of one call to an operation."""

    services: Services
    rule: AccessRule
    lane: Lane
    """Lane whose workers run the operation when memory is not enough."""
    body_bytes: int
    """Largest body as sent. 0: the body is not read."""
    memory_bytes: int
    """Largest body with which ``answer_from_memory`` is tried; -1: never."""

    def find_project(self, call: Call) -> str | None:
        """Return the project that the call names. Raises InvalidRequestError, also for any other parameter."""
        ...

    def answer_from_memory(self, request: ServedRequest) -> Answer | Awaitable[Answer] | None:
        """Answer if memory holds all data, else None. Runs on the event loop's thread, after step 3.

        An awaitable result runs to its end even after the client disconnects. May raise JobmeterError.
        """
        ...

    def work(self, request: ServedRequest) -> Any:  # noqa: ANN401 - what the handler's own send takes
        """Return the result to send, or a question that has to queue. Runs on a worker thread. Raises JobmeterError."""
        ...

    async def send(self, result: Any, exchange: Exchange) -> None:  # noqa: ANN401 - what the handler's own work gives
        """Send the result of ``work``."""
        ...

    def drop(self, result: Any) -> None:  # noqa: ANN401 - what the handler's own work gives
        """Release the result of ``work`` when the client is gone."""
        ...


class PublicHandler(msgspec.Struct, frozen=True):
    """Handler of calls without a key whose body is not read: health, the page, the API description."""

    serve: Callable[[Exchange], Awaitable[None]]


class Router(Protocol):
    """Router of a part of the paths, with its own form of answers and errors."""

    name: str
    """Name in logs and in the server's own metrics."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Prefixes of its paths; empty if it may handle any path."""
        ...

    def route(self, call: Call) -> Handler | PublicHandler | None:
        """Return the handler of the call, whose body is not read yet; None for a path of another router.

        May raise JobmeterError.
        """
        ...

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:
        """Write an error in this router's own form."""
        ...


def answer_from_memory(
    request: ServedRequest, exchange: Exchange, handler: Handler | PublicHandler
) -> Answer | Awaitable[Answer] | None:
    """Run steps 2, 3 and 5 from memory; None when memory is not enough. The body was read or is absent.

    Raises JobmeterError for a refused call.
    """
    if isinstance(handler, PublicHandler):
        return None
    request.rule = handler.rule
    if exchange.body_size > handler.memory_bytes or exchange.call.get_header("content-encoding"):
        return None
    entered = enter(handler.services, request, handler.find_project, from_memory=True)
    return handler.answer_from_memory(request) if entered else None


async def handle(
    request: ServedRequest,
    exchange: Exchange,
    handler: Handler | PublicHandler,
    memory: MemoryBudget,
    answer: Awaitable[Answer] | None,
) -> None:
    """Run steps 2 to 5 of a call that memory did not answer; ``answer`` is the awaitable from ``answer_from_memory``.

    Raises JobmeterError for a refused call, ClientGoneError.
    """
    if isinstance(handler, PublicHandler):
        await _run_while_connected(exchange, handler.serve(exchange))
        return
    found: Answer | Awaitable[Answer] | None = answer
    if exchange.is_body_unread:
        if handler.body_bytes:
            await _read_body(request, exchange, handler, memory)
        found = answer_from_memory(request, exchange, handler)
    if found is None:
        await _run_while_connected(exchange, _run_on_thread(request, exchange, handler))
    else:
        await exchange.reply(found if isinstance(found, Answer) else await found)


def take_arrived_body(
    request: ServedRequest, exchange: Exchange, handler: Handler | PublicHandler, memory: MemoryBudget
) -> bool:
    """Run ``_read_body`` at once for a small body that has arrived. False if ``handle`` has to read the body."""
    if isinstance(handler, PublicHandler) or not exchange.may_have_arrived:
        return False
    request.rule = handler.rule
    most = min(handler.memory_bytes, handler.body_bytes)
    checked = check_headers(handler.services, request, handler.find_project, from_memory=True)
    return checked and exchange.take_arrived_body(most, memory.open_account())


async def _read_body(request: ServedRequest, exchange: Exchange, handler: Handler, memory: MemoryBudget) -> None:
    """Run step 4, and the parts of steps 2 and 3 that need only the headers."""
    services, request.rule = handler.services, handler.rule
    if not check_headers(services, request, handler.find_project, from_memory=True):
        await handler.lane.run(partial(check_headers, services, request, handler.find_project))
    await exchange.read_body(handler.body_bytes, memory.open_account())


class CallCounter(Protocol):
    """Counter of API calls by account."""

    def count(self, account: str, api: str, operation: str, *, failed: bool) -> None:
        """Count a call; see ``UsageMeter.count``."""
        ...


def finish(usage: CallCounter, request: ServedRequest) -> None:
    """Step 6: record the outcome of a request from ``request.source.status`` and ``request.error``.

    Called once for each request, after its answer. Must neither block nor raise.
    """
    failed = request.error is not None or request.source.status >= 400
    if request.principal is not ANYBODY:
        usage.count(request.principal.account, request.router, request.rule.name, failed=failed)
    if _access.isEnabledFor(logging.DEBUG):
        call, status = request.call, request.source.status
        _access.debug("%s %s %s %d %s", call.client, call.method, call.raw_path, status, request.router)


def choose_no_project(_: Call) -> str | None:
    """Return None: the call covers the projects of its key."""
    return None


def check_headers(
    services: Services, request: ServedRequest, project: Callable[[Call], str | None], *, from_memory: bool = False
) -> bool:
    """Authenticate and authorise by the headers alone, once, before the body is read.

    ``from_memory``: returns False, and counts nothing, if the registry has to be read or written. Raises
    UnauthenticatedError, and, unless the credential is a signature of the body, all errors of ``enter``.
    """
    if request.rule.action is None or request.credential is not None:
        return True
    authenticator = services.authenticator
    credential = _authenticate(services, request, from_memory=from_memory)
    if credential is None or (from_memory and not credential.signed and _must_wait(services, request, credential)):
        return False
    try:
        authenticator.check_headers(request.call, credential)
    except UnauthenticatedError as error:
        _note_refusal(services, request, error, error.reason)
        raise
    request.credential = credential
    if not credential.signed:
        _enter(services, request, project)
    return True


def enter(
    services: Services, request: ServedRequest, project: Callable[[Call], str | None], *, from_memory: bool = False
) -> bool:
    """Authenticate and authorise the whole call, once. ``from_memory`` works as in ``check_headers``.

    Raises UnauthenticatedError, ThrottledError (the rate, or the query budget), InvalidRequestError (the parameters,
    checked only for an authenticated caller), ForbiddenError.
    """
    if request.scope is not None:
        return True
    if request.rule.action is not None:
        request.credential = request.credential or _authenticate(services, request, from_memory=from_memory)
        if request.credential is None or (from_memory and _must_wait(services, request, request.credential)):
            return False
    _enter(services, request, project)
    return True


def export_slot(services: Services, request: ServedRequest) -> Callable[[], None]:
    """Acquire one of the slots for raw exports; return the function that releases it. Raises ThrottledError."""
    try:
        return services.exports.take(request.principal.id)
    except ThrottledError as error:
        _note_refusal(services, request, error, "budget")
        raise


def authorise(services: Services, request: ServedRequest, project: str | None) -> Scope:
    """Return the caller's scope. An action that no rule names is denied. Raises ForbiddenError."""
    request.project = project
    rule = request.rule
    try:
        name = (request.router, rule.name)
        return authorize(request.principal, rule.action or "", project, name, by_resource=rule.by_resource)
    except ForbiddenError as error:
        _note_refusal(services, request, error, "forbidden")
        raise


def renew(services: Services, request: ServedRequest) -> None:
    """Authenticate and authorise again during a long answer.

    Raises UnauthenticatedError when the credential has expired, ForbiddenError when the permission was withdrawn or its
    scope changed. A caller that still has a permission can call again.
    """
    rule = request.rule
    if rule.action is None:
        return
    again = ServedRequest(request.source, request.router, rule)
    try:
        again.principal = services.authenticator.renew(request.call, rule.schemes)
    except UnauthenticatedError as error:
        _note_refusal(services, again, error, error.reason)
        raise
    if authorise(services, again, request.project) != request.scope:
        raise ForbiddenError("the access of this key has changed: send the request again")


def _authenticate(services: Services, request: ServedRequest, *, from_memory: bool) -> Credential | None:
    """Check the credential in the headers; None if memory is not enough."""
    authenticator = services.authenticator
    identify = authenticator.find_cached if from_memory else authenticator.identify
    try:
        return identify(request.call, request.rule.schemes)
    except UnauthenticatedError as error:
        _note_refusal(services, request, error, error.reason)
        raise


def _must_wait(services: Services, request: ServedRequest, credential: Credential) -> bool:
    """Return True if the checks of ``_enter`` have to ask the registry."""
    rule = request.rule
    return (
        services.authenticator.must_wait(credential)
        or services.limiter.must_wait(rule.name, rule.rate)
        or (rule.is_question and services.admission.must_wait)
    )


def _enter(services: Services, request: ServedRequest, project: Callable[[Call], str | None]) -> None:
    """Check the credential, the rate, the parameters, the permission and the budget, in this order."""
    rule = request.rule
    if rule.action is None:
        request.project, request.scope = project(request.call), NOTHING
        return
    _prove(services, request)
    scope = authorise(services, request, project(request.call))
    if rule.is_question:
        try:
            services.admission.check(request.principal.id)
        except ThrottledError as error:
            _note_refusal(services, request, error, "budget")
            raise
    request.scope = scope


def _prove(services: Services, request: ServedRequest) -> None:
    rule = request.rule
    if request.credential is None:
        raise UnauthenticatedError("a credential is required", "missing")
    try:
        request.principal = services.authenticator.prove(request.call, request.credential)
    except UnauthenticatedError as error:
        _note_refusal(services, request, error, error.reason)
        raise
    request.call.authenticated()
    try:
        services.limiter.take(request.principal.id, rule.name, rule.rate, request.principal.account)
    except ThrottledError as error:
        _note_refusal(services, request, error, "throttled")
        raise


def _note_refusal(services: Services, request: ServedRequest, error: JobmeterError, reason: str) -> None:
    """Count a refused call and write it to the audit log."""
    rule, call, forbidden = request.rule, request.call, isinstance(error, ForbiddenError)
    stranger = isinstance(error, UnauthenticatedError)
    services.telemetry.count_refused(reason)
    services.audit.write_refusal(
        error,
        action=(rule.action or "") if forbidden else rule.name,
        principal=None if stranger else request.principal,
        claimed=services.authenticator.find_claimed_key(call, rule.schemes) if stranger else "",
        project=request.project if forbidden else None,
        client=call.client,
        request_id=request.source.request_id,
    )


async def _run_on_thread(request: ServedRequest, exchange: Exchange, handler: Handler) -> None:
    services = handler.services

    def work() -> Any:  # noqa: ANN401 - as Handler.work
        enter(services, request, handler.find_project)
        return handler.work(request)

    result = await run_admitted(services.admission, handler.lane, work, handler.drop, exchange.run)
    await handler.send(result, exchange)


async def _run_while_connected(exchange: Exchange, work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((task,), timeout=WATCH_AFTER_SECONDS)
        if not done:
            watcher = asyncio.ensure_future(exchange.wait_for_disconnect())
            try:
                await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
            finally:
                watcher.cancel()
        if not task.done():
            raise ClientGoneError
        task.result()
    finally:
        task.cancel()
