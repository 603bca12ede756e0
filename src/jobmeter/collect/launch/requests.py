"""Answers of ``jobmeter run`` to the server while its command runs: evidence of its ranks on request."""

from collections.abc import Callable, Sequence

from jobmeter.collect.base import Place
from jobmeter.collect.checks.poll import CheckPoller
from jobmeter.collect.deliver import Delivery
from jobmeter.collect.registry import JobCollectors
from jobmeter.collect.stacks.collect import GoneRank, StackCollector


def run_poller(
    place: Place,
    job: str,
    delivery: Delivery,
    collectors: JobCollectors,
    interval_ms: int,
    gone: Callable[[], Sequence[GoneRank]] = lambda: (),
) -> CheckPoller:
    """Return the poller of one run. It uses the connection of ``delivery``, and ``gone`` gives ranks that ended."""
    stacks = StackCollector(collectors.processes_of, lambda _job: gone())
    return CheckPoller(place, lambda: delivery.requester, None, stacks, interval_ms, job)
