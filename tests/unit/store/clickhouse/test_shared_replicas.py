"""Several servers on replicas without Keeper: one leads and writes, the others follow and read."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from tests.store_contract.logs import line_of, read_lines
from tests.store_contract.samples import FOREVER, batch_of, read_all
from tests.store_contract.slot import Slot
from tests.support.clickhouse import NodeProcess
from tests.support.server_group import MemoryServerGroup
from tests.support.waiting import wait_until
from tests.unit.store.clickhouse.test_replicas import CLOCK, _short_waits, address, complete, servers  # noqa: F401

from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.store.clickhouse import ClickHouseStore
from jobmeter.store.registry import open_store


@pytest.fixture
def database() -> str:
    return f"jobmeter_{secrets.token_hex(4)}"


@pytest.fixture
def group() -> MemoryServerGroup:
    return MemoryServerGroup()


@contextmanager
def opened(dsn: str, journals: Path, group: MemoryServerGroup) -> Iterator[ClickHouseStore]:
    with closing(open_store(dsn, CLOCK, journals, peer_listen="127.0.0.1:0", open_group=lambda: group)) as store:
        assert isinstance(store, ClickHouseStore)
        yield store


@pytest.fixture
def pair(servers, database, tmp_path, group) -> Iterator[Sequence[ClickHouseStore]]:  # noqa: F811
    with ExitStack() as stack:
        dsn = address(servers, database)
        yield [stack.enter_context(opened(dsn, tmp_path / name, group)) for name in ("first", "second")]


def role(store: ClickHouseStore) -> str:
    return store.statistics().role


def test_followers_write_by_the_leader_and_read_what_it_wrote(pair):
    first, second = pair
    assert (role(first), role(second)) == ("leads, followers: 1", "follows the leading server")
    slot = Slot()
    for number, store in enumerate((first, second)):
        store.append(batch_of({(slot.gauge(), slot.start + number): float(number)}), FOREVER)
        store.logs.append([line_of(slot, number, f"line {number}")], FOREVER)
    for store in pair:
        assert len(read_all(store, [slot.gauge()], slot.span)) == 2
        assert [line.text for line in read_lines(store, slot).lines] == ["line 0", "line 1"]
    second.delete_job(slot.key)
    for store in pair:
        assert not read_all(store, [slot.gauge()], slot.span)
        assert not read_lines(store, slot).lines
