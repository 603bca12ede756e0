"""Tests on real servers: an upgrade from the previous program's schema, and the distribution of rows over shards."""

from contextlib import contextmanager

import pytest
from tests.store_contract.samples import FOREVER, batch_of, brute_buckets, read_all, stored_buckets
from tests.support.clickhouse import CLUSTER, Node, each_node, node, shards

from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, MINUTE, SystemClock, TimeRange, parse_time
from jobmeter.store.base import Tier
from jobmeter.store.clickhouse import migrate, parse_dsn, pool
from jobmeter.store.clickhouse.migrations import MIGRATIONS
from jobmeter.store.clickhouse.rows import DAYS
from jobmeter.store.registry import open_store

START = parse_time("2026-01-01")
SPAN = TimeRange(START, START + 10 * HOUR)
SERIES = [Series("gpu.power", job=f"job-{number}", replica="worker-0") for number in range(40)]
VALUES = [0.25, -0.0, 3.0, 2.0**40, 2.0**-10, 7.5, -1.25, 0.0] * 30
FIRST = {(SERIES[0], START + at * 15_000): value for at, value in enumerate(VALUES)}


@pytest.fixture(scope="module")
def server():
    with node() as one:
        yield one


@pytest.fixture(scope="module")
def cluster():
    with shards(2) as nodes, each_node(nodes):
        yield nodes


@pytest.fixture(params=["server", "cluster"])
def dsn(request):
    """Return the DSN of an empty database on a server or a cluster."""
    if request.param == "server":
        return f"{request.getfixturevalue('server').dsn}/as_before"
    return f"{request.getfixturevalue('cluster')[0].dsn}/as_before?cluster={CLUSTER}"


@contextmanager
def opened(dsn):
    store = open_store(dsn, SystemClock())
    try:
        yield store
    finally:
        store.close()


def write_as_before(dsn):
    """Write samples and rolled-up hours like the program that had no columns for decimal numbers."""
    target = parse_dsn(dsn)
    first = pool.connect(target, None)
    migrate.create_database(first, target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "MIGRATIONS", MIGRATIONS[:2])
        client = pool.connect(target, target.database)
        assert migrate.migrate(client, target, SystemClock()) == 2
    key, days = (SERIES[0].job_key, SERIES[0].id), (36_500,) * len(DAYS)
    rows = [(*key, time, value, *days) for (_, time), value in FIRST.items()]
    client.insert("samples", rows, ["job", "series", "time", "value", *DAYS])
    for table, step, day_columns in (("minutes", MINUTE, DAYS[1:]), ("hours", HOUR, DAYS[2:])):
        client.command(
            f"INSERT INTO {table} (job, series, time, count, sum, minimum, maximum, first, first_time, last, last_time,"
            f" {', '.join(day_columns)}) SELECT job, series, intDiv(time, {step}) * {step} AS at, count(), sum(value),"
            " min(value), max(value), argMin(value, time), min(time), argMax(value, time), max(time),"
            f" {', '.join(f'max({name})' for name in day_columns)} FROM samples GROUP BY job, series, at"
        )
    client.command(f"INSERT INTO progress VALUES ('done', {START + 3 * HOUR}), ('intent', {START + 3 * HOUR})")
    for one in (client, first):
        one.close()


def assert_stored(store, samples):
    one = [SERIES[0]]
    assert read_all(store, one, SPAN) == samples
    for tier in Tier:
        assert stored_buckets(store, one, SPAN, tier) == brute_buckets(samples, one, SPAN, tier)


def test_a_schema_of_the_program_before_is_brought_up(dsn):
    write_as_before(dsn)
    with opened(dsn) as store:
        assert_stored(store, FIRST)
        assert store.find_rolled_up_ranges((SERIES[0].job_key,), SPAN) != []
        late = {(SERIES[0], START + 7): 0.125, (SERIES[0], START + 15_000): 12.5}
        store.append_all((batch_of(late),), FOREVER)
        store.roll_up(START + 3 * HOUR)
        assert_stored(store, FIRST | late)
    target = parse_dsn(dsn)
    client = pool.connect(target, target.database)
    assert migrate.migrate(client, target, SystemClock()) == 0
    client.close()


def test_each_shard_has_whole_jobs(cluster):
    samples = {(one, START + at * 15_000): float(at) for one in SERIES for at in range(4)}
    with opened(f"{cluster[0].dsn}/spread?cluster={CLUSTER}") as store:
        store.append_all((batch_of(samples),), FOREVER)
        assert read_all(store, SERIES, SPAN) == samples
    first, second = (_jobs(one) for one in cluster)
    assert first
    assert second
    assert first.isdisjoint(second)
    assert first | second == {one.job_key for one in SERIES}


def _jobs(one: Node) -> set[int]:
    """Return the jobs that have samples in a node's own tables."""
    client = pool.connect(parse_dsn(one.dsn), "spread")
    found = {int(row[0]) for row in client.query("SELECT DISTINCT job FROM samples_local").result_rows}
    client.close()
    return found
