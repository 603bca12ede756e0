"""Stages of a run. Each stage measures a family of rows and starts its own contestants, so any stage can run alone."""

from collections.abc import Callable

from benchmarks.plan import Plan
from benchmarks.row import Table
from benchmarks.stages import (
    agent,
    export,
    findings,
    importing,
    live,
    logs,
    long,
    program,
    promql,
    rest,
    size,
    trace,
    writing,
)

STAGES: dict[str, Callable[[Plan, Table], None]] = {
    "live": live.live,
    "processes": live.processes,
    "loaded": live.loaded,
    "busy": live.busy,
    "day": long.day,
    "month": long.month,
    "promql": promql.promql,
    "import": importing.measure,
    "remote": writing.remote,
    "agents": writing.agents,
    "bodies": writing.bodies,
    "export": export.measure,
    "bytes": size.measure,
    "rest": rest.measure,
    "agent": agent.measure,
    "program": program.measure,
    "logs": logs.measure,
    "findings": findings.measure,
    "trace": trace.measure,
}
"""Function of each stage, by the name with which the keys of its rows begin."""
