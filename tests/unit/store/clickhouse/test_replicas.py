"""Tests of real ClickHouse servers without Keeper as replicas: killed, frozen, emptied, restarted between writes."""

import errno
import os
import random
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError
from tests.store_contract.logs import line_of, read_lines
from tests.store_contract.samples import FOREVER, Samples, batch_of, read_all
from tests.store_contract.slot import Slot
from tests.support.clickhouse import NodeProcess
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_move import Traffic, contents, series_of

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.time import SystemClock
from jobmeter.store.clickhouse import ClickHouseStore, membership, parse_dsn, replica_repair
from jobmeter.store.clickhouse import nodes as nodes_module
from jobmeter.store.clickhouse.membership import NodeMembership
from jobmeter.store.clickhouse.moved_tables import TABLES, EngineTables, TableSlices
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.replica_state import RecordFile
from jobmeter.store.registry import open_store

CLOCK = SystemClock()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_module, "SILENCE_SECONDS", 3)
    monkeypatch.setattr(replica_repair, "SILENCE_SECONDS", 3)
    monkeypatch.setattr(nodes_module, "_PING_SILENCE_SECONDS", 2)
    monkeypatch.setattr(nodes_module, "PING_SECONDS", 0.3)
    monkeypatch.setattr(replica_repair, "REPAIR_SECONDS", 0.1)
    monkeypatch.setattr(replica_repair, "_AGAIN_SECONDS", 0.3)


@pytest.fixture
def database() -> str:
    return f"jobmeter_{secrets.token_hex(4)}"


def address(servers: Sequence[NodeProcess], database: str, options: str = "") -> str:
    hosts = ",".join(f"127.0.0.1:{one.own.http}" for one in servers)
    return f"clickhousedb://{hosts}/{database}{options}"


@contextmanager
def opened(dsn: str, journals: Path | None) -> Iterator[ClickHouseStore]:
    with closing(open_store(dsn, CLOCK, journals)) as store:
        assert isinstance(store, ClickHouseStore)
        yield store


def complete(store: ClickHouseStore) -> list[bool]:
    """Return for each replica True if queries may read it."""
    assert store.replicas is not None
    return [bool(state) for state in store.replicas.list_states().values()]


def await_complete(store: ClickHouseStore) -> None:
    wait_until(lambda: all(complete(store)), "the repair", 60)


def rows_of(server: NodeProcess, database: str) -> dict[str, object]:
    """Return counts and checksums of all tables of one replica."""
    target = parse_dsn(address([server], database))
    with closing(Pool(target, 1)) as pool:
        tables = EngineTables(pool, target)
        return {table.table: sums(tables, table) for table in TABLES}


def sums(tables: EngineTables, table: TableSlices) -> object:
    found = tables.sum_slices(table, list(tables.list_partitions(table)), 0)
    return {partition: slices for partition, slices in found.items() if slices}  # empty parts of deleted rows


def require_alike(servers: Sequence[NodeProcess], database: str) -> None:
    first, second = (rows_of(one, database) for one in servers)
    assert first == second


def write(store: ClickHouseStore, slot: Slot, number: int) -> None:
    """Store a sample, a line and a rolled-up hour."""
    store.append_all((batch_of({(slot.gauge(), slot.start + number): float(number)}),), FOREVER)
    store.logs.append([line_of(slot, number, f"line {number}")], FOREVER)


def require_written(store: ClickHouseStore, slot: Slot, numbers: Sequence[int]) -> None:
    expected = {(slot.gauge(), slot.start + number): float(number) for number in numbers}
    assert read_all(store, [slot.gauge()], slot.span) == expected
    assert [line.text for line in read_lines(store, slot).lines] == [f"line {number}" for number in numbers]


