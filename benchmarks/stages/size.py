"""Size on disk of random two-decimal values, which no codec compresses well."""

from benchmarks.contestant import running, settled
from benchmarks.data import random_values
from benchmarks.ours import Jobmeter
from benchmarks.peers import contestants
from benchmarks.plan import Plan
from benchmarks.questions import Asked, now_ms
from benchmarks.row import Table


def measure(plan: Plan, table: Table) -> None:
    """Measure the bytes of several days of 128 series, after the samples are in files, merged and rolled up.

    Prometheus is left out, because it has samples of this age only in its write-ahead log.
    """
    with running(contestants(prometheus=False)) as everybody:
        count, asked = 0, Asked("", 0, 0, 300, "replica")
        for turn in range(plan.rounds):
            data = random_values(now_ms(), plan.day_hours, f"size-{turn}", turn)
            asked = Asked(data.job, data.end_ms, plan.day_hours, 300, "replica", metric=data.metric)
            count += data.samples
            for one in everybody:
                one.load(data)
        for one in everybody:
            if isinstance(one, Jobmeter):
                one.wait_for_roll_ups(asked, "minute")
        sizes = settled(dict.fromkeys(everybody, count))
        for one in everybody:
            if one.name in sizes:
                table.add("bytes.raw", one.name, sizes[one.name] / count)
                table.add("bytes.folder", one.name, one.disk() / count)
            else:
                table.fail("bytes.", f"{one.name} has not written its samples to files in time")
            if isinstance(one, Jobmeter):
                for tier in ("minutes", "hours"):
                    table.add(f"bytes.{tier}", one.name, one.status()["bytes"][tier] / count)
