"""Tests of killed or frozen shards and replicas: no row is lost or doubled, and no answer silently lacks rows."""

import os
import random
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from tests.store_contract.logs import line_of, read_lines
from tests.store_contract.samples import FOREVER, Samples, batch_of, read_all
from tests.store_contract.slot import Slot
from tests.store_contract.spans import span_of
from tests.support.clickhouse import NodeProcess
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_move import Traffic, contents, series_of
from tests.unit.store.shards.support import CLOCK, address, await_complete, new_database, opened, slot_on

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.series import NamePart, Series
from jobmeter.model.trace_filter import TraceFilter
from jobmeter.store.base import ReadBudget, SeriesSelector
from jobmeter.store.clickhouse import ClickHouseStore, replica_repair
from jobmeter.store.clickhouse import nodes as nodes_module
from jobmeter.store.registry import open_store
from jobmeter.store.shards.away import may_lack
from jobmeter.store.shards.shard import ShardOpening

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_module, "SILENCE_SECONDS", 3)
    monkeypatch.setattr(replica_repair, "SILENCE_SECONDS", 3)
    monkeypatch.setattr(nodes_module, "_PING_SILENCE_SECONDS", 2)
    monkeypatch.setattr(nodes_module, "PING_SECONDS", 0.3)
    monkeypatch.setattr(replica_repair, "REPAIR_SECONDS", 0.1)
    monkeypatch.setattr(replica_repair, "_AGAIN_SECONDS", 0.3)
    monkeypatch.setattr(ShardOpening, "SECONDS", 0.2)


def test_random_writes_beside_faults_are_stored_once(servers, tmp_path):
    generator = random.Random(int(os.environ.get("SHARD_SEED", "1")))
    slots = [slot_on(0), slot_on(1)]
    dsn = address(servers, new_database(), 2)
    stored: dict[str, Samples] = {slot.job: {} for slot in slots}
    for _ in range(2):  # the second run starts on the files of the first one
        with opened(dsn, tmp_path) as store:
            traffic = Traffic(store, slots, generator)
            traffic.stored = stored
            await_complete(store)
            for _ in range(int(os.environ.get("SHARD_FAULTS", "1"))):
                with ExitStack() as faults:
                    for pair in (servers[:2], servers[2:]):  # one replica of each shard at once
                        fault = generator.choice([NodeProcess.killed, NodeProcess.frozen])
                        faults.enter_context(fault(generator.choice(pair)))
                    for _ in range(generator.randint(1, 12)):
                        traffic.act()
                for _ in range(generator.randint(1, 6)):  # while the replicas are repaired
                    traffic.act()
                await_complete(store)
            for slot in slots:
                assert read_all(store, series_of(slot), slot.span) == stored[slot.job]
            found = repr(contents(store, slots))
            with servers[0].killed(), servers[2].killed():
                assert repr(contents(store, slots)) == found  # NaN is not equal to itself


def write(store, slot, number):
    store.append_all((batch_of({(slot.gauge(), slot.start + number): float(number)}),), FOREVER)


def node_series(node: str, count: int = 8) -> list[Series]:
    return [Series(f"host.metric{number}", node=node, cluster="main") for number in range(count)]


def kill(servers: Sequence[NodeProcess], faults: ExitStack) -> None:
    for server in servers:
        faults.enter_context(server.killed())


