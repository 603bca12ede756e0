"""Tests of the servers and the replicas of stores in PostgreSQL."""

import threading
from collections.abc import Iterator

import pytest

from jobmeter.model.server_group import StoredReplicas, StoredServer
from jobmeter.registry.server_group import ServerGroupTable, open_server_group


@pytest.fixture
def group(postgresql_url) -> Iterator[ServerGroupTable]:
    group = open_server_group(postgresql_url)
    assert group is not None
    yield group
    group.close()


def test_a_row_has_the_highest_state_and_the_newest_content(group):
    assert group.read_state("a", 7) == 0
    for state, beat, content in ((0, 1, b"first"), (1, 3, b"third"), (0, 2, b"second"), (0, 4, b"fourth")):
        group.write_server("a", StoredServer(7, state, beat, content), 5)
    assert group.read_servers("a", 2) == [StoredServer(7, 1, 4, b"fourth")]
    assert group.read_servers("b", 2) == group.read_servers("a", 1) == []
    group.write_server("a", StoredServer(7, 2, 4, b"gone"), 6)
    assert group.read_state("a", 7) == 2
    assert group.read_servers("a", 2) == []
    group.forget_servers("a", 2, 6)
    assert group.read_state("a", 7) == 2
    group.forget_servers("a", 2, 7)
    assert group.read_state("a", 7) == 0


def test_only_the_writer_of_the_replicas_replaces_their_record_and_only_by_a_later_one(group):
    assert group.read_replicas("a") is None
    first, second = StoredReplicas(1, "one", b"1"), StoredReplicas(2, "two", b"2")
    assert group.create_replicas("a", first)
    assert not group.create_replicas("a", second)
    assert not group.replace_replicas("a", second, "two")
    assert not group.replace_replicas("a", StoredReplicas(1, "one", b"x"), "one")
    assert not group.replace_replicas("b", second, "one")
    assert group.read_replicas("a") == first
    assert group.replace_replicas("a", second, "one")
    assert not group.replace_replicas("a", StoredReplicas(3, "one", b"3"), "one")
    assert group.read_replicas("a") == second


def test_one_block_at_a_time_is_locked(group):
    order: list[str] = []

    def wait() -> None:
        with group.lock("a"):
            order.append("second")

    thread = threading.Thread(target=wait)
    with group.lock("a"):
        thread.start()
        with group.lock("b"):
            order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_registry_of_a_single_server_has_no_group(tmp_path):
    assert open_server_group(f"sqlite:///{tmp_path}/registry.db") is None
