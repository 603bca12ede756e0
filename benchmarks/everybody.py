"""Who takes part: Jobmeter, and the peers that are installed."""

from contextlib import ExitStack

from benchmarks.contestant import Contestant
from benchmarks.install import installed
from benchmarks.ours import Jobmeter
from benchmarks.peers import Prometheus, VictoriaMetrics


def peers() -> list[Contestant]:
    """The peers that can be started, not started yet."""
    programs: dict[str, type[Contestant]] = {"victoria-metrics": VictoriaMetrics, "prometheus": Prometheus}
    return [peer() for program, peer in programs.items() if installed(program)]


def started(stack: ExitStack) -> tuple[Jobmeter, list[Contestant]]:
    """Ours, and everybody with ours first, each running until the stack is left."""
    ours = stack.enter_context(Jobmeter())
    return ours, [ours, *(stack.enter_context(peer) for peer in peers())]
