"""Poll the server for the jobs of waiting pods."""

import logging
from collections.abc import Callable
from threading import Event, Thread
from urllib.parse import quote

import msgspec

from jobmeter.client.transport import API
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.deliver import Requester
from jobmeter.collect.pods.jobs import PodJobs
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.model.pod import NodePods

_SHORTEST, _LONGEST = 1.0, 10.0
_LAST_SECONDS = 3.0
_log = logging.getLogger(__name__)


class PodPoller:
    """Thread that polls every interval, 1 to 10 s, if pods have unknown jobs.

    It ends if the server has no such endpoint.
    """

    def __init__(self, place: NodeIdentity, connect: Callable[[], Requester], pods: PodJobs, interval_ms: int) -> None:
        self._place = place
        self._connect = connect
        self._pods = pods
        self._seconds = min(max(interval_ms / 1000, _SHORTEST), _LONGEST)
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="pods", daemon=True)
        self._answers = True

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._stopping.set()

    def poll_last(self) -> None:
        """Poll once more if the server answered last time, for at most 3 s. Then stop waiting."""
        if self._answers:
            last = Thread(target=self._try, name="last pods", daemon=True)
            last.start()
            last.join(_LAST_SECONDS)
        self._pods.abandon()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            if not self._try():
                return

    def _try(self) -> bool:
        """Poll once. False if another poll is useless."""
        try:
            self.poll_once()
        except NotFoundError:
            _log.info("the server has no endpoint for pods: pods keep their own names")
            self._answers = False
            self._pods.abandon()
            return False
        except JobmeterError as error:
            _log.debug("polling for pods failed: %s", error.message)
            self._answers = False
        except Exception:  # noqa: BLE001 - the thread has to live
            _log.exception("the server's answer on pods")
        else:
            self._answers = True
        return True

    def poll_once(self) -> int:
        """Poll once. Return the number of requested pods."""
        uids = self._pods.list_unresolved()
        if not uids:
            return 0
        query = f"cluster={quote(self._place.cluster, safe='')}&uid={','.join(uids)}"
        path = f"{API}/nodes/{quote(self._place.node, safe='')}/pods?{query}"
        answer = self._connect().request("GET", path, None, {})
        self._pods.answer(uids, msgspec.json.decode(answer.body, type=NodePods).pods)
        return len(uids)
