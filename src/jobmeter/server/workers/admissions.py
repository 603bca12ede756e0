"""Nonces, rates and budgets of a worker's own answers: the storage process admits an answer before it is sent."""

from collections.abc import Callable, Mapping
from functools import partial

from jobmeter.access.limit import Rate, RateLimiter
from jobmeter.access.principal import Principal
from jobmeter.model.time import Clock
from jobmeter.server.workers.frames import AdmissionRequest, AdmissionResult
from jobmeter.server.workers.requests import Requests
from jobmeter.store.channel import Channel


class NotedNonces:
    """Notes the signature of the running call, with the interface of ``NonceMemory``. Every signature counts as new."""

    is_alone = True
    """True: the storage process finds out whether other servers accept requests."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the signature: another call begins."""
        self.date_ms: int | None = None
        """Date of the signature; None for a call without a signature."""
        self.access_key_id = self.nonce = ""

    def is_fresh(self, date_ms: int) -> bool:
        """Note the date. True: the storage process compares the date with its memory."""
        self.date_ms = date_ms
        return True

    def remember(self, key: str, nonce: str, date_ms: int) -> bool:
        """Note the nonce. True: the storage process compares the nonce with its memory."""
        self.access_key_id, self.nonce, self.date_ms = key, nonce, date_ms
        return True


class NotedRates(RateLimiter):
    """Notes the operation of the running call if its rate is limited."""

    def __init__(self, clock: Clock, rates: Mapping[str, Rate]) -> None:
        super().__init__(clock, rates)
        self.clear()

    def clear(self) -> None:
        """Forget the operation: another call begins."""
        self.operation = ""
        """Operation with a limited rate; empty without a limit."""
        self.documented: Rate | None = None

    def take(self, key: str, operation: str, documented: Rate | None = None, account: str = "") -> None:  # noqa: ARG002
        """Note the operation. The storage process counts the call."""
        if self.find_rate(operation, documented) is not None:
            self.operation, self.documented = operation, documented


class Admissions:
    """Admission of a worker's answers by the storage process. Belongs to the event loop."""

    def __init__(self, channel: Channel, nonces: NotedNonces, rates: NotedRates) -> None:
        self._nonces, self._rates = nonces, rates
        self._requests = Requests[bool](channel)

    def clear(self) -> None:
        """Forget the notes of the last call: another call begins."""
        self._nonces.clear()
        self._rates.clear()

    def request(
        self, caller: Principal, costs: list[tuple[int, float]] | None
    ) -> Callable[[int], AdmissionRequest] | None:
        """Return the function that makes the request for the running call. None if it has no nonce and no limit.

        ``costs`` are None if no budget limits the call.
        """
        nonces, rates = self._nonces, self._rates
        if nonces.date_ms is None and not rates.operation and costs is None:
            return None
        return partial(
            AdmissionRequest,
            key=caller.id,
            account=caller.account,
            access_key_id=nonces.access_key_id,
            nonce=nonces.nonce,
            date_ms=nonces.date_ms,
            operation=rates.operation,
            rate=rates.documented,
            costs=costs,
        )

    async def admit(self, about: Callable[[int], AdmissionRequest]) -> bool:
        """Send the request, and return the result."""
        return await self._requests.send(about)

    def take(self, found: AdmissionResult) -> None:
        """Take the result of a request."""
        self._requests.take(found.number, found.is_admitted)
