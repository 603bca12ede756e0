"""Queries over a day and a month of a whole job, after its roll-ups are written and while its samples arrive."""

import itertools
from collections.abc import Sequence

from benchmarks.agreement import disagreement
from benchmarks.client import drive
from benchmarks.contestant import Contestant, running
from benchmarks.data import Data, utilization
from benchmarks.ours import Jobmeter
from benchmarks.peers import contestants
from benchmarks.plan import Plan
from benchmarks.questions import REPLICAS, Asked, now_ms
from benchmarks.row import Table
from benchmarks.stream import Stream


def day(plan: Plan, table: Table) -> None:
    """Measure 24 hours in steps of 5 minutes, with a line for each replica and then for each GPU."""
    data = utilization(now_ms(), plan.day_hours + 1)
    asked = [Asked(data.job, data.end_ms, plan.day_hours, 300, by) for by in ("replica", "device")]
    with running(contestants()) as everybody:
        _measure(plan, table, "day", everybody, data, asked, "minute")


def month(plan: Plan, table: Table) -> None:
    """Measure 30 days in steps of an hour, with a line for each replica.

    Prometheus is left out, because it has no bulk import.
    """
    data = utilization(now_ms(), plan.month_hours + 1)
    asked = [Asked(data.job, data.end_ms, plan.month_hours, 3600, "replica")]
    with running(contestants(prometheus=False)) as everybody:
        _measure(plan, table, "month", everybody, data, asked, "hour")


def _measure(
    plan: Plan,
    table: Table,
    prefix: str,
    everybody: Sequence[Contestant],
    data: Data,
    questions: Sequence[Asked],
    tier: str,
) -> None:
    for one in everybody:
        one.load(data)
    for one in everybody:
        if isinstance(one, Jobmeter):
            one.wait_for_roll_ups(questions[0], tier)
    with Stream(everybody, data.names(), REPLICAS) as stream:
        for turn in plan.turns(everybody):
            for (place, one), asked in itertools.product(turn, questions):
                with stream.to(place):
                    new = drive(one.port, [one.messages([asked], cached=False)], plan.seconds)
                    again = drive(one.port, [itertools.repeat(one.message(asked))], plan.seconds)
                table.add(f"{prefix}.{asked.by}.uncached", one.name, new.latency.p50)
                table.add(f"{prefix}.{asked.by}.cached", one.name, again.latency.p50)
    for asked in questions:
        lines = data.replicas * (data.gpus if asked.by == "device" else 1)
        table.fail(f"{prefix}.{asked.by}", disagreement(everybody, asked, lines))
        moved = Asked(asked.job, now_ms(), asked.hours, asked.step_s, asked.by)
        table.fail(f"{prefix}.{asked.by}", disagreement(everybody, moved, lines))
