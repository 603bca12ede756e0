"""Poll the server for the jobs of waiting pods."""

from collections.abc import Callable
from threading import Thread
from urllib.parse import quote

import msgspec

from jobmeter.client.transport import API
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.deliver import Requester
from jobmeter.collect.pods.jobs import PodJobs
from jobmeter.collect.poller import ServerPoller
from jobmeter.model.pod import NodePods

_LAST_SECONDS = 3.0


class PodPoller(ServerPoller):
    """Poller for the jobs of pods, every interval of 1 to 10 s. It sends nothing if all jobs are known."""

    def __init__(self, place: NodeIdentity, connect: Callable[[], Requester], pods: PodJobs, interval_ms: int) -> None:
        super().__init__("pods", interval_ms, 1.0, 10.0)
        self._place = place
        self._connect = connect
        self._pods = pods

    def poll_last(self) -> None:
        """Poll once more if the server answered last time, for at most 3 s. Then stop waiting."""
        if self.answers:
            last = Thread(target=self.try_once, name="last pods", daemon=True)
            last.start()
            last.join(_LAST_SECONDS)
        self._pods.abandon()

    def try_once(self) -> bool:
        """Poll once. If another poll is useless, pods keep their own names."""
        if super().try_once():
            return True
        self._pods.abandon()
        return False

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
