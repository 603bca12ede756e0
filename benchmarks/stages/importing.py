"""Bulk import of random two-decimal values, and the first query of the imported samples."""

import time
from collections.abc import Sequence

from benchmarks.agreement import difference, differing
from benchmarks.client import RefusedError, answer
from benchmarks.contestant import Contestant, running
from benchmarks.data import Data, random_values
from benchmarks.ours import Jobmeter
from benchmarks.peers import contestants
from benchmarks.plan import Plan
from benchmarks.questions import Asked, now_ms
from benchmarks.row import Table
from benchmarks.stages.verb import verb_rate


def measure(plan: Plan, table: Table) -> None:
    """Measure the import of days and months of 128 series, each round under a new job name.

    Prometheus is left out, because it has no bulk import.
    """
    with running(contestants(prometheus=False)) as everybody:
        for turn in range(plan.rounds):
            data = random_values(now_ms(), plan.day_hours, f"day-{turn}", turn)
            asked = Asked(data.job, data.end_ms + 1, plan.day_hours, 300, "replica", metric=data.metric)
            _round(table, "import.day", _turned(everybody, turn), data, asked)
        for turn in range(plan.months):
            data = random_values(now_ms(), plan.month_hours, f"month-{turn}", turn)
            asked = Asked(data.job, data.end_ms + 1, plan.month_hours, 3600, "replica", metric=data.metric)
            _round(table, "import.month", _turned(everybody, turn), data, asked)
        for one in everybody:
            if isinstance(one, Jobmeter):
                table.add("import.verb.day", one.name, verb_rate(one, plan.day_hours))
                table.add("import.verb.month", one.name, verb_rate(one, plan.month_hours))


def _turned(everybody: Sequence[Contestant], turn: int) -> Sequence[Contestant]:
    return everybody if turn % 2 == 0 else everybody[::-1]


def _round(table: Table, key: str, everybody: Sequence[Contestant], data: Data, asked: Asked) -> None:
    bodies = list[bytes]()
    for one in everybody:
        table.add(key, one.name, one.load(data))
        request, begin = one.request(one.path(asked)), time.perf_counter()
        try:
            bodies.append(answer(request))
        except RefusedError as error:  # a refused query voids only the row of the query, not that of the import
            table.fail(f"{key}.first", f"{one.name}: {error}")
        else:
            table.add(f"{key}.first", one.name, (time.perf_counter() - begin) * 1000)
    if len(bodies) == len(everybody):
        table.fail(f"{key}.first", _disagreement(everybody, bodies, asked, data.replicas))


def _disagreement(everybody: Sequence[Contestant], bodies: Sequence[bytes], asked: Asked, lines: int) -> str:
    """Return how the first answers disagree and which contestants change their answer when asked again.

    The text is empty when the first answers agree.
    """
    reason = difference(everybody, bodies, asked, lines)
    if not reason:
        return ""
    step = asked.step_s
    changed = [
        one.name
        for one, body in zip(everybody, bodies, strict=True)
        if differing(one.points(body, step), one.points(answer(one.request(one.path(asked))), step))
    ]
    return f"{reason}; asked again, {' and '.join(changed) or 'nobody'} answers otherwise"