@pytest.mark.parametrize(
    ("journal", "number", "fault"),
    [("on", 0, NodeProcess.killed), ("on", 1, NodeProcess.frozen), ("off", 0, NodeProcess.frozen)],
)
def test_writes_and_answers_go_on_while_a_replica_is_away(
    servers, database, tmp_path, monkeypatch, journal, number, fault
):
    slot = Slot()
    with opened(address(servers, database, f"?journal={journal}"), tmp_path) as store:
        await_complete(store)
        write(store, slot, 0)
        # A wait for a frozen replica may outlast the time in which servers that share an engine confirm themselves.
        monkeypatch.setattr(membership, "FENCE_SECONDS", -1.0)
        with fault(servers[number]):
            write(store, slot, 1)
            store.maintenance.flush()
            require_written(store, slot, [0, 1])
            assert complete(store)[number] is False
            assert complete(store)[1 - number] is True
            write(store, slot, 2)
        await_complete(store)
        require_written(store, slot, [0, 1, 2])
        store.maintenance.flush()
        require_alike(servers, database)


def test_random_writes_beside_faults_are_on_both_replicas_once(servers, database, tmp_path):
    generator = random.Random(int(os.environ.get("REPLICA_SEED", "1")))
    slots = [Slot(), Slot()]
    stored: dict[str, Samples] = {slot.job: {} for slot in slots}
    for _ in range(2):  # the second run starts on the files of the first one
        with opened(address(servers, database), tmp_path) as store:
            traffic = Traffic(store, slots, generator)
            traffic.stored = stored
            await_complete(store)
            for _ in range(int(os.environ.get("REPLICA_FAULTS", "1"))):
                with generator.choice([NodeProcess.killed, NodeProcess.frozen])(generator.choice(servers)):
                    for _ in range(generator.randint(1, 12)):
                        traffic.act()
                for _ in range(generator.randint(1, 6)):  # while the replica is repaired
                    traffic.act()
                await_complete(store)
            if generator.random() < 0.5:
                generator.choice(servers).empty()
                wait_until(lambda: not all(complete(store)))
                traffic.act()
                await_complete(store)
            store.maintenance.flush()
            for slot in slots:
                assert read_all(store, series_of(slot), slot.span) == stored[slot.job]
            found = repr(contents(store, slots))
            with servers[0].killed():
                assert repr(contents(store, slots)) == found  # NaN is not equal to itself
    require_alike(servers, database)


def test_a_deleted_job_does_not_come_back_with_a_replica(servers, database, tmp_path):
    slot, other = Slot(), Slot()
    with opened(address(servers, database), tmp_path) as store:
        await_complete(store)
        for one in (slot, other):
            write(store, one, 0)
        store.maintenance.flush()
        with servers[0].killed():
            store.delete_job(slot.key)
        await_complete(store)
        with servers[1].killed():
            require_written(store, slot, [])
            require_written(store, other, [0])


def test_a_replica_that_lacks_rows_is_read_by_no_later_start(servers, database, tmp_path):
    slot, dsn = Slot(), address(servers, database)
    with opened(dsn, tmp_path) as store:
        await_complete(store)
    with servers[1].killed(), opened(dsn, tmp_path) as store:
        write(store, slot, 0)
    with servers[0].killed():
        with pytest.raises(UnavailableError, match=r"only 127.0.0.1:[0-9]+ has all data .* cannot be reached"):
            open_store(dsn, CLOCK, tmp_path)
        with pytest.raises(ConfigurationError, match="name that host in --store too"):
            open_store(address(servers[1:], database), CLOCK, tmp_path)
    with opened(dsn, tmp_path) as store:
        require_written(store, slot, [0])
        await_complete(store)
    with opened(address(servers[:1], database), tmp_path) as store:  # the first replica is alone from now on
        write(store, slot, 1)
    with pytest.raises(ConfigurationError, match="name that host in --store too"):
        open_store(address(servers[1:], database), CLOCK, tmp_path)


def test_a_server_becomes_one_of_several_with_its_data(servers, database, tmp_path):
    slot = Slot()
    with opened(address(servers[1:], database), tmp_path) as store:
        assert store.replicas is None
        write(store, slot, 0)
    with opened(address(servers, database), tmp_path) as store:
        require_written(store, slot, [0])
        await_complete(store)
        with servers[1].killed():
            require_written(store, slot, [0])


