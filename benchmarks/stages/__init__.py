"""The parts of a run. Each starts its own contestants, so that any of them can be run alone."""

from collections.abc import Callable

from benchmarks.plan import Plan
from benchmarks.row import Row
from benchmarks.stages import agents, asking, importing, remote, trace

STAGES: dict[str, Callable[[Plan], list[Row]]] = {
    "asking": asking.rows,
    "importing": importing.rows,
    "agents": agents.rows,
    "remote": remote.rows,
    "trace": trace.rows,
}
"""By the name that ``--only`` takes."""
