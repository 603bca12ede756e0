"""Checks of a node and evidence of its jobs that the server requests."""

from collections.abc import Callable
from urllib.parse import quote

import msgspec

from jobmeter.client.transport import API
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.checks.node import NodeChecks
from jobmeter.collect.checks.processes import check_processes_of
from jobmeter.collect.deliver import Requester
from jobmeter.collect.poller import ServerPoller
from jobmeter.collect.stacks.collect import StackCollector
from jobmeter.errors import ForbiddenError, NotFoundError
from jobmeter.model.task import NodeRequest

_MOST = 8


class _PollAnswer(msgspec.Struct):
    requests: list[NodeRequest] = msgspec.field(default_factory=list, name="asks")


class CheckPoller(ServerPoller):
    """Poller for requested checks and evidence, every interval of 2 to 60 s.

    A check whose result was not delivered runs again at the server's next request. The poller of an agent has
    ``checks`` and answers for every job that it measures. The poller of ``jobmeter run`` has its own ``job``.
    """

    useless = (NotFoundError, ForbiddenError)

    def __init__(
        self,
        place: NodeIdentity,
        connect: Callable[[], Requester],
        checks: NodeChecks | None,
        stacks: StackCollector,
        interval_ms: int,
        job: str = "",
    ) -> None:
        super().__init__("checks", interval_ms, 2.0, 60.0)
        self._place = place
        self._connect = connect
        self._checks = checks
        self._stacks = stacks
        self._job = job

    def poll_once(self) -> int:
        """Poll, answer the requests and send the answers. Return the number of answered tasks."""
        answered = 0
        done: set[str] = set()
        requests = self._poll([])
        while requests and answered < _MOST:
            answers = [answer for request in requests if (answer := self._answer(request)) is not None]
            done.update(request.task for request in requests)
            answered += len(answers)
            if not answers:
                break
            requests = [request for request in self._poll(answers) if request.task not in done]
        return answered

    def _answer(self, request: NodeRequest) -> dict[str, object] | None:
        """Return the answer to a request; None for a job that this process does not measure."""
        if request.job and request.checks:
            members = list(self._stacks.processes(request.job))
            return {"task": request.task, "checks": check_processes_of(members)} if members else None
        if request.job:
            evidence = self._stacks.collect(request.job)
            return None if evidence is None else {"task": request.task, "stacks": evidence}
        # An older server requests the node's checks from `jobmeter run`, too: they are for the agent.
        return {"task": request.task, "checks": self._checks.make(request.checks)} if self._checks else None

    def _poll(self, answers: list[dict[str, object]]) -> list[NodeRequest]:
        path = f"{API}/nodes/{quote(self._place.node, safe='')}/checks"
        content = {"cluster": self._place.cluster, "project": self._place.project, "job": self._job, "answers": answers}
        answer = self._connect().request(
            "POST", path, msgspec.json.encode(content), {"Content-Type": "application/json"}
        )
        return msgspec.json.decode(answer.body, type=_PollAnswer).requests
