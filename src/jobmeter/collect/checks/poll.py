"""Poll the server for checks of this node, run them, and send their results."""

import logging
from collections.abc import Callable
from threading import Event, Thread
from urllib.parse import quote

import msgspec

from jobmeter.client.transport import API
from jobmeter.collect.base import Place
from jobmeter.collect.checks.node import NodeChecks
from jobmeter.collect.deliver import Requester
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.model.task import NodeRequest

_log = logging.getLogger(__name__)
_SHORTEST, _LONGEST = 2.0, 60.0
_MOST = 8


class _PollAnswer(msgspec.Struct):
    requests: list[NodeRequest] = msgspec.field(default_factory=list, name="asks")


class CheckPoller:
    """Thread that polls every interval, 2 s to a minute. It stops if the server has no such endpoint.

    A check whose result was not delivered runs again when the server requests it again.
    """

    def __init__(self, place: Place, connect: Callable[[], Requester], checks: NodeChecks, interval_ms: int) -> None:
        self._place = place
        self._connect = connect
        self._checks = checks
        self._seconds = min(max(interval_ms / 1000, _SHORTEST), _LONGEST)
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="checks", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling; a running check is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        while True:
            try:
                self.poll_once()
            except NotFoundError:
                _log.info("the server has no diagnostic checks: polling stopped")
                return
            except JobmeterError as error:
                _log.debug("polling for checks failed: %s", error.message)
            except Exception:  # noqa: BLE001 - the thread has to live
                _log.exception("checks failed")
            if self._stopping.wait(self._seconds):
                return

    def poll_once(self) -> int:
        """Poll once, run the checks and send their results. Returns the number of answered tasks."""
        answered = 0
        requests = self._poll([])
        while requests and answered < _MOST:
            answers: list[dict[str, object]] = [
                {"task": request.task, "checks": self._checks.make(request.checks)} for request in requests
            ]
            answered += len(answers)
            done = {request.task for request in requests}
            requests = [request for request in self._poll(answers) if request.task not in done]
        return answered

    def _poll(self, answers: list[dict[str, object]]) -> list[NodeRequest]:
        path = f"{API}/nodes/{quote(self._place.node, safe='')}/checks"
        body = msgspec.json.encode({"cluster": self._place.cluster, "answers": answers})
        answer = self._connect().request("POST", path, body, {"Content-Type": "application/json"})
        return msgspec.json.decode(answer.body, type=_PollAnswer).requests