def test_another_data_folder_needs_all_replicas_and_no_other_server(servers, database, tmp_path):
    dsn = address(servers, database)
    with opened(dsn, tmp_path / "first") as store:
        await_complete(store)
        with pytest.raises(UnavailableError, match=r"another server uses these replicas"):
            open_store(dsn, CLOCK, tmp_path / "second")
        write(store, Slot(), 0)
        assert all(complete(store))
    with servers[1].killed(), pytest.raises(UnavailableError, match=r"all replicas .* must be reachable"):
        open_store(dsn, CLOCK, tmp_path / "second")
    with opened(dsn, tmp_path / "second"):
        pass
    with servers[1].killed(), pytest.raises(UnavailableError, match=r"all replicas .* must be reachable"):
        open_store(dsn, CLOCK, tmp_path / "first")


@pytest.mark.parametrize("journal", ["on", "off"])
def test_a_killed_server_starts_again_at_once_and_blocks_other_data_folders(
    servers, database, tmp_path, monkeypatch, journal
):
    slot, dsn = Slot(), address(servers, database, f"?journal={journal}")
    with monkeypatch.context() as patch:
        patch.setattr(NodeMembership, "depart", lambda _: None)
        with opened(dsn, tmp_path / "first") as store:
            write(store, slot, 0)
    with pytest.raises(UnavailableError, match=r"another server uses these replicas"):
        open_store(dsn, CLOCK, tmp_path / "second")
    with opened(dsn, tmp_path / "first") as store:
        require_written(store, slot, [0])


def test_a_server_with_other_data_is_neither_read_nor_changed(servers, database, tmp_path):
    slot = Slot()
    with opened(address(servers[1:], database), tmp_path) as store:
        write(store, slot, 0)
    with servers[0].killed(), pytest.raises(UnavailableError, match=r"all replicas .* must be reachable"):
        open_store(address(servers, database), CLOCK, tmp_path)
    with opened(address(servers[:1], database), tmp_path / "other"):
        pass
    with pytest.raises(ConfigurationError, match="were no replicas until now"):
        open_store(address(servers, database), CLOCK, tmp_path)
    with opened(address(servers[1:], database), tmp_path) as store:
        require_written(store, slot, [0])


def test_a_statement_that_every_replica_refuses_leaves_one_of_them_complete(servers, database, tmp_path):
    with opened(address(servers, database), tmp_path) as store:
        await_complete(store)
        with pytest.raises(ClickHouseError, match="nonsense"), store.maintenance.pool.borrow_client() as client:
            client.command("INSERT INTO progress SELECT nonsense")
        assert sorted(complete(store)) == [False, True]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_part_that_the_disk_of_a_replica_damaged_is_read_from_the_other_one(servers, database, tmp_path, restarts):
    slot = Slot()
    with opened(address(servers, database), tmp_path) as store:
        await_complete(store)
        write(store, slot, 0)
        store.maintenance.flush()
        with store.maintenance.pool.borrow_client() as client:
            sql = "SELECT path FROM system.parts WHERE database = {database:String} AND table = 'samples' AND active"
            ((part,),) = client.query(sql, parameters={"database": database}).result_rows
        if restarts:
            with servers[0].killed():
                (Path(part) / "data.bin").unlink()
        else:
            damage(Path(part) / "data.bin")
        require_written(store, slot, [0])
        wait_until(lambda: not complete(store)[0])
        if restarts:
            await_complete(store)
            with servers[1].killed():
                require_written(store, slot, [0])


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def test_a_backup_is_restored_on_all_replicas(servers, database, tmp_path):
    slot = Slot()
    with opened(address(servers, database), tmp_path / "data") as store:
        write(store, slot, 0)
        await_complete(store)
        store.backup(tmp_path / "copy")
        store.erase()
        store.restore(tmp_path / "copy")
        require_written(store, slot, [0])
        await_complete(store)
        with servers[0].killed():
            require_written(store, slot, [0])


def test_a_record_that_cannot_be_written_refuses_the_statement(servers, database, tmp_path, monkeypatch):
    slot = Slot()
    with opened(address(servers, database), tmp_path) as store:
        await_complete(store)
        with servers[1].killed():
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", refuse)
                with pytest.raises(UnavailableError, match="disk is full"):
                    store.logs.append([line_of(slot, 0, "line 0")], FOREVER)
            write(store, slot, 0)
            assert store.replicas is not None
            assert RecordFile(tmp_path / f"{database}.replicas").read() == store.replicas.record
            require_written(store, slot, [0])


def refuse(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
