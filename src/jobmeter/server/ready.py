"""Whether a server can do its work: what ``/readyz`` answers.

The registry and the store are each checked by one thread at a time, however many probes come and however long
a database takes: probes that come meanwhile wait for the same answer, two seconds at most.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobmeter.dialects.base import Answer
from jobmeter.errors import UnavailableError
from jobmeter.model.series import NO_JOB
from jobmeter.server.services import Services
from jobmeter.server.work import Lane
from jobmeter.store.base import Selector

if TYPE_CHECKING:
    from concurrent.futures import Future

CHECK_SECONDS = 2.0
"""How long one probe waits for the registry and the store."""
_TEXT = "text/plain; charset=utf-8"
_PROBE = Selector(jobs=(NO_JOB,), metrics=frozenset({"-"}), limit=1)


class Readiness:
    """See the module. Belongs to the event loop's thread."""

    def __init__(self, services: Services) -> None:
        registry, store = services.registry, services.store
        self._store = store
        self._lane = services.lanes.control
        self._checks = (
            _Check("registry", lambda: registry.key_by_token(b"")),
            _Check("telemetry store", lambda: store.find(_PROBE)),
        )

    async def answer(self) -> Answer:
        """200 where both answer, whether or not parts of the store are damaged, which the text says.

        Raises UnavailableError where one does not, or not in time.
        """
        await asyncio.gather(*(check.passed(self._lane) for check in self._checks))
        damaged = Counter(part.table for part in self._store.damaged())
        if not damaged:
            return Answer(200, b"ready\n", content_type=_TEXT)
        counts = ", ".join(f"{count} of {table}" for table, count in sorted(damaged.items()))
        text = f"ready, degraded: damaged parts of the store ({counts}); the server's log says what to do\n"
        return Answer(200, text.encode(), content_type=_TEXT)


class _Check:
    """One question that is under way at most once."""

    def __init__(self, name: str, check: Callable[[], object]) -> None:
        self._name = name
        self._check = check
        self._running: Future[object] | None = None

    async def passed(self, lane: Lane) -> None:
        """Return when the question was answered. Raises UnavailableError after ``CHECK_SECONDS``, or what it raised."""
        if self._running is None or self._running.done():
            self._running = lane.submit(self._check)
        answer = asyncio.wrap_future(self._running)
        done, _ = await asyncio.wait((answer,), timeout=CHECK_SECONDS)
        if not done:
            answer.add_done_callback(_read)
            raise UnavailableError(f"the {self._name} did not answer within {CHECK_SECONDS:g} s")
        answer.result()


def _read(answer: asyncio.Future[object]) -> None:
    """Nobody waits for it any more: what it raised is of no use."""
    if not answer.cancelled():
        answer.exception()