def test_a_shard_that_is_away_leaves_the_jobs_of_the_others_alone(servers, tmp_path):
    here, gone = slot_on(0), slot_on(1)
    budget = ReadBudget()
    with opened(address(servers, new_database(), 2), tmp_path) as store:
        for slot in (here, gone):
            write(store, slot, 0)
            store.logs.append([line_of(slot, 0, "line 0")], FOREVER)
        series = node_series("n1")
        own = SampleBatch(series, *columns(len(series), here.start))
        store.append_all((own,), FOREVER)
        await_complete(store)
        with ExitStack() as faults:
            kill(servers[2:], faults)
            wait_until(store.list_damaged)
            write(store, here, 1)
            assert read_all(store, [here.gauge()], here.span) == {
                (here.gauge(), here.start + number): float(number) for number in (0, 1)
            }
            assert [line.text for line in read_lines(store, here).lines] == ["line 0"]
            assert store.read_last_times([here.key]) == {here.key: (here.start, here.start + 1)}
            write(store, gone, 1)  # into the journal
            both = SeriesSelector(jobs=(here.key, gone.key))
            refused = [
                lambda: read_all(store, [gone.gauge()], gone.span),
                lambda: read_all(store, [here.gauge(), gone.gauge()], here.span),
                lambda: read_lines(store, gone),
                lambda: store.logs.append([line_of(gone, 1, "line 1")], FOREVER),
                lambda: store.find(both),
                lambda: store.find(SeriesSelector(nodes=(("main", "n1"),))),
                lambda: store.list_names(SeriesSelector(), NamePart.JOB),
                lambda: store.read_last_times([here.key, gone.key]),
                lambda: store.spans.list_traces(TraceFilter(), budget),
                lambda: store.delete_job(here.key),
                lambda: store.roll_up(here.start),
            ]
            for ask in refused:
                with pytest.raises(UnavailableError, match=r"shard 2 of 2 .* do not answer") as caught:
                    ask()
                assert caught.value.retry_after_ms
            with may_lack(store.list_damaged()) as missing:
                assert store.find(SeriesSelector(jobs=(here.key,))) == [here.gauge()]
                assert not missing.left_out
                assert store.find(both) == [here.gauge()]
                assert read_all(store, [here.gauge(), gone.gauge()], here.span).keys() == {
                    (here.gauge(), here.start),
                    (here.gauge(), here.start + 1),
                }
                with pytest.raises(UnavailableError):  # an answer that would lack all data
                    store.find(SeriesSelector(jobs=(gone.key,)))
            assert [part.summary for part in missing.left_out.values()] == ["shards 2 of 2 (its servers do not answer)"]
            assert store.read_statistics().shards == {"1": 1, "2": 0}
            with may_lack([]), pytest.raises(UnavailableError):  # the shard went away after the answer had begun
                store.find(both)
        await_complete(store)
        assert read_all(store, [gone.gauge()], gone.span) == {
            (gone.gauge(), gone.start + number): float(number) for number in (0, 1)
        }
        assert {one.metric for one in store.find(SeriesSelector(nodes=(("main", "n1"),)))} == {
            one.metric for one in series
        }


def columns(count, start):
    batch = batch_of({(Series(f"m{number}"), start): 1.0 for number in range(count)})
    return batch.index, batch.time, batch.value


def test_a_server_starts_without_a_shard_that_is_away(servers, tmp_path):
    here, gone = slot_on(0), slot_on(1)
    dsn = address(servers, new_database(), 2)
    with ExitStack() as faults:
        kill(servers[2:], faults)
        with pytest.raises(UnavailableError):
            open_store(dsn, CLOCK, tmp_path)  # the first start needs every shard
    with opened(dsn, tmp_path) as store:
        await_complete(store)
        for slot in (here, gone):
            write(store, slot, 0)
    faults = ExitStack()
    kill(servers[2:], faults)
    with faults, opened(dsn, tmp_path) as store:
        write(store, here, 1)
        with pytest.raises(UnavailableError, match="shard 2 of 2"):
            write(store, gone, 1)
        assert store.read_statistics().shards == {"1": 1, "2": 0}
        faults.close()
        await_complete(store)
        write(store, gone, 1)
        for slot in (here, gone):
            assert read_all(store, [slot.gauge()], slot.span).keys() == {
                (slot.gauge(), slot.start),
                (slot.gauge(), slot.start + 1),
            }


def test_servers_in_another_order_are_refused(servers, tmp_path):
    database = new_database()
    with opened(address(servers, database, 2), tmp_path) as store:
        write(store, Slot(), 0)
        store.spans.append([span_of(Slot(), 1)], FOREVER)
        await_complete(store)
    for order, shards, says in [
        ([2, 3, 0, 1], 2, "is shard 2 of its store, and --store names it as shard 1"),
        ([0, 2, 1, 3], 2, "is shard 2 of its store, and --store names it as shard 1"),
        ([0, 1], 1, "is shard 1 of 2: name the hosts of all shards"),
        ([2, 3], 1, "is shard 2 of its store, and --store names it as shard 1"),
        ([0, 1, 2, 3], 1, "is shard 2 of its store, and --store names it as shard 1"),
        ([0, 1, 2, 3], 4, "is shard 1 of its store, and --store names it as shard 2"),
    ]:
        for folder in (tmp_path, tmp_path / "other"):
            with pytest.raises(ConfigurationError, match=says):
                open_store(address([servers[number] for number in order], database, shards), CLOCK, folder)
    with opened(address(servers, database, 2), tmp_path) as store:
        await_complete(store)


def test_a_backup_of_all_shards_is_restored(servers, tmp_path):
    slots = [slot_on(0), slot_on(1)]
    with opened(address(servers, new_database(), 2), tmp_path / "data") as store:
        for slot in slots:
            write(store, slot, 0)
        await_complete(store)
        store.backup(tmp_path / "copy")
        for shard in store.shards:
            assert isinstance(shard.engine, ClickHouseStore)
            shard.engine.erase()
        store.restore(tmp_path / "copy")
        for slot in slots:
            assert read_all(store, [slot.gauge()], slot.span) == {(slot.gauge(), slot.start): 0.0}
        await_complete(store)
